"""Kernels of warpgroups: values and bytes of generated kernels on the CPU, and what goes wrong."""

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.derive.prepare import prepare
from napkin.diagram.diagram import Diagram
from napkin.errors import Refusal
from napkin.ir.expansion import expanded
from napkin.lower import syntax as sx
from napkin.lower.build import build
from napkin.lower.spelling import GLUON
from napkin.lower.warpgroups import gluon_scope
from napkin.lower.warpgroups.cta import SpecialisedCta
from napkin.lower.warpgroups.emit_gluon import Registers
from napkin.lower.warpgroups.gluon import HEAD
from napkin.lower.warpgroups.whether import gluon_lacks, why_not
from napkin.lower.warpgroups.write_gluon import write_cta
from napkin.plan.planned import PlannedKernel
from napkin.run import warpgroups
from napkin.run.worker import KernelError
from napkin.schedule import specialised
from napkin.settings.labels import labellings

Runner = Callable[..., Any]


@nk.diagram("h q d, h x d, h x e -> h q e")
def plain(Q: Any, K: Any, V: Any) -> Any:
    return nk.contract(nk.softmax(nk.contract(Q, K, over="d") * 0.2, over="x"), V, over="x")


@nk.diagram("q d, x d, x d -> q d")
def causal(Q: Any, K: Any, V: Any) -> Any:
    S = nk.contract(Q, K, over="d") * 0.2
    return nk.contract(nk.softmax(S, over="x", keys=nk.causal("q", "x")), V, over="x")


@nk.diagram("q d, x d, x d -> q d")
def window(Q: Any, K: Any, V: Any) -> Any:
    S = nk.contract(Q, K, over="d") * 0.2
    keys = nk.sliding(70, 9, queries="q", keys="x")
    return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")


@nk.diagram("q0 q1 d, x0 x1 d, x0 x1 d -> q0 q1 d")
def plane(Q: Any, K: Any, V: Any) -> Any:
    S = nk.contract(Q, K, over="d") * 0.2
    keys = nk.neighborhood((5, 9), (2, 1), (1, 1), (False, True), queries="q0 q1", keys="x0 x1")
    return nk.contract(nk.softmax(S, over="x0 x1", keys=keys), V, over="x0 x1")


@nk.diagram("q d, x d, x e -> q e, q")
def weights(Q: Any, K: Any, V: Any) -> Any:
    """No softmax: a state that is not rescaled, and a second output of one value a row."""
    S = nk.contract(Q, K, over="d")
    total = nk.cast(nk.reduce(S, "sum", over="x"), "fp32")
    return nk.contract(S * S, V, over="x"), total


@nk.diagram("q d, x d, x e -> q e")
def gated(Q: Any, K: Any, V: Any) -> Any:
    """With functions that Gluon lacks."""
    S = nk.maximum(nk.contract(Q, K, over="d"), 0.0)
    return nk.contract(nk.sigmoid(S), V, over="x")


softened_value = nk.operator(
    "softened", 1, evaluate=lambda xp, x: xp.logaddexp(x, xp.zeros_like(x)), sign="nonnegative",
    triton="y = tl.exp(-tl.abs(x))\nreturn tl.maximum(x, 0.0) + tl.log(1.0 + y)",
)  # fmt: skip


@nk.diagram("q d, x d, x e -> q e")
def softened(Q: Any, K: Any, V: Any) -> Any:
    """With an operator of a user, whose function is written for Gluon."""
    return nk.contract(softened_value(nk.contract(Q, K, over="d")), V, over="x")


@nk.diagram("q d, x d, x e, q x -> q e")
def biased(Q: Any, K: Any, V: Any, B: Any) -> Any:
    S = nk.contract(Q, K, over="d") * 0.2 + B
    return nk.contract(nk.softmax(S, over="x"), V, over="x")


@nk.diagram("q d, x d, x e, q e, q -> x d, x e")
def to_keys(Q: Any, K: Any, V: Any, G: Any, L: Any) -> Any:
    """Two first products, each of whose streamed tiles is multiplied once more, and two results of
    one form."""
    P = nk.sigmoid(nk.contract(Q, K, over="d") * 0.2 - L)
    return nk.contract(P * nk.contract(G, V, over="e"), Q, over="q"), nk.contract(P, G, over="q")


