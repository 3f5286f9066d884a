"""What is verified on a device: problems over shapes, strides, types and key sets.

`napkin verify --gpu` and tests/gpu run the same list. Where the product of all values would be
thousands, every pair of values of two factors stands together in some problem; with `quick`, every
value stands in some problem.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from napkin.diagram.diagram import Diagram
from napkin.diagram.language import size
from napkin.diagram.library import load, names
from napkin.diagram.reductions import contract, softmax
from napkin.diagram.trace import diagram
from napkin.keys.keyset import KeySet
from napkin.keys.neighbors import neighborhood
from napkin.keys.patterns import causal, sliding
from napkin.measure.calls import Scaled, Windowed, compiled

DTYPES = ("bf16", "fp16", "fp32")


@dataclass(frozen=True)
class Problem:
    """One thing to verify.

    Attributes:
        group: what it is an instance of.
        title: which instance.
        diagram: makes the diagram; called when it is run.
        sizes: of axes; the diagram's own for those not given.
        layout: how inputs lie in memory (`napkin.measure.tensors.LAYOUTS`).
        how: "plan", at these sizes; "cases", the plan's kernels at every size of a check;
            "streams", two launches at once; "call", through a function of the library.
        only: of the cases, those with these names; all where there are none.
        call: that function, from tensors to outputs.
        bytes: device memory that it needs, where that is much.
    """

    group: str
    title: str
    diagram: Callable[[], Diagram]
    sizes: Mapping[str, int]
    dtype: str = "bf16"
    layout: str = "plain"
    how: str = "plan"
    only: tuple[str, ...] = ()
    call: Callable[..., Any] | None = None
    bytes: int = 0

    def __str__(self) -> str:
        return f"{self.group}: {self.title}, {self.dtype}, {self.layout}"


def problems(quick: bool = False) -> list[Problem]:
    """Every problem, in the order they run."""
    return [
        *goldens(quick),
        *attentions(quick),
        *neighborhoods(quick),
        *calls(quick),
        *streams(),
        *large(quick),
    ]


# --- factors ------------------------------------------------------------------------------------


def each(factors: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Rows in which every value of every factor stands at least once."""
    longest = max(map(len, factors.values()))
    # Each factor begins at a value of its own, so that the first values do not all meet.
    return [
        {f: v[(i + n) % len(v)] for n, (f, v) in enumerate(factors.items())} for i in range(longest)
    ]


