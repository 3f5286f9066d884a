"""Machines by name: those that napkin ships, and those in a user's own file."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path

from napkin.cost.hardware import Figure, Level, Machine, Pipe
from napkin.cost.machine_file import parse
from napkin.errors import InputError, did_you_mean

__all__ = ["Figure", "Level", "Machine", "Pipe", "machine", "machines"]

ALIASES = {"a100_80": "a100"}
"""Other names of shipped machines."""


def machines() -> tuple[str, ...]:
    """The names of the machines that napkin ships."""
    files = resources.files("napkin").joinpath("machines").iterdir()
    return tuple(sorted(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml")))


def machine(name_or_path: str | Path) -> Machine:
    """The shipped machine of that name ("h100"), or the one in a user's ``.toml`` file."""
    path = Path(name_or_path)
    if path.suffix == ".toml":
        try:
            return parse(path.read_bytes(), name=path.stem, file=str(path))
        except OSError as error:
            raise InputError(f"{path}: cannot read the machine file: {error.strerror}") from error
    name = ALIASES.get(str(name_or_path), str(name_or_path))
    if name not in machines():
        raise InputError(
            f"unknown machine {name!r}; {did_you_mean(name, machines())}"
            " (a machine of your own is a path that ends in .toml)"
        )
    return _shipped(name)


@cache
def _shipped(name: str) -> Machine:
    """A shipped machine: one object, so that what is known of it is found by identity."""
    file = resources.files("napkin").joinpath("machines", f"{name}.toml")
    return parse(file.read_bytes(), name=name, file=str(file))
