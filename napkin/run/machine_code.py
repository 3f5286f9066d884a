"""Machine code that reads what nothing wrote: a mistake of the assembler, found in its output.

Only uniform registers are looked at, of which a warp has one value, such as the addresses of matrix
products: threads may differ in which paths they took, and a register that is read on one path and
written on another is none of the assembler's mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_LINE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;", re.MULTILINE)
_TARGET = re.compile(r"\b(?:BRA|CALL)\S*\s.*?\b0x([0-9a-f]+)")
_REGISTER = re.compile(r"\bUR(\d+)\b")
_PREDICATE = re.compile(r"!?U?P(?:\d|T)")

Instruction = tuple[int, str]
"""Its address, and its text."""


def instructions(listing: str) -> list[Instruction]:
    """The instructions of a cubin with one kernel, in order, as `cuobjdump --dump-sass` lists
    them."""
    return [(int(at, 16), text) for at, text in _LINE.findall(listing)]


def unwritten(code: Sequence[Instruction]) -> list[str]:
    """The instructions that compute with a uniform register which no path to them writes; copies,
    as spilling is, do no harm by themselves."""
    place = {at: i for i, (at, _) in enumerate(code)}
    moves = [_moved(text) for _, text in code]
    written = {0: frozenset[int]()} if code else {}
    waiting = list(written)
    while waiting:
        i = waiting.pop()
        after = written[i] | moves[i][0]
        for j in _next(code, i, place):
            known = written.get(j)
            if known is None or not after <= known:
                written[j] = after | (known or frozenset())
                waiting.append(j)
    return [code[i][1] for i in sorted(written) if moves[i][1] - written[i]]


def _next(code: Sequence[Instruction], i: int, place: dict[int, int]) -> list[int]:
    """What may run after an instruction."""
    text = code[i][1]
    found = _TARGET.search(text)
    out = [place[int(found[1], 16)]] if found and int(found[1], 16) in place else []
    ends = re.search(r"\b(EXIT|RET|BRA)\b", text) is not None
    if i + 1 < len(code) and (not ends or text.startswith("@") or re.search(r"\bU?P\d,", text)):
        out.append(i + 1)
    return out


def _moved(text: str) -> tuple[frozenset[int], frozenset[int]]:
    """The uniform registers that an instruction writes, and those that it reads."""
    op, _, rest = re.sub(r"^@!?U?P\w+\s+", "", text).partition(" ")
    copies = re.match(r"U?MOV\b", op) is not None
    # A descriptor is several registers, of which a product with an operand in registers reads half.
    operands = [s.strip() for s in re.sub(r"gdesc\[\w+\]", "", rest).split(",")]
    while operands and _PREDICATE.fullmatch(operands[0]):
        operands.pop(0)
    writes = frozenset[int]()
    if operands and re.fullmatch(r"UR\d+", operands[0]) and not op.startswith("UISETP"):
        first = int(operands.pop(0)[2:])
        width = 4 if ".128" in op else 2 if ".64" in op or "WIDE" in op else 1
        writes = frozenset(range(first, first + width))
    read = () if copies else (int(n) for s in operands for n in _REGISTER.findall(s))
    return writes, frozenset(read)
