"""Addresses in shared memory: gaps, alignment, and buffers that are never in use together."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from napkin.lower.resources_place import Buffer, placed, placed_bytes, swizzled_alignment


def test_what_is_not_in_use_together_shares_memory() -> None:
    assert placed_bytes([Buffer(0, 1, 64), Buffer(2, 3, 48)]) == 64
    assert placed_bytes([Buffer(0, 2, 64), Buffer(2, 3, 48)]) == 112
    assert placed_bytes([]) == 0
    assert placed_bytes([Buffer(0, 9, 0, 1024)]) == 0


def test_alignment_leaves_gaps() -> None:
    barriers = [Buffer(0, 9, 24), Buffer(0, 9, 24)]
    assert placed_bytes(barriers) == 32 + 24
    assert placed_bytes([Buffer(0, 9, 4096), Buffer(0, 9, 8), Buffer(0, 9, 2048, 1024)]) == 6152


def test_large_buffers_come_first() -> None:
    # The barrier ends up behind the operand, so scratch of its operation starts a new line.
    ring, barrier = Buffer(0, 9, 4096, 1024), Buffer(0, 9, 16)
    assert placed_bytes([barrier, ring]) == 4112
    assert placed_bytes([barrier, ring, Buffer(3, 3, 12, 128, scratch=True)]) == 4224 + 12


def test_order_of_equal_buffers() -> None:
    # Explicit tiles before scratch of the same size, then by their first operation.
    late, early = Buffer(5, 6, 256, 16), Buffer(1, 5, 256, 16)
    scratch = Buffer(5, 5, 256, 128, scratch=True)
    assert placed_bytes([scratch, late, early]) == 768


def test_alignment_of_swizzled_tiles() -> None:
    assert swizzled_alignment([128, 64], 2) == 1024  # 8 rows x 128 bytes
    assert swizzled_alignment([256, 16], 2) == 256
    assert swizzled_alignment([4, 64], 2) == 128  # too few rows to permute
    assert swizzled_alignment([2, 8, 32], 2) == 512
    assert swizzled_alignment([64, 8], 2) == 128


BUFFERS = st.lists(
    st.builds(
        lambda first, length, size, alignment: Buffer(first, first + length, size, alignment),
        st.integers(0, 12),
        st.integers(0, 6),
        st.integers(1, 5000),
        st.sampled_from([16, 128, 1024]),
    ),
    min_size=1,
    max_size=9,
)


@given(BUFFERS)
def test_no_two_share_memory_while_both_are_in_use(buffers: list[Buffer]) -> None:
    found = placed(buffers)
    assert len(found) == len(buffers)
    assert all(at % b.alignment == 0 for at, b in found)
    for (at, a), (to, b) in combinations(found, 2):
        apart = at + a.size <= to or to + b.size <= at
        assert apart or a.last < b.first or b.last < a.first
