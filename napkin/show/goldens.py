"""The folder `generated/`: every shipped diagram's kernel, costs, derivation and verdict, and those
of its gradient.

NAME/diagram.svg, for each machine NAME/MACHINE/ with kernel.py, derivation.txt and warpgroups.py
where groups run as warpgroups, and for all kernels costs.csv and verdicts.csv (`show/tables.py`).
The gradient by all inputs is NAME_gradient, for one machine.
The kernel files run alone (`plan/standalone.py`).
All but the verdicts are made again in seconds and compared as bytes; a verdict says which sources
and which launches it is about, so that one made for an older kernel is found out.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import active_children, get_context
from pathlib import Path

import numpy as np

from napkin.diagram.diagram import Diagram
from napkin.diagram.library import load, names
from napkin.errors import InputError, NapkinError, Refusal
from napkin.gradient.gradient import gradient
from napkin.ir.storage import own_type
from napkin.machine.machines import machine
from napkin.plan.derive import derive
from napkin.plan.plan import Plan
from napkin.plan.samples import small
from napkin.plan.standalone import standalone
from napkin.progress import Progress
from napkin.show.files import check_folder, writable_folder, write_file
from napkin.show.tables import (
    COSTS,
    VERDICTS,
    Row,
    cost_rows,
    digest,
    key_of,
    read_table,
    replaced,
    table_text,
    verdict_rows,
)  # fmt: skip

PROCESSES = 8
"""Processes that compare diagrams, at most: each holds one diagram's plans at a time."""

MACHINES = ("a100", "h100")
"""Machines that kernels are kept for: one whose products read shared memory through registers, and
one whose products read it where it lies."""


TRAINED = MACHINES[-1:]
"""Machines that kernels of gradients are kept for."""


@dataclass(frozen=True)
class Outcome:
    """What became of the goldens: files that were written, and what is wrong, a line each."""

    written: tuple[str, ...]
    wrong: tuple[str, ...]


def diagrams(wanted: Sequence[str]) -> list[Diagram]:
    """The diagrams to generate for: those named, or every shipped one.

    Raises:
        InputError: a name is unknown, an axis has no size, or two diagrams would share a folder.
    """
    found = [load(name) for name in wanted or names()]
    called = [d.name for d in found]
    for d in found:
        d.check_sizes({})
    for name in called:
        if called.count(name) > 1:
            raise InputError(
                f"{name} is given twice, and each diagram has one folder; name it once"
            )
    return found


def generate(wanted: Sequence[str], out: Path, tell: Progress) -> Outcome:
    """Write the goldens; where a check fails nothing is written for that machine.

    Raises:
        InputError: a diagram is unknown, or `out` cannot be written.
    """
    found = diagrams(wanted)
    check_folder(out)
    folder = _Folder(out)
    for i, d in enumerate(found):
        step = i, len(found)
        for what, on in kept(d):
            title = f"{what.name} on {on}"
            tell(f"{title}: derive", *step)
            # The cases of a gradient take an interpreter minutes.
            sizes = None if what is d else small(what, np.random.default_rng(0), 9, 16)
            folder.add(derive(what, on), title, tell, step, sizes)
        drawings = _drawings(d)
        folder.made.update(drawings)
        folder.store(drawings)
    wrong = [*folder.wrong, *_left_over(out, found, not wanted, folder.made)]
    return Outcome(tuple(folder.written), tuple(wrong))


