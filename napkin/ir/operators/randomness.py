"""Random bits as terms: a hash of whole numbers.

numpy, torch, Triton's interpreter and a GPU compute the same bits from the same numbers, so that
what draws a number again, in another kernel or in another tile, draws the same one.
"""

from __future__ import annotations

from typing import Any

from napkin.ir.operators.record import Operator, define, jitted

_WORD, _SIGN = 2**32 - 1, 2**31

_FIRST, _SECOND = 0x21F0AAAD, 0xD35A2D97
"""Of the least biased known function of 32 bits of two products and three shifts: the chance that a
bit of the result turns with a bit of the argument is 1/2 to within 0.1 % (github.com/skeeto/
hash-prospector, `[16 21f0aaad 15 d35a2d97 15]`)."""


def mixed(xp: Any, a: Any, b: Any) -> Any:
    """A hash of two whole numbers, in 32 bits with a sign; of `a` alone, each `b` gives another."""
    h = (xp.asarray(a, int) ^ xp.asarray(b, int)) & _WORD
    for shift, factor in ((16, _FIRST), (15, _SECOND)):
        h = ((h ^ (h >> shift)) * factor) & _WORD
    return ((h ^ (h >> 15)) ^ _SIGN) - _SIGN


BITS = 23
"""Random bits of a number: it and a half more are exact in float32."""


def _high_bits(xp: Any, x: Any) -> Any:
    return (xp.asarray(x, int) & _WORD) >> (32 - BITS)


define(Operator(
    "mixed", 2, mixed, "mixed({0}, {1})", "int", flops=11, functions={"mixed": jitted(
        "mixed",
        "A hash of two whole numbers",
        "h = (a ^ b).to(tl.uint32)",
        f"h = (h ^ (h >> 16)) * {_FIRST:#x}",
        f"h = (h ^ (h >> 15)) * {_SECOND:#x}",
        "return (h ^ (h >> 15)).to(tl.int32)",
    )}, stem="bits",
))  # fmt: skip
define(Operator(
    "high_bits", 1, _high_bits, "high_bits({0})", "int", flops=1,
    sign=lambda n, x: "nonnegative", functions={"high_bits": jitted(
        "high_bits", f"The first {BITS} of 32 bits, as a whole number",
        f"return (x.to(tl.uint32) >> {32 - BITS}).to(tl.int32)", arguments="x",
    )}, stem="bits",
))  # fmt: skip
# One operator: of a product, 2^-23 would leave the sum, and what is left is too large for 16 bits.
define(Operator(
    "fraction", 1, lambda xp, x: (x + 0.5) * 2.0**-BITS, f"({{0}} + 0.5) * {2.0**-BITS!r}", "real",
    sign=lambda n, x: "positive" if x else "", flops=2, stem="draw",
    derivative=lambda op, y, x: 2.0**-BITS,
))  # fmt: skip
