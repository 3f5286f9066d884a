"""Which machine file a torch device is planned for."""

from __future__ import annotations

import os
import warnings
from functools import lru_cache
from typing import Any

import torch

from napkin.errors import InputError
from napkin.machine.machines import Machine, machine, machines

ON_CPU = "h100"
"""The machine whose plans CPU tensors run, through the interpreter."""


@lru_cache(maxsize=64)
def machine_of(device: torch.device) -> Machine:
    """The machine of a device: `$NAPKIN_MACHINE`, or the shipped one of its name, or the nearest by
    compute capability whose groups have no more shared memory than the device gives one.

    Raises:
        InputError: NAPKIN_MACHINE names no machine.
    """
    if chosen := os.environ.get("NAPKIN_MACHINE"):
        try:
            return machine(os.path.expanduser(chosen))
        except InputError as error:
            raise InputError(f"NAPKIN_MACHINE: {error}") from None
    if device.type == "cpu":
        return machine(ON_CPU)
    return shipped(device)


def shipped(device: torch.device | str = "cuda") -> Machine:
    """The shipped machine that is nearest to a CUDA device, by default the current one."""
    facts: Any = torch.cuda.get_device_properties(device)
    return nearest(facts.name, 10 * facts.major + facts.minor, facts.shared_memory_per_block_optin)


def nearest(name: str, capability: int, shared: int) -> Machine:
    """The shipped machine for a GPU with this name, compute capability (90 for 9.0) and bytes of
    shared memory for one group; warns where it goes by another name."""
    plain = name.lower().replace(" ", "").replace("-", "")
    named = [m for m in machines() if all(part in plain for part in m.split("_"))]
    if named:
        return machine(max(named, key=len))  # the one that says more, as in "h100_pcie"
    every = [m for m in map(machine, machines()) if m.cuda]
    fitting = [m for m in every if m.shared_per_block <= shared] or every
    found = min(fitting, key=lambda m: (abs(m.capability - capability), m.capability > capability))
    warnings.warn(
        f"napkin has no machine file for {name} (compute capability {capability / 10}); kernels "
        f"are planned for {found.title}. For better tiles, write a machine file like "
        f"napkin/machine/{found.name}.toml and set NAPKIN_MACHINE to its path",
        RuntimeWarning,
        stacklevel=2,
    )
    return found
