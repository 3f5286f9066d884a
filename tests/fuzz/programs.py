"""Programs on named-axis arrays, as plain data: what is drawn, evaluated, written and shrunk.

A program is a list of inputs and a list of steps, each one operator on earlier values. Nothing here
knows of napkin: the axes and item types of values are inferred by the rules of the language.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Kind = Literal["real", "int", "bool"]
Axes = tuple[str, ...]

OWN = frozenset({
    "softplus", "doubled", "saturated", "hypotenuse", "between", "blended", "xor", "log_sum",
    "smooth_least", "either", "added", "nearest", "thinning", "checkered", "mirrored", "halved",
})  # fmt: skip
"""Operators, reductions and patterns of keys that a user adds (`added`)."""

OWN_REDUCE = ("log_sum", "smooth_least", "either", "added", "nearest")

UNARY = frozenset({
    "neg", "abs", "exp", "log", "sqrt", "rsqrt", "tanh", "sin", "cos", "erf", "ndtr", "sigmoid",
    "silu", "gelu", "not",
})  # fmt: skip
BINARY = frozenset({
    "add", "sub", "mul", "div", "floordiv", "mod", "pow", "maximum", "minimum", "less",
    "less_equal", "greater", "greater_equal", "equal", "not_equal", "and", "or",
})  # fmt: skip
BOOLEAN = frozenset({
    "less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "and", "or", "not",
    "between",
})  # fmt: skip
REAL = frozenset({
    "div", "exp", "log", "sqrt", "rsqrt", "tanh", "sin", "cos", "erf", "ndtr", "sigmoid", "silu",
    "gelu", "pow", "softmax", "logsumexp", "mean", "softplus", "doubled", "hypotenuse", "blended",
    "log_sum", "smooth_least", "either", "added", "uniform", "dropout",
})  # fmt: skip
REDUCE = ("sum", "max", "min", "prod", "mean", "logsumexp", "any", "all")
SCANS = frozenset({"cumsum", "sort"})
RANKED = ("argmax", "argmin", "topk")
WIDTH: dict[Kind, int] = {"bool": 0, "int": 1, "real": 2}


@dataclass(frozen=True)
class Form:
    """A step of a scan: its text, with `h` as the state, or `h`, `c` and `g` as several, what it
    reads beside these, and how many states there are."""

    text: str
    reads: tuple[str, ...]
    states: int = 1


STEPS = {
    "decayed": Form("{0} * h + {1}", ("factor", "added")),
    "average": Form("h + {0} * ({1} - h)", ("factor", "added")),
    "kept": Form("nk.where({0}, h, {1})", ("test", "added")),
    "reset": Form("nk.where({0}, {1} * h, 0.0) + {2}", ("test", "factor", "added")),
    "signed": Form("{0} - h", ("added",)),
    "divided": Form("(h + {1}) / {0}", ("divisor", "added")),
    "summed": Form("h + {0}", ("added",)),
    "lowered": Form("h - {0}", ("added",)),
    "scaled": Form("h * {0}", ("factor",)),
    "twice": Form("{0} * h + h * {1} - {2}", ("factor", "factor", "added")),
}
"""Steps that are linear in the state."""

ANY_STEPS = {
    "largest": Form("nk.maximum(h, {0})", ("added",)),
    "squashed": Form("nk.tanh({0} * h + {1})", ("factor", "added")),
    "clamped": Form("nk.minimum(nk.maximum(h + {0}, -1.0), 1.0)", ("added",)),
    "shared": Form("nk.softmax(h * {0}, over={within!r}) + {1}", ("factor", "added")),
    "running": Form("nk.tanh(nk.cumsum(h, along={within!r})) + {0}", ("added",)),
    "recalled": Form(
        "h + {0} * ({1} - nk.reduce(h * {0}, 'mean', over={within!r}))", ("factor", "added")
    ),
}
"""Other steps; some take in the axis `within` of the state."""

_PRODUCT = "nk.contract(h, {%d}, over={within!r}).rename({product}={within!r})"

WIDER_STEPS = {
    "multiplied": Form(f"nk.tanh({_PRODUCT % 1} + {{0}})", ("added", "weights")),
    "rotated": Form(f"{{1}} * {_PRODUCT % 2} + {{0}}", ("added", "factor", "weights")),
    "delta": Form(
        "h * {0} + {1} * ({2} - nk.contract(h, {1}, over={within!r}))", ("factor", "key", "added")
    ),
    "normed": Form(
        "(h + {0}) * nk.rsqrt(nk.reduce(h * h, 'mean', over={within!r}) + 1.0)", ("added",)
    ),
    "ordered": Form("nk.sort(nk.sin(h) + {0}, along={within!r})", ("added",)),
    "counted": Form("nk.where({0} > h, {0}, h - 1)", ("whole",)),
    "moment": Form("({0} * h + {1}, nk.tanh(c + h))", ("factor", "added"), 2),
    "online": Form(
        "(nk.maximum(h, {0}), (c * nk.exp(h) + nk.exp({0})) * nk.exp(-nk.maximum(h, {0})))",
        ("added",), 2,
    ),
    "gated": Form(
        f"(nk.tanh(c) * {{0}}, c * {{0}} + nk.sigmoid({_PRODUCT % 2} + {{1}}))",
        ("factor", "added", "weights"), 2,
    ),
    "delayed": Form("(c, g, nk.sin(h * {0} + {1}))", ("factor", "added"), 3),
    "shares": Form("(nk.softmax(h + c, over={within!r}), {0} * c + {1})", ("factor", "added"), 2),
}  # fmt: skip
"""Steps of several states, and such as multiply a state by a matrix, whose columns lie along the
axis `product`. From `SEVERAL` on (`drawing`)."""

CORRECTED = {
    "corrected": Form(
        "h * {0} + {3} * {1} * ({2} - nk.contract(h * {0}, {1}, over={within!r}))",
        ("factor", "key", "added", "share"),
    ),
    "fed": Form(
        "h * {0} - {3} * {1} * nk.contract(h, {1}, over={within!r}) + {4} * {2}",
        ("factor", "key", "added", "share", "other"),
    ),
}
"""Steps whose state is moved to what a key recalls of it after it decays, or that forget what it
recalls of it before, and add by another key. From `SOLVED` on."""

FORMS = STEPS | ANY_STEPS | WIDER_STEPS | CORRECTED


@dataclass(frozen=True)
class Ref:
    """The value of a program at a place: its inputs first, then its steps."""

    at: int


Arg = Ref | float | int | bool


@dataclass(frozen=True)
class Keys:
    """A key set: a pattern with its numbers, or two joined by `&` or `|`.

    Attributes:
        options: further numbers by name, as the pattern's function takes them.
        queries, knows: its axes.
        at: what is added to a query's position to have its place among the keys; None where queries
            and keys share one layout.
        tables: the values that it reads: lengths of documents, numbers of blocks.
        placed: whether the first of these are the places of its queries, to which `at` is added.
    """

    pattern: str
    numbers: tuple[object, ...] = ()
    options: tuple[tuple[str, object], ...] = ()
    queries: Axes = ()
    keys: Axes = ()
    at: int | None = None
    tables: tuple[Ref, ...] = ()
    parts: tuple[Keys, ...] = ()
    placed: bool = False

    def each(self) -> Iterator[Keys]:
        """It and its parts."""
        yield self
        for part in self.parts:
            yield from part.each()


@dataclass(frozen=True)
class Input:
    """An input: its name, axes and item type, how it is stored, and what numbers it holds.

    Attributes:
        fill: what its values are drawn from (see `filled`).
        strewn: numbers that some of its values are instead.
    """

    name: str
    axes: Axes
    kind: Kind = "real"
    storage: str = ""
    fill: str = "normal"
    strewn: tuple[float, ...] = ()


@dataclass(frozen=True)
class Step:
    """One operator.

    Attributes:
        over: the axes that it works along; of several arrays, those of each.
        options: what else it takes, by name.
        keys: the key set of each array; () where there is none.
    """

    op: str
    args: tuple[Arg, ...] = ()
    over: tuple[Axes, ...] = ()
    options: tuple[tuple[str, object], ...] = ()
    keys: tuple[Keys | None, ...] = ()

    @property
    def option(self) -> dict[str, object]:
        """Its options by name."""
        return dict(self.options)

    @property
    def refs(self) -> tuple[Ref, ...]:
        """The values that it reads."""
        own = [a for a in self.args if isinstance(a, Ref)]
        sets = [k for keys in self.keys if keys is not None for k in keys.each()]
        return (*own, *(r for k in sets for r in k.tables))


@dataclass(frozen=True)
class Program:
    """Inputs, steps, and the results with their axes in order.

    Attributes:
        sizes: of every axis.
        hard: whether its inputs are drawn to be hard (large means, repeated values, infinities).
        chained: whether its last step is a diagram of its own, behind `>>`, if it may be.
        rules: rules of rewriting that a user added (`added`), which the planner may apply.
        weave: axes that the whole program is mapped over, and the inputs that gain them.
        nested: whether what is read once or twice is written where it is read, and has no name.
        called: how many of its first steps are a diagram that it calls, if they may be one.
        stored: whether storage types of inputs are said by `Diagram.stored`.
    """

    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    outputs: tuple[tuple[Ref, Axes], ...]
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    hard: bool = False
    weave: tuple[Axes, tuple[str, ...]] = ((), ())
    chained: bool = False
    rules: tuple[str, ...] = ()
    name: str = "drawn"
    nested: bool = False
    called: int = 0
    stored: bool = False

    def used(self) -> Program:
        """The program without what no result depends on."""
        need = {r.at for r, _ in self.outputs}
        for i in range(len(self.steps) - 1, -1, -1):
            if i + len(self.inputs) in need:
                need |= {r.at for r in self.steps[i].refs}
        kept = sorted(need)
        table = {old: new for new, old in enumerate(kept)}
        n = len(self.inputs)
        return replace(
            self,
            inputs=tuple(self.inputs[i] for i in kept if i < n),
            steps=tuple(moved(self.steps[i - n], table) for i in kept if i >= n),
            outputs=tuple((Ref(table[r.at]), axes) for r, axes in self.outputs),
        )


def moved(step: Step, table: Mapping[int, int]) -> Step:
    """A step that reads its values at other places."""

    def keys(k: Keys) -> Keys:
        tables = tuple(Ref(table[r.at]) for r in k.tables)
        return replace(k, tables=tables, parts=tuple(map(keys, k.parts)))

    args = tuple(Ref(table[a.at]) if isinstance(a, Ref) else a for a in step.args)
    return replace(step, args=args, keys=tuple(None if k is None else keys(k) for k in step.keys))


# --- axes and item types ------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """Axes and item type of a value."""

    axes: Axes
    kind: Kind


def union(*each: Axes) -> Axes:
    """The axes of all, each once, in order of first appearance."""
    return tuple(dict.fromkeys(a for axes in each for a in axes))


def shapes(program: Program) -> list[Shape]:
    """The shape of every value of a program."""
    found = [Shape(i.axes, i.kind) for i in program.inputs]
    for step in program.steps:
        found.append(shape(step, found))
    return found


def shape(step: Step, known: list[Shape]) -> Shape:
    """The shape of a step's value."""
    args = [known[a.at] if isinstance(a, Ref) else Shape((), kind_of(a)) for a in step.args]
    return Shape(_axes(step, args), _kind(step, args))


