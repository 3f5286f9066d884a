"""Programs that are drawn are ones that a user may write."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import backwards
import numpy as np
import pytest
import scarce
import stepped
from draw import draw
from drawing import KINDS, SCARCE, SEVERAL, Drawing, Rejected
from filled import arrays
from programs import WIDER_STEPS, Input, Program, Ref, Step
from sized import fit, held
from values import results
from written import diagram, text


def agree(program: Program, seed: int = 0) -> None:
    """Check that a program has the value of its diagram."""
    data = arrays(program, program.sizes, seed)
    found = diagram(program).evaluate(*data)
    each = found if isinstance(found, tuple) else (found,)
    for f, w in zip(each, results(program, data, program.sizes), strict=True):
        np.testing.assert_allclose(f, w, rtol=1e-9, atol=1e-9)


def test_random_numbers_have_the_axes_of_their_seed_first() -> None:
    given = (Input("s", ("q",), "int"), Input("X", ("q", "f")))
    steps = (
        Step("uniform", (Ref(0),), (("f",),)),
        Step("dropout", (Ref(2), 0.5, 3), (("q", "f"),)),
        Step("mul", (Ref(3), Ref(1))),
    )
    agree(Program(given, steps, ((Ref(4), ("q", "f")),), {"q": 3, "f": 5}))


def test_a_program_that_draws_numbers_is_called_where_its_sizes_are_known() -> None:
    given = (Input("s", (), "int"), Input("X", ("f",)))
    steps = (Step("uniform", (Ref(0),), (("f",),)), Step("mul", (Ref(2), Ref(1))))
    program = Program(given, steps, ((Ref(3), ("f",)),), {"f": 3}, called=1)
    assert "drawn_first" not in text(program)
    agree(program)


def test_a_program_may_give_what_it_is_given() -> None:
    """It has no step that another diagram might have."""
    bare = Program((Input("X", ("f",)),), (), ((Ref(0), ("f",)),), {"f": 3})
    assert not any(Drawing(seed)._said(bare).called for seed in range(KINDS, KINDS + 40))


@pytest.mark.parametrize("form", WIDER_STEPS)
def test_steps_of_several_states_and_with_matrices_are_those_of_the_diagram(form: str) -> None:
    drawn = 0
    for seed in range(SEVERAL, SEVERAL + 60):
        d = Drawing(seed)
        t, b, e = (d.axis(n) for n in (4, 2, 3))
        try:
            x = d.input((t, b, e), "int" if form == "counted" else "real")
            d.outputs.append(stepped.scan(d, form, x, t, e, (b,)))
            program = d.program()
        except Rejected:
            continue
        agree(program, seed)
        drawn += 1
        if drawn == 6:
            return
    raise AssertionError(f"of {form} few are drawn")


@pytest.mark.parametrize("move", [stepped.states, backwards.backward])
def test_later_moves_draw_programs(move) -> None:
    drawn = [Drawing(seed) for seed in range(SEVERAL, SEVERAL + 20)]
    for d in drawn:
        d.moving(move)
    assert sum(bool(d.made) for d in drawn) > 15


def test_axes_that_a_step_takes_in_are_short_at_large_sizes() -> None:
    given = (Input("X", ("t", "d")), Input("W", ("d", "e")))
    option = (("form", "multiplied"), ("within", "d"), ("product", "e"))
    step = Step("scan", (0.0, Ref(0), Ref(1)), (("t",),), option)
    program = Program(given, (step,), ((Ref(2), ("t", "d")),), {"t": 3, "d": 2, "e": 2})
    assert held(program) == {"d", "e"}
    assert fit(program, {"t": 2048, "d": 64, "e": 1}) == {"t": 2048, "d": 64, "e": 64}
    agree(program)


def test_kernels_of_gradients_run() -> None:
    """The command draws plans of the gradient of this seed's program, and they hold."""
    asked = ["--mode", "interpret", "--seeds", "50000002"]
    ran = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("run.py")), *asked],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert ran.returncode == 0, ran.stdout
    assert "1 plans of gradients" in ran.stdout


@pytest.mark.parametrize(
    "move", [scarce.scaled, scarce.zero_points, scarce.attended, scarce.typed, scarce.long_lines]
)
def test_what_few_programs_reach_is_a_program(move: Callable[[Drawing], Ref]) -> None:
    drawn = 0
    for seed in range(SCARCE, SCARCE + 12):
        d = Drawing(seed)
        d.moving(move)
        try:
            program = d.program()
        except Rejected:
            continue
        agree(program, seed)
        drawn += 1
    assert drawn > 5


def test_names_in_other_letters_are_drawn() -> None:
    names = {draw(seed).name for seed in range(SCARCE, SCARCE + 60)}
    assert any(not name.isascii() for name in names)
