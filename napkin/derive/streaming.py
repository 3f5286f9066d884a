"""From a term and an axis to a fold: which states, which repairs, which tails.

Reductions over the axis are taken in order. One whose body uses no earlier result of its pass
folds as it is. One whose body does is separated (`napkin.derive.separate`); results inside an
exponential or a square are held running, the rest deferred to the tail. What does not separate
waits for the next pass, where the earlier results are final.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import sympy

from napkin.derive.fold import Emit, Pass, Separation, State, Stream, state_leaf
from napkin.derive.meaning import Meaning, NotSeparable, Side, sign
from napkin.derive.separate import additive, running_symbols, separate, separate_by
from napkin.diagram.evaluate import evaluate
from napkin.diagram.infer import along, pointwise, rebuilt
from napkin.diagram.listing import text
from napkin.diagram.node import REDUCTIONS, SCANS, Node, node, number, over, postorder, substitute
from napkin.errors import Refusal

_NUMERIC = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "Abs": np.abs,
    "tanh": np.tanh,
    "Max": np.maximum,
    "Min": np.minimum,
}
"""What a repair may call, in numpy."""

_DERIVATIVES = 9
"""Derivatives of a body that a basis is looked for among."""

COMBINE = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}


def identity(n: Node) -> float:
    """The value a reduction starts from."""
    if n.op in {"max", "min"}:
        return float(str(n.params[1]))
    return 1.0 if n.op == "prod" else 0.0


def stream(
    outputs: Sequence[tuple[str, Node]],
    axis: str,
    names: Mapping[Node, str],
    *,
    passes: int = 1,
    hold: Collection[str] = (),
) -> Stream:
    """Stream `axis` through the terms of `outputs` (without composites).

    Args:
        outputs: name and node of each result.
        names: a distinct name for each reduction.
        passes: how many loops over the axis are allowed.
        hold: names of results to hold running even where deferring them would do.

    Raises:
        Refusal: the axis cannot be streamed in that many passes.
    """
    return _Streaming(outputs, axis, names, passes, frozenset(hold)).run()


class _Streaming:
    def __init__(
        self,
        outputs: Sequence[tuple[str, Node]],
        axis: str,
        names: Mapping[Node, str],
        allowed: int,
        hold: frozenset[str],
    ) -> None:
        self.outputs, self.axis, self.names, self.hold = outputs, axis, dict(names), hold
        self.allowed = allowed
        self.order = list(postorder([n for _, n in outputs]))
        self.folds = [n for n in self.order if n.op in REDUCTIONS and axis in over(n)]
        self.uses: dict[Node, frozenset[Node]] = {}
        self.pass_of: dict[Node, int] = {}
        self.states: list[list[State]] = [[] for _ in range(allowed)]
        self.plain: dict[tuple[Node, int], State] = {}
        self.carried: dict[tuple[Node, int], State] = {}
        self.now: dict[Node, Node] = {}
        self.final: dict[Node, Node] = {}
        self.separations: list[Separation] = []
        self.taken: set[str] = set()
        for n in self.order:
            below = frozenset[Node]().union(*(self.uses[a] for a in n.args))
            self.uses[n] = below | {n} if n in self.folds else below

    # --- the whole --------------------------------------------------------------------------

    def run(self) -> Stream:
        self._no_scans()
        for f in self.folds:
            self._place(f)
        emits: list[list[Emit]] = [[] for _ in range(self.allowed)]
        tails: list[Emit] = []
        for name, n in self.outputs:
            if self.axis not in n.axes:
                tails.append(Emit(name, self._finally(n)))
                continue
            p = 1 + max((self.pass_of[f] for f in self.uses[n]), default=-1)
            if p >= self.allowed:
                raise self._refuse(
                    n,
                    f"output {name} carries {self.axis} and needs a reduction over it to finish",
                    f"follow it by a reduction over {self.axis}",
                    self._again,
                )
            emits[p].append(Emit(name, self._finally(n)))
        live = self._live(emits, tails)
        loops = [
            Pass(tuple(s for s in ss if s.name in live), tuple(es))
            for ss, es in zip(self.states, emits, strict=True)
        ]
        return Stream(
            self.axis,
            tuple(p for p in loops if p.states or p.emits),
            tuple(tails),
            tuple(self.separations),
        )

    def _refuse(self, n: Node, reason: str, *others: str) -> Refusal:
        place = self.names.get(n) or text(n, self.names)
        nearest = " or ".join([*others, f"hold {self.axis} whole"])
        return Refusal(f"stream {self.axis}", place, reason, nearest)

    @property
    def _again(self) -> str:
        return f"read {self.axis} once more (passes={self.allowed + 1})"

    def _no_scans(self) -> None:
        for n in self.order:
            if n.op in SCANS and self.axis in over(n):
                raise self._refuse(
                    n, f"{n.op} mixes positions along {self.axis} and its output carries the axis"
                )
            if n.op == "rename":
                pairs = n.params[0]
                assert isinstance(pairs, tuple)
                if any(self.axis in pair for pair in pairs):
                    raise self._refuse(n, f"{self.axis} is read under two names")

    def _live(self, emits: list[list[Emit]], tails: list[Emit]) -> set[str]:
        roots = [e.node for es in [*emits, tails] for e in es]
        by_name = {s.name: s for ss in self.states for s in ss}
        live = set[str]()
        while roots:
            found = {str(n.params[0]) for n in postorder(roots) if n.op == "state"} - live
            live |= found
            roots = [by_name[name].step for name in found]
        return live

    # --- values of terms --------------------------------------------------------------------

    def _finally(self, n: Node) -> Node:
        """`n` with every fold replaced by its final value."""
        return substitute([n], self.final)[n]

    def _current(self, n: Node, p: int) -> Node:
        """`n` inside pass `p`: folds of the pass at their newest, earlier ones final."""
        return self._at(n, p, {})

    def _at(self, n: Node, p: int, done: dict[Node, Node]) -> Node:
        if n not in done:
            waits = [f for f in self._uses_of(n) if not is_count(f)]
            if all(self.pass_of[f] < p for f in waits):
                done[n] = self._finally(n)
            elif n in self.now:
                done[n] = self.now[n]
            else:
                done[n] = rebuilt(n, tuple(self._beside(a, p, done) for a in n.args))
        return done[n]

    def _beside(self, n: Node, p: int, done: dict[Node, Node]) -> Node:
        # Each pass counts for itself: a mean so far is over what the pass has seen.
        uses = self._uses_of(n)
        if uses and all(is_count(f) for f in uses):
            return substitute([n], {f: self._plain(f, p).leaf("new") for f in uses})[n]
        return self._at(n, p, done)

    def _uses_of(self, n: Node) -> frozenset[Node]:
        if n not in self.uses:
            below = frozenset[Node]().union(*(self._uses_of(a) for a in n.args))
            self.uses[n] = below | {n} if n in self.now else below
        return self.uses[n]

    # --- one reduction ----------------------------------------------------------------------

    def _place(self, f: Node) -> None:
        p = max((self.pass_of[g] for g in self.uses[f] - {f}), default=0)
        while p < self.allowed:
            same = {g for g in self.uses[f] - {f} if self.pass_of[g] == p}
            if not same:
                self.pass_of[f] = p
                state = self._plain(f, p)
                self.now[f] = state.leaf("new")
                self.final[f] = extent(over(f)) if is_count(f) else self.now[f]
                return
            try:
                self._separated(f, p, same)
            except NotSeparable as why:
                reason = why
                p += 1
            else:
                return
            if p >= self.allowed:
                others = ", ".join(sorted(self.names.get(g, g.op) for g in same))
                raise self._refuse(
                    f,
                    f"its body {text(f.args[0], self.names)} does not separate from {others} "
                    f"({reason})",
                    self._again,
                )
        raise self._refuse(f, f"it needs an earlier pass over {self.axis} to finish", self._again)

    def _plain(self, f: Node, p: int) -> State:
        """The state of a reduction whose body is known at each chunk."""
        if (f, p) in self.plain:
            return self.plain[f, p]
        name = self._name(f)
        body = self._current(f.args[0], p)
        chunk = along(f.op, body, over(f), f.params[1:])
        made = self._state(name, chunk, f.op, identity(f), p)
        self.plain[f, p] = made
        return made

    def _state(self, name: str, chunk: Node, op: str, init: float, p: int) -> State:
        leaf: Callable[[Any], Node] = lambda tag: state_leaf(name, tag, chunk.axes, chunk.kind)
        made = State(
            name,
            chunk.axes,
            chunk.kind,
            init,
            pointwise(COMBINE[op], (leaf("old"), chunk)),
            pointwise(COMBINE[op], (leaf("left"), leaf("right"))),
            "fold",
        )
        self.states[p].append(made)
        return made

    def _name(self, n: Node, stem: str = "") -> str:
        base = stem or self.names.get(n) or n.op
        name, i = base, 1
        while name in self.taken:
            i += 1
            name = f"{base}{i}"
        self.taken.add(name)
        return name

    # --- separation -------------------------------------------------------------------------

    def _separated(self, f: Node, p: int, same: set[Node]) -> None:
        def side_of(n: Node) -> Side:
            if not (self.uses.get(n, frozenset()) & same):
                return "x" if self.axis in n.axes or not self.uses.get(n) else "r"
            return "mixed" if self.axis in n.axes else "r"

        # What neither carries the axis nor depends on a fold may stand on either side; left with
        # the running results it is applied once, in the tail.
        def sided(n: Node) -> Side:
            side = side_of(n)
            return "r" if side == "x" and self.axis not in n.axes else side

        meaning = Meaning(sided)
        g = meaning.of(f.args[0])
        parts = separate(g, meaning)
        if f.op in {"max", "min"}:
            value = self._shifted(f, p, parts, meaning)
        elif f.op == "prod":
            value = self._powered(f, p, parts, meaning)
        else:
            value = self._summed(f, p, g, parts, meaning)
        self.pass_of[f] = p
        self.now[f] = self._current(value, p)
        self.final[f] = self._finally(value)

    def _folded(self, op: str, a: Node, like: Node, p: int) -> Node:
        """The state leaf of folding `a` over the axes of `like`."""
        axes = over(like)
        f = along(op, Meaning.carrying(a, axes), axes, like.params[1:] if op == like.op else ())
        if f not in self.pass_of:
            self.uses.setdefault(f, frozenset({f}))
            self.names.setdefault(f, self.names.get(like, like.op))
            self.pass_of[f] = p
            self.now[f] = self._plain(f, p).leaf("new")
            self.final[f] = extent(axes) if is_count(f) else self.now[f]
        return f

    def _shifted(self, f: Node, p: int, parts: Any, meaning: Meaning) -> Node:
        if len(parts) == 1:
            a, b = parts[0]
            if b.is_nonnegative:
                self._note(f, meaning, parts, (), meaning.split(b)[1])
                inner = self._folded(f.op, meaning.node(a), f, p)
                return pointwise("mul", (inner, meaning.node(b)))
        a, b = additive(parts, meaning, f.op)
        self._note(
            f, meaning, [(a, sympy.Integer(1)), (sympy.Integer(1), b)], (), meaning.split(b)[1]
        )
        inner = self._folded(f.op, meaning.node(a), f, p)
        return pointwise("add", (inner, meaning.node(b)))

    def _powered(self, f: Node, p: int, parts: Any, meaning: Meaning) -> Node:
        if len(parts) != 1:
            raise NotSeparable("prod", "its body adds the chunk and a running result")
        a, b = parts[0]
        self._note(f, meaning, parts, (), meaning.split(b)[1])
        inner = self._folded("prod", meaning.node(a), f, p)
        power = pointwise("pow", (meaning.node(b), extent(over(f))))
        return pointwise("mul", (inner, power))

    def _summed(self, f: Node, p: int, g: Any, parts: Any, meaning: Meaning) -> Node:
        running = running_symbols(g, meaning)
        for s, n in meaning.nodes.items():
            if s.name.startswith("r") and self.hold & {
                self.names.get(u, "") for u in self._direct(n)
            }:
                running.add(s)
        running = {s for s in running if self.uses.get(meaning.nodes[s], frozenset())}
        if running:
            try:
                return self._held(f, p, g, meaning, running)
            except NotSeparable:
                # Without exponentials the separated factors stay in range: deferring is right,
                # if less exact.
                if g.has(sympy.exp):
                    raise
        return self._deferred(f, p, parts, meaning)

    def _deferred(self, f: Node, p: int, parts: Any, meaning: Meaning) -> Node:
        total: Node | None = None
        for a, b in parts:
            inner = self._folded("sum", meaning.node(a), f, p)
            total = _plus(total, inner if b == 1 else pointwise("mul", (meaning.node(b), inner)))
        self._note(f, meaning, parts, (), set().union(*(meaning.split(b)[1] for _, b in parts)))
        return total or number(0.0)  # a body that is identically 0 has no parts

    def _held(self, f: Node, p: int, g: Any, meaning: Meaning, running: set[Any]) -> Node:
        """A sum whose body holds some results running; factors of the others are deferred."""

        def split(e: Any) -> tuple[set[Any], set[Any]]:
            xs, rs = meaning.split(e)
            return xs | (rs & running), rs - running

        total: Node | None = None
        for i, (inner, b) in enumerate(separate_by(g, split)):
            if meaning.split(inner)[1]:
                stem = self.names.get(f, "sum")
                leaf = self._running(f, p, inner, meaning, stem if not i else f"{stem}_{i}")
            else:
                leaf = self._folded("sum", meaning.node(inner), f, p)
            total = _plus(total, leaf if b == 1 else _scaled(leaf, meaning.node(b)))
        return total or number(0.0)

    def _direct(self, n: Node) -> set[Node]:
        return {n} if n in self.folds else set(self.uses.get(n, ()))

    def _note(
        self, f: Node, meaning: Meaning, parts: Any, running: Any, deferred: Any, repair: str = ""
    ) -> None:
        def show(e: Any) -> str:
            return text(meaning.node(e), self.names, top=False)

        def labels(symbols: Any) -> tuple[str, ...]:
            kept = [s for s in symbols if s in meaning.nodes and self.uses.get(meaning.nodes[s])]
            return tuple(sorted(text(meaning.nodes[s], self.names, top=False) for s in kept))

        self.separations.append(
            Separation(
                self.names.get(f, f.op),
                text(f.args[0], self.names, top=False),
                tuple((show(a), show(b)) for a, b in parts),
                labels(running),
                labels(deferred),
                repair,
            )
        )

    # --- running states ---------------------------------------------------------------------

    def _running(self, f: Node, p: int, inner: Any, meaning: Meaning, stem: str) -> Node:
        """The state of sum_x inner(x, r), kept at the current r and repaired when r changes.

        With the derivatives of inner by r as a basis, f(x, r) = B(r) a(x), and the repair is the
        matrix B(new) B(old)^-1: exp(m_old - m_new) for an exponential, Chan's triangular update
        for a square.
        """
        rs = sorted(meaning.split(inner)[1], key=lambda s: s.name)
        basis, rows, columns = _basis(inner, rs, meaning)
        renamed = {s: sympy.Symbol(s.name + "_new", **s.assumptions0) for s in rs}
        b_old = sympy.Matrix(rows)
        b_new = b_old.subs(renamed, simultaneous=True)
        repair = (b_new * b_old.inv()).applyfunc(_tidy)
        if not (repair * b_old - b_new).applyfunc(_tidy).is_zero_matrix:
            raise NotSeparable(f.op, "sympy cannot prove the repair")
        starts = self._starts(rs, renamed, repair, meaning, p)
        olds = {s: self._old_and_new(meaning.nodes[s], p, starts[s]) for s in rs}
        names = [self._name(f, stem if not i else f"{stem}_{i}") for i in range(len(basis))]
        axes, gone = f.axes, over(f)
        known = [None] + [
            self._from_folds(rows[i], columns, f, p, meaning, rs) for i in range(1, len(basis))
        ]
        self._note(
            f,
            meaning,
            [(inner, sympy.Integer(1))],
            rs,
            meaning.split(meaning.of(f.args[0]))[1] - set(rs),
            self._repair_text(list(repair.row(0)), rs, renamed, meaning),
        )

        def moved(row: int, start: str, values: dict[Any, Node]) -> Node:
            total: Node | None = None
            for j in range(len(basis)):
                factor = repair[row, j]
                value = known[j]
                if factor == 0 or value == "zero":
                    continue
                if isinstance(value, dict):
                    term = value[start]
                else:
                    term = state_leaf(names[j], start, axes, f.kind)  # type: ignore[arg-type]
                total = _plus(total, _scaled(term, _filled(factor, values, meaning)))
            return total or number(0.0)

        for i in range(len(basis)):
            if known[i] is not None:
                continue
            news = {s: olds[s]["new"] for s in rs}
            body = substitute(
                [b := meaning.node(basis[i])], {meaning.nodes[s]: news[s] for s in rs}
            )[b]
            body = self._current(body, p)
            chunk = along("sum", Meaning.carrying(body, gone), gone)
            step_values = {s: olds[s]["old"] for s in rs} | {renamed[s]: news[s] for s in rs}
            sides = [
                moved(
                    i,
                    side,
                    {s: olds[s][side] for s in rs} | {renamed[s]: olds[s]["merged"] for s in rs},
                )
                for side in ("left", "right")
            ]
            self.states[p].append(
                State(
                    names[i],
                    axes,
                    f.kind,
                    0.0,
                    pointwise("add", (moved(i, "old", step_values), chunk)),
                    pointwise("add", (sides[0], sides[1])),
                    "running",
                )
            )
        return state_leaf(names[0], "new", axes, f.kind)

    def _repair_text(
        self, row: list[Any], rs: list[Any], renamed: Mapping[Any, Any], meaning: Meaning
    ) -> str:
        table: dict[Any, Node] = {}
        for s in rs:
            shown = text(meaning.nodes[s], self.names, top=False)
            for symbol, when in ((s, "old"), (renamed[s], "new")):
                table[symbol] = node("scalar", params=(f"{shown}_{when}",))
        return ", ".join(text(_filled(e, table, meaning), {}) for e in row)

    def _starts(
        self, rs: list[Any], renamed: Mapping[Any, Any], repair: Any, meaning: Meaning, p: int
    ) -> dict[Any, float]:
        """The value of each running result before the first chunk, from which a repair is finite.

        That is its value on nothing where possible. Where it has none (0/0), or the repair from it
        is not finite, any value does that keeps its sign: what it repairs is still all zero.
        """
        choices: list[list[float]] = []
        for s in rs:
            r = meaning.nodes[s]
            own = self._before(r, p)
            choices.append([own, 1.0] if sign(r) == "positive" else [own, 0.0, 1.0])
        symbols = [*rs, *(renamed[s] for s in rs)]
        entries = sympy.lambdify(symbols, list(repair), [_NUMERIC])
        for chosen in itertools.product(*choices):
            with np.errstate(all="ignore"):
                found = [
                    entries(*map(np.float64, (*chosen, *[later] * len(rs))))
                    for later in (0.7, 2.3, 1e4)
                ]
            if np.isfinite(np.asarray(found, float)).all():
                return dict(zip(rs, chosen, strict=True))
        raise NotSeparable(str(repair[0, 0]), "no start makes its repair finite")

    def _before(self, r: Node, p: int) -> float:
        """The value of a running result on nothing; NaN where it has none."""
        value = self._current(r, p)
        start = {n: self._init(n) for n in postorder([value]) if n.op == "state"}
        return _value_at(value, start)

    def _old_and_new(self, r: Node, p: int, first: float | None = None) -> dict[str, Node]:
        """The values of a running result before and after a step, and on both sides of a merge."""
        plain = self.plain.get((r, p))
        if (r, p) in self.carried:
            state = self.carried[r, p]
        elif plain is not None and (first is None or first == plain.init):
            state = plain
        else:
            assert first is not None
            value = self._current(r, p)
            name = self._name(r, self.names.get(r) or "r")
            # Both a step and a merge read it off the results that stand before it ("new").
            state = State(name, r.axes, r.kind, first, value, value, "carried")
            self.states[p].append(state)
            self.carried[r, p] = state
        values = {tag: state.leaf(tag) for tag in ("old", "new", "left", "right")}
        values["merged"] = state_leaf(state.name, "new", state.axes, state.kind)
        return values

    def _init(self, leaf: Node) -> float:
        return next(s.init for ss in self.states for s in ss if s.name == leaf.params[0])

    def _from_folds(
        self, row: list[Any], columns: list[Any], f: Node, p: int, meaning: Meaning, rs: list[Any]
    ) -> Any:
        """A basis function's fold from folds that are held anyway: nodes per tag, "zero", or None.

        Chan's merge needs no sum of deviations because that sum is s - n * (s / n) = 0.
        """
        total, values = sympy.Integer(0), dict[Any, State]()
        for b, a in zip(row, columns, strict=True):
            if b == 0:
                continue
            body = Meaning.carrying(meaning.node(a), over(f))
            fold = along("sum", body, over(f))
            if is_count(fold):
                self._plain(fold, p)
            state = self.plain.get((fold, p))
            if state is None:
                return None
            symbol = sympy.Symbol(f"fold_{state.name}", positive=True)
            values[symbol] = state
            total += b * symbol
        by_state = {s.name: k for k, s in values.items()}
        definitions = {s: self._in_terms(meaning.nodes[s], by_state, p) for s in rs}
        known = all(d is not None for d in definitions.values())
        if known and _tidy(total.subs(definitions)) == 0:
            return "zero"
        out: dict[str, Node] = {}
        for tag in ("old", "left", "right"):
            table: dict[Any, Node] = {k: s.leaf(tag) for k, s in values.items()}  # type: ignore[arg-type]
            table |= {s: self._old_and_new(meaning.nodes[s], p)[tag] for s in rs}
            out[tag] = _filled(total, table, meaning)
        return out

    def _in_terms(self, r: Node, by_state: Mapping[str, Any], p: int) -> Any:
        value = self._current(r, p)
        leaves = {n: by_state.get(str(n.params[0])) for n in postorder([value]) if n.op == "state"}
        if any(v is None for v in leaves.values()):
            return None
        inner = Meaning(lambda n: "x" if n.op == "state" else "mixed")
        try:
            expression = inner.of(value)
        except NotSeparable:
            return None
        return expression.subs({inner.symbol(n): v for n, v in leaves.items()})


def _tidy(e: Any) -> Any:
    """A repair's entry in the form that it is computed in: exponentials joined, the rest factored,
    so that (mu_old - mu_new)**2 does not cancel as its expansion would."""
    e = sympy.powsimp(sympy.expand(e))
    symbols = e.free_symbols
    if e.is_rational_function(*symbols):
        return sympy.factor(sympy.cancel(e))
    return sympy.factor_terms(e)


def is_count(f: Node) -> bool:
    """Whether a reduction counts positions: its final value is a size."""
    return f.op == "sum" and f.args[0].op == "ones"


def extent(axes: tuple[str, ...]) -> Node:
    """The number of positions along `axes`, as a term over sizes."""
    total: Node | None = None
    for a in axes:
        n = node("size", params=(a,), kind="int")
        total = n if total is None else pointwise("mul", (total, n))
    assert total is not None
    return total


def _plus(total: Node | None, term: Node) -> Node:
    return term if total is None else pointwise("add", (total, term))


def _scaled(n: Node, factor: Node) -> Node:
    if factor in (number(1), number(1.0)):
        return n
    if factor.op == "div" and factor.args[0] in (number(1), number(1.0)):
        return pointwise("div", (n, factor.args[1]))
    return pointwise("mul", (n, factor))


def _value_at(value: Node, start: Mapping[Node, float]) -> float:
    """A term where every state has its first value, and inputs, sizes and scalars are 1."""
    leaves = [n for n in postorder([value]) if n.op in {"input", "size", "scalar", "state"}]
    bind = {n: np.full([1] * len(n.axes), start.get(n, 1.0)) for n in leaves}
    return float(np.ravel(evaluate([value], bind, {}, {})[0])[0])


def _basis(
    inner: Any, rs: list[Any], meaning: Meaning
) -> tuple[list[Any], list[list[Any]], list[Any]]:
    """Functions of x and r that span `inner` at every r: itself and enough of its derivatives.

    Returns the functions, and their coefficients on the functions of x alone (rows, columns).
    """

    def split(e: Any) -> tuple[set[Any], set[Any]]:
        xs, found = meaning.split(e)
        return xs, found

    columns: list[Any] = [a for a, _ in separate_by(inner, split)]

    def coefficients(e: Any) -> list[Any]:
        row = [sympy.Integer(0)] * len(columns)
        for a, b in separate_by(sympy.expand(e) if len(columns) > 1 else e, split):
            scale, plain = a.as_coeff_Mul()
            if plain not in columns:
                raise NotSeparable(str(inner), "its derivatives leave the span of its parts")
            row[columns.index(plain)] += scale * b
        return row

    columns = [a.as_coeff_Mul()[1] for a in columns]
    found: list[tuple[Any, list[Any]]] = [(inner, coefficients(inner))]
    queue = [inner]
    while queue and len(found) < _DERIVATIVES:
        current = queue.pop(0)
        for r in rs:
            further = sympy.factor_terms(sympy.diff(current, r)).as_coeff_Mul()[1]
            if further != 0 and all(further != e for e, _ in found):
                found.append((further, coefficients(further)))
                queue.append(further)
    for chosen in itertools.combinations(found[1:], len(columns) - 1):
        rows = [found[0][1], *(row for _, row in chosen)]
        # The repair divides by this determinant, so it must not vanish for any running result.
        if sympy.factor(sympy.Matrix(rows).det()).is_nonzero:
            return [inner, *(e for e, _ in chosen)], rows, columns
    raise NotSeparable(str(inner), "no basis of its derivatives is invertible for every result")


def _filled(expression: Any, values: Mapping[Any, Node], meaning: Meaning) -> Node:
    """The node of an expression with nodes for some of its symbols."""
    filler = Meaning(lambda _: "x")
    filler.nodes.update(meaning.nodes)
    filler.nodes.update(values)
    return filler.node(sympy.powsimp(expression))
