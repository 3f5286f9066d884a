"""Where diagrams are found: those that napkin ships, and those in a user's file.

A diagram is named `attention` (a shipped page) or `path/to/file.py:diagram`. Loading runs the file,
as Python would; whatever is wrong with it comes out as one message about the user's file.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable, Generator
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from napkin.diagram.diagram import Diagram
from napkin.diagram.miscalled import miscalled
from napkin.errors import InputError, NapkinError, did_you_mean

_PACKAGE = Path(__file__).resolve().parent.parent


def _shelf() -> Path:
    # A wheel carries the pages inside the package; in a checkout they stand beside it.
    inside = _PACKAGE / "_diagrams"
    return inside if inside.is_dir() else _PACKAGE.parent / "diagrams"


def names() -> tuple[str, ...]:
    """The shipped diagrams, in alphabetical order."""
    return tuple(sorted(p.stem for p in _shelf().glob("*.py") if not p.stem.startswith("_")))


def load(name: str) -> Diagram:
    """The diagram called `name`: a shipped one, or `path/to/file.py:diagram`.

    `path/to/file.py` alone will do where the file has one diagram, or one named like the file.

    Raises:
        InputError: there is no such diagram, or its file does not run.
    """
    if name in names():
        return _read(_shelf() / f"{name}.py", name)
    path, attribute = _split(name)
    if path is None:
        raise InputError(_unknown(name))
    return _read(path, attribute)


def baselines(name: str) -> dict[str, Callable[..., Any]]:
    """What the file of the diagram called `name` declares to be timed beside it: a dictionary
    `baselines` from names to functions that take the tensors and return a call.

    Raises:
        InputError: as `load`, or it is something else.
    """
    path = _shelf() / f"{name}.py" if name in names() else _split(name)[0]
    if path is None:
        raise InputError(_unknown(name))
    found = vars(_run(path)).get("baselines", {})
    good = isinstance(found, dict) and all(
        isinstance(k, str) and callable(v) for k, v in cast("dict[Any, Any]", found).items()
    )
    if not good:
        raise InputError(
            f"{path}: baselines is no dictionary from names to functions; write "
            "baselines = {'mine': function}, the function from tensors to a call without arguments"
        )
    parted = next((k for k in cast("dict[str, Any]", found) if "," in k), None)
    if parted is not None:
        raise InputError(f"{path}: baseline {parted!r} has a comma; write a name without one")
    return cast("dict[str, Callable[..., Any]]", found)


def _split(name: str) -> tuple[Path | None, str]:
    """The file and the attribute that `name` names; no file if it is a bare word."""
    head, colon, tail = name.rpartition(":")
    if colon and not tail.endswith(".py"):
        if not head:
            raise InputError(
                f"{name}: nothing stands before the colon; write path/to/file.py:diagram"
            )
        if not tail.isidentifier():
            what = f"{tail!r} is not a Python name" if tail else "nothing stands after the colon"
            raise InputError(f"{name}: {what}; write path/to/file.py:diagram")
        return Path(head), tail
    if name.endswith(".py") or "/" in name:
        return Path(name), ""
    return None, ""


def _unknown(name: str) -> str:
    text = f"there is no diagram {name!r}; {did_you_mean(name, names())}"
    with contextlib.suppress(OSError, ValueError):
        if name and Path(f"{name}.py").is_file():
            return f"{text} (for the file in this folder, write {name}.py)"
    return f"{text} (your own is path/to/file.py:diagram)"


def _read(path: Path, attribute: str) -> Diagram:
    found = vars(_run(path))
    diagrams = {k: v for k, v in found.items() if isinstance(v, Diagram)}
    if not attribute:
        attribute = _only(path, diagrams)
    if attribute in diagrams:
        return diagrams[attribute]
    if attribute in found:
        raise InputError(
            f"{path}: {attribute} is of type {type(found[attribute]).__name__}, not a diagram; "
            f"put @nk.diagram('q d, x d -> q x'), with your own signature, above the function"
        )
    if not diagrams:
        raise InputError(_without(path))
    raise InputError(f"{path} has no diagram {attribute!r}; {did_you_mean(attribute, diagrams)}")


def _without(path: Path) -> str:
    return (
        f"{path} has no diagram in it; write a function of arrays and put "
        "@nk.diagram('q d, x d -> q x'), with your own signature, above it"
    )


def _only(path: Path, diagrams: dict[str, Diagram]) -> str:
    """The diagram meant by a file alone."""
    if not diagrams:
        raise InputError(_without(path))
    if len(set(diagrams.values())) > 1 and path.stem not in diagrams:
        raise InputError(
            f"{path} has several diagrams ({', '.join(diagrams)}); name one, as in "
            f"{path}:{next(iter(diagrams))}"
        )
    return path.stem if path.stem in diagrams else next(iter(diagrams))


def _source(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder; name a file in it, as in {path / 'file.py'}")
        if path.suffix != ".py":
            raise InputError(f"{path} is not a Python file; a diagram stands in a .py file")
        if path.exists() and not path.is_file():
            raise InputError(f"{path} is not a regular file; a diagram stands in a .py file")
        return path.read_bytes()
    except InputError:
        raise
    except FileNotFoundError:
        shipped = f" ({path.stem} is shipped: write {path.stem})" if path.stem in names() else ""
        raise InputError(f"there is no file {path}{shipped}; check the path") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{str(path)!r} cannot be read: {reason}; check the path") from None


def _run(path: Path) -> ModuleType:
    """The file's module, run anew each time, so that an edited file is read as it is now."""
    source = _source(path)
    module = ModuleType(f"napkin_page_{path.stem}")
    module.__file__ = str(path)
    try:
        code = compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        line = f", line {error.lineno}" if error.lineno else ""
        raise InputError(f"{path}{line}: this is not Python ({error.msg})") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{path}: this is not Python ({error})") from None
    try:
        with _surroundings(path, module):
            exec(code, vars(module))
    except SystemExit as stop:
        raise InputError(
            f"{_place(path, stop)}: the file ends the program ({_said(stop)}) instead of defining "
            "a diagram; put that under if __name__ == '__main__':"
        ) from None
    except NapkinError as error:  # says itself what to write instead
        raise InputError(f"{_place(path, error)}: {error}") from None
    except KeyboardInterrupt:  # the user's own, or as good as
        raise
    except BaseException as error:
        said = miscalled(error) or (
            f"the file raised {_said(error)}; it has to run before its diagrams can be read"
        )
        raise InputError(f"{_place(path, error)}: {said}") from None
    return module


@contextlib.contextmanager
def _surroundings(path: Path, module: ModuleType) -> Generator[None]:
    """What a module may expect while it runs: a place in `sys.modules`, its folder to import from.

    The folder comes last, so that a page called random.py hides no module of that name. What the
    file prints goes to stderr: stdout belongs to the command, whose output may be JSON.
    """
    before, folder = list(sys.path), str(path.resolve().parent)
    sys.modules[module.__name__] = module
    sys.path.append(folder)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.modules.pop(module.__name__, None)
        sys.path[:] = before


def _place(path: Path, error: BaseException) -> str:
    """The last line of the user's file that was running."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(path)
    ]
    return f"{path}, line {lines[-1]}" if lines else str(path)


def _said(error: BaseException) -> str:
    kind, text = type(error).__name__, " ".join(str(error).split())
    return f"{kind}: {text}" if text else kind
