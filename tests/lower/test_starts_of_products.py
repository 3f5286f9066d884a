"""What products start from: a term that has registers of its own, and no other."""

from __future__ import annotations

from typing import Any

import pytest

import napkin as nk

SIZES = {"q": 512, "x": 32, "l": 16, "d": 16}


def source(diagram: nk.Diagram) -> str:
    return nk.derive(diagram, on="h100", sizes=SIZES, materialise=[]).source


@pytest.mark.parametrize("term", ["x", "q x"])
def test_a_product_does_not_start_from_what_a_loop_finds_as_it_was(term: str) -> None:
    """Of a tile with 512 rows, some were wrong: ptxas took what one wgmma had made of the registers
    of the term for the start of the next one (Triton 3.6.0, H200)."""

    @nk.diagram(f"q d, x l d, {term} -> q")
    def largest(Q: Any, K: Any, B: Any) -> Any:
        return nk.reduce(nk.contract(Q, K, over="d") + B, "max", over="x l")

    found = source(largest)
    assert "tl.dot(Q_tile, tl.trans(K_tile), input_precision='ieee')" in found
    assert "tl.fma(Q_K, 1.0, B_tile.to(tl.float32)" in found
    nk.derive(largest, sizes=SIZES, dtype="fp32").check(
        sizes={"q": 33, "x": 17, "l": 5, "d": 16}, resources=False
    ).raise_if_wrong()


def test_a_product_starts_from_what_each_chunk_reads() -> None:
    @nk.diagram("q d, x l d, q x l -> q")
    def largest(Q: Any, K: Any, B: Any) -> Any:
        return nk.reduce(nk.contract(Q, K, over="d") + B, "max", over="x l")

    found = source(largest)
    assert "tl.fma(" not in found
    assert "B_tile.to(tl.float32), input_precision='ieee')" in found


def test_whole_numbers_are_not_added_as_triton_would_start_from_them() -> None:
    @nk.diagram("q d:int8, x l d:int8, x:int -> q")
    def largest(Q: Any, K: Any, B: Any) -> Any:
        return nk.reduce(nk.contract(Q, K, over="d") + B, "max", over="x l")

    found = source(largest)
    assert "- (tl.program_id(1) - B_tile[None, :])" in found
