"""The law of folds, executed on kernels: what their folds give on random arrays in ragged chunks is
compared with the diagram's own value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, cast

import numpy as np

from napkin.algebra.fold import Pass, State, Stream
from napkin.algebra.law import States, advance, chunk_of, chunks, folded, merged, ranges, start
from napkin.algebra.terms import added
from napkin.derive.kernel import Kernel, leaves, tensor_of, tile_axes
from napkin.errors import Refusal
from napkin.ir.evaluate import Array, aligned, close_to, evaluate
from napkin.ir.infer import along, pointwise
from napkin.ir.node import Node, over, postorder


@dataclass(frozen=True)
class Breach:
    """Where a fold breaks its law.

    Attributes:
        what: the output or the state that differs.
        lengths: the lengths of the chunks.
        error: the relative error.
    """

    what: str
    lengths: tuple[int, ...]
    error: float

    def __str__(self) -> str:
        cut = ", ".join(map(str, self.lengths))
        return f"{self.what} differs by {self.error:.2g} from its value in one piece on ({cut})"


def breach(
    kernel: Kernel,
    arrays: Mapping[str, Array] | Mapping[Node, Array],
    sizes: Mapping[str, int],
    lengths: Sequence[int],
    scalars: Mapping[str, float] | None = None,
    tolerance: float = 1e-9,
) -> Breach | None:
    """Where the fold of `kernel` breaks its law on these arrays, the axis cut into `lengths`.

    Arrays go by tensor, or where a tensor is read in several ways, by reading.


    Of several streamed axes the first is cut and the others stay whole. Folded chunk by chunk, it
    must give what the diagram computes on the whole; and in every pass
    the states of the chunks, each folded alone, must merge to the states of the whole.
    """
    s = kernel.stream
    given: Mapping[Any, Array] = arrays
    readings = leaves([o.node for o in kernel.outputs])
    bind = {n: given[n] if n in given else given[tensor_of(n)] for n in readings}
    parts = ranges(lengths)
    whole = [range(sizes[s.axes[0]])]

    def differs(what: str, found: Array, wanted: Array, size: float = 0.0) -> Breach | None:
        error = close_to(np.broadcast_to(found, np.shape(wanted)), wanted)
        norm = float(np.linalg.norm(wanted)) if size else 0.0
        error *= (norm or 1.0) / size if size > norm else 1.0
        return Breach(what, tuple(lengths), error) if error > tolerance else None

    found = folded(s, bind, sizes, parts, scalars)[1]
    # Of a compressed output, the array before it loses what no query sees.
    whole_of = [o.node.args[0] if o.node.op == "compress" else o.node for o in kernel.outputs]
    values = evaluate(whole_of, bind, sizes, scalars)
    stored = {e.output: e.node for e in (*(e for p in s.passes for e in p.emits), *s.tails)}
    for o, n, wanted in zip(kernel.outputs, whole_of, values, strict=True):
        value = aligned(found[o.name], stored[o.name].axes, tile_axes(o))
        bad = differs(f"output {o.name}", value, aligned(wanted, n.axes, tile_axes(o)))
        if bad:
            return bad
    known = dict(bind)
    finals = folded(s, bind, sizes, whole, scalars)[0]
    for step in s.passes:

        def join(
            left: States, right: States, step: Pass = step, at: Mapping[Node, Array] = known
        ) -> States:
            return merged(step, left, right, sizes, scalars, at)

        if step.emits:  # what is stored as it streams is not cut into parts
            known |= {x.leaf("new"): finals[x.name] for x in step.states}
            continue
        nothing = start(step, sizes)
        alone = [
            advance(step, nothing, chunk_of(known, p), p, sizes, scalars)[0]
            for p in chunks(s, parts, sizes)
        ]
        grown = reduce(join, alone, nothing)
        nested = reduce(lambda right, left: join(left, right), reversed(alone), nothing)
        known |= {x.leaf("new"): finals[x.name] for x in step.states}
        sizes_of = _added_up(s, step)
        for x in step.states:
            (size,) = evaluate([sizes_of[x]], known, sizes, scalars)
            for joined in (grown, nested):
                what = f"merged state {x.name}"
                bad = differs(what, joined[x.name], finals[x.name], float(np.linalg.norm(size)))
                if bad:
                    return bad
    return None


def _added_up(stream: Stream, step: Pass) -> dict[State, Node]:
    """For each state, the sum of the absolute values of what its sums over the stream add up, which
    says how exact a sum of deviations can be that is 0."""
    out: dict[State, Node] = {}
    for x in step.states:
        sums = [n for n in postorder([x.step]) if n.op == "sum" and stream.carried(over(n))]
        sizes = [along("sum", pointwise("abs", (n.args[0],)), over(n)) for n in sums]
        whole = [along("sum", n, n.axes) if n.axes else n for n in sizes]
        out[x] = added(whole)
    return out


def assert_law(
    kernel: Kernel,
    *,
    trials: int = 20,
    seed: int = 0,
    lengths: Sequence[int] = (0, 1, 1, 2, 3, 5),
    extremes: Mapping[str, Sequence[float]] | None = None,
    scalars: Mapping[str, float] | None = None,
    tolerance: float = 1e-9,
) -> None:
    """Execute the law of a streamed kernel on random arrays in random ragged chunks.

    The axis is never empty as a whole: a mean, or a division by a norm, of nothing has no value.

    Args:
        lengths: what the length of a chunk is drawn from.
        extremes: per tensor, values that some of its entries take.

    Raises:
        Refusal: the fold broke its law.
    """
    rng = np.random.default_rng(seed)
    for _ in range(trials):
        cut = [int(n) for n in rng.choice(list(lengths), size=rng.integers(1, 7))]
        cut += [] if any(cut) else [1]
        sizes = {a: int(rng.integers(1, 5)) for a in kernel.axes}
        sizes[kernel.stream.axes[0]] = sum(cut)
        sizes |= _renamed(kernel, sizes)
        # What cancels is not read, but the diagram's own value may need it.
        arrays = {
            n: _random(n, sizes, rng, (extremes or {}).get(tensor_of(n), ()))
            for n in leaves([o.node for o in kernel.outputs])
        }
        bad = breach(kernel, arrays, sizes, cut, scalars, tolerance)
        if bad:
            raise Refusal(f"fold {kernel.stream.axis}", kernel.name, f"its law fails: {bad}")


def _renamed(kernel: Kernel, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes of axes by which arrays are read under other names, and states that are stepped
    on; of one that is streamed its own."""
    out: dict[str, int] = {}
    passes = kernel.stream.passes
    stepped = [
        *(s.step for p in passes for s in p.states),
        *(e.node for p in passes for e in p.emits),
    ]
    for n in postorder([*(o.node for o in kernel.outputs), *stepped]):
        for pair in cast("tuple[tuple[str, str], ...]", n.params[0]) if n.op == "rename" else ():
            size = next((sizes[a] for a in pair if a in kernel.stream.axes), sizes[pair[0]])
            out |= dict.fromkeys(pair, size)
    return out


def _random(
    leaf: Node, sizes: Mapping[str, int], rng: np.random.Generator, extremes: Sequence[float]
) -> Array:
    shape = [sizes[a] for a in leaf.axes]
    if leaf.kind != "real":
        return rng.integers(0, 2 if leaf.kind == "bool" else 4, size=shape)
    values = rng.normal(size=shape)
    if extremes:
        values = np.where(rng.random(shape) < 0.3, rng.choice(list(extremes), size=shape), values)
    return values
