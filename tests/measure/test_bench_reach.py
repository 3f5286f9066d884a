"""Problems of `docs/measurements/bench_reach.py`: every one has a diagram, and its libraries are
named like it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "measurements"))

import bench_reach
import libraries


@pytest.mark.parametrize("problem", bench_reach.PROBLEMS, ids=lambda p: p.name)
def test_a_problem_is_a_diagram_at_sizes_of_its_axes(problem: bench_reach.Problem) -> None:
    diagram, ranges, own = problem.found()
    assert set(problem.sizes) <= set(diagram.axes)
    assert set(ranges) <= {str(n.params[0]) for n in diagram.inputs}
    assert set(libraries.BESIDE.get(problem.name, {})) <= set(own)


def test_libraries_are_of_problems() -> None:
    assert libraries.BESIDE.keys() <= {p.name for p in bench_reach.PROBLEMS}


def test_problems_are_chosen_by_number_and_name() -> None:
    numbers = bench_reach.chosen(["3", "5..7", "cumsum"])
    assert numbers[:4] == [3, 5, 6, 7]
    assert [bench_reach.PROBLEMS[i].name for i in numbers[4:]] == ["cumsum"]
    assert len(bench_reach.chosen([])) == len(bench_reach.PROBLEMS)
