"""Shared memory of one group, predicted from its loop program."""

from __future__ import annotations

from collections.abc import Mapping

from napkin.cost.levels import held
from napkin.cost.levels import shared_bytes as operands_bytes
from napkin.lower.program import Program


def shared_bytes(
    program: Program, dtypes: Mapping[str, str], arch: str, warps: int, stages: int
) -> int:
    """Bytes of shared memory that the compiled kernel takes on `arch`."""
    slots = stages if int(arch.removeprefix("sm_")) >= 90 else max(stages - 1, 1)
    return operands_bytes(held(program.kernel), program.tiles, dtypes, slots)
