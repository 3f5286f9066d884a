"""Products of two tensors of any storage types, shapes and orders of axes: values and bytes."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import napkin as nk
from napkin.check.verdict import check
from napkin.ir.types import PACKED, STORAGE

TYPES = st.sampled_from(["bf16", "fp32", "fp8", "int8", "uint8", "int4", "uint4"])
ROWS, DEPTHS = st.sampled_from([12, 24, 65]), st.sampled_from([1, 6, 40, 130])


@st.composite
def problems(draw: Any) -> tuple[str, dict[str, int]]:
    """A signature, and sizes that its packed types allow."""
    types = draw(TYPES), draw(TYPES)
    orders = draw(st.sampled_from(["a b", "b a"])), draw(st.sampled_from(["b c", "c b"]))
    sizes = {"a": draw(ROWS), "b": draw(DEPTHS), "c": draw(ROWS)}
    for order, dtype in zip(orders, types, strict=True):
        if dtype in PACKED:
            last = order.split()[-1]
            sizes[last] += sizes[last] % 2
    left, right = (f"{order}:{dtype}" for order, dtype in zip(orders, types, strict=True))
    scaled = draw(st.booleans()) or all(STORAGE[t].kind == "int" for t in types)
    return f"{left}, {right}, {'c:fp32' if scaled else '()'} -> a c", sizes


@given(problem=problems())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_products(problem: tuple[str, dict[str, int]]) -> None:
    signature, sizes = problem

    @nk.diagram(signature, sizes=sizes)
    def product(X: Any, W: Any, scale: Any) -> Any:
        return nk.contract(X, W * scale, over="b")

    check(nk.derive(product), sizes=sizes, resources=False).raise_if_wrong()
