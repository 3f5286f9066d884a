"""A search that did much work narrows: it still finds a plan, and says what it left out."""

from __future__ import annotations

import pytest

import napkin as nk
from napkin.algebra.tracer import Dropped, tracing
from napkin.cut import rewritten
from napkin.cut.way import SAME
from napkin.diagram.library import load
from napkin.machine.machines import machine
from napkin.plan.derive import memo_of, searched
from napkin.plan.plan import Plan
from napkin.settings import choose, effort, series
from napkin.settings.choose import Search
from napkin.settings.climb import best_tiles
from napkin.settings.effort import (
    AGAIN,
    AS_IT_IS,
    LABELLED,
    LEFT_OUT,
    NARROW,
    OTHERS,
    QUICK,
    SPENT,
    Effort,
)
from napkin.settings.tiles import Tiles

LIMITS = ("NARROW", "AS_IT_IS", "SPENT")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """All the work that a search may do is done before it begins."""
    for limit in LIMITS:
        monkeypatch.setattr(effort, limit, 0)
    return monkeypatch


def seconds(plan: Plan) -> float:
    """The predicted time of a plan."""
    return sum(k.choice.time.seconds for k in plan.kernels)


def work(name: str) -> tuple[int, int]:
    """The work of a search, and the cuts of terms that it tries."""
    memo, cuts = memo_of("h100", "bf16"), 0

    def counted(*args: object, **options: object) -> object:
        nonlocal cuts
        cuts += 1
        return cut(*args, **options)  # pyright: ignore

    with pytest.MonkeyPatch.context() as patched:
        cut = rewritten.cut
        patched.setattr(rewritten, "cut", counted)
        diagram = load(name)
        searched(diagram, diagram.check_sizes({}), memo)
    return memo.effort.work, cuts


