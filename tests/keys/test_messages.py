"""What key sets say to wrong input: what, where, and what to write instead."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import napkin as nk


def softmax(signature: str, over: str, keys: nk.KeySet) -> nk.Diagram:
    """A softmax over a key set, of an array that is given."""

    @nk.diagram(signature)
    def made(S):
        return nk.softmax(S, over=over, keys=keys)

    return made


FITS = "(clip=True takes the whole axis instead)"
LAYOUT = (
    "give one size, or say where each query lies among the keys with at=..., of a set that takes it"
)
EACH = "give one number, or one for every axis"
NAMES = "name them with queries='...' and keys='...'"
wide = nk.neighborhood(3, queries="i", keys="k")

CASES: list[tuple[Callable[[], object], str]] = [
    # what does not fit the axis
    (
        lambda: nk.neighborhood(9).mask(8),
        f"neighborhood(9): a window of 9 keys does not fit {FITS}, but axis 0 of the layout has 8; "
        "it must be at least 9",
    ),
    (
        lambda: nk.neighborhood((2, 3), dilation=(1, 3)).mask((2, 8)),
        "neighborhood((2, 3), dilation=(1, 3)): a window of 3 keys, 3 apart, does not fit "
        "(clip=True takes what there is), but axis 1 of the layout has 8; it must be at least 9",
    ),
    (
        lambda: wide.mask({"i": 2, "k": 2}),
        f"neighborhood(3): a window of 3 keys does not fit {FITS}, but k=2; it must be at least 3",
    ),
    # parameters
    (
        lambda: nk.key_set("own", lambda i, n: 3).mask(4),
        "own: 3 is no list of runs; write [(0, i + 1)]",
    ),
    *(
        (
            lambda blocks=blocks: nk.bigbird(2, 1, 1, blocks),
            f"bigbird: blocks={blocks!r} is no list of arrays; write one array for each random "
            "block of a query, as in [R], and [] for none",
        )
        for blocks in (3, None, "R")
    ),
    (
        lambda: nk.bigbird(2, 1, 1, [3]),
        "bigbird: blocks[0]=3 is no array of numbers of blocks; write an input of whole numbers, "
        "or a list such as [0, 2]",
    ),
    (
        lambda: nk.key_set(3, lambda i, n: [(0, i + 1)]),
        "key_set 3: the first argument says in words what the set is",
    ),
    (
        lambda: nk.neighborhood(3, queries="i", keys=1),
        "neighborhood keys=1: axes are named; write a name, such as 'q' or 'x0'",
    ),
    (
        lambda: nk.neighborhood(3, stride=4),
        "neighborhood: stride 4 exceeds kernel_size 3, so some keys would be seen by no query; "
        "write a stride from 1 to 3",
    ),
    (
        lambda: nk.neighborhood((3, 3), (1, 5)),
        "neighborhood: stride 5 exceeds kernel_size 3, so some keys would be seen by no query; "
        "write a stride from 1 to 3",
    ),
    *(
        (
            made,
            f"{text}: a position beside {far} may leave int32; 2**30 is past every key, so write "
            "less",
        )
        for made, text, far in (
            (lambda: nk.sliding(0, 2**31 - 2), "sliding(0, 2147483646)", 2**31 - 1),
            (lambda: nk.dilated(0, 2**30, 2), "dilated(0, 1073741824, step=2)", 2**31 + 1),
            (lambda: nk.blocked(2**29, 0, 3), "blocked(536870912, 0, 3)", 2**31),
            (lambda: nk.sinks(2**40), "sinks(1099511627776)", 2**40),
        )
    ),
    (
        lambda: nk.neighborhood(2.5),
        "neighborhood: kernel_size=2.5 is not a whole number from 1",
    ),
    (
        lambda: nk.neighborhood((3, "3")),
        "neighborhood: kernel_size='3' is not a whole number from 1",
    ),
    (lambda: nk.neighborhood(0), "neighborhood: kernel_size=0 is not a whole number from 1"),
    (lambda: nk.neighborhood(3, True), "neighborhood: stride=True is not a whole number from 1"),
    (
        lambda: nk.neighborhood(3, dilation=-1),
        "neighborhood: dilation=-1 is not a whole number from 1",
    ),
    (
        lambda: nk.neighborhood(3, is_causal="no"),
        "neighborhood: is_causal='no' is not True or False",
    ),
    (lambda: nk.neighborhood(3, is_causal=2), "neighborhood: is_causal=2 is not True or False"),
    (
        lambda: nk.neighborhood(np.array([3, 3])),
        "neighborhood: kernel_size=array([3, 3]) is not a whole number from 1",
    ),
    (
        lambda: nk.neighborhood((3, 3), (1, 1, 1)),
        f"neighborhood: kernel_size names 2, stride names 3; {EACH}",
    ),
    (
        lambda: nk.neighborhood(3, 1, (1, 1), (True,)),
        f"neighborhood: dilation names 2, is_causal names 1; {EACH}",
    ),
    (
        lambda: nk.neighborhood((3, 3, 3), queries="i j", keys="k l"),
        f"neighborhood: kernel_size names 3, there are 2 axes; {EACH}",
    ),
    (lambda: nk.neighborhood(()), f"neighborhood: kernel_size names 0; {EACH}"),
    (lambda: nk.sliding(-1), "sliding: left=-1 is not a whole number from 0"),
    (lambda: nk.sliding(1.0), "sliding: left=1.0 is not a whole number from 0"),
    (lambda: nk.dilated(1, step=0), "dilated: step=0 is not a whole number from 1"),
    (lambda: nk.strided(None), "strided: stride=None is not a whole number from 1"),
    (lambda: nk.blocked("4"), "blocked: block='4' is not a whole number from 1"),
    (lambda: nk.sinks(0), "sinks: count=0 is not a whole number from 1"),
    (lambda: nk.global_tokens(False), "global_tokens: count=False is not a whole number from 1"),
    (lambda: nk.fixed(4, 5), "fixed: columns=5 exceed the block of 4"),
    # names
    (lambda: nk.causal(queries="q"), "causal: name both queries and keys, or neither"),
    (
        lambda: nk.causal("q", "x y"),
        "causal: keys='x y' names 2 axes, the set has 1",
    ),
    (
        lambda: nk.neighborhood(3, queries="i j", keys="k"),
        "neighborhood(3): queries='i j' names 2 axes, the set has 1",
    ),
    (
        lambda: nk.causal("q", "q"),
        "causal: 'q' stands in queries and in keys; the keys are another axis, as in "
        "nk.rename(X, t='x')",
    ),
    (
        lambda: nk.causal(at=nk.index("q") + 1),
        "causal: at=... names axes of the diagram; name queries and keys, too",
    ),
    (
        lambda: nk.causal("q", "x", at=nk.index("q") * 0.5),
        "causal: at=... must be whole positions, as from nk.index and nk.size",
    ),
    (
        lambda: nk.neighborhood(3, at=nk.index("q")),
        "neighborhood(3): at=... names axes of the diagram; name queries and keys, too",
    ),
    (
        lambda: nk.neighborhood((3, 3), queries="i j", keys="k l", at=[nk.index("i")]),
        "neighborhood((3, 3)): at=... takes one term for each of 2 named axes",
    ),
    (
        lambda: nk.neighborhood(3, queries="i", keys="k", at=[nk.index("i") / 2]),
        "neighborhood(3): at=... must be whole positions, as from nk.index and nk.size",
    ),
    (
        lambda: nk.causal().over("i j", "k l"),
        "causal has 1 key axes and 1 query axes; it was put on keys 'k l' and queries 'i j'",
    ),
    (
        lambda: nk.neighborhood(3, queries="i", keys="k", at=[]),
        "neighborhood(3): at=... takes one term for each of 1 named axes",
    ),
    (
        lambda: nk.key_set("none", lambda i, size: []),
        "none: there is no run of keys; write one, such as (0, i + 1)",
    ),
    (
        lambda: nk.causal().mask({"q": 3}),
        "causal: the layout has no size for axis 0 of the layout",
    ),
    # joining
    (
        lambda: nk.causal() & nk.neighborhood((3, 3)),
        "causal has 1 key axes and neighborhood((3, 3)) 2; key sets are joined on the same axes",
    ),
    (
        lambda: nk.causal() | None,
        "causal is joined with None, which is no key set",
    ),
    (
        lambda: nk.causal("q", "x") | nk.sinks(1, "q", "y"),
        "causal is over queries 'q' and keys 'x', sinks(1) over 'q' and 'y'; key sets are joined "
        "on the same axes",
    ),
    (
        lambda: nk.dilated(2, step=2) & nk.dilated(2, step=3),
        "dilated(2, 0, step=2) & dilated(2, 0, step=3): both step through the keys (by 2 and 3); "
        "at most one of two intersected sets may be dilated. Mask the scores by the other: "
        "nk.where(condition, scores, -inf)",
    ),
    (
        lambda: nk.fixed(16, 8),
        "fixed(16, 8): a union of 9 boxes is too large (at most 8, each has a loop of its own); "
        "join neighbouring intervals into one",
    ),
    # attaching
    (
        lambda: softmax("h q x -> h q x", "x", nk.causal()),
        f"keys=causal: 1 key axes for over='x' and 1 query axes among 'h q'; {NAMES}",
    ),
    (
        lambda: softmax("q x -> q x", "x", nk.neighborhood((3, 3))),
        f"keys=neighborhood((3, 3)): 2 key axes for over='x' and 2 query axes among 'q'; {NAMES}",
    ),
    (
        lambda: softmax("q x -> q x", "x", nk.causal("z", "x")),
        "keys=causal: query axis 'z' is not an axis that the result keeps; the array has 'q x' and "
        "over='x'; name one that it has, or add this one with X + 0 * nk.index('z')",
    ),
    (
        lambda: softmax("q x -> q x", "q x", nk.causal("q", "x")),
        "keys=causal: query axis 'q' is not an axis that the result keeps; the array has 'q x' and "
        "over='q x'; name an axis that is not reduced",
    ),
    (
        lambda: softmax("q x -> q x", "x", nk.sinks(2, "z", "x")),
        "keys=sinks(2): query axis 'z' is not an axis that the result keeps; the array has 'q x' "
        "and over='x'; name one that it has, or add this one with X + 0 * nk.index('z')",
    ),
    (
        lambda: softmax("q x -> q x", "x", nk.causal("x", "q")),
        "keys=causal: key axis 'q' is not reduced; over='x'",
    ),
    (
        lambda: softmax("q x -> q x", "y", nk.causal()),
        "softmax over 'y': the array has axes 'q x', not 'y'; known: q, x",
    ),
    # looking
    (
        lambda: nk.causal("q", "x").mask({"q": 4, "x": 5}),
        f"causal: queries and keys share one layout, but q=4 and x=5; {LAYOUT}",
    ),
    (lambda: nk.causal("q", "x").mask({"q": 4}), "causal: the layout has no size for x"),
    (lambda: nk.causal().mask((4, 4)), "causal has 1 key axes; the layout (4, 4) has 2"),
    (lambda: nk.causal().mask(2.5), "causal: layout=2.5 is not a whole number from 0"),
    (
        lambda: nk.causal("q", "x").mask({"q": 2, "x": "2"}),
        "causal: x='2' is not a whole number from 0",
    ),
    (lambda: nk.causal().keys((0, 0)), "causal has 1 query axes; (0, 0) names 2"),
    (lambda: nk.causal().keys(-1), "causal: query=-1 is not a whole number from 0"),
    (
        lambda: nk.sliding(1, 1).keys(8, 8),
        "sliding(1, 1): query 8 lies outside axis 0 of the layout of size 8",
    ),
    (
        lambda: nk.sliding(1, 1).keys(3),
        "sliding(1, 1): the keys of a query depend on the layout; write .keys(query, layout)",
    ),
    (
        lambda: nk.causal("q", "x", at=nk.index("q") + nk.index("b")).mask(
            {"q": 2, "x": 2, "b": 2}
        ),
        "causal depends on positions along b, which is none of its query axes 'q'",
    ),
]


@pytest.mark.parametrize(("wrong", "said"), CASES, ids=[said[:50] for _, said in CASES])
def test_wrong_input(wrong: Callable[[], object], said: str) -> None:
    with pytest.raises(nk.InputError) as caught:
        wrong()
    assert str(caught.value) == said


def test_a_union_too_large() -> None:
    found = nk.causal()
    for count in range(1, 8):
        found = found | nk.sinks(count)
    with pytest.raises(nk.InputError, match="a union of 9 boxes is too large") as caught:
        found | nk.sinks(8)
    assert "join neighbouring intervals into one" in str(caught.value)


def test_the_keys_of_documents_are_known_when_the_diagram_is_called() -> None:
    with pytest.raises(
        nk.InputError, match="documents depends on the values of N, which are given"
    ):

        @nk.diagram("q x, n:int -> q x")
        def packed(S, N):
            nk.documents(N).mask(8)
            return S


def test_lengths_of_documents_are_whole_numbers() -> None:
    with pytest.raises(nk.InputError, match=r"whole numbers, as in 'n:int'"):

        @nk.diagram("q x, n -> q x")
        def packed(S, N):
            return nk.softmax(S, over="x", keys=nk.documents(N))


def test_sizes_that_a_diagram_is_called_with() -> None:
    made = softmax("q x -> q x", "x", nk.neighborhood(5))
    with pytest.raises(nk.InputError) as caught:
        made.evaluate(np.zeros((4, 4)))
    assert "a window of 5 keys does not fit" in str(caught.value)
    with pytest.raises(nk.InputError) as caught:
        made.evaluate(np.zeros((5, 6)))
    assert "queries and keys share one layout, but q=5 and x=6" in str(caught.value)


def test_whole_numbers_of_numpy_are_whole_numbers() -> None:
    assert repr(nk.neighborhood(np.int64(3), np.int32(2))) == "neighborhood(3, stride=2)"
    assert nk.neighborhood(3, is_causal=1).mask(4).sum() == 9


def test_a_set_says_what_it_is() -> None:
    both = (nk.sliding(2) | nk.sinks(1)) & nk.causal()
    assert repr(both) == "((sliding(2, 0) | sinks(1)) & causal)"
    assert (
        repr(nk.neighborhood((3, 5), 2, (1, 2), (False, True)))
        == "neighborhood((3, 5), stride=(2, 2), dilation=(1, 2), is_causal=(False, True))"
    )


def test_a_set_takes_no_scalar_of_the_call() -> None:
    """What groups visit is counted before any call; a number of an array does as well."""
    with pytest.raises(nk.InputError, match="keys=causal depends on the scalar place; make it"):

        @nk.diagram("q x -> q")
        def largest(X, *, place=4.0):
            at = nk.index("q") + nk.cast(place, "int32")
            return nk.reduce(X, "max", over="x", keys=nk.causal("q", "x", at=at))

    @nk.diagram("q x, ():int -> q", sizes={"q": 9, "x": 40})
    def same(X, place):
        at = nk.index("q") + place
        return nk.reduce(X, "max", over="x", keys=nk.causal("q", "x", at=at))

    nk.derive(same, dtype="fp32").check(resources=False, sizes=same.sizes).raise_if_wrong()
