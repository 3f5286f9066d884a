"""`nk.gradient`: how each kind of node hands its cotangent on, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.diagram.library import load
from napkin.ir.node import factors, over, postorder
from napkin.ir.storage import own_type
from napkin.ir.taking import spans_of

RNG = np.random.default_rng(3)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape)


@nk.diagram("q d, x d, x e -> q e", sizes={"q": 5, "x": 7, "d": 3, "e": 4})
def heads(Q: Any, K: Any, V: Any) -> Any:
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    return nk.contract(nk.softmax(S, over="x"), V, over="x")


# --- the face -----------------------------------------------------------------------------------


def test_a_gradient_is_a_diagram_of_inputs_and_cotangents() -> None:
    made = nk.gradient(heads)
    assert made.name == "heads_gradient"
    assert [str(n.params[0]) for n in made.inputs] == ["Q", "K", "V", "dO"]
    assert [o.name for o in made.outputs] == ["dQ", "dK", "dV"]
    assert [o.axes for o in made.outputs] == [n.axes for n in heads.inputs]
    assert [o.name for o in nk.gradient(heads, wrt=("V", "Q")).outputs] == ["dV", "dQ"]
    assert [o.name for o in nk.gradient(heads, wrt="K").outputs] == ["dK"]
    assert "circle" in made.draw() or "<svg" in made.draw()


def test_inputs_that_a_gradient_does_not_read_are_taken_all_the_same() -> None:
    f = nk.diagram("n d, d -> n d", name="plus_bias")(lambda X, b: X + b)
    made = nk.gradient(f)
    dX, db = made.evaluate(normal(3, 2), normal(2), np.ones((3, 2)))
    assert dX.tolist() == np.ones((3, 2)).tolist()
    assert db.tolist() == [3.0, 3.0]


def test_a_gradient_is_stored_as_its_input_is() -> None:
    """8 bits are too few for a sum: there it is the plan's type."""
    f = nk.diagram("n d, d:fp32, d:fp8 -> n d", name="scaled")(lambda X, g, b: X * g + b)
    assert [own_type(o.node) for o in nk.gradient(f).outputs] == ["", "fp32", ""]


def test_an_input_that_changes_nothing_has_gradient_zero() -> None:
    f = nk.diagram("n, n -> n", name="signs")(lambda X, Y: nk.where(X > 0, Y, -Y))
    dX, dY = nk.gradient(f).evaluate([1.0, -1.0], [3.0, 4.0], [1.0, 1.0])
    assert (dX.tolist(), dY.tolist()) == ([0.0, 0.0], [1.0, -1.0])


def test_every_output_has_a_cotangent(gradients_agree: Any) -> None:
    def both(X: Any) -> Any:
        top = nk.reduce(X, "logsumexp", over="d")
        return nk.exp(X - top), top, nk.argmax(X, over="d")

    f = nk.diagram("n d -> n d, n, n", name="with_positions")(both)
    made = gradients_agree(f, normal(3, 4))
    assert [str(n.params[0]) for n in made.inputs] == ["X", "dO1", "dtop"]


def test_a_cotangent_is_stored_as_its_output() -> None:
    f = nk.diagram("n v -> n", name="stored_in_fp32")(
        lambda X: nk.cast(nk.reduce(X, "logsumexp", over="v"), "fp32")
    )
    assert str(nk.gradient(f).signature).count("fp32") == 1


# --- rules --------------------------------------------------------------------------------------


def test_b1_a_contraction_of_n_factors_has_n_contractions(gradients_agree: Any) -> None:
    f = nk.diagram("i k, k j, k -> i j", name="three_factors")(
        lambda A, B, c: nk.contract(A, B, c, over="k")
    )
    made = gradients_agree(f, normal(3, 4), normal(4, 5), normal(4))
    sums = {n for n in postorder(made.roots) if n.op == "sum"}
    assert len(sums) == 3
    assert sorted(len(factors(n.args[0])) for n in sums) == [
        2,
        2,
        3,
    ]  # what lacks the axes that go stands outside


