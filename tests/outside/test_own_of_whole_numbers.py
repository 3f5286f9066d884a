"""Operators and reductions of a user's own, of whole numbers and of tests, and within a scan."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import napkin as nk

bits = nk.operator(
    "bits", 2, evaluate=lambda xp, a, b: xp.bitwise_xor(a, b), triton="a ^ b", kind="int",
    operands="int",
)  # fmt: skip
unlike = nk.operator(
    "unlike", 2, evaluate=lambda xp, a, b: a ^ b, triton="a ^ b", kind="bool", operands="bool"
)
joined = nk.operator(
    "plainly_joined", 2, evaluate=lambda xp, a, b: a + b, triton="a + b", kind=None
)
upper = nk.operator(
    "upper", 2, evaluate=lambda xp, a, b: xp.maximum(a, b), triton="tl.maximum(a, b)", kind=None
)
all_bits = nk.reduction("all_bits", combine=bits, identity=0)
parity = nk.reduction("parity", combine=unlike, identity=0)
counted = nk.reduction("counted", combine=joined, identity=0)
highest = nk.reduction("highest", combine=upper, identity=-math.inf)


@pytest.mark.parametrize(
    ("how", "kind", "wanted"),
    [
        ("all_bits", "int", lambda x: np.bitwise_xor.reduce(x.astype(int), 1)),
        ("all_bits", "bool", lambda x: x.sum(1) % 2),
        ("parity", "bool", lambda x: x.sum(1) % 2 == 1),
        ("counted", "bool", lambda x: x.sum(1)),
        ("highest", "bool", lambda x: x.max(1, initial=-(2**31))),
        ("highest", "int", lambda x: x.max(1, initial=-(2**31))),
    ],
)
def test_a_reduction_has_the_item_type_of_what_joins_it(how: str, kind: str, wanted: Any) -> None:
    @nk.diagram(f"m x:{kind} -> m, m", sizes={"m": 7, "x": 7})
    def f(X: Any) -> Any:
        return nk.reduce(X, how, over="x"), nk.reduce(X, how, "x", nk.causal("m", "x"))

    x = np.random.default_rng(0).integers(0, 2 if kind == "bool" else 99, (7, 7))
    seen = [wanted(x[i : i + 1, : i + 1])[0] for i in range(7)]
    plan = nk.derive(f, dtype="fp32")
    for found in (f.evaluate(x), plan(x)):
        assert (found[0] == wanted(x)).all()
        assert (found[1] == seen).all()
    assert plan.check(resources=False).ok
    plain = nk.diagram(f"m x:{kind} -> m")(lambda X: nk.reduce(X, how, over="x"))
    assert (plain.evaluate(x[:, :0]) == wanted(x[:, :0])).all()


def test_a_reduction_refuses_what_its_operator_does() -> None:
    with pytest.raises(nk.InputError, match="bits is of whole numbers, and an operand is real"):
        nk.diagram("m x -> m")(lambda X: all_bits(X, over="x"))
    with pytest.raises(nk.InputError, match="unlike joins tests"):
        nk.diagram("m x:int -> m")(lambda X: parity(X, over="x"))


def test_laws_of_whole_numbers_are_executed_at_whole_numbers() -> None:
    less = nk.operator(
        "lessened", 2, evaluate=lambda xp, a, b: a - b, triton="a - b", kind="int", operands="int"
    )
    with pytest.raises(nk.InputError, match=r"combine\(a, b\) = combine\(b, a\) fails at a = 0"):
        nk.reduction("lessening", combine=less, identity=0)


def test_a_step_of_a_scan_has_operators_and_reductions_of_ones_own() -> None:
    @nk.diagram("m t d, m t:int -> m t d, m t", sizes={"m": 3, "t": 5, "d": 2})
    def f(X: Any, W: Any) -> Any:
        h = nk.scan(lambda h: upper(X, h / 2 - highest(h, over="d")), 0.0, along="t", axes="d")
        return h, nk.scan(lambda h: bits(h, W) // 2, 0, along="t")

    rng = np.random.default_rng(1)
    x, whole = rng.normal(size=(3, 5, 2)), rng.integers(0, 999, (3, 5))
    h, i, wanted = np.zeros((3, 2)), np.zeros(3, int), []
    for t in range(5):
        h, i = np.maximum(x[:, t], h / 2 - h.max(1, keepdims=True)), (i ^ whole[:, t]) // 2
        wanted.append((h, i))
    plan = nk.derive(f, dtype="fp32")
    for found in (f.evaluate(x, whole), plan(x, whole)):
        for v, w in zip(found, zip(*wanted, strict=True), strict=True):
            np.testing.assert_allclose(v, np.stack(w, 1), rtol=1e-5)
    assert plan.check(resources=False).ok
