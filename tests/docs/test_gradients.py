"""docs/gradients.md and the gradient in README.md: their Python runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def blocks(page: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)


def printed(script: str, path: Path) -> str:
    path.write_text(script, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def plain(text: str) -> str:
    return re.sub(r" +", " ", text)


def test_the_page_runs_and_prints_what_it_shows(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "gradients.md").read_text(encoding="utf-8")
    found = printed("\n".join(blocks("docs/gradients.md")), tmp_path / "gradients.py")
    assert plain(found.strip()) in plain(page)


def test_the_gradient_of_the_readme_runs(tmp_path: Path) -> None:
    (block,) = [b for b in blocks("README.md") if "nk.gradient" in b]
    first = next(b for b in blocks("README.md") if "def attention(" in b)
    diagram = first[: first.index("multi_head")]
    printed(f"import numpy as np\n{diagram}\n{block}", tmp_path / "readme.py")
