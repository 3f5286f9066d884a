"""Readable listings: one line per reduction or named array, pointwise arithmetic in line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from napkin.ir.infer import part_of, parts_of
from napkin.ir.key_sets import spec_of
from napkin.ir.names import numbered
from napkin.ir.node import (
    COMPOSITES,
    LEAVES,
    MOVES,
    REDUCTIONS,
    Node,
    factors,
    names_of,
    over,
    postorder,
    steps_of,
)
from napkin.ir.operators import POINTWISE
from napkin.ir.slots import slots_of
from napkin.ir.taking import take_text

LONGEST = 2000
"""Characters that an expression may have within another."""

_LOOSE = {"add", "sub"}


def assign_names(
    roots: Iterable[Node], names: Mapping[Node, str], taken: Iterable[str] = ()
) -> dict[Node, str]:
    """A distinct name for every array under `roots` that a listing or a kernel gives a line to."""
    used, out = set(taken), dict[Node, str]()
    order = [n for n in postorder(roots) if n.op not in LEAVES - {"input"}]
    for n in order:
        if n.op == "input":
            out[n] = str(n.params[0])
            used.add(out[n])
    for n in order:
        if n not in out and n in names and names[n] not in used:
            out[n] = names[n]
            used.add(out[n])
    for n in order:
        if n in out or n.op == "keys" or (n.op in POINTWISE and n not in names):
            continue
        out[n] = numbered(names.get(n) or stem_of(n), used)
        used.add(out[n])
    return out


def stem_of(n: Node) -> str:
    """What a value is called where nobody named it: by the tensors that it multiplies, or by the
    operator that makes it."""
    parts = factors(n.args[0]) if n.op == "sum" else ()
    if parts and parts[0].op == "exp":
        return "z"
    if len(parts) > 1 and all(p.op == "input" for p in parts):
        return "_".join(str(p.params[0]) for p in parts)
    row = POINTWISE.get(n.op) or REDUCTIONS.get(n.op)
    return (row.stem if row else "") or n.op


def text(n: Node, names: Mapping[Node, str], *, top: bool = True) -> str:
    """`n` as an expression over the named arrays; `top` writes its definition, not its name.

    What is longer than `LONGEST` characters stands as "..." in what is made of it.
    """
    if not top and n in names:
        return names[n]
    done: dict[Node, str] = {}
    for a in postorder(n.args, names):
        short = names[a] if a in names else _expression(a, [done[b] for b in a.args], names)
        done[a] = short if len(short) <= LONGEST else "..."
    return _expression(n, [done[a] for a in n.args], names)


def _expression(n: Node, inner: list[str], names: Mapping[Node, str]) -> str:
    """`n` as an expression over the texts of its arguments."""
    if n.op == "number":
        return f"{n.params[0]:.6g}" if isinstance(n.params[0], float) else str(n.params[0])
    if n.op in LEAVES:
        if n.op == "index":
            return f"index({n.params[0]})"
        return "1" if n.op == "ones" else str(n.params[0])
    if n.op == "rename":
        return f"{inner[0]}.rename({', '.join(f'{a}={b}' for a, b in names_of(n))})"
    if n.op == "keys":
        return spec_of(n).text
    if n.op == "take":
        return take_text(inner, n)
    if n.op in MOVES:
        s = slots_of(n)
        ends = (s.keys, s.slots) if n.op == "compress" else (s.slots, s.keys)
        way = " into ".join(" ".join(axes) for axes in ends)
        return f"{n.op}({inner[0]}, {inner[1]}, {way})"
    if n.op == "scatter":
        return inner[0]
    if len(inner) > 1 and n.op in COMPOSITES:
        along = [" ".join(axes) for _, axes in parts_of(n)]
        each = [f"{t} over {axes}" for t, axes in zip(inner, along, strict=True)]
        which = f"[{part_of(n)}]" if n.op == "softmax" else ""
        return f"{n.op}({', '.join(each)}){which}"
    if n.op == "steps":
        return _scan(n, inner)
    if n.op not in POINTWISE:
        return f"{n.op}({', '.join(inner)}, over {' '.join(over(n))})"
    row = POINTWISE[n.op]
    if row.text is None:
        extra = [str(p) for p in n.params]
        return f"{n.op}({', '.join(inner + extra)})"
    if n.op not in _LOOSE:
        inner = [
            f"({t})" if _binds_looser(a, names, n.op) else t
            for a, t in zip(n.args, inner, strict=True)
        ]
    elif n.op == "sub" and n.args[1].op in _LOOSE and n.args[1] not in names:
        inner = [inner[0], f"({inner[1]})"]
    return row.text.format(*inner)


def state_names(many: int) -> list[str]:
    """What the states of a step are called."""
    return [f"h{i}" for i in range(many)] if many > 1 else ["h"]


def _scan(n: Node, inner: list[str]) -> str:
    """A scan by any step, as it is written."""
    steps = steps_of(n)
    states = state_names(len(steps.made))
    each = {"previous": states, "operand": inner}
    known = {m: each[m.op][i] for m, i in steps.leaves.items()}
    made = ", ".join(known.get(m) or text(m, known) for m in steps.made)
    starts = ", ".join(map(str, steps.starts))
    if len(states) == 1:
        return f"scan(h: {made}, {starts}, along {over(n)[0]})"
    both = f"({made}), ({starts})"
    return f"scan({', '.join(states)}: {both}, along {over(n)[0]})[{steps.which}]"


def _binds_looser(a: Node, names: Mapping[Node, str], outer: str) -> bool:
    if a in names or a.op not in POINTWISE or POINTWISE[a.op].text is None:
        return False
    return a.op != "mul" or outer != "mul"


def _shared(roots: Iterable[Node]) -> list[Node]:
    """Pointwise arrays that are written twice or more."""
    sets = {n for n in postorder(roots) if n.op == "keys"}  # shown by what they are called
    order = [n for n in postorder(roots, sets) if n not in sets]
    uses = Counter(a for n in order for a in n.args)
    return [n for n in order if uses[n] > 1 and n.op in POINTWISE and not n.constant]


def listing(
    title: str, outputs: Iterable[tuple[str, Node, tuple[str, ...]]], names: Mapping[Node, str]
) -> str:
    """The whole diagram as lines `name = expression   [axes]`.

    Arithmetic that is used more than once has a line of its own.
    """
    outputs = tuple(outputs)
    roots = [n for _, n, _ in outputs]
    hints = {**dict.fromkeys(_shared(roots), "t"), **names}
    known = assign_names(roots, hints, taken={name for name, _, _ in outputs})
    lines: list[tuple[str, str]] = []
    result = {n: name for name, n, _ in outputs if n.op != "input"}
    shown = {**known, **result}
    for n in postorder(roots):
        if n in shown and n.op not in LEAVES:
            lines.append((f"{shown[n]} = {text(n, shown)}", " ".join(n.axes) or "()"))
    width = max((len(left) for left, _ in lines), default=0)
    return "\n".join([title, *(f"  {left:<{width}}  [{axes}]" for left, axes in lines)])
