"""What is added at places: sums under tests of them, whose positions the planner may put in order
first. Drawn from `PLACED` on; places reach past both ends of the axis, and many may be alike."""

from __future__ import annotations

from drawing import Drawing
from programs import Ref


def placed(d: Drawing) -> Ref:
    """Values added at places along one or two axes, in all a program has around them."""
    over = tuple(d.axis() for _ in range(d.rng.choice((1, 1, 2))))
    onto = [d.axis(d.rng.choice((1, 2, 5, 17, 33))) for _ in range(d.rng.choice((1, 1, 1, 2)))]
    beside = tuple(d.axis() for _ in range(d.rng.choice((0, 1, 1, 2))))
    x = d.input((*over, *beside))
    if d.chance(0.3):
        x = d.step("mul", x, d.input(d.some(over, 1, 1)))
    elif d.chance(0.2):
        inner = d.axis()
        x = d.step("contract", d.input((*over, inner)), d.input((inner, *beside)), over=inner)
    for v in onto:
        test = d.step("equal", _places(d, over, beside), d.step("index", over=v, public=False))
        x = d.step("where", test, x, 0.0, public=False)
    left = over if d.chance(0.8) else (*over, *d.some(beside, 0, 1))
    y = d.step("sum", x, over=left)
    if d.chance(0.4):
        return d.step("mul", y, d.input((d.rng.choice(onto),)))
    return y


def _places(d: Drawing, over: tuple[str, ...], beside: tuple[str, ...]) -> Ref:
    """Whole numbers along the axes of positions, or one of them, and sometimes one beside."""
    axes = over if d.chance(0.8) else d.some(over, 1, 1)
    axes = (*axes, *(d.some(beside, 1, 1) if beside and d.chance(0.2) else ()))
    way = d.rng.choice(("given", "given", "found", "looked up", "moved"))
    if way == "found":
        among = d.axis(d.rng.choice((2, 5, 16)))
        most = d.rng.choice(("argmax", "argmin"))
        return d.step(most, d.input((*axes, among)), over=among, public=False)
    at = d.input(axes, "int")
    if way == "looked up":
        row = d.axis(d.rng.choice((3, 8)))
        return d.step("take", d.input((row,), "int"), at, over=row, public=False)
    if way == "moved":
        return d.step("mod", at, d.rng.choice((2, 3, 7)), public=False)
    return at