def test_b2_delta_is_the_sum_of_the_cotangent_times_the_result() -> None:
    made = nk.gradient(heads)
    text = str(made)
    assert "total = sum(dO * O, over e)" in text
    assert "* (dO_V - total)" in text


def test_b8_the_gradient_of_a_variance_is_that_of_its_meaning(gradients_agree: Any) -> None:
    gradients_agree(load("variance"), normal(3, 5))


def test_b11_the_gradient_of_a_gradient(gradients_agree: Any) -> None:
    def layer(X: Any, W: Any) -> Any:
        return nk.tanh(nk.contract(X, W, over="k")) * nk.sigmoid(nk.contract(X, W, over="k"))

    f = nk.diagram("i k, k j -> i j", name="second_order")(layer)
    first = nk.gradient(f)
    gradients_agree(first, normal(2, 3), normal(3, 2), normal(2, 2))
    gradients_agree(nk.gradient(heads), *(normal(*s) for s in ((2, 2), (3, 2), (3, 2), (2, 2))))


@pytest.mark.parametrize(
    "keys",
    [
        nk.causal(), nk.sliding(2, 1), nk.strided(3), nk.fixed(3, 1), nk.blocked(3, 1, 0),
        nk.sinks(1) | nk.sliding(1, 0), nk.dilated(2, 1, 2), nk.neighborhood(3),
        nk.neighborhood(3, stride=2), nk.neighborhood(3, dilation=2, is_causal=True),
    ],
    ids=str,
)  # fmt: skip
def test_key_sets_in_softmax_contractions_and_maxima(keys: Any, gradients_agree: Any) -> None:
    def seen(Q: Any, K: Any, V: Any) -> Any:
        S = nk.contract(Q, K, over="d")
        out = nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")
        R = nk.contract(nk.tanh(S), V, over="x", keys=keys.over("q", "x"))
        most = nk.reduce(S, "max", over="x", keys=keys)
        return out + R, most, nk.reduce(S, "mean", over="x", keys=keys)

    f = nk.diagram("q d, x d, x d -> q d, q, q", name="seen_keys")(seen)
    gradients_agree(f, normal(8, 2), normal(8, 2), normal(8, 2))


def test_neighborhoods_of_two_axes(gradients_agree: Any) -> None:
    def near(Q: Any, K: Any, V: Any) -> Any:
        S = nk.contract(Q, K, over="d")
        keys = nk.neighborhood((3, 2), dilation=(1, 2), queries="a b", keys="x y")
        return nk.contract(nk.softmax(S, over="x y", keys=keys), V, over="x y")

    f = nk.diagram("a b d, x y d, x y d -> a b d", name="near_in_two")(near)
    gradients_agree(f, *(normal(4, 5, 2) for _ in range(3)))


def test_packed_documents(gradients_agree: Any) -> None:
    f = load("document_attention")
    gradients_agree(f, *(normal(9, 2) for _ in range(3)), np.array([4, 0, 5]))


def test_a_softmax_of_several_arrays(gradients_agree: Any) -> None:
    def beside(S: Any, T: Any, V: Any, W: Any) -> Any:
        P, R = nk.softmax([S, T], over=["x", "a"])
        level = nk.reduce([S, T], "logsumexp", over=["x", "a"])
        return nk.contract(P, V, over="x") + nk.contract(R, W, over="a"), level

    f = nk.diagram("q x, a, x d, a d -> q d, q", name="extra_keys")(beside)
    gradients_agree(f, normal(4, 5), normal(3), normal(5, 2), normal(3, 2))


def test_one_array_read_under_two_names(gradients_agree: Any) -> None:
    def own(X: Any) -> Any:
        Y = X.rename(t="x")
        return nk.contract(nk.softmax(nk.contract(X, Y, over="d"), over="x"), Y, over="x")

    gradients_agree(nk.diagram("t d -> t d", name="self_attention")(own), normal(5, 3))