def pairs(factors: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Rows in which every pair of values of two factors stands together at least once.

    Greedy: each row begins with a pair that is missing, and takes of every further factor the value
    that makes most missing pairs.
    """
    keys = list(factors)
    places = {f: range(len(v)) for f, v in factors.items()}
    missing = {
        ((f, i), (g, j))
        for f, g in itertools.combinations(keys, 2)
        for i in places[f]
        for j in places[g]
    }
    order = sorted(missing, key=repr)
    out: list[dict[str, Any]] = []
    for pair in order:
        if pair not in missing:
            continue
        row = dict(pair)
        for f in keys:
            if f not in row:
                row[f] = max(places[f], key=lambda i, f=f: len(_new(row | {f: i}, keys) & missing))
        missing -= _new(row, keys)
        out.append({f: factors[f][row[f]] for f in keys})
    return out


def _new(row: Mapping[str, int], keys: Sequence[str]) -> set[tuple[tuple[str, int], ...]]:
    return {
        ((f, row[f]), (g, row[g]))
        for f, g in itertools.combinations(keys, 2)
        if f in row and g in row
    }


# --- groups -------------------------------------------------------------------------------------


def goldens(quick: bool) -> list[Problem]:
    """Every kernel of generated/, at whole tiles, past the end of boxes, at primes, transposed, and
    with a batch axis."""
    types = DTYPES[:1] if quick else DTYPES
    only = ("divides", "primes") if quick else ()
    return [
        Problem("generated", name, partial(load, name), {}, dtype, how="cases", only=only)
        for name in names()
        for dtype in types
    ]


KEYS: dict[str, Callable[[], KeySet | None]] = {
    "all keys": lambda: None,
    "causal": lambda: causal("q", "x"),
    "sliding": lambda: sliding(100, 27, queries="q", keys="x"),
    "window": lambda: neighborhood(129, 4, queries="q", keys="x", clip=True),
    "dilated window": lambda: neighborhood(31, 1, 3, queries="q", keys="x", clip=True),
}

LENGTHS = (
    (1, 1), (1, 4096), (63, 65), (128, 128), (777, 1000), (4097, 4095), (65536, 300), (300, 65536),
    (16384, 16384),
)  # fmt: skip
"""Queries and keys; a key set has as many keys as queries."""

ATTENTION: dict[str, Sequence[Any]] = {
    "depth": (32, 40, 64, 72, 80, 96, 128, 160, 192, 256, 33, 7),
    "length": LENGTHS,
    "heads": ((1, 1, 1), (2, 3, 1), (1, 2, 4), (2, 1, 8), (1, 1, 7)),
    "layout": ("plain", "heads last", "inside", "transposed", "reversed"),
    "dtype": DTYPES,
    "keys": tuple(KEYS),
}
"""Batch, key heads and query heads for each of them are `heads`."""


def grouped_attention(keys: str) -> Diagram:
    """Grouped-query attention over one axis of tokens, with one of the key sets."""

    @diagram("q d, x d, x d -> q d")
    def attention(Q: Any, K: Any, V: Any) -> Any:
        S = contract(Q, K, over="d") * size("d") ** -0.5
        return contract(softmax(S, over="x", keys=KEYS[keys]()), V, over="x")

    return attention.weave("r", into="Q").weave("b g")


def attentions(quick: bool) -> list[Problem]:
    """Attention over head sizes, lengths, heads, strides, types and key sets."""
    out: list[Problem] = []
    for row in (each if quick else pairs)(ATTENTION):
        (b, g, r), (q, x) = row["heads"], row["length"]
        if row["keys"] != "all keys":
            x = q = min(q, 16384) if q > 1 else x
        d = row["depth"]
        sizes = {"b": b, "g": g, "r": r, "q": q, "x": x, "d": d}
        title = f"{row['keys']}, b{b} g{g} r{r} q{q} x{x} d{d}"
        make = partial(grouped_attention, row["keys"])
        out.append(Problem("attention", title, make, sizes, row["dtype"], row["layout"]))
    return out


WINDOWS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "line": ((5003,), {"kernel_size": (500,), "stride": (7,)}),
    "line, causal": ((4003,), {"kernel_size": (64,), "dilation": (9,), "is_causal": (True,)}),
    "plane": ((97, 101), {"kernel_size": (20, 31)}),
    "plane, strided": ((96, 96), {"kernel_size": (32, 24), "stride": (16, 8)}),
    "plane, mixed": (
        (80, 111),
        {"kernel_size": (9, 16), "stride": (3, 1), "is_causal": (True, False)},
    ),
    "plane, dilated": ((90, 95), {"kernel_size": (7, 12), "dilation": (3, 2)}),
    "video, strided": ((12, 24, 32), {"kernel_size": (6, 8, 16), "stride": (2, 8, 8)}),
    "video, mixed": (
        (11, 20, 30),
        {"kernel_size": (4, 6, 5), "dilation": (1, 2, 3), "is_causal": (True, False, False)},
    ),
}
"""Layouts of tokens and windows over them."""


def neighborhoods(quick: bool) -> list[Problem]:
    """Neighborhood attention in 1, 2 and 3 dimensions, heads before values as it lies in models."""
    types = ("bf16",) if quick else ("bf16", "fp32")
    chosen = ("line, causal", "plane, strided", "plane, mixed") if quick else tuple(WINDOWS)
    return [
        Problem(
            "neighborhood", name, Windowed(WINDOWS[name][1]).diagram, _tokens(name), dtype,
            "inside" if dtype == "fp32" else "plain",
        )
        for name in chosen
        for dtype in types
    ]  # fmt: skip


def _tokens(name: str) -> dict[str, int]:
    layout, _ = WINDOWS[name]
    return {f"{a}{i}": n for a in "qx" for i, n in enumerate(layout)} | {"b": 1, "h": 2, "d": 64}


CALLED: dict[str, Sequence[Any]] = {
    "depth": ((64, 64), (128, 128), (40, 40), (96, 96), (192, 128), (33, 57), (256, 256)),
    "length": ((1, 1), (1, 4097), (63, 65), (777, 1000), (2048, 2048), (4099, 513), (300, 65536)),
    "heads": ((1, 1, 1), (2, 3, 1), (1, 2, 4), (2, 1, 7)),
    "layout": ("plain", "heads last", "inside", "transposed"),
    "dtype": DTYPES,
    "how": (
        Scaled(), Scaled(causal=True), Scaled(mask="bool"), Scaled(mask="bias", scale=0.3),
        Scaled(causal=True, scale=1.0),
    ),
}  # fmt: skip
"""Calls of `napkin.torch.attention`: sizes of a key and of a value, queries and keys, heads as for
`ATTENTION`."""

COMPILED: dict[str, dict[str, int]] = {
    "matmul_bias_gelu": {"a": 300, "b": 777, "c": 130},
    "layernorm": {"n": 1001, "d": 777},
    "cross_entropy": {"n": 130, "v": 5003},
    "linear_attention": {"q": 200, "x": 333, "d": 40},
    "decode_attention": {"b": 2, "k": 2, "r": 4, "x": 5000, "d": 64},
    "conv2d": {"b": 2, "i": 30, "j": 27, "c": 24, "u": 3, "v": 3, "o": 40, "p": 30, "q": 27},
}
"""Diagrams that are called as functions on tensors."""


def calls(quick: bool = False) -> list[Problem]:
    """Functions of `napkin.torch`, each beside the diagram of what it computes."""
    chosen = (each if quick else pairs)(CALLED)
    attention = [_call(**row) for row in chosen]
    windowed: list[Problem] = []
    for i, (name, (layout, window)) in enumerate(WINDOWS.items()):
        how = Windowed(window, extra=i % 2 == 0, lse=i % 3 != 1)
        sizes = _tokens(name) | {"b": 1 + i % 2, "h": 3, "d": (64, 32, 48)[i % 3]}
        sizes |= {"a": 5 + i} if how.extra else {}
        title = f"na{len(layout)}d, {name}"
        for dtype, order in (("bf16", "plain"), ("fp32", "inside"), ("fp16", "heads last")):
            make = Problem("call", title, how.diagram, sizes, dtype, order, "call", call=how)
            windowed.append(make)
    functions = [
        Problem(
            "call", f"compile({name})", partial(load, name), sizes, dtype, how="call",
            call=partial(compiled, partial(load, name)),
        )
        for name, sizes in COMPILED.items()
        for dtype in DTYPES
    ]  # fmt: skip
    step = 6 if quick else 1
    return [*attention, *windowed[::step], *functions[::step]]


def _call(
    depth: tuple[int, int],
    length: tuple[int, int],
    heads: tuple[int, int, int],
    layout: str,
    dtype: str,
    how: Scaled,
) -> Problem:
    (d, e), (q, x), (b, g, r) = depth, length, heads
    sizes = {"b": b, "g": g, "r": r, "q": q, "x": x, "d": d, "e": e}
    words = ["causal"] * how.causal + [how.mask] * bool(how.mask)
    words += [f"scale {how.scale}"] * (how.scale is not None)
    title = f"attention({', '.join(words)}), " + " ".join(f"{a}{n}" for a, n in sizes.items())
    return Problem("call", title, how.diagram, sizes, dtype, layout, "call", call=how)


def streams() -> list[Problem]:
    """Two launches at once, on two streams, of kernels that share nothing."""
    attention = Problem(
        "two streams", "attention", partial(grouped_attention, "all keys"),
        {"b": 1, "g": 4, "r": 2, "q": 2000, "x": 2000, "d": 64}, how="streams",
    )  # fmt: skip
    product = Problem(
        "two streams", "matmul", partial(load, "matmul"), {"a": 1000, "b": 3000, "c": 2000},
        how="streams",
    )  # fmt: skip
    return [attention, product]


def large(quick: bool) -> list[Problem]:
    """Tensors of more than 2**31 elements: offsets pass 32 bits."""
    n = 2**31
    softmax_, product, attention = (
        Problem(
            "over 2**31", "softmax", partial(load, "softmax"), {"n": n // 65536 + 2, "x": 65537},
            bytes=24 * 2**30,
        ),
        Problem(
            "over 2**31", "matmul, of its result", partial(load, "matmul"),
            {"a": 46349, "b": 64, "c": 46349}, bytes=24 * 2**30,
        ),
        Problem(
            "over 2**31", "attention, of its queries", partial(load, "attention"),
            {"q": n // 64 + 3, "x": 96, "d": 64}, bytes=24 * 2**30,
        ),
    )  # fmt: skip
    return [softmax_] if quick else [softmax_, product, attention]


SANITIZED: tuple[dict[str, Any], ...] = (
    {"name": "matmul", "sizes": {"a": 200, "b": 136, "c": 320}, "dtype": "bf16"},
    {"name": "attention", "sizes": {"q": 200, "x": 333, "d": 64}, "dtype": "bf16"},
    {"name": "causal_attention", "sizes": {"q": 260, "x": 260, "d": 40}, "dtype": "fp16"},
    {"name": "softmax", "sizes": {"n": 33, "x": 1001}, "dtype": "fp32"},
    {
        "name": "neighborhood_attention_2d",
        "sizes": {"q0": 30, "q1": 26, "x0": 30, "x1": 26, "d": 32},
        "dtype": "bf16",
    },
    {"name": "rmsnorm_linear", "sizes": {"n": 70, "d": 96, "m": 130}, "dtype": "fp32"},
)
"""What compute-sanitizer watches: under it a kernel takes up to a hundred times as long."""