def test_work_is_bounded_by_that_of_the_first_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    full, cuts = work("bilinear_form")
    for limit in (*LIMITS, "AGAIN", "OTHERS", "QUICK"):
        monkeypatch.setattr(effort, limit, full // 16)
    few, tried = work("bilinear_form")
    assert few < full
    assert tried < cuts


@pytest.mark.parametrize("name", ["tensor_train", "layernorm_gradient"])
def test_a_narrow_search_finds_a_plan_that_is_about_as_fast(
    name: str, at_once: pytest.MonkeyPatch
) -> None:
    few = nk.derive(load(name), on="h100")
    notes = [m.note for m in few.trail if m.rule == "bound"]
    assert notes
    assert all(n.startswith("after the work of ") for n in notes)
    at_once.undo()
    full = nk.derive(load(name), on="h100")
    assert not [m for m in full.trail if m.rule == "bound"]
    # What is a little faster in more kernels is alike, and not preferred.
    assert seconds(full) / SAME <= seconds(few) <= 1.5 * seconds(full)


@pytest.mark.usefixtures("at_once")
def test_a_narrow_plan_is_right() -> None:
    few = nk.derive(load("layernorm_gradient"), on="h100", dtype="fp32")
    sizes = {a: min(n, 48) for a, n in few.sizes.items() if a in few.diagram.axes}
    few.check(sizes=sizes, resources=False).raise_if_wrong()


def test_the_trace_says_which_cuts_were_not_tried(at_once: pytest.MonkeyPatch) -> None:
    at_once.setattr(effort, "OTHERS", 0)
    with tracing() as tracer:
        nk.derive(load("bilinear_form"), on="h100")
    left = [e for e in tracer.events if isinstance(e, Dropped) and "settings is done" in e.why]
    assert {"term"} <= {e.kind for e in left} <= {"order", "points", "term", "cut"}


def test_the_plan_says_that_labellings_and_numbers_of_parts_were_left_out() -> None:
    memo = memo_of("h100", "bf16")
    assert not memo.bounds
    memo.effort.thinned = True
    (note,) = memo.bounds
    assert note.endswith("tried in 2 labellings and in the most parts")


def test_each_move_has_work_left_of_its_own() -> None:
    memo = memo_of("h100", "bf16")
    spent = memo.effort
    assert not spent.over("quick")
    spent.labelled = QUICK * LABELLED
    assert spent.over("quick")
    spent.labelled = AS_IT_IS * LABELLED
    assert spent.over("as it is")
    assert not spent.over("again")
    spent.labelled = (SPENT - OTHERS) * LABELLED
    spent.begins()
    spent.labelled = SPENT * LABELLED
    assert spent.over("other")
    assert not spent.over("again")
    spent.begins()
    assert not spent.over("again")
    assert not spent.over("other")
    spent.labelled += AGAIN * LABELLED
    assert spent.over("other")
    assert spent.over("again")
    said = [why.partition(", ")[2] for why in memo.bounds]
    assert set(said) == set(LEFT_OUT.values())


def searches(diagram: nk.Diagram) -> list[Search]:
    """The segments of all cuts of a diagram that are tried."""
    found = searched(diagram, diagram.check_sizes({}), memo_of("h100", "bf16"))
    return [known.search for known in found.memo.known.values()]


@pytest.mark.parametrize("name", ["attention", "layernorm_gradient", "conv2d", "longformer"])
def test_no_labelling_undercuts_what_its_arrays_take_to_move(name: str) -> None:
    for search in searches(load(name)):
        assert 0 < search.moving <= search.least


@pytest.mark.usefixtures("monkeypatch")  # a search of its own
@pytest.mark.parametrize("name", ["layernorm_gradient", "cross_entropy"])
def test_segments_that_take_too_long_to_move_are_not_labelled(name: str) -> None:
    found = searches(load(name))
    assert 0 < sum("kernels" in vars(s) for s in found) < len(found)


def test_quick_cuts_of_a_large_term_find_its_rewrites(monkeypatch: pytest.MonkeyPatch) -> None:
    """They come before a search in full, which may take all the work that there is."""
    diagram = load("bilinear_form")
    full = nk.derive(diagram, on="h100")
    for limit in ("AS_IT_IS", "SPENT", "OTHERS"):
        monkeypatch.setattr(effort, limit, 0)
    assert "refactor" not in {m.rule for m in nk.derive(diagram, on="h100").trail}
    monkeypatch.setattr(rewritten, "LARGE", 0)
    few = nk.derive(diagram, on="h100")
    assert "refactor" in {m.rule for m in few.trail}
    assert seconds(few) <= SAME * seconds(full)
    monkeypatch.setattr(effort, "QUICK", 0)
    assert "refactor" not in {m.rule for m in nk.derive(diagram, on="h100").trail}


@pytest.mark.parametrize("name", ["conv2d", "causal_attention", "rmsnorm_linear", "longformer"])
def test_the_best_of_few_settings_is_about_the_best_of_all(name: str) -> None:
    """Of settings far apart, and of those beside the best of them."""
    for k in nk.derive(load(name), on="h100").kernels:
        on = k.choice.kernel, k.choice.sizes, k.dtype, k.machine
        spent = Effort()
        few, every = best_tiles(*on, spent), best_tiles(*on)
        assert few is not None
        assert every is not None
        assert every.time.seconds <= few.time.seconds <= 1.1 * every.time.seconds
        assert spent.priced <= len(Tiles(on[0], on[0].sized(on[1])).every)


def test_of_many_labellings_and_numbers_of_parts_few_are_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def priced() -> int:
        memo, diagram = memo_of("h100", "bf16"), load("layernorm_gradient")
        searched(diagram, diagram.check_sizes({}), memo)
        return memo.effort.priced

    full = priced()
    monkeypatch.setattr(effort, "NARROW", 0)
    assert priced() < full


def test_a_search_narrows_where_there_are_many() -> None:
    fresh, worn = Effort(), Effort(priced=NARROW)
    assert not fresh.narrows(True)
    assert not worn.narrows(False)
    assert not fresh.thinned
    assert not worn.thinned
    assert worn.narrows(True)
    assert worn.thinned


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("name", ["decode_attention", "tensor_train", "layernorm_gradient"])
def test_pairs_that_are_left_alone_are_behind(
    name: str, deterministic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan is the same where all that may pay are priced."""
    plan = nk.derive(load(name), on="h100", deterministic=deterministic)

    def every(*args: object) -> object:
        return best_tiles(*args[:5])  # pyright: ignore

    monkeypatch.setattr(choose, "HAIR", float("inf"))
    monkeypatch.setattr(series, "best_tiles", every)
    assert nk.derive(load(name), on="h100", deterministic=deterministic).source == plan.source


def test_tiles_that_take_too_long_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    (k,) = nk.derive(load("matmul"), "h100").kernels
    on = k.choice.kernel, k.choice.sizes, "bf16", machine("h100")
    found = best_tiles(*on)
    assert found is not None
    for times in (0.01, 0.5, 0.99, 1.01, 2.0):
        other = best_tiles(*on, under=times * found.time.seconds)
        assert other is None or other.schedule == found.schedule
        assert other is not None or times < 1
    assert best_tiles(*on, under=0.5 * found.time.seconds) is None
