"""Random programs against an evaluator of their own, and that evaluator against numbers by hand.

`NAPKIN_EXAMPLES=10000 pytest tests/fuzz` tries more; `python tests/fuzz/run.py` many more.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from added import RULES, in_force
from draw import RARER, draw
from drawing import ENDS, FAR, KINDS, MORE, NEWEST, RESUMED, SEVERAL, SOLVED, Drawing
from drawn import PATTERNS, all_names, of_program
from filled import arrays
from keyed import boxes, key_set
from masks import seen
from modes import prepared, tried
from programs import Input, Keys, Program, Ref, Step
from shrinking import steps
from sized import fit
from values import results
from written import diagram, text

import napkin as nk
from napkin.derive.rules.table import ADDED
from napkin.ir.key_sets import MAX_BOXES

EXAMPLES = int(os.environ.get("NAPKIN_EXAMPLES", "300"))
HERE = Path(__file__).parent


def program(inputs, step, axes, sizes):
    """A program of one step."""
    return Program(tuple(inputs), (step,), ((Ref(len(inputs)), axes),), sizes)


def value(inputs, step, axes, sizes, *given):
    """The value of a program of one step."""
    made = program(inputs, step, axes, sizes)
    return results(made, [np.asarray(x) for x in given], sizes)[0].tolist()


def keys_of(pattern, n, *numbers, **options):
    """The keys of each query, as text."""
    keys = Keys(pattern, numbers, tuple(options.items()), ("q",), ("x",))
    mask = seen(keys, [n], [n], [])
    return " ".join("".join(str(j) for j in np.flatnonzero(row)) for row in mask)


# --- the evaluator ------------------------------------------------------------------------------


def test_neighborhoods_are_those_that_were_worked_out_by_hand():
    one = "neighborhood"
    assert keys_of(one, 8, 3) == "012 012 123 234 345 456 567 567"
    assert keys_of(one, 8, 4) == "0123 0123 0123 1234 2345 3456 4567 4567"
    assert keys_of(one, 10, 4, stride=4) == " ".join(["0123"] * 4 + ["4567"] * 4 + ["6789"] * 2)
    assert keys_of(one, 8, 3, is_causal=True) == "0 01 012 123 234 345 456 567"
    wanted = "0 1 02 13 024 135 246 357 468 579"
    assert keys_of(one, 10, 3, dilation=2, is_causal=True) == wanted


def test_patterns_are_those_of_their_papers():
    assert keys_of("sliding", 5, 1, 1) == "01 012 123 234 34"
    assert keys_of("dilated", 5, 1, 1, 2) == "02 13 024 13 24"
    assert keys_of("strided", 6, 3) == "0 01 012 0123 1234 2345"
    assert keys_of("strided", 6, 3, local=False) == "0 1 2 03 14 25"
    assert keys_of("fixed", 6, 3, 1) == "0 01 012 23 234 2345"
    assert keys_of("blocked", 5, 2, 1, 0) == "01 01 0123 0123 234"
    assert keys_of("global_tokens", 4, 1) == "0123 0 0 0"
    documents = Keys("documents", (), (), ("q",), ("x",), None, (Ref(0),))
    mask = seen(documents, [5], [5], [np.array([2, 0, 2])])
    assert ["".join(map(str, np.flatnonzero(r))) for r in mask] == ["01", "01", "23", "23", "4"]


def test_queries_stand_where_an_array_says():
    keys = Keys("sliding", (1, 0), (), ("q",), ("x",), 1, (Ref(0),), placed=True)
    mask = seen(keys, [3], [4], [np.array([2, -1, 0])])
    assert ["".join(map(str, np.flatnonzero(r))) for r in mask] == ["23", "0", "01"]


def test_patterns_of_a_user_are_those_of_their_words():
    assert keys_of("thinning", 8, 1, 2) == "0 01 12 023 134 0245 1356 02467"
    assert keys_of("checkered", 5, 3) == "03 14 2 03 14"
    assert keys_of("mirrored", 4, 1) == "23 123 012 01"
    assert keys_of("halved", 6, 1) == "0 01 12 123 234 2345"


def test_reductions_of_a_user_are_those_of_their_words():
    x = Input("X", ("a",))

    def of(op: str, *given: float) -> float:
        return value([x], Step(op, (Ref(0),), (("a",),)), (), {"a": len(given)}, given)

    nothing = {"log_sum": -np.inf, "smooth_least": np.inf, "either": 0, "added": 0}
    assert {op: of(op) for op in nothing} == nothing
    assert of("nearest") == np.inf
    assert [of("nearest", 3, -1, 1, 2), of("nearest", 3, -1)] == [1, -1]
    assert np.isclose(of("log_sum", 0, np.log(3)), np.log(4))
    assert np.isclose(of("smooth_least", 0, -np.log(3)), -np.log(4))
    assert [of("either", 0.5, 0.5), of("added", 1, 2, 4)] == [0.75, 7]


def test_programs_of_a_user_are_written_with_what_they_import():
    made = next(p for p in map(draw, range(MORE, MORE + 999)) if p.rules and p.chained is False)
    assert f"added.in_force({made.rules})" in text(made)
    assert made.rules[0] in RULES


def test_rules_are_in_force_for_their_programs_alone():
    with in_force(["divide once"]):
        assert list(ADDED) == ["divide once"]
    assert not ADDED


def test_key_sets_of_a_batch_give_an_array_its_axes():
    documents = Keys("documents", (), (), ("q",), ("x",), None, (Ref(1),))
    most = Step("max", (Ref(0),), (("x",),), (), (documents,))
    inputs = (Input("X", ("q", "x")), Input("D", ("w", "d"), "int"))
    found = Program(inputs, (most,), ((Ref(2), ("w", "q")),), {"q": 2, "x": 2, "w": 2, "d": 2})
    given = [np.array([[1.0, 3.0], [2.0, 1.0]]), np.array([[2, 0], [1, 1]])]
    assert results(found, given, found.sizes)[0].tolist() == [[3, 2], [1, 1]]


def test_a_take_is_clipped_and_a_window_is_padded_with_zeros():
    table, at = Input("T", ("a",)), Input("I", ("b",), "int")
    take = Step("take", (Ref(0), Ref(1)), (("a",),))
    assert value([table, at], take, ("b",), {"a": 3, "b": 3}, [1.0, 2.0, 3.0], [-1, 1, 9]) == [
        1,
        2,
        3,
    ]
    options = (("into", ("p", "w")), ("stride", 2), ("padding", (1, 0)), ("window", 2))
    slide = Step("slide", (Ref(0),), (("a",),), options)
    sizes = {"a": 3, "p": 2, "w": 2}
    assert value([table], slide, ("p", "w"), sizes, [1.0, 2.0, 3.0]) == [[0, 1], [2, 3]]


def test_reductions_of_nothing_and_of_masked_rows():
    x = Input("X", ("a",))
    for op, wanted in (("sum", 0), ("prod", 1), ("max", -np.inf), ("logsumexp", -np.inf)):
        assert value([x], Step(op, (Ref(0),), (("a",),)), (), {"a": 0}, []) == wanted
    softmax = Step("softmax", (Ref(0),), (("a",),))
    assert value([x], softmax, ("a",), {"a": 2}, [-np.inf, -np.inf]) == [0, 0]
    weights = value([x], softmax, ("a",), {"a": 2}, [0.0, np.log(3.0)])
    assert np.allclose(weights, [0.25, 0.75])


def test_a_contraction_keeps_copies_of_a_factor():
    x = Input("X", ("a", "b"))
    cube = Step("contract", (Ref(0), Ref(0), Ref(0)), (("a",),))
    assert value([x], cube, ("b",), {"a": 2, "b": 1}, [[2.0], [3.0]]) == [35]


def test_scans_go_from_position_to_position():
    x, start = Input("X", ("t",)), Input("S", ())
    sizes, given = {"t": 3}, ([1.0, 2.0, 3.0], 4.0)
    forms = {
        "decayed": [3, 3.5, 4.75], "signed": [-3, 5, -2], "scaled": [4, 8, 24],
        "summed": [5, 7, 10], "lowered": [3, 1, -2],
    }  # fmt: skip
    for form, wanted in forms.items():
        args = (Ref(1), *([0.5] if form == "decayed" else []), Ref(0))
        step = Step("scan", args, (("t",),), (("form", form),))
        assert value([x, start], step, ("t",), sizes, *given) == wanted, form


def test_any_step_goes_from_position_to_position():
    x, start = Input("X", ("t", "c")), Input("S", ("c",))
    sizes, given = {"t": 2, "c": 2}, ([[1.0, 2.0], [3.0, -1.0]], [0.0, 4.0])
    forms = {"largest": [[1, 4], [3, 4]], "clamped": [[1, 1], [1, 0]]}
    for form, wanted in forms.items():
        step = Step("scan", (Ref(1), Ref(0)), (("t",),), (("form", form),))
        assert value([x, start], step, ("t", "c"), sizes, *given) == wanted, form
    within = (("form", "recalled"), ("within", "c"))
    step = Step("scan", (Ref(1), 0.5, Ref(0)), (("t",),), within)
    found = value([x, start], step, ("t", "c"), sizes, *given)
    assert found == [[0.0, 4.5], [0.9375, 3.4375]]


def test_random_numbers_are_those_of_the_hash():
    """The first of seed 0 and of position 0, worked out with whole numbers of any size."""
    seed = Input("S", (), "int")
    step = Step("uniform", (Ref(0),), (("a",),))
    place, first, word = 0x3C6EF372, 0x9E3779B9, 2**32

    def mixed(a, b):
        h = a ^ b
        for shift, factor in ((16, 0x21F0AAAD), (15, 0xD35A2D97)):
            h = (h ^ h >> shift) * factor % word
        return h ^ h >> 15

    bits = mixed(mixed(0, first), mixed(1, place)) >> 9
    found = value([seed], step, ("a",), {"a": 2}, 0)
    assert found[1] == (bits + 0.5) / 2**23
    assert 0 < found[0] < 1


def test_ranks_take_the_first_of_equal_values():
    x = Input("X", ("a",))

    def of(op, *options, given=(2.0, 5.0, 5.0, 1.0)):
        return value([x], Step(op, (Ref(0),), (("a",),), options), (), {"a": len(given)}, given)

    def top(which, what, *given):
        return of("topk", ("k", 3), ("which", which), ("what", what), given=given)

    assert [of("argmax"), of("argmin")] == [1, 3]
    assert [top(i, "places", 2.0, 5.0, 5.0) for i in range(3)] == [1, 2, 0]
    assert [top(i, "values", 2.0, 5.0) for i in range(3)] == [5, 2, -np.inf]
    assert top(2, "places", 2.0, 5.0) == 2**31 - 1
    odd = (1.0, np.nan, np.inf, np.nan)
    assert [of("argmax", given=odd), of("argmin", given=odd)] == [1, 1]
    assert [top(i, "places", *odd) for i in range(3)] == [1, 3, 2]


# --- the generator ------------------------------------------------------------------------------


def test_a_seed_draws_the_same_program_every_time():
    seeds = [s for first in (0, MORE, NEWEST, KINDS) for s in range(first, first + 25)]
    assert all(draw(s) == draw(s) for s in seeds)


def test_early_seeds_have_the_programs_that_they_had():
    every = "".join(text(draw(s)) for s in range(200))
    assert zlib.crc32(every.encode()) == 3617343371


def test_seeds_before_the_newest_have_the_programs_that_they_had():
    every = "".join(text(draw(s)) for s in range(MORE, MORE + 100))
    assert zlib.crc32(every.encode()) == 2890741331


def test_seeds_before_kinds_have_the_programs_that_they_had():
    every = "".join(text(draw(s)) for s in range(RESUMED, RESUMED + 100))
    assert zlib.crc32(every.encode()) == 1203201101


def test_late_seeds_draw_infinities_and_nan():
    """In some places: a program of these alone would have no other numbers."""
    strewn = []
    for seed in range(ENDS, ENDS + 40):
        made = draw(seed)
        both = zip(made.inputs, arrays(made, made.sizes, seed), strict=True)
        strewn += [(i, a) for i, a in both if i.strewn]
    held = {x for i, _ in strewn for x in map(str, i.strewn)}
    assert {"-inf", "inf", "nan", "-0.0"} <= held
    odd = [a for _, a in strewn if a.size > 1 and not np.isfinite(a).all()]
    assert len(odd) > 8
    assert sum(bool(np.isfinite(a).any()) for a in odd) > len(odd) / 2
    assert not any(i.strewn for s in range(FAR, FAR + 40) for i in draw(s).inputs)


@pytest.mark.parametrize("move", RARER, ids=lambda m: m.__name__)
def test_rarer_moves_draw_programs(move):
    """Most are taken: a move that is always taken back would draw nothing."""
    drawn = [Drawing(seed) for seed in range(KINDS, KINDS + 20)]
    for d in drawn:
        d.moving(move)
    assert sum(bool(d.made) for d in drawn) > 10


def test_what_is_read_seldom_may_stand_where_it_is_read():
    made = [p for p in map(draw, range(KINDS, KINDS + 80)) if p.nested and not p.rules]
    assert len(made) > 5
    for p in made:
        named = replace(p, nested=False)
        assert text(p).count(" = ") <= text(named).count(" = ")
        data = arrays(p, p.sizes, 0)
        one, other = (diagram(x).evaluate(*data) for x in (p, named))
        both = zip(*(x if isinstance(x, tuple) else (x,) for x in (one, other)), strict=True)
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in both)
    assert any(text(p).count(" = ") < text(replace(p, nested=False)).count(" = ") for p in made)


def test_every_operator_and_key_set_is_drawn():
    seeds = [*range(NEWEST, NEWEST + 1500), *range(SEVERAL, SEVERAL + 800)]
    seeds += range(SOLVED, SOLVED + 200)
    found = set().union(*(of_program(draw(s)) for s in seeds))
    assert not set(all_names()) - found
    assert all(f"key set {p}" in found for p in PATTERNS)


def test_no_union_of_more_boxes_than_a_key_set_may_have_is_drawn():
    """The bound is that of the patterns, and these seeds draw joins that would be beyond it."""
    for m in (1, 2, 3, 4):
        assert all(
            len(nk.fixed(m, n).boxes) <= boxes(Keys("fixed", (m, n))) for n in range(1, m + 1)
        )
    joined = [k for k in map(drawn_keys, range(3000)) if k.parts]
    both = {"fixed", "bigbird"}
    assert any({p.pattern for p in k.parts} == both for k in joined)
    for k in joined:
        one, other = map(boxes, k.parts)
        assert (one * other if k.pattern == "&" else one + other) <= MAX_BOXES


def drawn_keys(seed):
    d = Drawing(seed)
    return key_set(d, (d.axis(3),), (d.axis(3),))


def test_sizes_fit_the_diagram():
    for seed in range(40):
        made = draw(seed)
        for n in (1, 4, 9):
            sizes = fit(made, dict.fromkeys(made.sizes, n))
            data = arrays(made, sizes, seed)
            assert all(x.shape == tuple(sizes[a] for a in i.axes)
                       for x, i in zip(data, made.inputs, strict=True))  # fmt: skip


def test_windows_of_windows_ask_for_an_axis_that_is_long_enough():
    """The outer windows need 3 positions, of which the inner ones leave 1 where x has 7."""
    x = Input("X", ("x",))
    inner = Step("slide", (Ref(0),), (("x",),), (("into", ("p", "u")),))
    outer = Step("slide", (Ref(1),), (("p",),), (("into", ("q", "v")), ("window", 3)))
    made = Program((x,), (inner, outer), ((Ref(2), ("q", "v", "u")),), {})
    wanted = {"x": 7, "u": 7, "p": 5, "q": 1}
    assert fit(made, wanted) == {"x": 9, "u": 7, "p": 3, "q": 1, "v": 3}


def test_no_table_of_a_bigbird_key_set_is_empty():
    """It is read at computed positions, which napkin refuses of an empty axis."""
    blocks = Keys("bigbird", (1, 1, 0), (), ("q",), ("x",), None, (Ref(1),))
    most = Step("max", (Ref(0),), (("x",),), (), (blocks,))
    inputs = (Input("X", ("q", "x")), Input("B", ("b",), "int"))
    made = Program(inputs, (most,), ((Ref(2), ("q",)),), {})
    assert fit(made, {"q": 3, "x": 3, "b": 0}) == {"q": 3, "x": 3, "b": 1}


def test_smaller_programs_are_programs():
    for seed in (2, 19, 61):
        for smaller in list(steps(draw(seed)))[:30]:
            assert text(smaller).startswith("@nk.diagram(")
            results(smaller, arrays(smaller, smaller.sizes, 0), smaller.sizes)


# --- what is tried ------------------------------------------------------------------------------

OPEN: dict[str, dict[int, str]] = {
    "algebra": {},
    "interpret": {},
    "memory": {},
    "compile": {},
}
"""Seeds that are known to fail, and why."""


def cases(mode: str, share: int):
    """The seeds of a mode."""
    found: list[object] = []
    for seed in range(max(1, EXAMPLES // share)):
        why = OPEN[mode].get(seed)
        marks = [pytest.mark.xfail(reason=why, strict=True)] if why else []
        found.append(pytest.param(seed, marks=marks))
    return found


@pytest.mark.parametrize("seed", range(ENDS, ENDS + max(1, EXAMPLES // 20)))
def test_plans_have_the_infinities_and_nan_of_the_program(seed):
    assert tried(prepared("algebra"), draw(seed), seed) is None


@pytest.mark.parametrize("seed", cases("algebra", 5))
def test_every_candidate_plan_has_the_value_of_the_program(seed):
    assert tried(prepared("algebra"), draw(seed), seed) is None


@pytest.mark.parametrize("seed", [160000239, 160000245, 160000381, 160000490])
def test_what_is_compared_has_sums_that_are_computed_once(seed):
    """Of 386 programs of this kind nine gave another position where two plans added up a sum."""
    assert tried(prepared("algebra"), draw(seed), seed) is None


def command(mode: str, share: int, *more: str):
    """What the command says of the seeds of a mode that are not known to fail."""
    each = [s for s in range(max(1, EXAMPLES // share)) if s not in OPEN[mode]]
    asked = ["--mode", mode, "--seeds", ",".join(map(str, each)), *more]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, str(HERE / "run.py"), *asked],
        capture_output=True,
        text=True,
        env=environment,
    )


@pytest.mark.parametrize("first", [0, MORE], ids=["early", "later"])
def test_the_gradient_of_a_program_is_the_slope_of_its_value(first):
    for seed in range(first, first + EXAMPLES // 2):
        failure = tried(prepared("gradient"), draw(seed), seed)
        assert failure is None, (seed, failure)


def test_kernels_compute_and_move_what_is_predicted():
    ran = command("interpret", 20)
    assert ran.returncode == 0, ran.stdout


def test_plans_for_large_sizes_fit_shared_memory():
    ran = command("memory", 40)
    assert ran.returncode == 0, ran.stdout


def test_plans_for_large_sizes_compile():
    ran = command("compile", 150)
    assert ran.returncode == 0, ran.stdout


def test_values_are_those_of_the_diagram():
    for seed in range(max(1, EXAMPLES // 3)):
        made = draw(seed)
        if seed in OPEN["algebra"]:
            continue
        data = arrays(made, made.sizes, seed)
        found = diagram(made).evaluate(*data)
        found = found if isinstance(found, tuple) else (found,)
        for f, w in zip(found, results(made, data, made.sizes), strict=True):
            np.testing.assert_allclose(f, w, rtol=1e-9, atol=1e-9)
