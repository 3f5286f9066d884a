"""A derivation explained: every step from the diagram to the source, out of what was traced."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from napkin.algebra.relabel import Move
from napkin.algebra.tracer import (
    Began,
    Considered,
    Dropped,
    Labelled,
    Step,
    Tracer,
    active,
    times,
    tracing,
)
from napkin.derive.kernel import Kernel
from napkin.derive.prepare import Prepared, prepare
from napkin.derive.rules.table import rules
from napkin.diagram.diagram import Diagram
from napkin.errors import InputError, Refusal, did_you_mean
from napkin.ir.listing import listing, text
from napkin.ir.node import REDUCTIONS, SCANS, Node, over, postorder
from napkin.ir.storage import unstored
from napkin.moves.refactor import Refactored
from napkin.plan.plan import Plan
from napkin.plan.planned import PlannedKernel, distinct
from napkin.plan.steps import OF_THE_WHOLE
from napkin.rewrite.split import SPLIT


@dataclass(frozen=True)
class Item:
    """One thing that is explained.

    Attributes:
        kind: "diagram"; "step", a rewrite; "move", a label or another move of the trail; "search",
            the term of which the items after it are; "considered" and "dropped", ways to run it;
            "setting"; "source".
        rule, law: of a step or a move.
        kernel: the kernel that it is about; "" where it is about the whole.
        what: it in words, or its text.
        of: what a way is one of: "term", "order", "cut", "kernel" or "setting".
        why: why a way was dropped.
        time_us: the predicted time of a way, in microseconds.
        before, after: the lines of both terms that differ; of a search, those of its term.
    """

    kind: str
    what: str = ""
    of: str = ""
    rule: str = ""
    law: str = ""
    kernel: str = ""
    why: str = ""
    time_us: float | None = None
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The item as plain data, without what it does not have."""
        return {k: v for k, v in asdict(self).items() if v not in ("", None, ())}


# --- which rules there are ------------------------------------------------------------------


def check_rule(rule: str) -> None:
    """Check that there is a rule of a name.

    Raises:
        InputError: there is none; the message has the nearest.
    """
    if rule not in rules():
        known = ", ".join(rules())
        near = did_you_mean(rule, rules())
        more = "" if known in near else f" (known: {known})"
        raise InputError(f"--after {rule!r}: no such rule; {near}{more}")


def up_to(items: Sequence[Item], rule: str) -> list[Item]:
    """The items up to the last of a rule.

    Raises:
        InputError: no item is of that rule.
    """
    at = [i for i, item in enumerate(items) if item.rule == rule]
    if not at:
        used = ", ".join(dict.fromkeys(i.rule for i in items if i.rule))
        raise InputError(f"--after {rule!r}: no step here is of that rule; there are {used}")
    return list(items[: at[-1] + 1])


# --- where it is asked for ------------------------------------------------------------------


def told(diagram: Diagram, plan: Callable[[], Plan]) -> Plan:
    """A plan; where `NAPKIN_TRACE=1` asks for it, and no tracer listens yet, what led to it or to
    its refusal is printed to stderr.

    Args:
        plan: makes it.
    """
    if os.environ.get("NAPKIN_TRACE", "") in {"", "0"} or active() is not None:
        return plan()
    with tracing() as tracer:
        try:
            made, refusal = plan(), None
        except Refusal as why:
            made, refusal = None, why
    sys.stderr.write(explanation(explained(diagram, tracer, made)))
    if made is None:
        assert refusal is not None
        raise refusal
    return made


# --- what is explained ----------------------------------------------------------------------


def explained(diagram: Diagram, tracer: Tracer, plan: Plan | None) -> list[Item]:
    """Every step from a diagram to the source of its plan.

    Args:
        tracer: what was traced while it was planned.
        plan: the plan; None where planning ended in a refusal, and the steps do before it.
    """
    names = {**diagram.names, **prepare(diagram).names}
    items = [Item("diagram", repr(diagram)), *_prepared(diagram, tracer, names)]
    if plan is not None:
        items += [_moved(m) for m in plan.trail if m.rule == "expand"]
    items += _searched(tracer)
    if plan is not None:
        items += [*_refactored(plan, tracer, names), *_kernels(plan, tracer)]
        items += [Item("source", file) for file in (plan.source, plan.warpgroups) if file]
    return items


def _prepared(diagram: Diagram, tracer: Tracer, names: Mapping[Node, str]) -> Iterator[Item]:
    """The rewrites of the whole term before kernels are searched for."""
    called = [o.name for o in diagram.outputs]
    for event in tracer.events:
        if isinstance(event, Began):
            return
        if isinstance(event, Step):
            known = called if len(called) == len(event.before) else _called(event, names)
            yield _rewritten(event, known, names)


