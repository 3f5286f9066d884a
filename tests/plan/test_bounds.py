"""Plans of terms that are deep, shared many ways or of many reductions, found in few steps."""

import cProfile
import json
from collections.abc import Callable

import pytest

import napkin as nk
from napkin.algebra.contraction import MOST_SPLIT, splits
from napkin.count.memory import alive
from napkin.cut import segments as alike
from napkin.derive.label import label
from napkin.diagram.library import load
from napkin.ir.node import FLIGHT, MOST_FACTORS, factors, inside_sums, landings, postorder
from napkin.run.recipe import recipe_of
from napkin.settings import labels

Step = Callable[[nk.Array, nk.Array], nk.Array]


def repeated(step: Step, times: int) -> nk.Diagram:
    """A step that is applied so often."""

    @nk.diagram("a b, a b -> a b")
    def repeat(X, Z):
        Y = X
        for _ in range(times):
            Y = step(Y, Z)
        return Y + Z

    return repeat


@pytest.mark.parametrize(
    ("step", "times"),
    [(lambda Y, _: Y + Y * 0.5, 20), (lambda Y, Z: Y * Z + 1.5, 300), (lambda Y, _: Y * Y, 30)],
    ids=["shared 2^20 ways", "300 multiply-adds", "squared 30 times"],
)
def test_deep_arithmetic_is_a_kernel_that_compiles(step: Step, times: int) -> None:
    plan = nk.derive(repeated(step, times), on="h100", sizes={"a": 64, "b": 64}, dtype="fp32")
    compile(plan.source, "kernel.py", "exec")
    assert str(plan)
    nested = max(line.count("(") for line in plan.source.splitlines())
    assert nested <= 4 * FLIGHT


def test_landings_are_never_more_than_a_flight_apart() -> None:
    (root,) = repeated(lambda Y, Z: Y * Z + Z, 200).roots
    found = list(landings([root]))
    assert len(found) < 2 * root.depth // FLIGHT
    below = [len(set(postorder([n], set(found) - {n}))) for n in (*found, root)]
    assert max(below) <= 2 * FLIGHT


def test_shallow_terms_have_no_landing() -> None:
    (root,) = repeated(lambda Y, Z: Y * Z + Z, 5).roots
    assert not list(landings([root]))


def test_a_product_shared_many_ways_has_bounded_factors() -> None:
    (many,) = repeated(lambda Y, _: Y * Y, 40).roots
    assert len(factors(many.args[0])) == MOST_FACTORS
    (few,) = repeated(lambda Y, _: Y * Y, 5).roots
    assert [n.op for n in factors(few.args[0])] == ["input"] * 32


def test_what_no_contraction_opens_is_an_array() -> None:
    @nk.diagram("a b, a b -> a")
    def many(X, Z):
        Y = X
        for _ in range(100):
            Y = Y * Z
        return nk.reduce(Y, "sum", over="b")

    (root,) = many.roots
    inside = inside_sums([root])
    whole = [p for p in factors(root.args[0]) if p.op == "mul"]
    assert whole
    assert inside.isdisjoint(whole)


def test_a_contraction_of_many_factors_has_bounded_splits() -> None:
    gone = {0}
    few = list(splits([{0, 1}, {0, 2}, {0}], gone))
    assert few == [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1)]
    many = list(splits([{0, 1}] * 200 + [{0, 2}], gone))
    assert many == [(0,) * 201, (*[0] * 200, 1)]
    apart = splits([{0, i + 1} for i in range(40)], gone)
    assert sum(1 for _ in apart) == 2**MOST_SPLIT


def test_a_contraction_of_a_high_power_is_derived() -> None:
    @nk.diagram("a b, b c -> a c")
    def power(X, V):
        Y = X
        for _ in range(80):
            Y = Y * X
        return nk.contract(Y, V, over="b")

    plan = nk.derive(power, on="h100", sizes={"a": 64, "b": 64, "c": 64}, dtype="fp32")
    compile(plan.source, "kernel.py", "exec")


def chained_norms(times: int) -> nk.Diagram:
    """Values divided by their largest, again and again."""

    @nk.diagram("a b -> a b")
    def norms(X):
        for _ in range(times):
            X = nk.tanh(X - nk.reduce(X, "max", over="b"))
        return X

    return norms


def test_a_bounded_search_finds_a_plan_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def derived(times: int) -> nk.Plan:
        return nk.derive(chained_norms(times), on="h100", sizes={"a": 64, "b": 64}, dtype="fp32")

    assert "bound" not in {m.rule for m in derived(2).trail}
    monkeypatch.setattr(alike, "IN_FULL", 0)
    bounded = derived(alike.SHORT + 1)
    assert "bound" in {m.rule for m in bounded.trail}
    roots = [[o.node for o in k.choice.origin] for k in bounded.kernels]
    assert max(sum(n.op == "max" for n in postorder(each)) for each in roots) <= alike.SHORT


def test_a_chain_of_softmaxes_is_derived() -> None:
    @nk.diagram("a b -> a b")
    def chain(X):
        for _ in range(3):
            X = nk.softmax(X, over="b")
        return X

    plan = nk.derive(chain, on="h100", sizes={"a": 64, "b": 64}, dtype="fp32")
    assert plan.kernels


def test_deep_arithmetic_on_sizes_is_a_scalar_that_the_launch_computes() -> None:
    @nk.diagram("a b -> a b")
    def scaled(X):
        size = nk.size("a")
        for _ in range(5000):
            size = size + nk.size("b")
        return X * size

    plan = nk.derive(scaled, on="h100", sizes={"a": 64, "b": 64}, dtype="fp32")
    recipe = recipe_of(json.loads(json.dumps(plan.recipe.to_json())))
    (step,) = recipe.steps
    strides = {name: (64, 1) for name in step.binding.values()}
    call = step.launch(recipe.full({"a": 64, "b": 64}), {}, strides)
    assert 5001 * 64 in call.scalars.values()


def test_what_is_alive_is_found_in_steps_that_grow_with_the_terms() -> None:
    def calls(times: int) -> int:
        plan = nk.derive(
            repeated(lambda Y, Z: Y * Z + 1.5, times), sizes={"a": 64, "b": 64}, dtype="fp32"
        )
        profile = cProfile.Profile()
        profile.runcall(alive, plan.kernels[0].choice.kernel)
        return sum(entry.callcount for entry in profile.getstats())

    assert calls(800) < 5 * calls(200)


def test_labellings_are_the_same_at_other_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A diagram that is planned again, for other sizes, is not labelled again."""
    seen: list[object] = []

    def counted(name, outputs, names, **how):
        roots = tuple((o.name, o.node, o.axes) for o in outputs)
        seen.append((name, roots, tuple(names.items()), *how.items()))
        return label(name, outputs, names, **how)

    monkeypatch.setattr(labels, "label", counted)
    labels._labelled.cache_clear()
    diagram = load("attention")
    nk.derive(diagram, on="h100")
    nk.derive(diagram, on="h100", sizes=dict.fromkeys(diagram.axes, 256))
    assert len(seen) == len(set(seen)) > 0
