"""What `tl.dot` takes: the least dimensions, and operands in the plan's type, which the kernel has
from a tensor.

Products of two tensors of 8 bits take these as they are (`napkin.derive.terms.narrow_type`).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence

from napkin.derive.kernel import Kernel, tensor_of
from napkin.derive.terms import is_operand, reads_bytes
from napkin.diagram.node import Node
from napkin.diagram.storage import own_type

MOST_SPLIT = 12
"""Factors of a product of which every split into two operands is tried."""

MIN_DOT = 16
"""Smallest dimension of a tile that Triton's `tl.dot` takes on every target."""

NARROW_DEPTH = 32
"""Smallest depth of a product of 8-bit operands: that of one instruction (PTX ISA, mma). So it is
where 8 bits are converted to 16: Triton gives a thread four such values along the depth, and sums
over a depth of 16 came out twice as large as they are (H200, Triton 3.6)."""

EXACT_SUM = 128
"""Products of fp8 that Hopper's tensor cores add up before the sum goes on in float32: they keep
some 14 bits of it (arXiv 2412.19437, section 3.3.2, which takes 128 too)."""


def multiplied_as(kernel: Kernel, parts: Sequence[Node], boxes: Collection[Node | str] = ()) -> str:
    """The tensor whose type the operands of a product have.

    It is one of the plan's type: a factor of the product, else an output, else an input. A kernel
    whose tensors all have types of their own multiplies in the widest of them, and one without
    tensors of reals in float32, which is "". What is computed is not rounded to fp8.

    Args:
        parts: the factors.
        boxes: readings and outputs that a descriptor may stand for, which cannot be asked for
            their type; "" is returned where only such a factor has the plan's.
    """
    plain = [p for p in parts if is_operand(p)]
    for p in plain:
        if p not in boxes:
            return tensor_of(p)
    tensors = [(o.name, o.node) for o in kernel.outputs if o.name not in boxes]
    tensors += [(a.tensor, a.leaf) for a in kernel.reads if a.leaf not in boxes]
    real = sorted(
        ((own_type(n), name) for name, n in tensors if n.kind == "real" and own_type(n) != "fp8"),
        key=lambda found: ("", "fp32", "bf16", "fp16").index(found[0]),
    )
    known = real and not (plain and real[0][0])
    return real[0][1] if known else ""


def least_depth(parts: Sequence[Node]) -> int:
    """The smallest depth of a matrix product of these factors."""
    return NARROW_DEPTH if reads_bytes(parts) else MIN_DOT


def splits(spans: Sequence[Collection[int]], gone: Collection[int]) -> Iterator[tuple[int, ...]]:
    """Ways to split factors with these dimensions into two operands: 0 or 1 for each of them, 0 for
    the first. Of more than `MOST_SPLIT` factors, those stay together that share a dimension
    which is not reduced, or have the same ones, and the first 2^`MOST_SPLIT` ways are all."""
    groups = list(range(len(spans))) if len(spans) <= MOST_SPLIT else _together(spans, gone)
    first = [g for g in dict.fromkeys(groups) if g != groups[0]]
    every = itertools.product((0, 1), repeat=len(first))
    for chosen in itertools.islice(every, 2**MOST_SPLIT):
        side = {groups[0]: 0, **dict(zip(first, chosen, strict=True))}
        yield tuple(side[g] for g in groups)


def _together(spans: Sequence[Collection[int]], gone: Collection[int]) -> list[int]:
    """A number for each factor, the same for those on one side of any product."""
    groups = list(range(len(spans)))
    for i, mine in enumerate(spans):
        for j, other in enumerate(spans[:i]):
            if set(mine) & set(other) - set(gone) or set(mine) == set(other):
                groups = [groups[j] if g == groups[i] else g for g in groups]
    return groups