def _called(step: Step, names: Mapping[Node, str]) -> list[str]:
    return [names.get(n, n.op) for n in step.before]


def _rewritten(
    step: Step, called: Sequence[str], names: Mapping[Node, str], kernel: str = ""
) -> Item:
    """A rewrite, with the lines of both terms that differ."""
    before, after = (tuple(_lines(called, t, names)) for t in (step.before, step.after))
    return Item(
        "step",
        rule=step.rule,
        law=step.law,
        kernel=kernel,
        before=tuple(x for x in before if x not in after) or before,
        after=tuple(x for x in after if x not in before) or after,
    )


def _lines(called: Sequence[str], nodes: Sequence[Node], names: Mapping[Node, str]) -> list[str]:
    """The lines of a listing, with their columns closed up."""
    rows = [(name, n, n.axes) for name, n in zip(called, nodes, strict=True)]
    return [" ".join(line.split()) for line in listing("", rows, names).splitlines()[1:]]


def _moved(move: Move, kernel: str = "") -> Item:
    return Item("move", str(move), rule=move.rule, law=_law(move), kernel=kernel)


def _law(move: Move) -> str:
    """The law of a move: that of its rule, or the equation that it was taken by."""
    return rules()[move.rule].law if move.rule in rules() else move.note


def _searched(tracer: Tracer) -> Iterator[Item]:
    """The ways that the planner considered, and why it dropped those that it did not take."""
    for event in tracer.events:
        if isinstance(event, Began):
            yield Item("search", event.what, before=tuple(_term_lines(event.term)))
        if isinstance(event, Considered):
            time = None if event.seconds is None else round(event.seconds * 1e6, 3)
            yield Item("considered", event.what, of=event.kind, time_us=time)
        if isinstance(event, Dropped):
            yield Item("dropped", event.what, of=event.kind, why=event.why)


def _term_lines(term: Prepared | Refactored) -> list[str]:
    """The lines of a term, with the names by which its cuts go."""
    names = dict(term.names)
    names |= {unstored(n): t for n, t in term.names.items() if unstored(n) not in names}
    roots = [o.node for o in term.outputs]
    heavy = (n for n in postorder(roots) if n.op in REDUCTIONS or n.op in SCANS)
    names |= {n: n.op for n in heavy if n not in names}
    return _lines([o.name for o in term.outputs], roots, names)


def _refactored(plan: Plan, tracer: Tracer, names: Mapping[Node, str]) -> Iterator[Item]:
    """The moves of the whole term that were taken, after the rewrites that make them."""
    notes = [m.note for m in plan.trail if m.rule == "refactor"]
    last: Step | None = None
    for event in tracer.events:
        if isinstance(event, Step):
            last = event
        term = event.term if isinstance(event, Began) else None
        if isinstance(term, Refactored) and term.law in notes and last is not None:
            notes.remove(term.law)
            yield _rewritten(last, _called(last, names), names)
    yield from (_moved(m) for m in plan.trail if m.rule in OF_THE_WHOLE - {"expand"})


def _kernels(plan: Plan, tracer: Tracer) -> Iterator[Item]:
    """The rewrites, the labels and the setting of each kernel."""
    for k in distinct(plan.kernels):
        yield from _labelled(k.choice.kernel, tracer)
        name = k.choice.kernel.name
        own = (m for m in plan.trail if m.kernel == name and m.rule not in OF_THE_WHOLE)
        yield from (_moved(m, name) for m in own)
        yield _set(k)
    yield from map(_set, distinct(plan.of_warpgroups))


def _set(k: PlannedKernel) -> Item:
    """The setting that was chosen for a kernel."""
    choice = k.choice
    shared = f"about {k.shared_bytes:,} bytes of shared memory"
    return Item(
        "setting",
        f"{k.schedule}; {shared}; limited by {choice.time.limited_by}",
        kernel=k.name,
        time_us=round(choice.time.seconds * 1e6, 3),
    )


def _labelled(kernel: Kernel, tracer: Tracer) -> Iterator[Item]:
    """The rewrites that labelling a kernel took."""
    events = tracer.events
    for i, event in enumerate(events):
        if isinstance(event, Labelled) and _same(event.kernel, kernel):
            steps = [e for e in events[event.since : i] if isinstance(e, Step)]
            for step in [*_split(event, events), *steps]:
                yield _folded(step, kernel) if step.kernel else _in_kernel(step, kernel)
            return


def _same(a: Kernel, b: Kernel) -> bool:
    """Whether a kernel is another under a name of its own, or a part of it."""
    same = a.stream.axes == b.stream.axes and len(a.stream.passes) == len(b.stream.passes)
    return a.names is b.names and same and a.splits == b.splits


