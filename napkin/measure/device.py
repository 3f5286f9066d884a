"""The device that is measured."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from napkin.errors import InputError


def require(what: str) -> Any:
    """torch, where it has a CUDA device.

    Args:
        what: the command that needs it, for the message.

    Raises:
        InputError: torch is not installed, or finds no device.
    """
    try:
        import torch
    except ImportError:
        raise InputError(
            f"{what} needs a CUDA device and torch, which is not installed; "
            "pip install 'napkin[torch]' on a machine with an NVIDIA GPU"
        ) from None
    if not torch.cuda.is_available():
        built = getattr(torch.version, "cuda", None)
        why = f"built for CUDA {built}" if built else "built without CUDA"
        raise InputError(
            f"{what} needs a CUDA device, and torch {torch.__version__} ({why}) finds none here; "
            "run it on a machine with an NVIDIA GPU"
        )
    return torch


def described() -> dict[str, str]:
    """The device and the versions that a measurement is about."""
    import torch
    import triton

    from napkin.version import __version__

    major, minor = torch.cuda.get_device_capability()
    return {
        "device": torch.cuda.get_device_name(),
        "arch": f"sm_{major}{minor}",
        "driver": _driver(),
        "cuda": str(torch.version.cuda),
        "torch": str(torch.__version__),
        "triton": str(triton.__version__),
        "napkin": __version__,
    }


def version_of(package: str) -> str:
    """A package with its installed version, or "" where none is known."""
    try:
        return f"{package} {metadata.version(package)}"
    except (metadata.PackageNotFoundError, ValueError):
        return ""


def fresh_seed() -> int:
    """A seed that no run before had; commands print it."""
    import secrets

    return secrets.randbelow(2**31)


def _driver() -> str:
    """The driver's version, from the kernel module."""
    import re
    from pathlib import Path

    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return ""
    found = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)", text)
    return found[1] if found else ""
