"""What no program draws here, and why: functions of `napkin/lower` by file and name, and rules."""

from __future__ import annotations

ELSEWHERE: dict[tuple[str, str], str] = {
    ("launch.py", "seen"): "a device is told the shape of a box: mode gpu",
    ("launch.py", "settings"): "a device is told warps and stages: mode gpu",
    ("scope.py", "named"): "names of a class, which is made as its file is read",
    ("warpgroups/gluon_scope.py", "_fixed"): "names of a class, which is made as its file is read",
    ("descriptors.py", "served"): "what a compiler allocates: modes memory and compile",
    ("largest.py", "formed"): "tiles of 2^20 values and more: mode memory, and tests/lower",
}
"""The reason by file and function."""

WHY_RULE = {
    "rule tile": "sizes of groups and chunks are no condition: the laws of group, stream and part "
    "are held at every cut, so nothing is applied",
}
"""The reason by rule."""
