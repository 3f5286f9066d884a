"""Settings that were fastest on a device, remembered: a JSON file for each machine.

A file lies in the folder of `napkin.run.cache_folder`, and is called tuned-MACHINE.json. An entry
belongs to the text of the kernels that the planner writes by itself: where napkin would write
another kernel today, there is no entry, and the planner's choice stands.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from napkin.errors import InputError
from napkin.plan.plan import Plan
from napkin.plan.planned import distinct
from napkin.plan.ranked import ranked, same_setting, setting_json, with_choices
from napkin.run.cache_folder import folder, read, write
from napkin.settings.best import TRIED
from napkin.settings.choice import Choice

FORMAT = 3
"""Changes when the file's form does; a file of another form is not read."""


def file_of(plan: Plan) -> Path:
    """The file of a plan's machine."""
    return folder() / f"tuned-{plan.machine.name}.json"


def key_of(plan: Plan) -> str:
    """What an entry is found by: the kernels as the planner chose them, their sizes and types."""
    parts = [plan.source, json.dumps(dict(plan.sizes), sort_keys=True), plan.dtype]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def remember(plan: Plan, choices: Sequence[Choice], about: Mapping[str, Any] | None = None) -> Path:
    """Write down the settings that were fastest for a plan, one for each distinct kernel.

    Args:
        plan: as the planner made it.
        about: what the measurement says beside: device, versions, times.

    Raises:
        InputError: the file cannot be written.
    """
    path = file_of(plan)
    entry = {
        "name": plan.name,
        "sizes": dict(plan.sizes),
        "dtype": plan.dtype,
        "kernels": [setting_json(c) for c in choices],
        **(about or {}),
    }
    try:
        # What other processes wrote by now stays; of two at once the last one wins, whole.
        data = {"format": FORMAT, "plans": {**_entries(path), key_of(plan): entry}}
        write(path, json.dumps(data, indent=1) + "\n")
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror}; set NAPKIN_CACHE to a folder of yours"
        ) from None
    return path


def _entries(path: Path) -> dict[str, Any]:
    try:
        data: Any = json.loads(read(path) or "")
        return {**data["plans"]} if data["format"] == FORMAT else {}
    except (ValueError, KeyError, TypeError, RecursionError):  # it is no such file
        return {}


def entry_of(plan: Plan) -> dict[str, Any] | None:
    """What is remembered of a plan that the planner made, or None."""
    found: Any = _entries(file_of(plan)).get(key_of(plan))
    try:
        return found if all(isinstance(k, dict) for k in found["kernels"]) else None
    except (KeyError, TypeError):
        return None


def remembered(plan: Plan) -> Plan:
    """The plan with the settings that were fastest when it was tuned; as it is, where it was not,
    or where one of them is no longer among those that the planner has to offer."""
    entry = entry_of(plan)
    kinds = distinct(plan.kernels)
    if entry is None or len(entry["kernels"]) != len(kinds):
        return plan
    chosen: list[Choice] = []
    for k, data in zip(kinds, entry["kernels"], strict=True):
        found = next((c for c in ranked(plan, k, TRIED) if same_setting(c, data)), None)
        if found is None:
            return plan
        chosen.append(found)
    return with_choices(plan, chosen)
