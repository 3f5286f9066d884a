"""Section 5 of arXiv 2412.03317, from a diagram to a Hopper algorithm: facts 30 to 34."""

from __future__ import annotations

import math

from napkin.cost.machines import machine
from napkin.cost.marks import divisors, marks
from napkin.diagram.library import load

MIXED = {"Q": "fp8", "K": "fp8", "V": "fp16", "O": "fp16"}
attention = load("attention").stream("x").group("q").kernel


def test_fact_30_marks_combine_by_lcm() -> None:
    found = marks(attention, machine("h100"), MIXED, "fp16")
    along = {m.divisor for m in found if m.axes == ("d",)}
    # Lines of fp8 and of fp16, the depth of a product in fp8, the columns of one.
    assert along == {128, 64, 32, 8}
    assert divisors(found)["d",] == math.lcm(*along) == 128
    plain = marks(attention, machine("h100"), dict.fromkeys(MIXED, "fp16"), "fp16")
    assert divisors(plain)["d",] == 64