def _split(event: Labelled, events: Sequence[Any]) -> list[Step]:
    """The rewrite that split the axes of a kernel by residue; none where none is split."""
    places = {s.place for s in event.kernel.splits}
    before = (e for e in reversed(events[: event.since]) if isinstance(e, Step))
    steps = (e for e in before if e.rule == SPLIT.name)
    found = (e for e in steps if any(places & {*n.axes} for n in e.after))
    return list(itertools.islice(found, 1))


def _in_kernel(step: Step, kernel: Kernel) -> Item:
    outputs = [o.name for o in kernel.origin]
    whole = len(outputs) == len(step.before) and step.before[0] not in kernel.names
    called = outputs if whole else _called(step, kernel.names)
    return _rewritten(step, called, kernel.names, kernel.name)


def _folded(step: Step, kernel: Kernel) -> Item:
    """A stream: the term, and the fold that it becomes, as the kernel runs it."""
    made: Kernel = step.kernel
    before = _lines([o.name for o in made.outputs], step.before, made.names)
    return Item(
        "step",
        f"stream {made.stream.axis}",
        rule=step.rule,
        law=step.law,
        kernel=kernel.name,
        before=tuple(before),
        after=tuple(_fold_lines(kernel)),
    )


def _fold_lines(kernel: Kernel) -> Iterator[str]:
    """A fold as lines: of each pass the states and what it stores, then the tail."""
    stream = kernel.stream
    names = {n: t for n, t in kernel.names.items() if not stream.carried(over(n))}
    for s in stream.states:
        names |= {s.leaf("old"): f"{s.name}_old", s.leaf("new"): s.name}
    for i, loop in enumerate(stream.passes):
        yield f"for each chunk of {stream.axis}" + (f", pass {i + 1}:" if i else ":")
        for s in loop.states:
            held = "" if s.held == "fold" else f"; {s.held}"
            start = f"{s.init:g}" if s.begin is None else text(s.begin, names)
            yield f"  {s.name} = {text(s.step, names)} [{_list(s.axes)}] from {start}{held}"
        yield from (f"  store {e.output} = {text(e.node, names)}" for e in loop.emits)
    if stream.tails:
        yield "at the end:"
    yield from (
        f"  {e.output} = {text(e.node, names)} [{_list(e.node.axes)}]" for e in stream.tails
    )


def _list(axes: Sequence[str]) -> str:
    return " ".join(axes) or "()"


def to_json(plan: Plan, items: Iterable[Item]) -> dict[str, Any]:
    """An explanation as plain data; times are in microseconds."""
    return {
        "name": plan.name,
        "machine": plan.machine.name,
        "dtype": plan.dtype,
        "sizes": dict(plan.sizes),
        "time_us": round(plan.seconds * 1e6, 3),
        "items": [item.to_json() for item in items],
    }


# --- how it is written ----------------------------------------------------------------------


def explanation(items: Iterable[Item]) -> str:
    """Items as text, a paragraph for each step and a line for all else; of moves the law once."""
    lines: list[str] = []
    moved = set[str]()
    for item in items:
        lines += _WRITTEN[item.kind](item)
        if item.kind == "move" and item.rule not in moved:
            lines.append(f"  law: {item.law}")
        moved.add(item.rule)
    return "\n".join(lines) + "\n"


def _step_lines(item: Item) -> Iterator[str]:
    where = f" ({item.kernel})" if item.kernel else ""
    yield from ("", f"step: {item.rule}{where}", f"  law: {item.law}")
    for title, lines in (("before", item.before), ("after", item.after)):
        yield f"  {title}:"
        yield from (f"    {line}" for line in lines)


def _move_lines(item: Item) -> Iterator[str]:
    where = f" ({item.kernel})" if item.kernel else ""
    yield f"move: {item.what}{where}"


def _search_lines(item: Item) -> Iterator[str]:
    yield from ("", f"search: {item.what}")
    yield from (f"    {line}" for line in item.before)


def _way_lines(item: Item) -> Iterator[str]:
    time = "" if item.time_us is None else f": {times(item.time_us / 1e6)}"
    yield f"  {item.kind} {item.of}: {item.what}{time}"
    if item.why:
        yield f"    because {item.why}"


def _setting_lines(item: Item) -> Iterator[str]:
    assert item.time_us is not None
    yield f"setting of {item.kernel}: {item.what}; {times(item.time_us / 1e6)}"


_WRITTEN = {
    "diagram": lambda item: [item.what],
    "step": _step_lines,
    "move": _move_lines,
    "search": _search_lines,
    "considered": _way_lines,
    "dropped": _way_lines,
    "setting": _setting_lines,
    "source": lambda item: ["", "source:", "", item.what.rstrip()],
}  # fmt: skip
