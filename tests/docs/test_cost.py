"""docs/cost.md: every limit that a kernel can have stands there with what to change."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from napkin.timing import execution, kernel_time, warp_specialised

ROOT = Path(__file__).parents[2]


def _paragraphs() -> dict[str, str]:
    page = (ROOT / "docs" / "cost.md").read_text(encoding="utf-8")
    found = re.findall(r"^### (.*)\n\n((?:(?!^#).*\n)*)", page, re.M)
    return {str(name): str(text) for name, text in found}


def test_every_limit_has_its_paragraph() -> None:
    rooms = execution, kernel_time, warp_specialised
    named = {
        text
        for room in rooms
        for name, text in vars(room).items()
        if name.isupper() and isinstance(text, str)
    }
    assert {"L2 bandwidth", "memory latency", "tensor cores shared by warpgroups"} <= named
    paragraphs = _paragraphs()
    assert not named - paragraphs.keys()
    for text in paragraphs.values():
        assert re.findall(r"^\*(.*?):\*", text, re.M) == [
            "Meaning", "How to see it", "What to change",
        ]  # fmt: skip


def test_limits_of_shipped_kernels_have_theirs() -> None:
    with (ROOT / "generated" / "costs.csv").open(encoding="utf-8", newline="") as file:
        limits = {row["limited_by"] for row in csv.DictReader(file)}
    assert len(limits) > 5
    assert not limits - _paragraphs().keys()
