"""Random tensors for a diagram, laid out in memory as users' tensors are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from napkin.check.inputs import whole_numbers
from napkin.diagram.diagram import Diagram
from napkin.errors import InputError, did_you_mean
from napkin.ir.packing import pack
from napkin.ir.storage import storage_type
from napkin.ir.types import PACKED
from napkin.run.prepared import DTYPES

DEVICE = "cuda"
"""Where tensors are made."""

LAYOUTS = ("plain", "transposed", "reversed", "heads last", "inside")
"""How inputs lie in memory.

plain: row-major. transposed: the first one with two axes, its last two swapped. reversed: the last
axis first. heads last: of three axes and more, the first but one before the last, as (b h q d) in
(b q h d). inside: a view of a larger tensor, that begins one value past its start.
"""


def drawn(
    diagram: Diagram,
    sizes: Mapping[str, int],
    dtype: str,
    seed: int,
    layout: str = "plain",
    device: str | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
) -> list[torch.Tensor]:
    """Inputs in the storage types of `dtype`: normal reals, or even ones in the `ranges` of their
    names; whole numbers that what reads them can make sense of.

    Raises:
        InputError: there is no such layout.
    """
    if layout not in LAYOUTS:
        raise InputError(f"layout {layout!r}: {did_you_mean(layout, LAYOUTS)}")
    device = device or DEVICE
    generator = torch.Generator(device).manual_seed(seed)
    rng = np.random.default_rng(seed)
    out: list[torch.Tensor] = []
    turned = False
    for n in diagram.inputs:
        shape, own = [sizes[a] for a in n.axes], storage_type(n, dtype)
        order = None
        if len(shape) > 1 and not (layout == "transposed" and turned):
            order, turned = _order(layout, len(shape)), True
        if n.kind == "real":
            values = _reals(shape, own, generator, (ranges or {}).get(str(n.params[0])))
        else:
            if n.kind == "int":
                whole = whole_numbers(diagram, n, shape, sizes, rng)
            else:
                whole = rng.integers(0, 2, size=shape)
            values = torch.from_numpy(np.asarray(pack(whole, own) if own in PACKED else whole))
        made = _empty(values.shape, DTYPES[own], device, order, layout == "inside")
        out.append(made.copy_(values))
    return out


def _reals(
    shape: Sequence[int], dtype: str, generator: torch.Generator, span: tuple[float, float] | None
) -> torch.Tensor:
    """Normal numbers, or even ones in a span."""
    wide = DTYPES["fp32" if dtype == "fp8" else dtype]  # torch draws none in 8 bits
    values = torch.empty(shape, dtype=wide, device=generator.device)
    if span is None:
        return values.normal_(generator=generator)
    return values.uniform_(*span, generator=generator)


def _order(layout: str, dims: int) -> list[int] | None:
    """The axes from the slowest to the fastest; None for row-major."""
    axes = list(range(dims))
    if layout == "transposed":
        return [*axes[:-2], axes[-1], axes[-2]]
    if layout == "reversed":
        return axes[::-1]
    if layout == "heads last" and dims > 2:
        return [*axes[:-3], axes[-2], axes[-3], axes[-1]]
    return None


def _empty(
    shape: Sequence[int],
    dtype: torch.dtype,
    device: str,
    order: Sequence[int] | None,
    inside: bool,
) -> torch.Tensor:
    if inside:
        # One value before it and one past the end of every row, which no kernel may read.
        whole = torch.empty([n + 2 for n in shape], dtype=dtype, device=device)
        poison(whole)
        return whole[tuple(slice(1, -1) for _ in shape)]
    if order is None:
        return torch.empty(list(shape), dtype=dtype, device=device)
    stored = torch.empty([shape[i] for i in order], dtype=dtype, device=device)
    return stored.permute([order.index(i) for i in range(len(shape))])


def poison(t: torch.Tensor) -> None:
    """Fill a tensor with what no kernel writes: NaN, or the number farthest below zero; booleans
    have no value to spare and start as True."""
    if t.is_floating_point():
        t.fill_(float("nan"))
    else:
        t.fill_(True if t.dtype == torch.bool else torch.iinfo(t.dtype).min)
