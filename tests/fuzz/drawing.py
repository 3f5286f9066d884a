"""Draws a program from a seed.

Every step is evaluated as it is drawn, on the numbers of the seed, and taken back where its values
are not finite or grow: so what is compared later is well conditioned, mostly.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from filled import array, source
from programs import (
    OWN_REDUCE,
    RANKED,
    Arg,
    Axes,
    Input,
    Keys,
    Kind,
    Program,
    Ref,
    Shape,
    Step,
    moved,
    shape,
    union,
)
from sized import fit
from values import Value, value

SIZES = (1, 2, 3, 5, 7)
AXES = ("a", "b", "c", "d", "e", "n", "h", "q", "x", "k", "i0", "long_axis")
NAMES = ("X", "Y", "Z", "W", "Q", "K", "V", "B", "T", "m", "s", "old", "acc", "out", "S", "x_", "N")
LONG_AXES = ("positions_of_the_keys_that_a_query_sees", "lambda_", "features")
LONG_NAMES = ("weights_of_the_first_of_several_layers", "log", "scale", "None_")
"""From `RARE` on, beside: names that need a line of their own, or that stand for something else."""

MOST_AXES = 5
"""Of a value; one more from `RARE` on, as scores of queries and keys along three axes have."""

MOST_VALUES = 400_000
"""Values along all axes of what a step reads."""

MOST_MOVED = 5_000
"""The same of arrays that the evaluator moves one by one."""

MORE = 5_000_000
"""The first seed that may draw what a user adds, and other things that came later: earlier seeds
have the programs that they had."""

NEWEST = 6_000_000
"""The first seed that may draw scans with a state, random numbers and positions of extrema."""

RARE = 8_000_000
"""The first seed that draws first, every other time, what others draw too rarely (`rare`)."""

RESUMED = 10_000_000
"""The first seed that draws rows that are looked up, and long scans, among these."""

KINDS = 20_000_000
"""The first seed that draws labels and tiles of rare kinds as often as of common ones, groups that
add in memory, and programs of `rarer`."""

STEPPED = 34_000_000
"""The first seed that draws scans by steps that are not linear in the state."""

SEVERAL = 50_000_000
"""The first seed that draws scans of several states, of products by matrices, and states that are
matrices and are moved to what a key recalls."""

FAR = 70_000_000
"""The first seed that draws numbers at the ends of the range of floats, and rare kinds often."""

WINDOWED = 80_000_000
"""The first seed that draws windows beside arrays along their axes (`windowed`), up to `ENDS`."""

MEANS = 81_000_000
"""The first seed that draws sums over sizes in the place of means, up to `ENDS`."""

SHARED = 88_000_000
"""The first seed that draws attention whose gradient runs as warpgroups that add in memory
(`attended`), up to `ENDS`."""

SCARCE = 110_000_000
"""The first seed of programs that mostly begin with what few others reach (`scarce`)."""

SOLVED = 120_000_000
"""The first seed that draws states which are moved to what they recall after they decay."""

FOUND = 145_000_000
"""The first seed that often reads what was computed at positions that are found."""

AFTERWARDS = 150_000_000
"""The first seed that computes with what it read there beside all of an array along that axis."""

CHOSEN = 160_000_000
"""The first seed that selects from what sums normalise, of rows that are looked up (`selected`)."""

ALONG = 190_000_000
"""The first seed that draws scans along the axes of a key set (`along`)."""

BOUNDED = 240_000_000
"""The first seed whose own plans are searched for under drawn bounds (`bounds`), in any type, and
those of gradients, too."""

PLACED = 260_000_000
"""The first seed that often adds at places (`placed`), under drawn bounds as from `BOUNDED` on."""

TRAINED = 270_000_000
"""The first seed of which some run as trainings, too (`trainings`)."""

SLID = 280_000_000
"""The first seed that often sums windows under keys (`windowed.keyed`)."""

ENDS = 90_000_000
"""The first seed of whose inputs some hold infinities, NaN, and the least and largest floats, up to
`SCARCE`."""

BEGINS = sorted((
    MORE, NEWEST, RARE, RESUMED, KINDS, STEPPED, SEVERAL, FAR, WINDOWED, MEANS, SHARED, SCARCE,
    SOLVED, FOUND, AFTERWARDS, CHOSEN, ALONG, BOUNDED, PLACED, TRAINED, SLID, ENDS,
))  # fmt: skip
"""The first seed of every kind of programs."""


def near(seed: int, away: int) -> int:
    """Another seed of the same kind, so much larger; past the last of these, from `seed` again."""
    end = next((n for n in BEGINS if n > seed), math.inf)
    return seed + (away if end == math.inf else away % int(end - seed))


MASKED = (-math.inf,)
HUGE = (-(2.0**110), 2.0**100)
STREWN = (
    MASKED, MASKED, (-math.inf, math.inf), (math.inf,), (math.nan,), (math.nan, -math.inf),
    (-0.0, 0.0), (2.0**-140, -(2.0**-130)), HUGE, HUGE,
)  # fmt: skip
"""What they hold there."""

UNFIT = {"sort", "ordered", "kept", "reset", *OWN_REDUCE}
"""Operators and steps of scans that say nothing of what is no finite number (docs/semantics.md):
sorts, gates of 0, and reductions of a user, whose identity is infinite."""

FLOATS = ("", "fp32", "bf16", "fp16")
"""Storage of such inputs."""

LARGEST = 1e4
FILLS = ("normal", "normal", "normal", "positive")
HARD = ("mean", "repeated", "zeros", "normal", "large")


class Rejected(Exception):
    """A step that is not taken."""


class Drawing:
    """A program that grows.

    Attributes:
        more: whether it may draw what came later (`MORE`).
        rules: the rules of a user that it has.
        nested: whether it is to be written in expressions that are long.
        pool: the values that later steps may read.
    """

    def __init__(self, seed: int) -> None:
        self.seed, self.rng = seed, random.Random(seed)
        self.more = seed >= MORE
        self.rules: list[str] = []
        self.nested = False
        self.hard = self.rng.random() < 0.15
        self.sizes: dict[str, int] = {}
        axes, names = (AXES, NAMES) if seed < RARE else (AXES + LONG_AXES, NAMES + LONG_NAMES)
        self.fresh_axes = list(self.rng.sample(axes, len(axes)))
        self.fresh_names = list(self.rng.sample(names, len(names)))
        self.inputs: list[Input] = []
        self.made: list[tuple[Step, int]] = []  # a step, and the place of its value
        self.values: list[Value] = []
        self.shapes: list[Shape] = []
        self.pool: list[Ref] = []
        self.outputs: list[Ref] = []
        self.axes = [self.axis() for _ in range(self.rng.choice((2, 3, 3, 4, 5)))]
        for _ in range(self.rng.choice((1, 2, 2, 3, 4))):
            self.input(self.some(self.axes, 1, 3))

    # --- names and sizes ------------------------------------------------------------------------

    def axis(self, size: int | None = None) -> str:
        """A new axis."""
        name = self.fresh_axes.pop() if self.fresh_axes else f"z{len(self.sizes)}"
        self.sizes[name] = self.rng.choice(SIZES) if size is None else size
        return name

    def some(self, things: Sequence[str], least: int, most: int) -> Axes:
        """Some of several, in any order."""
        k = self.rng.randint(min(least, len(things)), min(most, len(things)))
        return tuple(self.rng.sample(list(things), k))

    def chance(self, p: float) -> bool:
        """True with probability p."""
        return self.rng.random() < p

    # --- values ---------------------------------------------------------------------------------

    def input(
        self,
        axes: Axes,
        kind: Kind = "real",
        fill: str = "",
        storage: str = "",
        public: bool = True,
    ) -> Ref:
        """A new input."""
        fill = fill or self.rng.choice(HARD if self.hard else FILLS)
        name = self.fresh_names.pop() if self.fresh_names else f"A{len(self.inputs)}"
        made = Input(name, axes, kind, storage, fill)
        self.inputs.append(made)
        data = array(made, self.sizes, source(made, self.seed))
        return self._add(Value(axes, data), Shape(axes, kind), public and kind == "real")

    def _add(self, v: Value, s: Shape, public: bool) -> Ref:
        ref = Ref(len(self.values))
        self.values.append(v)
        self.shapes.append(s)
        if public:
            self.pool.append(ref)
        return ref

    def step(
        self,
        op: str,
        *args: Arg,
        over: Axes | str = (),
        each: tuple[Axes, ...] = (),
        keys: Keys | tuple[Keys | None, ...] | None = None,
        public: bool = True,
        infinite: bool = False,
        **options: object,
    ) -> Ref:
        """The value of a new step.

        Args:
            each: the axes of each array, where there are several.
            public: whether other steps may read it.
            infinite: whether it may hold infinities; then nothing else reads it.

        Raises:
            Rejected: its values are not what may be computed with.
        """
        over = (over,) if isinstance(over, str) else over
        sets = keys if isinstance(keys, tuple) else (keys,) if keys is not None else ()
        made = Step(op, args, each or ((over,) if over else ()), tuple(options.items()), sets)
        s = shape(made, self.shapes)
        widest = MOST_AXES + (self.seed >= RARE)
        if len(s.axes) > widest or any(a not in self.sizes for a in s.axes):
            raise Rejected
        every = union(s.axes, *(self.shapes[r.at].axes for r in made.refs))
        most = MOST_MOVED if op in {"compress", "spread", "slide"} else MOST_VALUES
        if math.prod(self.sizes[a] for a in every) > most:
            raise Rejected
        v = value(made, self.values, self.sizes)
        if v.data.dtype.kind == "f" and not infinite and not _moderate(v.data):
            raise Rejected
        self.made.append((made, len(self.values)))
        return self._add(v, s, public and not infinite)

    def axes_of(self, ref: Ref) -> Axes:
        """The axes of a value."""
        return self.shapes[ref.at].axes

    def kind(self, ref: Ref) -> Kind:
        """The item type of a value."""
        return self.shapes[ref.at].kind

    def pick(self, with_axes: int = 0, kind: Kind | None = "real", wide: Axes = ()) -> Ref:
        """A value that may be read, a late one rather, with some axes at least."""
        good = [
            r for r in self.pool
            if len(self.axes_of(r)) >= with_axes and set(wide) <= set(self.axes_of(r))
            and (kind is None or self.kind(r) == kind)
        ]  # fmt: skip
        if not good:
            raise Rejected
        return self.rng.choice(good[-4:] if self.chance(0.7) else good)

    def moving(self, move: Callable[[Drawing], object]) -> None:
        """Take a move whole, or not at all."""
        lengths = len(self.inputs), len(self.made), len(self.values)
        pool, sizes, outputs = list(self.pool), dict(self.sizes), list(self.outputs)
        axes, names = list(self.fresh_axes), list(self.fresh_names)
        try:
            move(self)
        except Rejected:
            self.pool, self.sizes, self.outputs = pool, sizes, outputs
            self.fresh_axes, self.fresh_names = axes, names
            i, m, v = lengths
            del self.inputs[i:], self.made[m:], self.values[v:], self.shapes[v:]

    # --- the whole ------------------------------------------------------------------------------

    def program(self) -> Program:
        """What was drawn, with its results.

        Raises:
            Rejected: nothing was.
        """
        steps = [r for r in self.pool if any(at == r.at for _, at in self.made)]
        if not steps and not self.outputs:
            raise Rejected
        chosen = list(self.outputs) or [steps[-1]]
        if steps and self.chance(0.25):
            chosen.append(self.rng.choice(steps))
        if steps and self.chance(0.1):
            chosen.append(self.rng.choice(steps))
        outputs = tuple((r, self.some(self.axes_of(r), 9, 9)) for r in dict.fromkeys(chosen))
        if self.chance(0.02):  # one array under two layouts
            outputs = (*outputs, (outputs[0][0], tuple(reversed(outputs[0][1]))))
        # Inputs first, then steps, as programs have them.
        places = {at for _, at in self.made}
        first = [i for i in range(len(self.values)) if i not in places]
        table = {old: new for new, old in enumerate([*first, *(at for _, at in self.made)])}
        made = Program(
            tuple(self.inputs),
            tuple(moved(s, table) for s, _ in self.made),
            tuple((Ref(table[r.at]), axes) for r, axes in outputs),
            dict(self.sizes),
            self.hard,
        ).used()
        found = self._woven(_sized(made))
        found = replace(found, chained=self.chance(0.08), rules=tuple(dict.fromkeys(self.rules)))
        found = self._strewn(found) if ENDS <= self.seed < SCARCE else found
        return self._said(found) if self.seed >= KINDS else found

    def _strewn(self, made: Program) -> Program:
        """The program with one or two inputs that hold what is no finite number, or nearly.
        What all queries share is finite under a key set."""
        keyed = [set(k.queries) for s in made.steps for k in s.keys if k is not None]
        if any(s.op in UNFIT or s.option.get("form") in UNFIT for s in made.steps):
            return made
        ranked = _ranked(made)
        good = [i for n, i in enumerate(made.inputs) if i.kind == "real" and i.storage in FLOATS
                and n not in ranked and all(k & set(i.axes) for k in keyed)]  # fmt: skip
        chosen = self.rng.sample(good, min(len(good), self.rng.choice((1, 1, 2))))
        plain = {i.name for n, i in enumerate(made.inputs) if _added(made, n)}
        strewn = {i.name: self.rng.choice(STREWN) for i in chosen}
        strewn = {n: x if x != HUGE or n in plain else MASKED for n, x in strewn.items()}
        inputs = tuple(replace(i, strewn=strewn.get(i.name, ())) for i in made.inputs)
        return replace(made, inputs=inputs, hard=True)

    def _said(self, made: Program) -> Program:
        """The program as one of several ways to write it: with names or without, with another
        diagram that it calls, or with storage types that are said afterwards."""
        if self.chance(0.1):
            inputs = (
                replace(i, storage=self.rng.choice(("fp16", "bf16", "fp32")))
                if i.kind == "real" and not i.storage and self.chance(0.6) else i
                for i in made.inputs
            )  # fmt: skip
            made = replace(made, inputs=tuple(inputs), stored=self.chance(0.7))
        called = self.rng.randint(1, len(made.steps)) if self.chance(0.15) and made.steps else 0
        return replace(made, nested=self.chance(0.35) or self.nested, called=called)

    def _woven(self, made: Program) -> Program:
        if not self.chance(0.12 if self.more else 0.06) or not made.inputs:
            return made
        new, n = (f"w{self.rng.randint(0, 9)}",), self.rng.choice(SIZES)
        new = (*new, "batch") if self.more and self.chance(0.4) else new
        into = {i.name for i in made.inputs if self.chance(0.7)} or {made.inputs[0].name}
        if self.seed >= KINDS and self.chance(0.3):  # of which a result may not depend
            into = {self.rng.choice(made.inputs).name}
        packed = {i.name for i in made.inputs if i.storage in {"int4", "uint4"} and not i.axes}
        into = tuple(i.name for i in made.inputs if i.name in into - packed)
        if not into:
            return made
        grown = tuple(replace(i, axes=new + i.axes) if i.name in into else i for i in made.inputs)
        outputs = tuple((r, new + axes) for r, axes in made.outputs)
        sizes = {**made.sizes, **dict.fromkeys(new, n)}
        return replace(made, inputs=grown, outputs=outputs, weave=(new, into), sizes=sizes)


def _ranked(made: Program) -> set[int]:
    """The inputs from which something is computed whose values are ranked: a kernel may have an
    infinity where NaN is wanted, which has another rank."""
    first = len(made.inputs)
    steps = [s for s in made.steps if s.op in RANKED]
    waiting = [r.at for s in steps for r in s.refs if r.at >= first]
    found = set(waiting)
    while waiting:
        below = {r.at for r in made.steps[waiting.pop() - first].refs} - found
        found |= below
        waiting += [at for at in below if at >= first]
    return {at for at in found if at < first}


def _added(made: Program, at: int) -> bool:
    """Whether an input is only added and compared: products of what is huge lose all digits."""
    ops = {s.op for s in made.steps if any(r.at == at for r in s.refs)}
    return ops <= {"add", "sub", "where", "max", "min", "maximum", "minimum", "softmax"}


def _moderate(data: np.ndarray) -> bool:
    """Whether values are finite, and none is large."""
    return bool(np.isfinite(data).all()) and np.abs(data).max(initial=0.0) <= LARGEST


def _sized(made: Program) -> Program:
    sizes = fit(made, made.sizes)
    if sizes is None or not made.inputs or not _known(made, sizes):
        raise Rejected
    return replace(made, sizes=sizes)


def _known(made: Program, sizes: dict[str, int]) -> bool:
    """Whether every axis has a size that the inputs, or windows, say."""
    said = set(union(*(i.axes for i in made.inputs)))
    for s in made.steps:
        if s.op == "rename":
            said |= {str(new) for _, new in s.options}
        if s.op in {"compress", "spread"}:
            said |= {*s.option["into"], *s.over[0]}
        if s.op == "slide":
            out, tap = s.option["into"]
            said |= {out, tap} if "window" in s.option else {out}
    named = {s.over[0][0] for s in made.steps if s.op in {"size", "index"}}
    return all(a in said for a in (*sizes, *named))
