"""Machines by name: those that napkin ships, and those in a user's own file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path

from napkin.errors import InputError, did_you_mean
from napkin.machine.hardware import Figure, Level, Machine, Pipe
from napkin.machine.machine_file import parse

__all__ = ["MEASURED", "Figure", "Level", "Machine", "Pipe", "machine", "machines"]

ALIASES = {"a100_80": "a100"}
"""Other names of shipped machines."""

MEASURED = "h100"
"""The machine whose file has every constant of the time model; they stand in where a file has none
of its own."""


def machines() -> tuple[str, ...]:
    """The names of the machines that napkin ships."""
    files = resources.files("napkin").joinpath("machine").iterdir()
    return tuple(sorted(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml")))


def machine(name_or_path: str | Path) -> Machine:
    """The shipped machine of that name ("h100"), or the one in a user's ``.toml`` file."""
    if not isinstance(name_or_path, str | Path):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(
            f"machine {name_or_path!r} is no name; write one of: {', '.join(machines())}"
        )
    path = Path(name_or_path)
    if path.suffix == ".toml":
        try:
            content = path.read_bytes()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise InputError(f"{path}: cannot read the machine file: {why}") from error
        return parse(content, name=path.stem, file=str(path), constants=_constants())
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
    constants = None if name == MEASURED else _constants()
    file = resources.files("napkin").joinpath("machine", f"{name}.toml")
    return parse(file.read_bytes(), name=name, file=str(file), constants=constants)


@cache
def _constants() -> Mapping[str, str]:
    """The constants of the time model, with their units."""
    return {key: figure.unit for key, figure in _shipped(MEASURED).calibration.items()}
