"""What is kept on disk between processes: launch recipes, and kernel files that Triton reads.

Every file is written beside its place (`napkin.plan.kept`) and then moved there, so that a reader
sees all of it or nothing, and the last of two writers wins with the same content. Where the folder
cannot be written, nothing is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from types import ModuleType

import napkin
from napkin.lower.compiler import installed
from napkin.plan.kept import folder, temporary
from napkin.plan.recipe import Recipe, recipe_of


def digest(*parts: str) -> str:
    """The name under which what depends on `parts`, on this napkin and its Triton, is kept."""
    made = hashlib.sha256(f"{_package()}\0{installed()}".encode())
    for part in parts:
        made.update(f"\0{len(part)}\0{part}".encode())
    return made.hexdigest()[:32]


def load(name: str) -> Recipe | None:
    """The recipe of that name; None where there is none that can be read."""
    try:
        return recipe_of(json.loads((folder() / "recipes" / f"{name}.json").read_text()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None


def save(name: str, recipe: Recipe) -> None:
    """Keep a recipe, where the folder can be written."""
    with contextlib.suppress(OSError):
        _put(folder() / "recipes" / f"{name}.json", json.dumps(recipe.to_json()))


@lru_cache(maxsize=1024)
def module_of(source: str) -> ModuleType:
    """The kernel file imported as a module; Triton reads a kernel's text from its file."""
    name = f"kernel_{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    try:
        path = _put(folder() / "kernels" / f"{name}.py", source)
    except OSError:
        path = _put(temporary() / f"{name}.py", source)
    spec = importlib.util.spec_from_file_location(f"napkin_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


def _put(path: Path, text: str) -> Path:
    """`path` with this text, written if it is not there."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if path.read_text() == text:
            return path
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False) as part:
        try:
            part.write(text)
            part.close()
            os.replace(part.name, path)
        except BaseException:
            os.unlink(part.name)
            raise
    return path


@lru_cache(maxsize=1)
def _package() -> str:
    """What this napkin is: its version and the text of its own files."""
    root = Path(napkin.__file__).parent
    made = hashlib.sha256(napkin.__version__.encode())
    for path in sorted(p for p in root.rglob("*") if p.suffix in {".py", ".toml"}):
        made.update(f"\0{path.relative_to(root)}\0".encode())
        made.update(path.read_bytes())
    return made.hexdigest()
