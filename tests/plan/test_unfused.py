"""The unfused way of neighborhood attention: R-SDDMM, row softmax, R-SpMM, and what they cost."""

from __future__ import annotations

import numpy as np
import pytest
from in_numpy import execute

import napkin as nk
from napkin.bound.symbolic_cost import Cost
from napkin.check.verdict import compiled
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.diagram.library import load
from napkin.ir.symbols import size_symbol
from napkin.studies.compare import comparison


def line(keys: nk.KeySet) -> nk.Diagram:
    """Attention over one axis, with its weights."""

    @nk.diagram("q d, x d, x d -> q d, q w")
    def unfused(Q, K, V):
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        C = nk.compress(S, keys, over="x", into="w")
        A = nk.softmax(C, over="w")
        out = nk.contract(nk.spread(A, keys, over="w", into="x"), V, over="x")
        return out, A

    return unfused


def plane(keys: nk.KeySet) -> nk.Diagram:
    """The same over two axes."""

    @nk.diagram("i j d, k l d, k l d -> i j d, i j u v")
    def unfused(Q, K, V):
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        C = nk.compress(S, keys, over="k l", into="u v")
        A = nk.softmax(C, over="u v")
        out = nk.contract(nk.spread(A, keys, over="u v", into="k l"), V, over="k l")
        return out, A

    return unfused


def space(keys: nk.KeySet) -> nk.Diagram:
    """The same over three."""

    @nk.diagram("i j m d, k l n d, k l n d -> i j m d, i j m u v w")
    def unfused(Q, K, V):
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        A = nk.softmax(nk.compress(S, keys, over="k l n", into="u v w"), over="u v w")
        return nk.contract(nk.spread(A, keys, over="u v w", into="k l n"), V, over="k l n"), A

    return unfused


def fused(keys: nk.KeySet) -> nk.Diagram:
    """Attention over a plane in one kernel."""

    @nk.diagram("i j d, k l d, k l d -> i j d")
    def attention(Q, K, V):
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        return nk.contract(nk.softmax(S, over="k l", keys=keys), V, over="k l")

    return attention


def with_weights(keys: nk.KeySet) -> nk.Diagram:
    """The same, with the weights as a second output."""

    @nk.diagram("i j d, k l d, k l d -> i j d, i j u v")
    def attention(Q, K, V):
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        P = nk.softmax(S, over="k l", keys=keys)
        out = nk.contract(P, V, over="k l")
        return out, nk.compress(P, keys, over="k l", into="u v", fill=0.0)

    return attention


def sddmm(keys: nk.KeySet) -> nk.Diagram:
    """Q K^T where a query sees a key."""

    @nk.diagram("i j d, k l d -> i j u v")
    def sddmm(Q, K):
        return nk.compress(nk.contract(Q, K, over="d"), keys, over="k l", into="u v")

    return sddmm


def spmm(keys: nk.KeySet) -> nk.Diagram:
    """Weights of a window times V."""

    @nk.diagram("i j u v, k l d -> i j d")
    def spmm(A, V):
        return nk.contract(nk.spread(A, keys, over="u v", into="k l"), V, over="k l")

    return spmm


# --- kernels ------------------------------------------------------------------------------------

LINE = {"q": 256, "d": 32}
PLANE = {"i": 16, "j": 16, "d": 16}


@pytest.mark.parametrize(
    ("keys", "dtype"),
    [
        (nk.neighborhood(5), "bf16"),
        (nk.neighborhood(5, 2, 2), "fp32"),
        (nk.sliding(40) & nk.causal(), "bf16"),  # the first windows are short
    ],
    ids=str,
)
def test_kernels_of_a_line(keys: nk.KeySet, dtype: str) -> None:
    nk.derive(line(keys), sizes=LINE, dtype=dtype).check(resources=False).raise_if_wrong()


@pytest.mark.parametrize(
    ("keys", "dtype"),
    [
        (nk.neighborhood((5, 3)), "fp32"),
        (nk.neighborhood((4, 3), (2, 1), (1, 2), (True, False)), "bf16"),
    ],
    ids=str,
)
def test_kernels_of_a_plane(keys: nk.KeySet, dtype: str) -> None:
    nk.derive(plane(keys), sizes=PLANE, dtype=dtype).check(resources=False).raise_if_wrong()


