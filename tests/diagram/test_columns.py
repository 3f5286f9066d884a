"""Data columns, stages and the validity check."""

from __future__ import annotations

from dataclasses import replace

import pytest

import napkin as nk
from napkin.diagram.columns import INNER, OUTER, alive, columns, stages, validate
from napkin.diagram.library import load, names
from napkin.errors import InputError
from napkin.ir.node import Node, node


def lines(diagram: nk.Diagram, **how: bool) -> list[str]:
    return [str(c) for c in columns(diagram, **how)]


def test_attention() -> None:
    made = columns(load("attention"))
    assert [str(c) for c in made] == [
        "Q[q d], K[x d], V[x d]",
        "Q_K[q x], V[x d]",
        "S[q x], V[x d]",
        "softmax[q x], V[x d]",
        "O[q d]",
    ]
    assert [c.after and c.after.op for c in made] == [
        None,
        "contract",
        "pointwise",
        "softmax",
        "contract",
    ]
    assert [c.after.text for c in made if c.after] == [
        "sum(Q * K, over d)",
        "Q_K * (d ** -0.5)",
        "softmax(S, over x)",
        "sum(softmax * V, over x)",
    ]
    assert made[1].after is not None
    assert made[1].after.over == ("d",)


def test_composites_are_one_stage() -> None:
    assert lines(load("softmax")) == ["X[n x]", "O[n x]"]


@pytest.mark.parametrize("name", names())
def test_every_shipped_diagram(name: str) -> None:
    diagram = load(name)
    validate(diagram)
    made, order, cuts = columns(diagram), stages(diagram), alive(diagram)
    assert len(made) == len(order) + 1 == len(cuts)
    assert [e.node for e in made[0]] == list(diagram.inputs)
    assert [(e.name, e.axes) for e in made[-1]] == [(o.name, o.axes) for o in diagram.outputs]
    for before, stage, after in zip(cuts, order, cuts[1:], strict=False):
        assert set(stage.args) <= set(before)
        assert stage.node in after
        kept = [n for n in before if n in after]
        assert kept == [n for n in after if n in before]  # no stage moves the others
        assert set(after) - set(kept) == {stage.node}
    for column in made:
        assert len({e.name for e in column}) == len(column.entries)


def test_a_result_takes_the_place_of_what_ends() -> None:
    @nk.diagram("a, b, a -> a b")
    def f(A, B, C):
        D = nk.exp(B)
        E = A + C
        return D * E

    assert lines(f) == ["A[a], B[b], C[a]", "A[a], D[b], C[a]", "E[a], D[b]", "O[a b]"]


def test_what_is_shared_is_an_array_and_what_is_not_stands_in_the_text() -> None:
    @nk.diagram("a, b -> a b")
    def f(A, B):
        return nk.exp(A - 1.0) * (A - 1.0) + nk.size("b") * B * nk.index("b")

    assert [s.text for s in stages(f)] == ["A - 1", "exp(t) * t + b * B * index(b)"]


def test_repeated_squaring_stays_small() -> None:
    @nk.diagram("a -> a")
    def f(A):
        return _squared(A, 40)

    assert len(columns(f)) == 41


def _squared(x: nk.Array, times: int) -> nk.Array:
    for _ in range(times):
        x = x * x
    return x


def test_a_product_of_one_array_is_a_sum_and_a_named_product_its_own_stage() -> None:
    @nk.diagram("a x, x -> a, a")
    def f(A, B):
        P = A * B
        return nk.reduce(A * A, "sum", over="x"), nk.reduce(P, "sum", over="x")

    assert [(s.op, s.text) for s in stages(f)] == [
        ("pointwise", "A * A"),
        ("sum", "sum(t, over x)"),
        ("pointwise", "A * B"),
        ("sum", "sum(P, over x)"),
    ]


def test_an_operator_without_arguments_makes_an_array() -> None:
    @nk.diagram("q x -> q x, q x")
    def f(S):
        M = nk.index("q") >= nk.index("x")
        return nk.where(M, S, 0.0), nk.where(M, 0.0, S)

    assert lines(f)[:2] == ["S[q x]", "S[q x], M[q x]"]


def test_outputs_twice_and_inputs_as_outputs() -> None:
    @nk.diagram("a, b -> b, a, a")
    def swap(A, B):
        return B, A, A

    assert lines(swap) == ["A[a], B[b]"]  # no stage: the wires are only rearranged

    @nk.diagram("a, b -> b, a, a")
    def f(A, B):
        C = nk.exp(A)
        return B, C, C

    assert lines(f) == ["A[a], B[b]", "O1[b], C[a], O3[a]"]
    validate(f)


def test_an_unused_input_is_refused() -> None:
    def f(A, B):
        return nk.exp(nk.exp(A) + 1.0)

    with pytest.raises(InputError, match=r"^f: B is never used; take it out of the signature, or"):
        nk.diagram("a, b -> a")(f)


def test_levels() -> None:
    diagram = load("attention")
    q, k, v = diagram.inputs
    assert [[e.level for e in c] for c in columns(diagram)] == [
        [OUTER, OUTER, OUTER],
        [INNER, OUTER],
        [INNER, OUTER],
        [INNER, OUTER],
        [OUTER],
    ]
    made = columns(diagram, levels={v: ("l1", "l1", "l0"), q: ("l0",)})
    assert [[e.level for e in c if e.node is v] for c in made] == [
        ["l1"],
        ["l1"],
        ["l0"],
        ["l0"],
        [],
    ]
    assert [e.level for e in made[0]] == ["l0", OUTER, "l1"]
    assert k.op == "input"


def wrong(diagram: nk.Diagram, n: Node) -> str:
    bad = replace(diagram, outputs=(replace(diagram.outputs[0], node=n),))
    with pytest.raises(InputError) as caught:
        validate(bad)
    return str(caught.value)


def test_validity() -> None:
    @nk.diagram("q d -> q d")
    def f(A):
        return nk.exp(A)

    (a,) = f.inputs
    twice = node("input", params=("B",), axes=("d", "d"))
    assert wrong(f, node("exp", (twice,), axes=("d", "d"))) == (
        "f, at B: axis 'd' stands twice in 'd d'; name each axis once"
    )
    other = node("input", params=("B",), axes=("q", "d"))
    assert wrong(f, node("exp", (other,), axes=("q", "d"))) == (
        "f, at B: this array is no input of the diagram; add it to the signature"
    )
    assert wrong(f, node("sum", (a,), (("z",),), ("q", "d"))) == (
        "f, at O: sum over 'z', but its argument has axes 'q d'; reduce over one of those"
    )
    assert wrong(f, node("exp", (a,), axes=("q",))) == (
        "f, at O: its axes are 'q', but exp of its arguments has 'q d'; build it from the arguments"
    )
    assert wrong(f, node("sum", (a,), (("d",),), ("q",))) == (
        "f, at O: output O is declared with axes 'q d' but has 'q'; declare those, in any order"
    )
