"""Machine files that are made to break a reader."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

import napkin as nk

H100 = resources.files("napkin").joinpath("machine", "h100.toml").read_text(encoding="utf-8")

TEXTS = {
    "deep arrays": ("a = " + "[" * 100000, "its tables are too deep|not a TOML file"),
    "deep tables": (
        "a = " + "{ a = " * 20000 + "1" + " }" * 20000,
        "its tables are too deep|not a TOML file",
    ),
    "a number that is too long": ("a = " + "1" * 5000, "not a TOML file"),
    "a number past all": (
        H100.replace("value = 132,", f"value = 1{'0' * 400},"),
        "must be a positive number",
    ),
    "not UTF-8": ("\udcff", "not a TOML file"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_file_that_breaks_readers(name: str, tmp_path: Path) -> None:
    text, said = TEXTS[name]
    assert text != H100
    file = tmp_path / "m.toml"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(nk.InputError, match=said):
        nk.machine(file)


def test_a_path_that_is_none() -> None:
    with pytest.raises(nk.InputError, match="cannot read the machine file"):
        nk.machine("a\0.toml")