TAKES = {
    "reversed": lambda X: nk.take(X, x=nk.size("x") - 1 - nk.index("x")),
    "shifted, past both ends": lambda X: nk.take(X, x=nk.index("x") - 2),
    "every second": lambda X: nk.take(X, x=nk.index("x") * 2),
    "transposed": lambda X: nk.take(X, x=nk.index("y"), y=nk.index("x")),
    "shifted along both axes": lambda X: nk.take(X, x=nk.index("x") - 2, y=nk.index("y") + 1),
    "reversed along one of two": lambda X: nk.take(
        X, x=nk.index("x") // 2, y=nk.size("y") - 1 - nk.index("y")
    ),
    "a diagonal": lambda X: nk.take(X, x=nk.index("y")) * nk.index("x"),
}


@pytest.mark.parametrize("case", TAKES)
def test_takes_at_positions_by_a_formula(case: str, gradients_agree: Any) -> None:
    f = nk.diagram("x y -> x y", name="taken")(lambda X: nk.tanh(TAKES[case](X)))
    gradients_agree(f, normal(5, 5))


def test_a_shift_is_read_back_and_not_compared_with_every_place() -> None:
    f = nk.diagram("x -> x", name="turned_round")(
        lambda X: nk.take(X, x=nk.size("x") - 1 - nk.index("x"))
    )
    made = nk.gradient(f)
    assert any(n.op == "take" for n in postorder(made.roots))


def test_a_relative_bias(gradients_agree: Any) -> None:
    def biased(S: Any, B: Any) -> Any:
        near = nk.take(B, p=nk.index("x") - nk.index("q") + 2)
        return nk.softmax(S + near, over="x")

    f = nk.diagram("q x, p -> q x", name="relative_bias")(biased)
    made = gradients_agree(f, normal(5, 6), normal(7))
    assert len(made.takes) == 2


def test_a_shift_along_several_axes_is_solved_for_each() -> None:
    """Every position was compared with every place: 13 s for a stencil that takes 71 us."""

    def at(A: Any, i: int, j: int) -> Any:
        here = {"i": nk.index("i") + i, "j": nk.index("j") + j}
        inside = [(p >= 0) & (p < nk.size(a)) for a, p in here.items()]
        return nk.where(inside[0] & inside[1], nk.take(A, **here), 0.0)

    f = nk.diagram("i j -> i j", name="stencil")(
        lambda A: at(A, 1, 0) + at(A, -1, 0) + at(A, 0, 1) + at(A, 0, -1) - 4 * A
    )
    plan = nk.derive(nk.gradient(f), "h100", dict(i=2048, j=2048), "fp32")
    assert plan.seconds < 2e-4
    assert plan.check(sizes=dict(i=5, j=7), resources=False).ok