@nk.diagram("r q d, x d, x e, r q e, r q -> x d, x e")
def heads_to_keys(Q: Any, K: Any, V: Any, G: Any, L: Any) -> Any:
    """Of heads that are streamed with their queries, one in a chunk."""
    P = nk.sigmoid(nk.contract(Q, K, over="d") * 0.2 - L)
    dS = P * nk.contract(G, V, over="e")
    return nk.contract(dS, Q, over="r q"), nk.contract(P, G, over="r q")


@nk.diagram("q d, x d, x e, q e, q e -> q d, q")
def to_queries(Q: Any, K: Any, V: Any, G: Any, R: Any) -> Any:
    """An operand that a group holds, G, is computed with, too."""
    P = nk.sigmoid(nk.contract(Q, K, over="d") * 0.2)
    level = nk.contract(G, R, over="e")
    return nk.contract(P * (nk.contract(G, V, over="e") - level), K, over="x"), level


@nk.diagram("q d, x d, x e, q e, q -> x d, x e")
def to_keys_of_levels(Q: Any, K: Any, V: Any, G: Any, L: Any) -> Any:
    """With numbers of columns from which each thread would compute an exponential."""
    P = nk.sigmoid(nk.contract(Q, K, over="d") * 0.2 - nk.exp(L))
    return nk.contract(P * nk.contract(G, V, over="e"), Q, over="q"), nk.contract(P, G, over="q")


@nk.diagram("q d, x d, x e, q -> q e")
def decayed(Q: Any, K: Any, V: Any, L: Any) -> Any:
    S = nk.contract(Q, K, over="d") * 0.2
    return nk.contract(nk.sigmoid(S - L), V, over="x", keys=nk.causal("q", "x"))


causal_to_keys = nk.gradient(decayed, wrt=("K", "V"))
"""Of the queries that see a key, whole chunks and others, each with a level of its own."""


CASES: list[tuple[Diagram, dict[str, int], dict[str, int], str, int]] = [
    (plain, {"h": 2, "q": 200, "x": 296, "d": 32, "e": 64}, {"q": 64, "x": 64}, "q", 2),
    (plain, {"h": 1, "q": 192, "x": 64, "d": 32, "e": 32}, {"q": 64, "x": 64}, "q", 3),
    (causal, {"q": 328, "x": 328, "d": 64}, {"q": 64, "x": 128}, "q", 2),
    (causal, {"q": 328, "x": 328, "d": 64}, {"q": 64, "x": 64}, "q", 3),
    (window, {"q": 520, "x": 520, "d": 32}, {"q": 64, "x": 64}, "q", 2),
    (plane, {"q0": 20, "q1": 24, "x0": 20, "x1": 24, "d": 32},
     {"q0": 4, "q1": 16, "x0": 4, "x1": 16}, "q0", 2),
    (plane, {"q0": 20, "q1": 24, "x0": 20, "x1": 24, "d": 32},
     {"q0": 8, "q1": 8, "x0": 8, "x1": 8}, "q1", 3),
    (weights, {"q": 136, "x": 200, "d": 32, "e": 64}, {"q": 64, "x": 64}, "q", 2),
    (gated, {"q": 136, "x": 200, "d": 32, "e": 32}, {"q": 64, "x": 64}, "q", 2),
    (softened, {"q": 136, "x": 200, "d": 32, "e": 32}, {"q": 64, "x": 64}, "q", 2),
    (biased, {"q": 136, "x": 200, "d": 32, "e": 32}, {"q": 64, "x": 64}, "q", 2),
    (to_keys, {"q": 200, "x": 136, "d": 32, "e": 32}, {"q": 64, "x": 64}, "x", 2),
    (to_keys, {"q": 136, "x": 200, "d": 64, "e": 32}, {"q": 64, "x": 64}, "x", 3),
    (to_keys_of_levels, {"q": 200, "x": 136, "d": 32, "e": 32}, {"q": 64, "x": 64}, "x", 2),
    (heads_to_keys, {"r": 2, "q": 136, "x": 520, "d": 32, "e": 32}, {"q": 64, "x": 64}, "x", 2),
    (causal_to_keys, {"q": 328, "x": 328, "d": 32, "e": 32}, {"q": 64, "x": 64}, "x", 2),
    (to_queries, {"q": 136, "x": 200, "d": 32, "e": 32}, {"q": 64, "x": 64}, "q", 2),
]  # fmt: skip


