"""Kernels' files as modules, in the children that hold Triton."""

from __future__ import annotations

import hashlib
import importlib.util
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from napkin.errors import InputError, did_you_mean
from napkin.run.worker import KernelError

_scratch = tempfile.TemporaryDirectory(prefix="napkin-")
_modules: dict[tuple[str, str], ModuleType] = {}


def load(text: str, path: str | None) -> ModuleType:
    """Import a kernel's file, once for each text that it ever held."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    key = (path or "", digest)
    if key not in _modules:
        # Triton reads a function's source again from disk, so this very text must be there.
        copy = Path(_scratch.name) / digest / Path(path or "kernel.py").name
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(f"napkin_kernel_{digest}", copy)
        if spec is None or spec.loader is None:
            raise InputError(f"a kernel's file must end in .py, not be {copy.name!r}")
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            where = path or "the kernel's source"
            raise KernelError(f"{where} does not import: {type(error).__name__}: {error}") from None
        _modules[key] = module
    return _modules[key]


def find(module: ModuleType, name: str, jitted: type) -> Any:
    """The kernel `name` of a module, an instance of Triton's `jitted`, without its decorators."""
    kernel = getattr(module, name, None)
    while kernel is not None and not isinstance(kernel, jitted):
        kernel = getattr(kernel, "fn", None)  # under @triton.autotune or @triton.heuristics
    if kernel is None:
        known = [key for key, value in vars(module).items() if isinstance(value, jitted)]
        raise InputError(f"no kernel {name!r} in this file; {did_you_mean(name, known)}")
    return kernel
