"""What a long piece of work calls to say how far it is."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with what is being done, and how many steps of how many are done."""


def silent(what: str, done: int, total: int) -> None:
    """Says nothing."""
