"""Programs that are drawn are ones that a user may write."""

from __future__ import annotations

import numpy as np
from drawing import KINDS, Drawing
from filled import arrays
from programs import Input, Program, Ref, Step
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