@cache
def kernel_of(diagram: Diagram, sizes: tuple[tuple[str, int], ...]) -> PlannedKernel:
    """The kernel of a diagram, which several tests need, at sizes so large that it has one."""
    for times in (16, 64):
        long = {a: n * times if a[0] in "qx" else n for a, n in sizes}  # streamed, then
        first, *more = nk.derive(diagram, on="h100", sizes=long, dtype="bf16").kernels
        if not more and first.choice.kernel.stream.axes:
            return first
    raise AssertionError(diagram.name)


def cta_of_tiles(
    diagram: Diagram, sizes: Mapping[str, int], tiles: Mapping[str, int], axis: str, groups: int
) -> tuple[PlannedKernel, SpecialisedCta]:
    """The kernel of a diagram, and a warp-specialised CTA of groups of these tiles."""
    k = kernel_of(diagram, tuple(sizes.items()))
    kernel = k.choice.kernel
    least = {a: 1 << (sizes[a] - 1).bit_length() if a in "de" else 1 for a in kernel.axes}
    program = build(kernel, specialised({**least, **tiles}, groups, axis), 2)
    assert why_not(program) == ""
    return k, SpecialisedCta(program)


def off(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize(("diagram", "sizes", "tiles", "axis", "groups"), CASES)
def test_values_and_bytes(
    ran: Runner,
    diagram: Diagram,
    sizes: dict[str, int],
    tiles: dict[str, int],
    axis: str,
    groups: int,
) -> None:
    k, cta = cta_of_tiles(diagram, sizes, tiles, axis, groups)
    found, wanted, moved = ran(k, cta, diagram, sizes)
    for f, w in zip(found, wanted, strict=True):
        assert off(f, w) < 1e-2
    boxed = {str(n.params[0]) for n in cta.program.boxed}
    predicted = k.H.bytes(sizes, cta.program.schedule, k.dtypes, None, boxed)
    assert moved == {(k.binding[t], way): n for (t, way), n in predicted.items()}


@nk.diagram("i tma d, i x d, i x e -> i tma e")
def odd_names(each: Any, K: Any, V: Any) -> Any:
    """Axes and tensors called what kernels of warpgroups call things."""
    return nk.contract(nk.softmax(nk.contract(each, K, over="d") * 0.2, over="x"), V, over="x")


def test_names_of_a_diagram_hide_none_of_the_kernel(ran: Runner) -> None:
    long = {"i": 3, "tma": 4096, "x": 4096, "d": 32, "e": 32}
    sizes = {"i": 3, "tma": 136, "x": 136, "d": 32, "e": 32}
    (k,) = nk.derive(odd_names, on="h100", sizes=long, dtype="bf16").kernels
    tiles = {"i": 1, "tma": 64, "x": 64, "d": 32, "e": 32}
    cta = SpecialisedCta(build(k.choice.kernel, specialised(tiles, 2, "tma"), 2))
    assert why_not(cta.program) == ""
    found, wanted, _ = ran(k, cta, odd_names, sizes)
    assert off(found[0], wanted[0]) < 1e-2


def test_products_before_or_after_the_stream_run_in_no_band() -> None:
    @nk.diagram("q d, x d, x e, e f -> q f")
    def projected(Q: Any, K: Any, V: Any, W: Any) -> Any:
        P = nk.softmax(nk.contract(Q, K, over="d") * 0.2, over="x")
        return nk.contract(nk.contract(P, V, over="x"), W, over="e")

    sizes = {"q": 8192, "x": 8192, "d": 32, "e": 32, "f": 32}
    plan = nk.derive(projected, on="h100", sizes=sizes, dtype="bf16")
    assert (
        plan.launched.kernels
    )  # whatever its cut, no warp-specialised CTA of it fails to be written
    for k in plan.kernels:
        kernel = k.choice.kernel
        if not {"q", "x", "f"} <= set(kernel.axes) or kernel.stream.axes != ("x",):
            continue
        tiles = {a: 64 if a in "qx" else 32 for a in kernel.axes}
        program = build(kernel, specialised(tiles, 2, "q"))
        assert why_not(program) == "a product is made after the stream"


def test_a_streamed_operand_that_is_computed_with_runs_in_no_warpgroups() -> None:
    @nk.diagram("q d, x d, x e -> q e")
    def weighed(Q: Any, K: Any, V: Any) -> Any:
        S = nk.contract(Q, K, over="d") - nk.reduce(K * K, "sum", over="d")
        return nk.contract(nk.sigmoid(S), V, over="x")

    sizes = {"q": 8192, "x": 8192, "d": 32, "e": 32}
    (k,) = nk.derive(weighed, on="h100", sizes=sizes, dtype="bf16").kernels
    tiles = {"q": 64, "x": 64, "d": 32, "e": 32}
    program = build(k.choice.kernel, specialised(tiles, 2, "q"))
    assert why_not(program) == "K is an operand and is computed with, too"


def test_sums_of_which_one_has_a_computed_operand_lie_along_no_axis() -> None:
    @nk.diagram("n o, n d g, n d -> d g o, d o")
    def sums(D: Any, P: Any, X: Any) -> Any:
        return nk.contract(D, P, over="n"), nk.contract(D, X, nk.sigmoid(X), over="n")

    sizes, ready = {"n": 8192, "d": 256, "g": 8, "o": 256}, prepare(sums)
    every = labellings("sums", ready.outputs, ready.names, sizes, "bf16")
    kernel = next(k for k in every if k.stream.axes == ("n",))
    program = build(kernel, specialised({"n": 64, "d": 64, "g": 8, "o": 256}, 2, ""))
    assert why_not(program) == "its groups share a stream, and lie along no axis"


def text_of(cta: SpecialisedCta) -> str:
    return f"{HEAD}\n\n{write_cta(cta).source}"


def test_a_place_that_nobody_gives_back_ends_the_run(
    ran: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warpgroups, "PATIENCE", 0.3)
    diagram, sizes, tiles, axis, groups = CASES[2]
    k, cta = cta_of_tiles(diagram, sizes, tiles, axis, groups)
    text = text_of(cta)
    broken = text.replace("        mbarrier.arrive(V_free.index(slot_before))\n", "")
    assert broken != text
    with pytest.raises(KernelError, match="a barrier is waited for that nobody reaches"):
        ran(k, cta, diagram, sizes, broken)


def test_a_box_that_is_not_waited_for_shows(ran: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warpgroups, "PATIENCE", 0.3)
    diagram, sizes, tiles, axis, groups = CASES[0]
    k, cta = cta_of_tiles(diagram, sizes, tiles, axis, groups)
    text = text_of(cta)
    broken = text.replace("mbarrier.wait(K_full.index(slot), phase)", "pass")
    assert broken != text
    try:
        found, wanted, _ = ran(k, cta, diagram, sizes, broken)
    except KernelError:
        return
    assert not off(found[0], wanted[0]) < 1e-2


def test_a_product_is_not_read_before_it_is_done(
    ran: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warpgroups, "PATIENCE", 0.3)
    diagram, sizes, tiles, axis, groups = CASES[0]
    k, cta = cta_of_tiles(diagram, sizes, tiles, axis, groups)
    text = text_of(cta)
    broken = text.replace("Q_K = warpgroup_mma_wait(1, [Q_K])", "pass")
    assert broken != text
    with pytest.raises(KernelError, match="Pending"):
        ran(k, cta, diagram, sizes, broken)


@pytest.mark.parametrize(
    ("tiles", "axis", "says"),
    [
        ({"q": 64, "x": 64}, "", "its groups share a stream, and lie along no axis"),
        ({"q": 32, "x": 64}, "q", "a group has 32 rows, not a multiple of 64"),
    ],
)
def test_what_runs_in_no_band_is_said(tiles: dict[str, int], axis: str, says: str) -> None:
    sizes = {"h": 2, "q": 4096, "x": 4096, "d": 32, "e": 32}
    (k,) = nk.derive(plain, on="h100", sizes=sizes, dtype="bf16").kernels
    tiles = {"h": 1, "d": 32, "e": 32, **tiles}
    assert why_not(build(k.choice.kernel, specialised(tiles, 2, axis))) == says


def test_what_gluon_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = replace(GLUON, has=(GLUON.has or frozenset()) - {"exp2"})
    monkeypatch.setattr(gluon_scope, "GLUON", lacking)
    _, cta = cta_of_tiles(*CASES[0])
    with pytest.raises(Refusal, match="Gluon has no exp2"):
        write_cta(cta)


@nk.diagram("q d, x d, x d, ():int -> q d")
def dropped(Q: Any, K: Any, V: Any, seed: Any) -> Any:
    P = nk.dropout(nk.softmax(nk.contract(Q, K, over="d"), over="x"), 0.1, seed)
    return nk.contract(P, V, over="x")


def test_functions_that_gluon_lacks_are_known_before_a_kernel_is_written() -> None:
    assert "Gluon has no uint32" in gluon_lacks(expanded(dropped.roots).values())
    assert gluon_lacks(expanded(plain.roots).values()) == ""


def test_a_group_past_the_end_stores_nothing(ran: Runner) -> None:
    """The second of two groups has no query."""
    sizes = {"h": 1, "q": 40, "x": 64, "d": 32, "e": 32}
    k, cta = cta_of_tiles(plain, sizes, {"q": 64, "x": 64}, "q", 2)
    found, wanted, moved = ran(k, cta, plain, sizes)
    assert off(found[0], wanted[0]) < 1e-2
    assert moved[plain.outputs[0].name, "write"] == 2 * math.prod((40, 32))


def test_what_all_rows_share_is_computed_once_for_each_column() -> None:
    (case,) = (c for c in CASES if c[0] is to_keys_of_levels)
    text = text_of(cta_of_tiles(*case)[1])
    assert text.count("gl.load(L + q_alone") == 1
    assert text.count("gl.exp(L_tile.to(gl.float32))") == 1
    assert "_shared.index(warpgroup).load(gl.SliceLayout(0, ACROSS_Q))" in text


def test_what_all_rows_share_comes_beside_a_box() -> None:
    """Threads take it from shared memory, where the box's barrier says that it is there; no warp
    leaves it there for others."""
    k, cta = cta_of_tiles(*CASES[11])
    text = text_of(cta)
    assert "L_ring.index(slot).load(gl.SliceLayout(0, ACROSS_Q))" in text
    assert "async_load(L, [q_start], Q_full.index(slot), L_ring.index(slot))" in text
    assert "gl.load(" not in text
    assert "_shared.index" not in text
    assert cta.program.boxed.keys() - cta.program.boxes.keys() == {*cta.program.beside}
    assert k.choice.kernel.stream.carried(*(n.axes for n in cta.program.beside))


def test_ones_without_axes_are_a_scalar() -> None:
    """Gluon's `full` takes a layout, which a scalar has not."""
    registers = Registers(SimpleNamespace(cta=None, lang=GLUON))
    made = GLUON("full", sx.tuple_of([]), 1, GLUON.word("int32"))
    assert ast.unparse(registers.laid(made, ())) == "gl.to_tensor(1)"


@nk.diagram("h q d, x d, x e, h:int32 -> h q e")
def chosen_rows(Q: Any, K: Any, V: Any, at: Any) -> Any:
    """A table says for each head which keys it sees: a number that is no row's."""
    S = nk.contract(Q, K, over="d") * 0.2
    keys = nk.sliding(70, 90, queries="h", keys="x", at=at)
    return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")


def test_one_number_that_says_what_is_visited_is_read_once(ran: Runner) -> None:
    long = {"h": 3, "q": 4096, "x": 4096, "d": 32, "e": 32}
    sizes = {"h": 3, "q": 136, "x": 200, "d": 32, "e": 32}
    (k,) = nk.derive(chosen_rows, on="h100", sizes=long, dtype="bf16").kernels
    tiles = {"h": 1, "q": 64, "x": 64, "d": 32, "e": 32}
    cta = SpecialisedCta(build(k.choice.kernel, specialised(tiles, 2, "q"), 2))
    assert why_not(cta.program) == ""
    found, wanted, moved = ran(k, cta, chosen_rows, sizes)
    assert off(found[0], wanted[0]) < 1e-2
    assert moved["at", "read"] == 3 * 2 * 4  # by 3 heads times 2 groups, not by their warpgroups
    at = np.zeros(3, np.int64)  # as many chunks begin, wherever these lie
    boxed = {str(n.params[0]) for n in cta.program.boxed}
    bind = k._bind({"at": at})
    predicted = k.H.bytes(sizes, cta.program.schedule, k.dtypes, bind, boxed)
    assert predicted["at", "read"] == moved["at", "read"]
