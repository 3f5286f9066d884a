"""The folder `generated/`: every shipped diagram's kernel, costs, derivation and verdict.

NAME/diagram.svg, and for each machine NAME/MACHINE/ with kernel.py, cost.json, derivation.txt and
verdict.json, and warpgroups.py where groups run as warpgroups. All but the verdict are made again
in seconds and compared as bytes; a verdict says which kernel and which launch it is about, so that
one made for an older kernel is found out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from napkin.cost.machines import machine
from napkin.diagram.diagram import Diagram
from napkin.diagram.library import load, names
from napkin.diagram.storage import own_type
from napkin.diagram.types import FP8_CAPABILITY
from napkin.errors import InputError, NapkinError
from napkin.plan.derive import derive
from napkin.plan.plan import Plan, distinct
from napkin.show.console import Progress, json_text
from napkin.show.costs import cost_json
from napkin.show.files import writable_folder, write_file

MACHINES = ("a100", "h100")
"""Machines that kernels are kept for: one for each architecture whose shared memory is modelled."""

VERDICT = "verdict.json"


@dataclass(frozen=True)
class Outcome:
    """What became of the goldens: files that were written, and what is wrong, a line each."""

    written: tuple[str, ...]
    wrong: tuple[str, ...]


def diagrams(wanted: Sequence[str]) -> list[Diagram]:
    """The diagrams to generate for: those named, or every shipped one.

    Raises:
        InputError: a name is unknown, or two diagrams would share a folder.
    """
    found = [load(name) for name in wanted or names()]
    called = [d.name for d in found]
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
    writable_folder(out)
    written: list[str] = []
    wrong: list[str] = []
    for i, d in enumerate(found):
        written += _store(out, {f"{d.name}/diagram.svg": _drawing(d)})
        for j, on in enumerate(MACHINES):
            place = i * len(MACHINES) + j, len(found) * len(MACHINES)
            title = f"{d.name} on {on}"
            tell(f"{title}: derive", *place)
            plan = _plan(d, on)
            if plan is None:
                continue
            files = plan_files(plan)
            try:
                verdict = plan.check(
                    progress=lambda text, _done, _total, title=title, place=place: tell(
                        f"{title}: {text}", *place
                    )
                ).to_json()
            except InputError:
                raise
            except NapkinError as error:
                wrong.append(f"{title}: not written, as the check fails: {error}")
                continue
            if not verdict["ok"]:
                see = f"see napkin check {d.name} --on {on}"
                wrong.append(f"{title}: not written, as some prediction does not hold; {see}")
                continue
            folder = f"{d.name}/{plan.machine.name}"
            files[VERDICT] = json_text({**_subject(plan), **verdict}).encode()
            written += _store(out, {f"{folder}/{name}": text for name, text in files.items()})
    wrong += _left_over(out, found, everything=not wanted)
    return Outcome(tuple(written), tuple(wrong))


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
    wrong: list[str] = []
    for i, d in enumerate(found):
        wrong += _differing(out, {f"{d.name}/diagram.svg": _drawing(d)})
        for j, on in enumerate(MACHINES):
            tell(f"{d.name} on {on}", i * len(MACHINES) + j, len(found) * len(MACHINES))
            plan = _plan(d, on)
            if plan is None:
                continue
            folder = f"{d.name}/{plan.machine.name}"
            files = plan_files(plan)
            wrong += _differing(out, {f"{folder}/{name}": text for name, text in files.items()})
            wrong += _stale(out, f"{folder}/{VERDICT}", _subject(plan))
    wrong += _left_over(out, found, everything=not wanted)
    return Outcome((), tuple(wrong))


def runs(d: Diagram, place: str) -> bool:
    """Whether a machine has the storage types of a diagram's inputs."""
    types = {own_type(n) for n in d.inputs}
    return "fp8" not in types or machine(place).capability >= FP8_CAPABILITY


def _plan(d: Diagram, place: str) -> Plan | None:
    """The plan of a diagram; none where the machine lacks a storage type."""
    return derive(d, place) if runs(d, place) else None


# --- what the files hold ------------------------------------------------------------------------


def plan_files(plan: Plan) -> dict[str, bytes]:
    """The files that follow from a plan alone, by name."""
    return {
        "kernel.py": plan.source.encode(),
        "cost.json": json_text(cost_json(plan)).encode(),
        "derivation.txt": f"{plan!r}\n".encode(),
        **({"warpgroups.py": plan.warpgroups.encode()} if plan.warpgroups else {}),
    }


def _drawing(d: Diagram) -> bytes:
    drawing: str = import_module("napkin.show.circuit").draw(d)
    return drawing.encode()


def _subject(plan: Plan) -> dict[str, Any]:
    """What a verdict is about: the kernel's source, and how it is launched."""
    return {
        "kernel_sha256": hashlib.sha256(plan.source.encode()).hexdigest(),
        "launch": [
            {
                "kernel": k.name,
                "tiles": dict(k.tiles),
                "warps": k.choice.warps,
                "stages": k.choice.stages,
                "persistent": k.choice.persistent,
            }
            for k in distinct(plan.kernels)
        ],
    }


# --- the folder ---------------------------------------------------------------------------------


def _store(out: Path, files: Mapping[str, bytes]) -> list[str]:
    """Write what is not there yet as it should be; the names of the files written."""
    done: list[str] = []
    for name, content in files.items():
        path = out / name
        if _content(path) != content:
            writable_folder(path.parent)
            write_file(path, content)
            done.append(name)
    return done


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


def _stale(out: Path, name: str, subject: Mapping[str, Any]) -> list[str]:
    """What is wrong with a verdict, if anything."""
    have = _content(out / name)
    if have is None:
        return [f"{out / name}: missing"]
    try:
        data: Any = json.loads(have)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        return [f"{out / name}: is not the JSON of a verdict"]
    verdict = cast("dict[str, Any]", data)
    if verdict.get("ok") is not True:
        return [f"{out / name}: says that some prediction does not hold"]
    if any(verdict.get(key) != value for key, value in subject.items()):
        return [f"{out / name}: was made for another kernel"]
    return []


def _left_over(out: Path, found: Iterable[Diagram], *, everything: bool) -> list[str]:
    """Files that nothing generates: in all of `out`, or in the folders of some diagrams."""
    names_of = ("kernel.py", "cost.json", "derivation.txt", VERDICT)
    known = {out / d.name / "diagram.svg" for d in found}
    places = [(d, place) for d in found for place in MACHINES if runs(d, place)]
    known |= {out / d.name / place / name for d, place in places for name in names_of}
    fast = out.rglob("warpgroups.py")  # where there is one, `compare` makes it again
    known |= {p for p in fast if (p.parent / "kernel.py") in known}
    roots = [out] if everything else [out / d.name for d in found]
    every = sorted(p for root in roots for p in root.rglob("*") if not p.is_dir())
    return [f"{p}: left over; delete it" for p in every if p not in known]
