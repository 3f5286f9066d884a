"""A pattern of keys and a machine of one's own, each in one file outside the package."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import napkin as nk

MINE = """
import napkin as nk


def thinning(i, size):
    return [(i - 12, i + 1), (i - 64, i - 12, 4)]


seen = nk.key_set("thinning", thinning)


@nk.diagram("q d, x d, x d -> q d", sizes={"q": 512, "x": 512, "d": 32})
def thinned(Q, K, V):
    S = nk.contract(Q, K, over="d") * 0.125
    return nk.contract(nk.softmax(S, over="x", keys=seen), V, over="x")
"""


def half() -> str:
    """The machine file of an H100 with half of its multiprocessors."""
    shipped = Path(nk.__file__).parent / "machine" / "h100.toml"
    line = 'sms = { value = 66, unit = "1", source = "estimate: half of an H100" }'
    return re.sub(r"^sms = .*$", line, shipped.read_text("utf-8"), flags=re.MULTILINE)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both files."""
    folder = tmp_path_factory.mktemp("mine")
    (folder / "mine.py").write_text(MINE, "utf-8")
    (folder / "half.toml").write_text(half(), "utf-8")
    return folder


def napkin(here: Path, *arguments: str) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "napkin", *arguments]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_they_derive_and_explain_prints_them(here: Path) -> None:
    said = napkin(here, "explain", "mine.py:thinned", "--on", "half.toml")
    assert "thinning" in said
    assert "stream x" in said


def test_they_are_checked(here: Path) -> None:
    said = napkin(here, "check", "mine.py:thinned", "--on", "half.toml")
    assert "every prediction holds" in said


def test_fewer_multiprocessors_take_longer(here: Path) -> None:
    mine = nk.machine(str(here / "half.toml"))

    @nk.diagram("n d, d m -> n m", sizes={"n": 8192, "d": 8192, "m": 8192})
    def product(X, W):  # type: ignore[no-untyped-def]
        return nk.contract(X, W, over="d")

    assert nk.derive(product, mine).seconds > 1.7 * nk.derive(product, "h100").seconds


@pytest.mark.parametrize(
    ("runs", "says"),
    [
        (lambda i, n: [(i / 2, i + 1)], "bounds are whole numbers; write // for a quotient"),
        (lambda i, n: [(i,)], "is no run of keys; write (first, end) or with a step"),
        (lambda i, n: [(i, i + 1, 0)], "step=0 is not a whole number from 1"),
    ],
)
def test_a_run_that_is_none_is_refused(runs, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(nk.InputError, match=re.escape(says)):
        nk.key_set("mine", runs)


@pytest.mark.parametrize("query", [0, 5, 30, 63])
def test_bounds_are_moved_into_the_axis(query: int) -> None:
    """A run with a step begins at the first key of its residue that there is."""
    seen = nk.key_set("mine", lambda i, n: [(i - 20, i + 9, 4), (i - 1, i + 1)])
    wanted = {k for k in range(query - 20, query + 9, 4) if 0 <= k < 64} | {query - 1, query}
    assert seen.keys(query, 64) == sorted(k for k in wanted if k >= 0)