class _Folder:
    """The folder as it is written: `made` names the files that belong there, `written` those that
    were new, and `wrong` says what could not be written."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.made = set[str]()
        self.written: list[str] = []
        self.wrong: list[str] = []

    def add(
        self,
        plan: Plan,
        title: str,
        tell: Progress,
        step: tuple[int, int],
        sizes: Mapping[str, int] | None,
    ) -> None:
        """Check a plan, and write what is kept of it and of the check; nothing where it fails.

        Args:
            step: its place among all, and how many there are.
            sizes: those at which it is checked; None for those of `napkin.plan.samples`.
        """
        files = plan_files(plan)
        self.made.update(files)
        try:
            verdict = plan.check(
                sizes=sizes, progress=lambda text, *_: tell(f"{title}: {text}", *step)
            ).to_json()
        except InputError:
            raise
        except NapkinError as error:
            self.wrong.append(f"{title}: not written, as the check fails: {error}")
            return
        if not verdict["ok"]:
            see = f"see napkin check {plan.name} --on {plan.machine.name}"
            self.wrong.append(f"{title}: not written, as some prediction does not hold; {see}")
            return
        self.store(files)
        for name, rows in ((COSTS, cost_rows(plan)), (VERDICTS, verdict_rows(plan, verdict))):
            have = read_table(self.out / name) or []
            self.store({name: table_text(name, replaced(have, rows))})

    def store(self, files: Mapping[str, bytes]) -> None:
        """Write what is not there yet as it should be."""
        for name, content in files.items():
            path = self.out / name
            if _content(path) != content:
                writable_folder(path.parent)
                write_file(path, content)
                self.written.append(name)


def compare(wanted: Sequence[str], out: Path, tell: Progress) -> Outcome:
    """Compare the goldens with what would be generated now; nothing is written.

    Raises:
        InputError: a diagram is unknown, or there is no folder `out`.
    """
    found = diagrams(wanted)
    if not out.is_dir():
        raise InputError(
            f"there is no folder {out} to compare with; go to the folder that holds it, or write "
            "--out DIR"
        )
    bad = [name for name in (COSTS, VERDICTS) if read_table(out / name) is None]
    wrong = [f"{out / name}: is no table of costs or verdicts" for name in bad]
    made = set[str]()
    each = _each(partial(_compared, out, TRAINED), list(wanted or names()))
    for i, (files, differing) in enumerate(each):
        tell(f"{found[i].name}: compared", i, len(found))
        made.update(files)
        wrong += differing
    wrong += _left_over(out, found, not wanted, made)
    return Outcome((), tuple(wrong))


def _each(
    work: Callable[[str], tuple[list[str], list[str]]], names: Sequence[str]
) -> Iterator[tuple[list[str], list[str]]]:
    """What comes of work on each name, in order, found by several processes where there are several
    names."""
    processes = min(PROCESSES, os.cpu_count() or 1, len(names))
    if processes < 2:
        yield from map(work, names)
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        try:
            # The processes inherit that interrupts are held back: this one alone answers them.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                futures = [pool.submit(work, name) for name in names]
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            for future in futures:
                yield future.result()
        except BaseException:
            for process in active_children():
                process.terminate()
            raise


def _compared(out: Path, trained: Sequence[str], name: str) -> tuple[list[str], list[str]]:
    """The files of a diagram, and which differ."""
    d = load(name)
    files = _drawings(d, trained)
    tables = {table: read_table(out / table) for table in (COSTS, VERDICTS)}
    wrong: list[str] = []
    for what, on in kept(d, trained):
        plan = derive(what, on)
        files |= plan_files(plan)
        wrong += [
            f"{out / table}: {what.name} on {on} {why}" for table, why in _stale(plan, tables)
        ]
    return list(files), wrong + _differing(out, files)


def runs(d: Diagram, on: str) -> bool:
    """Whether a machine has the storage types of a diagram's inputs."""
    types = {own_type(n) for n in d.inputs}
    return "fp8" not in types or machine(on).target.has_fp8


def kept(d: Diagram, trained: Sequence[str] | None = None) -> list[tuple[Diagram, str]]:
    """What plans are kept of a diagram: on machines that have its storage types, it and its
    gradient, which goes without where it has none or a shipped diagram has its name.

    Args:
        trained: machines for the gradient; by default `TRAINED`.
    """
    every = [(d, on) for on in MACHINES]
    if trained := TRAINED if trained is None else trained:
        with suppress(Refusal):
            back = gradient(d)
            every += [(back, on) for on in trained if back.name not in names()]
    return [(what, on) for what, on in every if runs(what, on)]


# --- what the files hold ------------------------------------------------------------------------


def plan_files(plan: Plan) -> dict[str, bytes]:
    """The files that follow from a plan alone, by their places in the folder."""
    folder = f"{plan.name}/{plan.machine.name}"
    texts = {**standalone(plan), "derivation.txt": f"{plan!r}\n"}
    return {f"{folder}/{name}": text.encode() for name, text in texts.items()}


def _drawings(d: Diagram, trained: Sequence[str] | None = None) -> dict[str, bytes]:
    """The drawings of a diagram and its gradient, by their places in the folder."""
    from napkin.show.circuit import draw

    each = {what.name: what for what, _ in kept(d, trained)}
    return {f"{name}/diagram.svg": draw(what).encode() for name, what in each.items()}


# --- the folder ---------------------------------------------------------------------------------


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _differing(out: Path, files: Mapping[str, bytes]) -> list[str]:
    wrong: list[str] = []
    for name, content in files.items():
        have = _content(out / name)
        if have != content:
            wrong.append(f"{out / name}: " + ("missing" if have is None else "differs"))
    return wrong


def _stale(plan: Plan, tables: Mapping[str, list[Row] | None]) -> Iterator[tuple[str, str]]:
    """The tables in which the rows of a plan are not as they should be, with what is wrong."""
    for name, rows in tables.items():
        own = [row for row in rows or () if key_of(row) == (plan.name, plan.machine.name)]
        if rows is not None and not own:
            yield name, "is missing"
        elif name == COSTS and own and own != cost_rows(plan):
            yield name, "differs"
        elif name == VERDICTS and own and {row["digest"] for row in own} != {digest(plan)}:
            yield name, "was checked with another kernel"


def _left_over(
    out: Path, found: Sequence[Diagram], everything: bool, made: Collection[str]
) -> list[str]:
    """Files and rows that are not made: in all of `out`, or in the folders of some diagrams."""
    known = {out / name for name in (*made, COSTS, VERDICTS)}
    own = {(what.name, on) for d in found for what, on in kept(d)}
    roots = [out] if everything else [out / name for name in sorted({n for n, _ in own})]
    every = sorted(p for root in roots for p in root.rglob("*") if not p.is_dir())
    wrong = [f"{p}: left over; delete it" for p in every if p not in known]
    for name in (COSTS, VERDICTS) if everything else ():
        others = dict.fromkeys(key_of(row) for row in read_table(out / name) or [])
        gone = [key for key in others if key not in own]
        wrong += [f"{out / name}: {d} on {on} is left over; delete its rows" for d, on in gone]
    return wrong