def kind_of(value: float | int | bool) -> Kind:
    """The item type of a Python number."""
    return "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "real"


def _axes(step: Step, args: list[Shape]) -> Axes:
    op, option = step.op, step.option
    first = args[0].axes if args else ()
    gone = step.over[0] if step.over else ()
    if op == "index":
        return gone
    if op in {"size", "scalar"}:
        return ()
    if op == "rename":
        table = dict(option)
        return tuple(str(table.get(a, a)) for a in first)
    if op == "take":
        places = dict(zip(gone, args[1:], strict=True))
        return union(*((places[a].axes if a in places else (a,)) for a in first))
    if op == "slide":
        into = option["into"]
        return tuple(b for a in first for b in (into if a == gone[0] else (a,)))
    if op in {"compress", "spread"}:
        table = dict(zip(gone, option["into"], strict=True))
        return tuple(str(table.get(a, a)) for a in first)
    if op == "softmax":
        kept = [
            tuple(a for a in x.axes if a not in o) for x, o in zip(args, step.over, strict=True)
        ]
        if len(args) == 1:
            return first
        return union(args[int(option["which"])].axes, *kept)
    if op in SCANS:
        return first
    every = union(*(x.axes for x in args))
    if op == "scan":
        return tuple(a for a in every if a != step.option.get("product"))
    if op == "dropout":
        assert set(gone) <= set(first)
        return every
    if op == "uniform":
        return union(every, gone)
    if op == "logsumexp" and len(args) > 1:
        return union(*(tuple(a for a in x.axes if a not in o)
                       for x, o in zip(args, step.over, strict=True)))  # fmt: skip
    return tuple(a for a in every if a not in gone)


def _kind(step: Step, args: list[Shape]) -> Kind:
    op = step.op
    if op in {"index", "size", "floordiv", "mod", "xor", "argmax", "argmin"}:
        return "int"
    if op == "topk":
        return "int" if step.option["what"] == "places" else args[0].kind
    if op in BOOLEAN or op in {"any", "all"}:
        return "bool"
    if op == "pow" and args[0].axes and step.args[1] in (2, 3):  # products, in the type they have
        return "int" if args[0].kind == "bool" else args[0].kind
    if op in REAL or op == "scalar":
        return "real"
    if op == "cast":
        return step.option["kind"]
    if op in {"rename", "take", "slide", "compress", "spread", "sort", "max", "min", "nearest"}:
        return args[0].kind
    chosen = args[1:] if op == "where" else args
    widest = max((x.kind for x in chosen), key=WIDTH.__getitem__)
    if op == "where":
        return widest
    return "int" if widest == "bool" else widest