def reshaped(X: Any, by: Any = 2) -> Any:
    return nk.take(X, h=nk.index("i") // by, c=nk.index("i") % by)


QUOTIENTS = {
    "reshaped": (lambda X, G: reshaped(X) * G, "h c, i -> i"),
    "reshaped by a size": (lambda X, G: reshaped(X, nk.size("c")) * G, "h c, i -> i"),
    "repeated": (lambda X, G: nk.take(X, h=nk.index("i") // 3) * G, "h c, i -> i c"),
    "upsampled": (
        lambda X, G: nk.take(X, h=nk.index("i") // 2, c=nk.index("j") // 3) * G,
        "h c, i j -> i j",
    ),
}


@pytest.mark.parametrize("case", QUOTIENTS)
@pytest.mark.parametrize(
    ("h", "c", "i"), [(4, 2, 8), (3, 2, 7), (2, 2, 9), (5, 3, 7), (3, 1, 8), (2, 4, 5)]
)
def test_takes_at_quotients(case: str, h: int, c: int, i: int, gradients_agree: Any) -> None:
    """Below the table's end and past it, and with a remainder past the end of its axis."""
    body, axes = QUOTIENTS[case]
    f = nk.diagram(axes, name="quotients")(lambda X, G: nk.tanh(body(X, G)))
    gradients_agree(f, normal(h, c), normal(i, 5) if "j" in axes else normal(i))


def test_a_reshape_is_read_back_and_not_compared_with_every_place() -> None:
    """Every position was compared with every place: 460 ms for an array that takes 7 us."""
    f = nk.diagram("h c, i -> i", name="unshuffle")(lambda X, G: reshaped(X) * G)
    gradient = nk.gradient(f, wrt="X")
    plan = nk.derive(gradient, "h100", dict(h=1 << 19, c=2, i=1 << 20))
    assert plan.seconds < 1e-4
    assert plan.check(sizes=dict(h=5, c=2, i=9), resources=False).ok


def test_cotangents_that_are_read_at_several_shifts_are_stored_once() -> None:
    """Each shift read, and summed, the same array under another axis name, and stored it: 23
    kernels and 235 MB."""

    def at(e: Any, **by: int) -> Any:
        return nk.take(e, **{a: nk.index(a) + n for a, n in by.items()})

    def length(e: Any) -> Any:
        lap = at(e, i=1) + at(e, i=-1) + at(e, j=1) + at(e, j=-1) - 4 * e
        return nk.sqrt(nk.reduce(lap * lap, "sum", over="i j"))

    gradient = nk.gradient(nk.diagram("b i j -> b", name="sobolev")(length))
    assert not [n for n in postorder(gradient.roots) if n.op == "rename"]
    plan = nk.derive(gradient, "h100", dict(b=16, i=512, j=512), "fp32")
    assert len(plan.kernels) <= 4
    assert plan.check(sizes=dict(b=2, i=5, j=7), resources=False).ok


def test_b9_a_target_that_is_taken_is_a_test_in_the_gradient(gradients_agree: Any) -> None:
    def loss(S: Any, T: Any) -> Any:
        return nk.reduce(S, "logsumexp", over="v") - nk.take(S, v=T)

    f = nk.diagram("n v, n:int -> n", name="taken_target")(loss)
    made = gradients_agree(f, normal(4, 5), np.array([0, 4, 2, 7]))
    # One read, one write: all that is summed is the row's exponentials.
    assert [n.args[0].op for n in postorder(made.roots) if n.op == "sum"] == ["exp"]
    gradients_agree(load("cross_entropy"), normal(4, 5), np.array([0, 4, 2, 1]))


def test_rows_of_a_table_are_added_up(gradients_agree: Any) -> None:
    f = nk.diagram("v d, t:int -> t d", name="embedding_rows")(lambda E, T: nk.take(E, v=T) ** 2)
    gradients_agree(f, normal(4, 2), np.array([1, 1, 3, 0, 9]))


@pytest.mark.parametrize("own", [
    lambda T: T, lambda T: T - nk.index("v"), lambda T: nk.take(T, v=nk.index("v") // 2),
    lambda T: nk.cumsum(T, along="v"),
], ids=["as they are given", "shifted", "taken themselves", "computed"])  # fmt: skip
def test_positions_along_the_axis_that_they_read(own: Any, gradients_agree: Any) -> None:
    """A value is read by other positions of its own axis: another axis in the sum over these."""

    def rows(E: Any, T: Any) -> Any:
        return nk.contract(nk.take(E, v=own(T)) ** 2, E, over="v")

    f = nk.diagram("v, t v:int -> t", name="rows_by_position")(rows)
    gradients_agree(f, normal(4), np.array([[1, 1, 3, 0], [9, -2, 0, 1]]))


@pytest.mark.parametrize("options", [
    {}, {"padding": 1}, {"stride": 2, "padding": (2, 0)}, {"dilation": 2, "padding": 3},
    {"stride": 3, "dilation": 2, "padding": 1},
], ids=str)  # fmt: skip
def test_windows(options: dict[str, Any], gradients_agree: Any) -> None:
    def convolved(X: Any, W: Any) -> Any:
        seen = nk.slide(X, over="i", into="p w", **options)
        pooled = nk.reduce(nk.slide(X, over="i", into="p w", **options), "max", over="w")
        return nk.contract(seen, W, over="w c"), pooled

    f = nk.diagram("i c, w c o -> p o, p c", name="windows_of")(convolved)
    gradients_agree(f, normal(11, 2), normal(3, 2, 2))


def test_windows_beside_sums_over_axes_of_their_names(gradients_agree: Any) -> None:
    """The sums are of the cotangent: i is that of C there, and p is summed for each r."""

    def windows(X: Any, W: Any) -> Any:
        rows = nk.slide(X, over="i", into="p w")
        return nk.contract(nk.slide(rows, over="j", into="r u"), W, over="w u")

    def of_table(C: Any, X: Any, W: Any) -> Any:
        return nk.contract(windows(X, W), C, over="p")

    def of_windows(K: Any, X: Any, W: Any) -> Any:
        return K * nk.reduce(windows(X, W), "sum", over="p")

    f = nk.diagram("i d, i j, w u -> r i d")(of_table)
    gradients_agree(f, normal(9, 2), normal(9, 7), normal(3, 2))
    f = nk.diagram("p r, i j, w u -> p r")(of_windows)
    gradients_agree(f, normal(7, 6), normal(9, 7), normal(3, 2))


def test_sizes_of_windows_that_a_gradient_does_not_read() -> None:
    def pooled(X: Any) -> Any:
        return nk.reduce(nk.slide(X, over="i", into="p w", stride=3, window=4), "mean", over="w")

    made = nk.gradient(nk.diagram("i c -> p c", name="pooled")(pooled))
    assert not any(own is not None for n in made.takes for own in spans_of(n))
    assert made.weave("b").check_sizes({"i": 13, "c": 2, "b": 5})["p"] == 4
    for windows in (3, 5):  # a cotangent of fewer windows, or of more
        with pytest.raises(nk.InputError, match="has 4 windows"):
            made.evaluate(normal(13, 2), normal(windows, 2))


def test_sizes_of_taps_and_slots_that_a_gradient_does_not_read() -> None:
    def taps(X: Any) -> Any:
        return nk.reduce(nk.slide(X, over="i", into="p w", window=2), "sum", over="p")

    def slots(S: Any) -> Any:
        keys = nk.sliding(1, 1, queries="q", keys="x")
        return nk.reduce(nk.compress(S, keys, into="u"), "sum", over="q")

    of_taps = nk.gradient(nk.diagram("i c -> w c", name="taps")(taps))
    assert of_taps.evaluate(normal(7, 2), normal(2, 2)).shape == (7, 2)
    with pytest.raises(nk.InputError, match="w=3, but taps slides a window of 2 along i"):
        of_taps.evaluate(normal(7, 2), normal(3, 2))
    of_slots = nk.gradient(nk.diagram("q x -> u", name="slots")(slots))
    assert of_slots.weave("b").check_sizes({"q": 5, "x": 5, "b": 2})["u"] == 3
    with pytest.raises(nk.InputError, match=r"u=4, but u is the slots of sliding.* which has 3"):
        of_slots.evaluate(normal(5, 5), normal(4))


@pytest.mark.parametrize("options", [
    {}, {"stride": 2, "padding": 1}, {"dilation": 2}, {"stride": 2, "dilation": 2, "padding": 2},
], ids=str)  # fmt: skip
def test_rows_of_windows_by_their_numbers(options: dict[str, Any], gradients_agree: Any) -> None:
    """No input of the gradient says how many windows there are: their numbers are compared."""

    def chosen(X: Any, K: Any, Y: Any) -> Any:
        seen = nk.slide(X, over="x", into="p w", window=3, **options)
        sums = nk.reduce(seen, "sum", over="w")
        return nk.take(seen, p=K), Y * nk.take(sums, p=2 * nk.index("k"))

    f = nk.diagram("x d, k:int, k -> k w d, k d", name="chosen_windows")(chosen)
    gradients_agree(f, normal(9, 2), np.array([-3, 0, 1, 1, 2, 9]), normal(6))
    made = nk.gradient(f, wrt="X")
    assert "p" not in made.axes
    sizes = dict(x=33, d=8, k=20)
    verdict = nk.derive(made, "h100", sizes=sizes).check(sizes=sizes, resources=False)
    assert verdict.ok, verdict


def test_windows_whose_sums_alone_are_results(gradients_agree: Any) -> None:
    def means(X: Any) -> Any:
        return nk.reduce(nk.slide(X, over="i", into="p w", window=2), "mean", over="p w")

    gradients_agree(nk.diagram("i -> ()", name="mean_of_windows")(means), normal(6))


def test_a_convolution_backwards_reads_what_lies_in_memory() -> None:
    made = nk.gradient(load("conv2d"), wrt="X")
    assert all(n.args[0].op == "input" for n in made.takes)


def test_slots_and_keys(gradients_agree: Any) -> None:
    def stored(Q: Any, K: Any, V: Any) -> Any:
        keys = nk.neighborhood(3, queries="q", keys="x")
        S = nk.compress(nk.contract(Q, K, over="d"), keys, into="w")
        return nk.contract(nk.spread(nk.softmax(S, over="w"), keys, over="w"), V, over="x")

    f = nk.diagram("q d, x d, x d -> q d", name="stored_slots")(stored)
    gradients_agree(f, *(normal(6, 2) for _ in range(3)))


def test_scans_run_the_other_way(gradients_agree: Any) -> None:
    def states(A: Any, X: Any, h: Any) -> Any:
        moved = nk.scan(lambda s: nk.sigmoid(A) * s + X, h, along="t")
        decayed = nk.scan(lambda s: 0.5 * s + X, 0.0, along="t")
        return moved + decayed + nk.cumsum(X * X, along="t")

    f = nk.diagram("t d, t d, d -> t d", name="both_scans")(states)
    gradients_agree(f, normal(6, 2), normal(6, 2), normal(2))


def test_any_step_runs_the_other_way(gradients_agree: Any) -> None:
    def states(X: Any, F: Any, W: Any, c0: Any) -> Any:
        def step(h: Any, c: Any) -> Any:
            c = nk.sigmoid(F + nk.contract(h, W, over="d").rename(e="d")) * c + nk.tanh(X)
            return nk.tanh(c) * nk.softmax(h + X, over="d"), c

        return nk.scan(step, (0.5, c0), along="t", axes="d")

    f = nk.diagram("b t d, t d, d e, b d -> b t d, b t d", name="gates")(states)
    gradients_agree(f, normal(2, 4, 3), normal(4, 3), normal(3, 3), normal(2, 3))


def test_a_step_has_no_slope_after_the_last_position(gradients_agree: Any) -> None:
    """The root of the last state less X is none, and no state is computed of it."""
    f = nk.diagram("t -> t", name="roots")(
        lambda X: nk.scan(lambda h: nk.sqrt(h - X), 5.0, along="t")
    )
    gradients_agree(f, [1.0, 0.5, 0.9])
    gradients_agree(nk.gradient(f), [1.0, 0.5, 0.9], [1.0, 2.0, 3.0])


def test_the_gradient_of_a_gradient_of_states_under_another_name(gradients_agree: Any) -> None:
    def renamed(X: Any, Y: Any) -> Any:
        states = nk.scan(lambda h: nk.tanh(h + X), 0.0, along="t")
        return states.rename(t="u") ** 2 * Y

    f = nk.diagram("t d, u d -> u d", name="renamed_states")(renamed)
    gradients_agree(nk.gradient(f), *(normal(3, 2) for _ in range(3)))


@pytest.mark.parametrize("t", [1, 4])
def test_the_delta_rule_runs_the_other_way(gradients_agree: Any, t: int) -> None:
    def rule(Q: Any, K: Any, V: Any, B: Any) -> Any:
        step = lambda S: S + B * K * (V - nk.contract(S, K, over="k"))  # noqa: E731
        return nk.contract(Q, nk.scan(step, 0.0, along="t", axes="k"), over="k")

    f = nk.diagram("t k, t k, t v, t -> t v", name="delta_rule")(rule)
    made = gradients_agree(f, normal(t, 3), normal(t, 3), normal(t, 2), normal(t))
    sizes = {"t": 64, "k": 32, "v": 32}
    nk.derive(made, sizes=sizes).check(sizes={"t": 5, "k": 7, "v": 6}).raise_if_wrong()


def test_a_running_sum_in_a_step_runs_the_other_way(gradients_agree: Any) -> None:
    step = lambda h, X: nk.cumsum(nk.tanh(h), along="d") + X  # noqa: E731
    made = lambda X: nk.scan(lambda h: step(h, X), 0.0, "t", axes="d")  # noqa: E731
    gradients_agree(nk.diagram("t d -> t d", name="running")(made), normal(4, 3))


def test_b6_shared_keys_get_the_sum_over_their_query_heads(gradients_agree: Any) -> None:
    grouped = heads.weave("r", into="Q").weave("k")
    made = gradients_agree(grouped, normal(2, 2, 3, 2), normal(2, 4, 2), normal(2, 4, 2))
    assert [o.axes for o in made.outputs] == [n.axes for n in grouped.inputs]
    again = nk.gradient(heads).weave("k")
    assert [o.axes[0] for o in again.outputs] == ["k"] * 3


def test_b10_linear_cross_entropy(gradients_agree: Any) -> None:
    f = load("linear_cross_entropy")
    shapes = {"T": np.array([0, 3, 4])}
    sizes = {"n": 3, "d": 2, "v": 5}
    given = [shapes.get(str(n.params[0])) for n in f.inputs]
    arrays = [normal(*(sizes[a] for a in n.axes)) if g is None else g
              for n, g in zip(f.inputs, given, strict=True)]  # fmt: skip
    gradients_agree(f, *arrays)


def test_common_terms_are_shared() -> None:
    def deep(X: Any) -> Any:
        for _ in range(40):
            X = nk.tanh(X) * X + X
        return X

    f = nk.diagram("n -> n", name="forty_layers")(deep)
    made = nk.gradient(f)
    assert len(list(postorder(made.roots))) < 12 * len(list(postorder(f.roots)))


def test_the_sizes_of_what_is_reduced_are_known_without_the_forward() -> None:
    def scored(X: Any) -> Any:
        Y = X.rename(t="x")
        return nk.reduce(nk.reduce(Y, "mean", over="x") * X, "sum", over="t")

    f = nk.diagram("t d -> d", name="renamed_mean")(scored)
    found = nk.gradient(f).evaluate(np.ones((4, 2)), np.ones(2))
    assert np.allclose(found, 2.0)
    assert all(over(n) for n in postorder(nk.gradient(f).roots) if n.op == "sum")


# --- what is refused ----------------------------------------------------------------------------


def refusal(f: nk.Diagram, wrt: Any = None) -> str:
    with pytest.raises((nk.Refusal, nk.InputError)) as caught:
        nk.gradient(f, wrt=wrt)
    return str(caught.value)


def test_what_has_no_gradient_is_refused_with_the_reason() -> None:
    f = nk.diagram("n d, n:int -> n", name="refusing")(
        lambda X, T, eps=0.1: nk.reduce(X, "sum", over="d") * T + eps
    )
    assert refusal(f, "T") == (
        "gradient is refused at refusing, by T: T holds values of kind 'int', which no small step "
        "changes; instead, ask for X"
    )
    assert "a scalar of the call has no gradient; instead, make eps an input" in refusal(f, "eps")
    assert "refusing has no input 'Z'" in refusal(f, "Z")
    assert "names an input twice" in refusal(f, "X X")
    assert "by no input; write wrt='X'" in refusal(f, ())
    whole = nk.diagram("n:int -> n", name="refusing_whole")(lambda X: X * 0.5)
    assert "no input holds real numbers" in refusal(whole)
    greedy = nk.diagram("n d -> n", name="refusing_positions")(lambda X: nk.argmax(X, over="d"))
    assert "no output holds real numbers" in refusal(greedy)
    ordered = nk.diagram("n d -> n d", name="refusing_sort")(lambda X: nk.sort(X, along="d"))
    assert "sort: its transpose puts each value back where it came from" in refusal(ordered)
    with pytest.raises(nk.InputError, match="which is no diagram"):
        nk.gradient(lambda X: X)


def test_operators_and_reductions_without_a_derivative_are_refused() -> None:
    stepped = nk.operator(
        "stepped_without_slope", 1, evaluate=lambda xp, x: xp.floor(x), triton="tl.floor(x)"
    )
    f = nk.diagram("n -> n", name="refusing_operator")(stepped)
    assert "define it with nk.operator('stepped_without_slope', ..., derivative=...)" in refusal(f)
    either = nk.reduction("either_without_slope", combine=lambda a, b: a + b - a * b, identity=0.0)
    f = nk.diagram("n d -> n", name="refusing_reduction")(lambda X: either(X, over="d"))
    assert "define it with nk.reduction('either_without_slope', ..." in refusal(f)


def test_a_cotangent_that_nothing_reads_has_the_length_of_its_output() -> None:
    f = nk.diagram("a d -> e", name="constant")(
        lambda X: nk.rename(nk.reduce(X, "max", over="d"), a="e") ** 0
    )
    g = nk.gradient(f)
    assert not g.evaluate(np.ones((5, 2)), np.ones(5)).any()
    said = "sizes: e=6, but e is a under another name and a=5; give one size"
    with pytest.raises(nk.InputError, match=said):
        g.evaluate(np.ones((5, 2)), np.ones(6))
    with pytest.raises(nk.InputError, match=said):
        nk.gradient(g, "X").evaluate(np.ones((5, 2)), np.ones(6), np.ones((5, 2)))


def named(f: nk.Diagram) -> tuple[list[object], list[str]]:
    return [n.params[0] for n in f.inputs], [o.name for o in f.outputs]


def test_names_that_are_taken_get_a_number() -> None:
    f = nk.diagram("n, n -> n", name="clashing")(lambda X, dO: X * dO)
    assert named(nk.gradient(f)) == (["X", "dO", "dO2"], ["dX", "ddO"])
    f = nk.diagram("n, n -> n", name="clashing_results")(lambda X, dX: X * dX)
    assert named(nk.gradient(f)) == (["X", "dX", "dO"], ["dX2", "ddX"])
    assert named(nk.gradient(f, wrt="dX")) == (["X", "dX", "dO"], ["ddX"])
    f = nk.diagram("n -> n", name="clashing_scalar")(lambda X, dO=2.0: X * dO)
    assert named(nk.gradient(f)) == (["X", "dO2"], ["dX"])


def test_a_gradient_of_a_gradient_of_a_gradient() -> None:
    f = nk.diagram("n -> ()", name="cubed")(lambda X: nk.reduce(nk.exp(2 * X), "sum", over="n"))
    for _ in range(3):
        f = nk.gradient(f, wrt="X")
    assert named(f) == (["X", "dO", "ddX", "ddX2"], ["dX"])
    X, one = np.linspace(-1, 1, 5), np.ones(5)
    assert np.allclose(f.evaluate(X, 1.0, one, one), 8 * np.exp(2 * X))
