"""The command line: a file for every verb. Heavy imports wait for the command that needs them."""

from napkin.cli.commands import app, main

__all__ = ["app", "main"]
