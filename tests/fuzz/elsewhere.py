"""What no program draws here, and why: by file and function of `napkin/lower`."""

from __future__ import annotations

VERSION = "it asks which Triton is installed: one of its two ways is of another version"

ELSEWHERE: dict[tuple[str, str], str] = {}
"""The reason by file and function."""

WHY_RULE = {
    "rule tile": "sizes of groups and chunks are no condition: the laws of group, stream and part "
    "are held at every cut, so nothing is applied",
}
"""The reason by rule."""
