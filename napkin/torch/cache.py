"""Launch recipes that are kept on disk between processes.

Files are read and written by `napkin.run.cache_folder`: a reader sees all of one or nothing, the
last of two writers wins with the same content, and where others can write, nothing is kept. A
recipe that is not as it was written is none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import napkin.version as version
from napkin.run.cache_folder import folder, read, triton_version, write
from napkin.run.recipe import Recipe, recipe_of


def digest(*parts: str) -> str:
    """The name under which what depends on `parts`, on this napkin and its Triton, is kept."""
    made = hashlib.sha256(f"{_package()}\0{triton_version()}".encode())
    for part in parts:
        made.update(f"\0{len(part)}\0{part}".encode())
    return made.hexdigest()[:32]


def load(name: str) -> Recipe | None:
    """The recipe of that name; None where there is none, or it is not as it was written."""
    text = read(_place(name))
    if text is None:
        return None
    try:
        data = json.loads(text)
        if data["sha256"] == _seal(name, data["recipe"]):
            return recipe_of(data["recipe"])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        pass
    return None


def save(name: str, recipe: Recipe) -> None:
    """Keep a recipe, where the folder can be written."""
    data = recipe.to_json()
    with contextlib.suppress(OSError):
        write(_place(name), json.dumps({"sha256": _seal(name, data), "recipe": data}))


def _place(name: str) -> Path:
    return folder() / "recipes" / f"{name}.json"


def _seal(name: str, data: Any) -> str:
    """What tells a recipe from another, and from itself with a byte changed."""
    return hashlib.sha256(f"{name}\0{json.dumps(data)}".encode()).hexdigest()


@lru_cache(maxsize=1)
def _package() -> str:
    """What this napkin is: its version and the text of its own files."""
    root = Path(version.__file__).parent
    made = hashlib.sha256(version.__version__.encode())
    for path in sorted(p for p in root.rglob("*") if p.suffix in {".py", ".toml"}):
        made.update(f"\0{path.relative_to(root)}\0".encode())
        made.update(path.read_bytes())
    return made.hexdigest()
