"""How a command ends: an exit status, and one message on stderr where it went wrong.

0 good, 1 a check failed, 2 the input was wrong, 70 napkin itself is wrong, 130 interrupted, 141 the
reader of a pipe left. A traceback is shown to those alone who ask for it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Sequence
from typing import Any

import typer

from napkin.errors import InputError, NapkinError, Refusal

GOOD, FAILED, WRONG_INPUT, BUG, INTERRUPTED, NO_READER = 0, 1, 2, 70, 130, 141

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""What goes wrong with an output that could be opened."""


def run(app: typer.Typer, arguments: Sequence[str]) -> int:
    """Run the command line; the exit status."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller has closed it
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.reconfigure(errors="backslashreplace")  # pyright: ignore
    try:
        status = _invoke(app, arguments)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return say("interrupted", INTERRUPTED)
    except BrokenPipeError:
        _drop(sys.stdout)
        return NO_READER
    except OSError as error:
        if error.errno not in _FULL:
            return _bug(error)
        _drop(sys.stdout)
        return say(f"the output cannot be written: {error.strerror}", WRONG_INPUT)
    except Exception as error:
        return _bug(error)


def _invoke(app: typer.Typer, arguments: Sequence[str]) -> int:
    """Run one command; what is wrong with the input becomes a message and a status."""
    command = typer.main.get_command(app)
    try:
        with command.make_context("napkin", list(arguments) or ["--help"]) as context:
            command.invoke(context)
        return GOOD
    except typer.Exit as end:
        return end.exit_code
    except (InputError, Refusal) as error:
        return say(str(error), WRONG_INPUT)
    except NapkinError as error:
        return say(str(error), FAILED)
    except Exception as error:
        # Which class a usage error has depends on the version of typer; this it has in all.
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        path = getattr(getattr(error, "ctx", None), "command_path", "napkin")
        text = " ".join(str(message()).split()).rstrip(".")
        return say(f"{text[:1].lower()}{text[1:]} (see {path} --help)", WRONG_INPUT)


def say(message: str, status: int = GOOD) -> int:
    """Tell the user on stderr; `status` is handed back."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"napkin: {message}\n")
        sys.stderr.flush()
    return status


def _bug(error: Exception) -> int:
    if os.environ.get("NAPKIN_TRACEBACK") == "1":
        import traceback

        traceback.print_exception(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = " ... ".join(dict.fromkeys([*lines[:1], *lines[-1:]]))
    return say(
        f"this is a bug in napkin: {type(error).__name__}{': ' if said else ''}{said} "
        "(NAPKIN_TRACEBACK=1 shows the traceback)",
        BUG,
    )


def _drop(stream: Any) -> None:
    """Let what a stream still holds go nowhere, so that it raises no more when Python ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        number = stream.fileno()
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)
