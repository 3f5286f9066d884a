"""Statements that repeat become a loop that gives the same values."""

from __future__ import annotations

import ast
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from napkin.lower.rolled import LEAST, rolled


def text(body: list[ast.stmt]) -> str:
    return "\n".join(ast.unparse(ast.fix_missing_locations(s)) for s in body)


def rolled_text(source: str) -> str:
    turns = iter(f"turn{i}" for i in range(100))
    return text(rolled(ast.parse(textwrap.dedent(source)).body, lambda: next(turns)))


def ran(source: str, **given: object) -> dict[str, object]:
    """What a program stores."""
    out: dict[str, object] = {}
    exec(source, {**given, "store": out.__setitem__})
    return out


def search(times: int, first: int, last: str = "store('found', found{times})") -> str:
    """How many of `count` there are, by halves, written out."""
    lines = ["found0 = 0"]
    for i in range(times):
        lines.append(f"tried{i} = found{i} + {first >> i}")
        lines.append(f"found{i + 1} = tried{i} if tried{i} <= count else found{i}")
    return "\n".join([*lines, last.format(times=times)])


@pytest.mark.parametrize("count", [0, 1, 77, 4095])
def test_a_search_by_halves_is_a_loop(count: int) -> None:
    written = search(12, 2048)
    made = rolled_text(written)
    assert made.count("for ") == 1
    assert len(made.splitlines()) < 10
    assert "1024 >> turn0" in made
    assert ran(made, count=count) == ran(written, count=count) == {"found": count}


def test_a_few_repeats_stay_as_they_are() -> None:
    assert "for " not in rolled_text(search(LEAST, 128))
    assert "for " in rolled_text(search(LEAST + 1, 256))


@pytest.mark.parametrize(
    "last",
    [
        "store('found', found{times} + found5)",  # of a repeat inside
        "store('found', found{times} + tried{times_less})",  # what is not kept of the last
        "store('found', found{times} + found1)",  # of the first, which the loop goes on with
    ],
)
def test_what_else_is_read_is_not_lost(last: str) -> None:
    written = search(12, 2048, last.replace("{times_less}", "11"))
    made = rolled_text(written)
    assert ran(made, count=1234) == ran(written, count=1234)


def test_a_value_is_not_read_after_its_next_one_is_known() -> None:
    """found is read again by what comes after its new value: a loop holds one of the two alone."""
    lines = ["a0 = 1", "b0 = 1"]
    for i in range(12):
        lines += [f"a{i + 1} = a{i} + b{i}", f"b{i + 1} = a{i} * 2 + b{i}"]
    written = "\n".join([*lines, "store('a', a12)", "store('b', b12)"])
    assert ran(rolled_text(written)) == ran(written)


def test_numbers_that_change_otherwise_stay() -> None:
    lines = [f"x{i + 1} = x{i} * {i + 3}" for i in range(20)]
    made = rolled_text("\n".join(["x0 = 1", *lines, "store('x', x20)"]))
    assert "for " not in made


def test_a_name_that_is_stored_twice_is_no_repeat() -> None:
    lines = ["x = x + 1"] * 20
    written = "\n".join(["x = 0", *lines, "store('x', x)"])
    assert ran(rolled_text(written)) == {"x": 20}


def test_statements_inside_a_loop_are_rolled_too() -> None:
    inside = textwrap.indent(search(12, 2048), "    ")
    written = f"for count in (3, 999):\n{inside.replace(chr(39) + 'found' + chr(39), 'count')}"
    made = rolled_text(written)
    assert made.count("for ") == 2
    assert ran(made) == ran(written) == {3: 3, 999: 999}


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Statements that repeat, of which some read what was before, inside, after or far away."""
    period, times = draw(st.integers(1, 3)), draw(st.integers(LEAST, LEAST + 5))
    names = [f"v{q}_0" for q in range(period)]
    lines = [f"{name} = {q + 1}" for q, name in enumerate(names)]
    halves = draw(st.booleans())
    reads = [
        [(draw(st.integers(0, period - 1)), draw(st.integers(0, 1))) for _ in range(2)]
        for _ in range(period)
    ]
    odd = draw(st.none() | st.tuples(st.integers(1, times), st.integers(0, period - 1)))
    strange = draw(st.none() | st.integers(1, times))
    for i in range(1, times + 1):
        for q in range(period):
            a, b = (f"v{p}_{i if now and p < q else i - 1}" for p, now in reads[q])
            number = ((1 << times) >> i if halves else 3) + (i == strange)
            b = "v0_0" if odd == (i, q) else b
            lines.append(f"v{q}_{i} = ({a} * 3 + {b} + {number}) % 10007")
    for name in draw(st.lists(st.sampled_from(range(period)), min_size=1, max_size=2)):
        at = draw(st.sampled_from([times, times, times, times - 1, 1, 0]))
        lines.append(f"store('{len(lines)}', v{name}_{at})")
    return "\n".join(lines)


@given(programs())
def test_loops_give_the_values_that_were_written_out(written: str) -> None:
    assert ran(rolled_text(written)) == ran(written)
