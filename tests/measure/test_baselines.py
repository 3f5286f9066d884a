"""Attention seen in diagrams, and the calls of torch that are timed beside it: the same values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import napkin as nk
from napkin.diagram.diagram import Diagram
from napkin.diagram.library import baselines, load, names
from napkin.errors import InputError
from napkin.measure.attention import NotAttention, attention_of
from napkin.measure.bench import AGAINST, named, usual

torch = pytest.importorskip("torch")

CAUSAL = {"q": 33, "x": 33, "d": 8}
PLANE = {"q0": 24, "q1": 22, "x0": 24, "x1": 22, "d": 8}
SHIPPED: dict[str, tuple[dict[str, int], str]] = {
    "attention": ({"q": 17, "x": 33, "d": 8}, "all"),
    "multi_head_attention": ({"b": 2, "h": 3, "q": 17, "x": 33, "d": 8}, "all"),
    "grouped_query_attention": ({"b": 2, "k": 3, "r": 4, "q": 17, "x": 33, "d": 8}, "all"),
    "causal_attention": (CAUSAL, "causal"),
    "sliding_attention": ({"q": 600, "x": 600, "d": 8}, ""),
    "streaming_llm": ({"q": 600, "x": 600, "d": 8}, ""),
    "document_attention": ({**CAUSAL, "n": 4}, ""),
    "neighborhood_attention_2d": (PLANE, ""),
}
"""Sizes, and what kind of key set it is."""


def problem(diagram: Diagram, sizes: dict[str, int]) -> Any:
    from napkin.measure.heads import Problem
    from napkin.measure.tensors import drawn

    sizes = diagram.check_sizes(sizes)
    return Problem(diagram, sizes, "fp32", drawn(diagram, sizes, "fp32", 0, device="cpu"))


def error(p: Any, found: Any) -> float:
    from napkin.measure.values import Errors
    from napkin.torch.reference import evaluation

    total = Errors()
    for f, w in zip(found, evaluation(p.diagram, p.sizes)(*p.tensors), strict=True):
        total.add(f, w)
    return total.relative


@pytest.mark.parametrize("name", SHIPPED)
def test_sdpa_computes_what_the_diagram_says(name: str) -> None:
    from napkin.measure.baselines import made
    from napkin.measure.heads import seen_of

    sizes, kind = SHIPPED[name]
    p = problem(load(name), sizes)
    beside = made("sdpa", p, {})
    assert error(p, beside.outputs(beside.call())) < 1e-5
    seen = seen_of(p, attention_of(p.diagram))
    assert (seen.plain if seen else "all") == kind


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("name", ["grouped_query_attention", "document_attention"])
def test_flex_computes_what_the_diagram_says(name: str, monkeypatch: Any) -> None:
    from napkin.measure.baselines import made

    monkeypatch.setattr(torch, "compile", lambda f, **_: f)  # what it compiles is not tested here
    p = problem(load(name), SHIPPED[name][0])
    beside = made("flex", p, {})
    assert error(p, beside.outputs(beside.call())) < 1e-5


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_takes_scores_that_are_changed(monkeypatch: Any) -> None:
    from napkin.measure.baselines import NotHere, made

    monkeypatch.setattr(torch, "compile", lambda f, **_: f)

    @nk.diagram("q d, x d, x d -> q d")
    def capped(Q: Any, K: Any, V: Any) -> Any:
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        return nk.contract(nk.softmax(5.0 * nk.tanh(S / 5.0), over="x"), V, over="x")

    p = problem(capped, {"q": 9, "x": 20, "d": 8})
    beside = made("flex", p, {})
    assert error(p, beside.outputs(beside.call())) < 1e-5
    with pytest.raises(NotHere, match="more than a product times a number"):
        made("sdpa", p, {})


@pytest.mark.parametrize("name", ["matmul_bias_gelu", "layernorm", "document_attention"])
def test_torch_computes_any_diagram(name: str) -> None:
    from napkin.measure.baselines import made

    diagram = load(name)
    p = problem(diagram, {a: min(n, 40) for a, n in diagram.sizes.items()})
    beside = made("torch", p, {})
    assert error(p, beside.outputs(beside.call())) < 1e-4


def test_compile_is_given_tensor_operations_alone(monkeypatch: Any) -> None:
    from napkin.measure.baselines import made

    graphs: list[Any] = []
    monkeypatch.setattr(torch, "compile", lambda g: graphs.append(g) or g)
    p = problem(load("attention"), {"q": 9, "x": 20, "d": 8})
    beside = made("compile", p, {})
    assert error(p, beside.outputs(beside.call())) < 1e-5
    (graph,) = graphs
    assert isinstance(graph, torch.fx.GraphModule)
    assert "exp" in graph.code


BACKWARDS = [
    *((name, which) for name in ("attention", "grouped_query_attention", "causal_attention")
      for which in ("torch", "sdpa")),
    ("rmsnorm", "compile"), ("cross_entropy", "torch"), ("softmax", "torch"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "which"), BACKWARDS)
def test_backward_passes(monkeypatch: Any, name: str, which: str) -> None:
    """Of any baseline of the diagram, as often as is asked for."""
    from napkin.measure.baselines import made

    monkeypatch.setattr(torch, "compile", lambda graph: graph)
    f = load(name)
    given = SHIPPED[name][0] if name in SHIPPED else {a: min(n, 40) for a, n in f.sizes.items()}
    p = replace(problem(nk.gradient(f), given), gradient_of=f)
    beside = made(which, p, baselines(name))
    for _ in range(2):
        assert error(p, beside.outputs(beside.call())) < 1e-5


def test_a_window_is_read_off_its_key_set() -> None:
    from napkin.measure.baselines import window_of

    found = attention_of(load("neighborhood_attention_2d"))
    assert window_of(found) == {"kernel_size": (20, 20)}

    def line(keys: nk.KeySet) -> Any:
        @nk.diagram("q d, x d, x d -> q d")
        def attend(Q: Any, K: Any, V: Any) -> Any:
            S = nk.contract(Q, K, over="d")
            return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")

        return attention_of(attend)

    settings = {"kernel_size": 9, "stride": 3, "dilation": 2, "is_causal": True}
    assert window_of(line(nk.neighborhood(**settings))) == settings
    for other in (nk.causal("q", "x"), nk.neighborhood(9, clip=True), nk.sliding(4, 4)):
        with pytest.raises(NotAttention, match="no neighborhood"):
            window_of(line(other))


@pytest.mark.parametrize("name", ["matmul", "softmax", "l1_attention", "layernorm"])
def test_other_diagrams_are_not_attention(name: str) -> None:
    with pytest.raises(NotAttention, match="no sum of a softmax times an array"):
        attention_of(load(name))
    assert usual(load(name), {}) == ("torch", "compile")


def biased(Q: Any, K: Any, V: Any, B: Any) -> Any:
    return nk.contract(nk.softmax(nk.contract(Q, K, over="d") + B, over="x"), V, over="x")


def normed(Q: Any, K: Any, V: Any) -> Any:
    S = nk.contract(nk.exp(Q), K, over="d")
    return nk.contract(nk.softmax(S, over="x"), V, over="x")


def with_weights(Q: Any, K: Any, V: Any) -> Any:
    P = nk.softmax(nk.contract(Q, K, over="d"), over="x")
    return nk.contract(P, V, over="x"), nk.reduce(P, "max", over="x")


@pytest.mark.parametrize(
    ("signature", "function", "said"),
    [
        ("q d, x d, x d, q x -> q d", biased, "something is added to its scores"),
        ("q d, x d, x d -> q d", normed, "are computed"),
        ("q d, x d, x d -> q d, q", with_weights, "has 2 outputs"),
        ("q d, x d, q x d -> q d", normed, "do not share the axes q"),
    ],
)
def test_what_a_library_has_no_call_for_is_told(signature: str, function: Any, said: str) -> None:
    with pytest.raises(NotAttention, match=said):
        attention_of(nk.diagram(signature)(function))


def test_what_is_asked_for_is_known() -> None:
    assert named("sdpa, fa3,sdpa", {}) == ("sdpa", "fa3")
    assert named("mine", {"mine": print}) == ("mine",)
    with pytest.raises(InputError, match="--against 'spda': did you mean 'sdpa'"):
        named("spda", {})
    assert usual(load("causal_attention"), {"mine": print}) == ("sdpa", "flex", "mine")
    from napkin.measure.baselines import BASELINES

    assert tuple(BASELINES) == AGAINST


def test_what_is_not_installed_is_told() -> None:
    from napkin.measure.baselines import NotHere, made

    p = problem(load("attention"), SHIPPED["attention"][0])
    with pytest.raises(NotHere, match="pip install fa3-fwd"):
        made("fa3", p, {})
    p = problem(load("neighborhood_attention_2d"), PLANE)
    with pytest.raises(NotHere, match="pip install natten"):
        made("natten", p, {})
    with pytest.raises(NotHere, match="no call for the key set"):
        made("fa3", p, {})


def test_baselines_of_shipped_diagrams() -> None:
    from napkin.measure.baselines import made

    found = {name: baselines(name) for name in names()}
    assert {name for name, own in found.items() if own} == {
        "cumsum", "greedy_token", "grouped_experts", "layernorm_linear", "linear_cross_entropy",
        "logsumexp", "matmul", "rmsnorm_linear", "rotary_attention", "sample_token", "softmax",
        "top_experts",
    }  # fmt: skip
    # Other numbers are drawn, one compiles for a GPU, and one runs on a GPU alone.
    left = {"sample_token", "rotary_attention", "grouped_experts"}
    for name, own in found.items():
        diagram = load(name)
        p = problem(diagram, {a: min(n, 40) for a, n in diagram.sizes.items()}) if own else None
        for other in () if name in left else own:
            beside = made(other, p, own)
            assert error(p, beside.outputs(beside.call())) < 1e-5, (name, other)


PAGE = """
import napkin as nk
@nk.diagram("a b -> a", sizes={"a": 4, "b": 4})
def total(A):
    return nk.reduce(A, "sum", over="b")
"""


def test_a_file_declares_baselines(tmp_path: Any) -> None:
    from napkin.measure.baselines import made

    path = tmp_path / "total.py"
    path.write_text(PAGE + "baselines = {'rows': lambda A: (lambda: A.sum(-1))}\n")
    own: dict[str, Callable[..., Any]] = baselines(str(path))
    assert baselines("attention") == {}
    p = problem(load(str(path)), {})
    beside = made("rows", p, own)
    assert error(p, beside.outputs(beside.call())) < 1e-6
    path.write_text(PAGE + "baselines = [1]\n")
    with pytest.raises(InputError, match="baselines is no dictionary"):
        baselines(str(path))