def test_kernels_in_space() -> None:
    made = space(nk.neighborhood((3, 3, 5), is_causal=(True, False, False)))
    sizes = made.check_sizes({"i": 5, "j": 4, "m": 8, "d": 16})
    nk.derive(made, sizes=sizes).check(resources=False, sizes=sizes).raise_if_wrong()


@pytest.mark.parametrize("made", [with_weights, sddmm, spmm])
def test_other_kernels(made) -> None:
    keys = nk.neighborhood((3, 5), (1, 2), is_causal=(True, False))
    plan = nk.derive(made(keys), sizes=PLANE)
    assert len(plan.kernels) == 1
    plan.check(resources=False).raise_if_wrong()


def test_heads_and_a_batch() -> None:
    made = plane(nk.neighborhood((3, 3))).weave("b h")
    plan = nk.derive(made, sizes={**PLANE, "b": 2, "h": 2})
    some = made.check_sizes({"b": 2, "h": 3, "i": 9, "j": 7, "d": 16})
    plan.check(resources=False, sizes=some).raise_if_wrong()


def test_spread_on_its_own_and_after_arithmetic_on_inputs() -> None:
    keys = nk.neighborhood((3, 2), is_causal=(True, False))

    @nk.diagram("i j u v, k l -> i j k l, i j")
    def made(A, V):
        E = nk.spread(nk.exp(A) * 2.0, keys, over="u v", into="k l")
        return E, nk.contract(E, V, over="k l")

    plan = nk.derive(made, sizes={"i": 5, "j": 6}, dtype="fp32")
    plan.check(resources=False, sizes={"i": 5, "j": 6}).raise_if_wrong()


def test_what_is_added_to_scores_is_added_behind_the_first_kernel() -> None:
    keys = nk.neighborhood((3, 3))

    @nk.diagram("i j d, k l d, u v, k l d -> i j d")
    def biased(Q, K, B, V):
        C = nk.compress(nk.contract(Q, K, over="d"), keys, over="k l", into="u v")
        A = nk.softmax(C + B, over="u v")
        return nk.contract(nk.spread(A, keys, over="u v", into="k l"), V, over="k l")

    plan = nk.derive(biased, sizes=PLANE, dtype="fp32")
    assert tuple(plan.materialised) == ("C", "A")
    some = biased.check_sizes({"i": 5, "j": 7, "d": 16})
    plan.check(resources=False, sizes=some).raise_if_wrong()


# --- what moves ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys",
    [
        nk.neighborhood((5, 3)),
        nk.neighborhood((3, 4), (2, 3), is_causal=(True, False)),
        nk.neighborhood((2, 3), dilation=(2, 1)),
        nk.neighborhood((9, 9), clip=True),
    ],
    ids=str,
)
@pytest.mark.parametrize("tile", [(2, 3, 2, 4), (4, 1, 3, 3), (7, 8, 7, 8)], ids=str)
def test_counts_are_exact_at_every_border(keys: nk.KeySet, tile: tuple[int, ...]) -> None:
    rng, tiles = np.random.default_rng(0), dict(zip("ijkl", tile, strict=True))
    for made, passes in ((sddmm, 1), (spmm, 1), (with_weights, 2)):
        diagram = made(keys)
        sizes = diagram.check_sizes({"i": 7, "j": 8, "d": 3})
        ready = prepare(diagram)
        kernel = label("k", ready.outputs, ready.names, streamed="k l", passes=passes)
        arrays = {
            str(n.params[0]): rng.normal(size=[sizes[a] for a in n.axes]) for n in diagram.inputs
        }
        every = {a: sizes[a] for a in kernel.axes} | tiles
        ran = execute(kernel, arrays, sizes, every)
        wanted = diagram.evaluate(*arrays.values())
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for o, value in zip(diagram.outputs, wanted, strict=True):
            np.testing.assert_allclose(ran.outputs[o.name], value, rtol=1e-9, atol=1e-12)
        predicted: dict[tuple[str, str], int] = {}
        for t in Cost(kernel).H.parts:
            key = (t.tensor, t.direction)
            predicted[key] = predicted.get(key, 0) + t.values(sizes, every)
        assert ran.moved == predicted


