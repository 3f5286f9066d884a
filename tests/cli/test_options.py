"""--sizes: what it takes, and what it says to the rest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from napkin.cli.parse import parse_sizes
from napkin.errors import InputError
from napkin.show.words import sizes_text

WHOLE = "write a whole number from 1, as in q=4096"
EXAMPLE = "write --sizes q=4096,x=4096,d=128"


def test_sizes() -> None:
    assert parse_sizes([]) == {}
    assert parse_sizes(["q=4096,x=1"]) == {"q": 4096, "x": 1}
    assert parse_sizes([" q = 4096 , x=+7", "d=128"]) == {"q": 4096, "x": 7, "d": 128}
    assert parse_sizes(["n=1099511627776"]) == {"n": 2**40}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("q", f"--sizes: 'q' has no '='; {EXAMPLE}"),
        ("4096", f"--sizes: '4096' has no '='; {EXAMPLE}"),
        ("", f"--sizes '': an entry is empty; {EXAMPLE}"),
        ("q=1,", f"--sizes 'q=1,': an entry is empty; {EXAMPLE}"),
        ("=4", f"--sizes: '' is not the name of an axis; {EXAMPLE}"),
        ("Q=4", f"--sizes: 'Q' is not the name of an axis; {EXAMPLE}"),
        ("q.x=4", f"--sizes: 'q.x' is not the name of an axis; {EXAMPLE}"),
        ("q=", f"--sizes: q='' is not a whole number; {WHOLE}"),
        ("q=4k", f"--sizes: q='4k' is not a whole number; {WHOLE}"),
        ("q=1.5", f"--sizes: q='1.5' is not a whole number; {WHOLE}"),
        ("q=1e3", f"--sizes: q='1e3' is not a whole number; {WHOLE}"),
        ("q=1_000", f"--sizes: q='1_000' is not a whole number; {WHOLE}"),
        ("q=0x10", f"--sizes: q='0x10' is not a whole number; {WHOLE}"),
        ("q=\u0661", f"--sizes: q='\u0661' is not a whole number; {WHOLE}"),
        ("q=2*8", f"--sizes: q='2*8' is not a whole number; {WHOLE}"),
        ("q=1=2", f"--sizes: q='1=2' is not a whole number; {WHOLE}"),
        (
            "q=__import__('os')",
            f"--sizes: q=\"__import__('os')\" is not a whole number; {WHOLE}",
        ),
        ("q=0", f"--sizes: q=0 is too small; {WHOLE}"),
        ("q=-4", f"--sizes: q=-4 is too small; {WHOLE}"),
        ("q=1099511627777", f"--sizes: q='1099511627777' is larger than 2**40; {WHOLE}"),
        ("q=1,q=2", "--sizes: q is given twice; write q=2 once"),
    ],
)
def test_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_sizes([text])
    assert str(caught.value) == said


def test_an_axis_in_two_options() -> None:
    with pytest.raises(InputError, match="q is given twice"):
        parse_sizes(["q=1", "q=1"])


def test_a_number_too_long_to_read_is_cut() -> None:
    with pytest.raises(InputError, match=r"q='9{57}\.\.\.' is larger than 2\*\*40") as caught:
        parse_sizes([f"q={'9' * 100_000}"])
    assert len(str(caught.value)) < 200


@given(st.text())
def test_any_text_is_sizes_or_refused(text: str) -> None:
    try:
        found = parse_sizes([text])
    except InputError:
        return
    assert found
    assert all(1 <= n <= 2**40 for n in found.values())


@given(st.dictionaries(st.sampled_from("qxdbh"), st.integers(1, 2**40), min_size=1))
def test_sizes_are_read_as_written(sizes: dict[str, int]) -> None:
    assert parse_sizes([sizes_text(sizes)]) == sizes
