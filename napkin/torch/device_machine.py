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

NAMES = {
    "H100 80GB HBM3": "h100", "H100 PCIe": "h100_pcie", "H200": "h200", "B200": "b200",
    "A100-SXM4-80GB": "a100", "A100-SXM4-40GB": "a100_40", "A100-PCIE-40GB": "a100_40",
    "L40S": "l40s", "GeForce RTX 4090": "rtx4090", "GeForce RTX 5090": "rtx5090",
    "AMD Instinct MI300X": "mi300x",
}  # fmt: skip
"""Machines by what drivers call them, word for word: a GH200 is no H200, an RTX A1000 no A100."""


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
    if known := NAMES.get(name.removeprefix("NVIDIA ")):
        return machine(known)
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