def test_the_compressed_array_crosses_once_in_each_kernel() -> None:
    plan = nk.derive(plane(nk.neighborhood((5, 3))), sizes={"i": 256, "j": 256, "d": 64})
    assert tuple(plan.materialised) == ("C",)
    first, softmax, last = plan.kernels
    once = 256 * 256 * 15 * 2
    # An exponential reads C, which is stored in float32 for it.
    assert first.bytes["C", "write"] == softmax.bytes["C", "read"] == 2 * once
    assert softmax.bytes["A", "write"] == last.bytes["A", "read"] == once
    assert plan.workspace == 2 * once
    i, j, d, u, v = map(size_symbol, "ijduv")
    assert first.H.per_tensor["C"] == i * j * u * v
    assert softmax.H.total == 2 * i * j * u * v
    assert first.flops == last.flops == 30 * d * i * j


def test_fusing_moves_less_and_is_predicted_faster() -> None:
    keys, sizes = nk.neighborhood((9, 9)), {"i": 256, "j": 256, "d": 64}
    plans = [nk.derive(made(keys), sizes=sizes) for made in (fused, plane)]
    one, apart = plans
    assert (len(one.kernels), len(apart.kernels)) == (1, 3)
    assert apart.moved == sum(n for k in apart.kernels for n in k.bytes.values())
    assert apart.moved > one.moved
    assert apart.seconds > 2 * one.seconds
    assert (one.workspace, apart.workspace) == (0, 256 * 256 * 81 * 4)  # scores in float32
    lines = comparison(*plans).splitlines()
    assert lines[0].startswith("attention  1 kernel ")
    assert lines[1].startswith("unfused    3 kernels")
    assert f"{apart.moved:,} bytes ({apart.moved / one.moved:.2f}x)" in lines[1]


# --- where it is cut ----------------------------------------------------------------------------


def test_arrays_to_store_may_be_named() -> None:
    plan = nk.derive(plane(nk.neighborhood((3, 3))), sizes=PLANE, materialise=["C", "A"])
    assert [k.name for k in plan.kernels] == ["unfused_C", "unfused_A", "unfused_out"]


def test_moves_inside_a_kernel_are_refused() -> None:
    with pytest.raises(nk.Refusal) as caught:
        plane(nk.neighborhood((3, 3))).stream("k l")
    assert str(caught.value) == (
        "stream k l is refused at m: it reads a compressed array of this kernel, which exists only "
        "in memory; instead, materialise it: nk.derive cuts there"
    )
    with pytest.raises(nk.Refusal) as caught:
        sddmm(nk.neighborhood((3, 3))).group("u")
    assert caught.value.reason == (
        "compress moves between keys and slots, so u is cut with its window"
    )
    with pytest.raises(nk.Refusal, match="stored as keys are seen; instead, stream k l"):
        sddmm(nk.neighborhood((3, 3))).stream("u")


# --- the shipped diagram ------------------------------------------------------------------------


@pytest.mark.parametrize(("machine", "arch"), [("a100", "sm_80"), ("h100", "sm_90")])
def test_the_shipped_diagram_fits_shared_memory(machine: str, arch: str) -> None:
    plan = nk.derive(load("unfused_neighborhood_attention_2d"), machine)
    rows = [r for r in compiled(plan) if r.arch == arch]
    assert len(rows) == 3
    assert all(r.ok and r.allocated for r in rows), rows


def test_weights_in_slots_beside_what_is_read_of_them_have_a_plan() -> None:
    """Results in slots leave a persistent kernel as they lie along keys."""
    window = nk.neighborhood(4, stride=3, queries="n", keys="e")

    @nk.diagram("n k, e k, e b -> n b, n s", sizes={"n": 512, "e": 512, "k": 64, "b": 64})
    def both(Q, X, V):
        S = nk.contract(Q, X, over="k")
        P = nk.softmax(nk.compress(S, window, into="s"), over="s")
        return nk.contract(nk.spread(P, window, over="s"), V, over="e"), P

    plan = nk.derive(both, on="h200")
    plan.check(sizes={"n": 20, "e": 20, "k": 16, "b": 16}, resources=False).raise_if_wrong()
