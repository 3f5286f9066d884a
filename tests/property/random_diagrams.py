"""Random diagrams: chains and small graphs of contractions, maps, reductions over 2 to 5 axes."""

from __future__ import annotations

import random
from collections.abc import Callable

import napkin as nk
from napkin import Array, Diagram
from napkin.ir.node import node, postorder

AXES = ("a", "b", "c", "d", "e")


class Drawing:
    """Draws one diagram from a source of randomness."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.axes = AXES[: rng.randint(2, 5)]
        self.sizes = {a: rng.choice((1, 2, 3, 5, 6)) for a in self.axes}
        count = rng.randint(2, 4)
        self.inputs = [self._some_axes() for _ in range(count)]

    def _some_axes(self) -> tuple[str, ...]:
        k = self.rng.randint(1, min(3, len(self.axes)))
        return tuple(sorted(self.rng.sample(self.axes, k)))

    def build(self, *arrays: Array) -> tuple[Array, ...]:
        """The results of a random program on `arrays`."""
        pool = list(arrays)
        for _ in range(self.rng.randint(2, 6)):
            made = self._step(pool)
            if made is not None and len(made.axes) <= 4:
                pool.append(made)
        outputs = [pool[-1]]
        if self.rng.random() < 0.25:
            outputs.append(self.rng.choice(pool[len(arrays) :] or pool))
        return tuple(outputs)

    def _step(self, pool: list[Array]) -> Array | None:
        x = self._recent(pool)
        move = self.rng.random()
        if move < 0.2:
            return self._map(x)
        if move < 0.35:
            return self._combine(x, self.rng.choice(pool))
        if move < 0.65:
            return self._contract(x, self._recent(pool))
        return self._reduce(x)

    def _recent(self, pool: list[Array]) -> Array:
        return self.rng.choice(pool[-3:])

    def _map(self, x: Array) -> Array:
        maps: list[Callable[[Array], Array]] = [
            lambda x: nk.exp(x * 0.3),
            nk.tanh,
            nk.silu,
            nk.abs,
            lambda x: x * x,
            lambda x: -x,
            lambda x: x * 0.5 + 1.0,
            lambda x: nk.sqrt(nk.abs(x) + 0.1),
            lambda x: nk.where(x > 0, x, 0.1 * x),
            lambda x: x * nk.size(x.axes[0]) ** -0.5 if x.axes else x,
        ]
        return self.rng.choice(maps)(x)

    def _combine(self, x: Array, y: Array) -> Array | None:
        if x.node is y.node:
            return None  # x - x is 0 however it is computed
        ways: list[Callable[[Array, Array], Array]] = [
            lambda x, y: x + y,
            lambda x, y: x - y,
            lambda x, y: x * y,
            lambda x, y: x / (nk.abs(y) + 1.0),
            lambda x, y: nk.maximum(x, 0.5 * y - 0.1),
        ]
        return self.rng.choice(ways)(x, y)

    def _contract(self, x: Array, y: Array) -> Array | None:
        shared = [a for a in x.axes if a in y.axes]
        if not shared:
            return None
        return nk.contract(x, y, over=self.rng.choice(shared))

    def _reduce(self, x: Array) -> Array | None:
        if not x.axes:
            return None
        over = self.rng.choice(x.axes)
        ways: list[Callable[[Array], Array]] = [
            lambda x: nk.reduce(x, "sum", over=over),
            lambda x: nk.reduce(x, "max", over=over),
            lambda x: nk.reduce(x, "min", over=over),
            lambda x: nk.reduce(x, "mean", over=over),
            lambda x: nk.reduce(x, "logsumexp", over=over),
            lambda x: nk.softmax(x, over=over),
            lambda x: x / nk.sqrt(nk.reduce(x * x, "sum", over=over) + 1e-3),
            lambda x: x * nk.rsqrt(nk.reduce(x * x, "mean", over=over) + 1e-3),
            lambda x: x - nk.reduce(x, "mean", over=over),
            lambda x: nk.reduce((x - nk.reduce(x, "mean", over=over)) ** 2, "mean", over=over),
        ]
        return self.rng.choice(ways)(x)

    def diagram(self) -> Diagram:
        """The diagram of one random program, over the inputs that it came to use."""
        leaves = [
            Array(node("input", params=(f"unused{i}",), axes=axes))
            for i, axes in enumerate(self.inputs)
        ]
        # What the results use, and their shapes, are known once the program has run.
        state = self.rng.getstate()
        results = self.build(*leaves)
        used = set(postorder(r.node for r in results))
        chosen = [i for i, leaf in enumerate(leaves) if leaf.node in used]
        self.rng.setstate(state)

        def program(*arrays: Array) -> tuple[Array, ...]:
            given = dict(zip(chosen, arrays, strict=True))
            return self.build(*(given.get(i, leaf) for i, leaf in enumerate(leaves)))

        inputs = ", ".join(" ".join(self.inputs[i]) for i in chosen)
        outputs = ", ".join(" ".join(r.axes) or "()" for r in results)
        sizes = {a: n for a, n in self.sizes.items() if any(a in self.inputs[i] for i in chosen)}
        return nk.diagram(f"{inputs} -> {outputs}", sizes=sizes, name="drawn")(program)


def draw(seed: int) -> Diagram:
    """The diagram of a seed."""
    return Drawing(random.Random(seed)).diagram()
