"""The table of rules is complete, and every rule in it finds legal instances that keep its law."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import napkin as nk
from napkin.algebra.fold import Twin
from napkin.algebra.meaning import Meaning
from napkin.algebra.relabel import Labels
from napkin.algebra.rule import Instance, LawError, between, verified
from napkin.derive.folding import Folding
from napkin.derive.kernel import Kernel
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.derive.rules import table
from napkin.derive.rules.separation import Separating
from napkin.derive.rules.table import TABLE
from napkin.diagram.diagram import Diagram
from napkin.ir.expansion import expanded
from napkin.ir.infer import along, pointwise, recurrence
from napkin.ir.node import Node, node, number
from napkin.ir.selecting import ranked
from napkin.rewrite.pair import Scanned
from napkin.rewrite.together import write_exponent

ROOT = Path(nk.__file__).parent
ROOMS = {ROOT / "rewrite", ROOT / "derive" / "rules"}


def leaf(name: str, axes: str) -> Node:
    return node("input", params=(name,), axes=axes.split())


def of(op: str, *args: Node) -> Node:
    return pointwise(op, args)


def total(x: Node, *axes: str) -> Node:
    return along("sum", x, axes)


A, B, C, R = leaf("A", "q x"), leaf("B", "q x"), leaf("C", "q d"), leaf("R", "q")


def roots(signature: str, body: Callable[..., Any]) -> list[Node]:
    """The terms of a diagram with composites, takes and renames opened."""
    d = nk.diagram(signature)(body)
    done = expanded(d.roots)
    return [done[o.node] for o in d.outputs]


def softmax() -> Diagram:
    return nk.diagram("q x, x v -> q v")(
        lambda S, V: nk.contract(nk.softmax(S, over="x"), V, over="x")
    )


def streamed(d: Diagram) -> Kernel:
    ready = prepare(d)
    return label("k", ready.outputs, ready.names, streamed="x")


def composites() -> Iterable[Instance]:
    return TABLE["expand"].matches([o.node for o in softmax().outputs])


def takes() -> Iterable[Instance]:
    terms = roots("v d, n:int -> n d", lambda T, at: nk.take(T, v=at))
    return TABLE["read where values lie"].matches(terms)


def scales() -> Iterable[Instance]:
    terms = [total(of("mul", of("mul", R, A), B), "x")]
    return TABLE["scale sums"].matches(terms)


def renamed_sums() -> Iterable[Instance]:
    """Sums that are read under another name, by arithmetic alone."""
    done = node("rename", (total(A, "x"),), ((("q", "p"),),), ("p",))
    return TABLE["compute under result names"].matches([of("add", done, R)])


def compared() -> Iterable[Instance]:
    top = along("max", A, ("x",), (float("-inf"),))
    return TABLE["compute as it is written"].matches([total(of("equal", A, top), "x")])


def scores() -> Iterable[Instance]:
    return TABLE["keep scores exact"].matches([of("exp", total(A, "x"))], "fp16", {"x": 4, "q": 4})


def contractions() -> Iterable[Instance]:
    inner = total(of("mul", leaf("Q", "q d"), leaf("K", "x d")), "d")
    return TABLE["order contractions"].matches(
        [total(of("mul", inner, leaf("V", "x v")), "x")], dict.fromkeys("qxdv", 4)
    )


def squares() -> Iterable[Instance]:
    t = of("sub", leaf("X", "n d"), leaf("Y", "m d"))
    return TABLE["multiply squares out"].matches([total(of("mul", t, t), "d")])


def weighted_differences() -> Iterable[Instance]:
    t = of("mul", leaf("G", "n m"), of("sub", leaf("X", "n d"), leaf("Y", "m d")))
    return TABLE["multiply weighted differences out"].matches([total(t, "m")])


def over_two_axes() -> Iterable[Instance]:
    return TABLE["nest reductions"].matches([total(leaf("T", "q x d"), "x", "d")], {})


def additions() -> Iterable[Instance]:
    """The gradients of tables that are read at places along one axis and along two."""

    def one(T: Any, at: Any) -> Any:
        return nk.take(T, v=at)

    def two(T: Any, at: Any, to: Any) -> Any:
        return nk.take(T, v=at, w=to)

    one_of = nk.gradient(nk.diagram("v d, b n:int -> b n d")(one), wrt="T")
    two_of = nk.gradient(nk.diagram("v w d, n:int, n:int -> n d")(two), wrt="T")
    for d in (one_of, two_of):
        yield from TABLE["sort places"].matches([o.node for o in prepare(d).outputs], {})


def picked_rows() -> Iterable[Instance]:
    def body(Q: Any, E: Any, I: Any) -> Any:  # noqa: E741
        return nk.contract(Q, nk.take(E, p=I), over="d")

    d = nk.diagram("q d, p d, q x:int -> q x")(body)
    sizes = {"q": 4, "x": 4, "d": 4, "p": 4}
    return TABLE["pick rows last"].matches([o.node for o in prepare(d).outputs], sizes)


def disjoint() -> Iterable[Instance]:
    def body(X: Any) -> Any:
        return nk.reduce(nk.slide(X, over="i", into="p w", stride=3, window=3), "sum", over="w")

    roots = [o.node for o in prepare(nk.diagram("i -> p")(body)).outputs]
    return TABLE["split windows"].matches(roots, {"i": 12, "p": 4, "w": 3})


def stored() -> Iterable[Instance]:
    again = node("rename", (C,), ((("q", "p"),),), ("p", "d"))
    tensor = leaf("T", "q")
    found = [of("add", total(of("exp", again), "d"), total(A, "x"))]
    return TABLE["materialise"].matches(found, {total(A, "x"): tensor}, "bf16")


def alike() -> Iterable[Instance]:
    ours, theirs = total(of("exp", A), "x"), total(of("exp", B), "x")
    return TABLE["run what is alike"].matches([ours], [theirs], {"B": "A"})


def dilated() -> Iterable[Instance]:
    ready = prepare(
        nk.diagram("q x -> q")(
            lambda S: nk.reduce(S, "logsumexp", over="x", keys=nk.neighborhood(3, dilation=2))
        )
    )
    return TABLE["split"].matches(ready.outputs, ready.names)


def counts() -> Iterable[Instance]:
    terms = roots("q x -> q", lambda S: nk.reduce(S, "mean", over="x"))
    return TABLE["know counts"].matches(terms, ())


def means() -> Iterable[Instance]:
    ready = roots("q x -> q x", lambda S: S - nk.reduce(S, "sum", over="x") / nk.size("x"))
    return TABLE["count a mean"].matches(ready)


def cancels() -> Iterable[Instance]:
    r = total(A, "x")
    return TABLE["leave out what cancels"].matches([of("sub", of("add", B, r), r)], ["x"])


def exponents() -> Iterable[Instance]:
    meaning = Meaning(lambda _: "x", write_exponent)
    s, m = meaning.of(A), meaning.of(R)
    return TABLE["shift before it is scaled"].matches(2 * s - 2 * m, meaning.node)


def quotients() -> Iterable[Instance]:
    return TABLE["divide"].matches(of("mul", of("div", number(1.0), R), A))


def forms(body: Node, inner: Node) -> tuple[Separating, Node, int, set[Node]]:
    """What a reduction over x of a body with another in it is separated by."""
    f = total(body, "x")
    folding = Folding([f], ["x"], {inner: "r", f: "f"}, 1)
    folding.fold(inner, 0)
    return Separating(folding, frozenset()), f, 0, {inner}


def separated() -> Iterable[Instance]:
    r = total(of("mul", A, A), "x")
    return TABLE["separate"].matches(*forms(of("div", B, of("add", r, number(1.0))), r))


def running() -> Iterable[Instance]:
    m = along("max", A, ("x",), (-3e38,))
    return TABLE["hold"].matches(*forms(of("exp", of("sub", A, m)), m))


def selected() -> Iterable[Instance]:
    """The position of a maximum, and the second largest value."""
    (m, at), (second, _) = ranked("max", A, "x", 2)
    folding = Folding([second], ["x"], {m: "m", at: "at", second: "second"}, 1)
    folding.fold(m, 0)
    (first,) = TABLE["select"].matches(folding, at, 0, {m})
    yield first
    folding.define(at, 0, first.made)
    yield from TABLE["select"].matches(folding, second, 0, {m, at})


def streams() -> Iterable[Instance]:
    return TABLE["stream"].matches(streamed(softmax()))


def visited() -> Iterable[Instance]:
    def body(S: Any, V: Any) -> Any:
        keys = nk.global_tokens(2) | nk.sliding(2, 2)
        return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")

    return TABLE["visit boxes"].matches(streamed(nk.diagram("q x, x v -> q v")(body)).stream)


def parts() -> Iterable[Instance]:
    return TABLE["part"].matches(streamed(softmax()), 3)


def merges() -> Iterable[Instance]:
    kernel = streamed(softmax())
    (first,) = TABLE["part"].matches(kernel, 3)
    return TABLE["merge"].matches(kernel, first.made, 3)


def added_parts() -> Iterable[Instance]:
    kernel = streamed(nk.diagram("q x, x v -> q v")(lambda S, V: nk.contract(S, V, over="x") + 1))
    (first,) = TABLE["part"].matches(kernel, 3)
    return TABLE["add_parts"].matches(kernel, first.made, 3)


def accumulated() -> Iterable[Instance]:
    def body(S: Any, V: Any) -> Any:
        P = nk.exp(S)
        return nk.contract(P, V, over="q") * 2, nk.reduce(P, "sum", over="x")

    ready = prepare(nk.diagram("q x, q v -> x v, q")(body))
    return TABLE["accumulate"].matches("k", ready.outputs, ready.names, "q", "x")


def blocks() -> Iterable[Instance]:
    def body(X: Any, W: Any) -> Any:
        return nk.reduce(nk.contract(X, W, over="d"), "logsumexp", over="x")

    return TABLE["block"].matches(streamed(nk.diagram("n d, x d -> n")(body)), "d", 16)


def resumptions() -> Iterable[Instance]:
    kernel = streamed(nk.diagram("q x -> q x")(lambda X: nk.cumsum(X, along="x")))
    return TABLE["resume"].matches(kernel, 16)


def scans_in_parts() -> Iterable[Instance]:
    kernel = streamed(nk.diagram("q x -> q x")(lambda X: nk.cumsum(X, along="x")))
    return TABLE["scan_parts"].matches(kernel, 3)


def chunks_ahead() -> Iterable[Instance]:
    gated = nk.diagram("x k, x k, x v, x k -> x v")(
        lambda Q, K, V, G: nk.contract(
            Q, nk.scan(lambda h: nk.sigmoid(G) * h + K * V, 0.0, along="x"), over="k"
        )
    )
    ready = prepare(gated)
    kernel = label("k", ready.outputs, ready.names, streamed="x", pair=4)
    return TABLE["ahead"].matches(kernel, 3)


def pairs() -> Iterable[Instance]:
    body = of("mul", of("mul", leaf("K", "x d"), leaf("V", "x v")), number(1.0))
    scan = recurrence(leaf("a", "x"), body, "x")
    scanned = Scanned(scan, leaf("a", "x"), body, number(0.0))
    read = total(of("mul", leaf("Q", "x d"), scan), "d")
    return TABLE["pair"].matches(read, scanned, Twin("x", "y", "z", 4))


def systems() -> Iterable[Instance]:
    def body(K: Any, V: Any) -> Any:
        step = lambda s: s + K * (V - nk.contract(s, K, over="k"))  # noqa: E731
        return nk.scan(step, 0.0, along="x", axes="k")

    (root,) = roots("x k, x v -> x k v", body)
    return TABLE["solve"].matches(root, number(0.0), Twin("x", "y", "z", 16))


def exponentials() -> Iterable[Instance]:
    """Of a softmax that streams, the scores scaled, and of weights below what memory holds."""
    passes = streamed(
        nk.diagram("q x -> q")(lambda S: nk.reduce(S * 0.125, "logsumexp", over="x"))
    ).stream.passes
    yield from TABLE["base 2"].matches(passes, [])
    yield from TABLE["base 2"].matches([], [of("exp", of("sub", A, R))])


def groups() -> Iterable[Instance]:
    return TABLE["group"].matches(prepare(softmax()).outputs)


def seen_from_keys() -> Iterable[Instance]:
    windows = (nk.sliding(2, 1, "q", "x"), nk.neighborhood(3, 2, queries="q", keys="x"))
    return TABLE["see from keys"].matches([keys.node for keys in windows], ("q",))


def tiles() -> Iterable[Instance]:
    return TABLE["tile"].matches(Labels(group=(("q", None),), stream="x"))


DRAWN: dict[str, Callable[[], Iterable[Instance]]] = {
    "expand": composites,
    "read where values lie": takes,
    "scale sums": scales,
    "compute under result names": renamed_sums,
    "compute as it is written": compared,
    "keep scores exact": scores,
    "order contractions": contractions,
    "sort places": additions,
    "nest reductions": over_two_axes,
    "split windows": disjoint,
    "pick rows last": picked_rows,
    "multiply squares out": squares,
    "multiply weighted differences out": weighted_differences,
    "materialise": stored,
    "run what is alike": alike,
    "split": dilated,
    "know counts": counts,
    "count a mean": means,
    "leave out what cancels": cancels,
    "shift before it is scaled": exponents,
    "divide": quotients,
    "select": selected,
    "separate": separated,
    "hold": running,
    "stream": streams,
    "visit boxes": visited,
    "see from keys": seen_from_keys,
    "part": parts,
    "block": blocks,
    "merge": merges,
    "add_parts": added_parts,
    "accumulate": accumulated,
    "resume": resumptions,
    "scan_parts": scans_in_parts,
    "ahead": chunks_ahead,
    "pair": pairs,
    "solve": systems,
    "base 2": exponentials,
    "group": groups,
    "tile": tiles,
}

OF_KERNELS = {
    "select", "hold", "stream", "part", "block", "merge", "resume", "scan_parts", "ahead", "group",
    "tile", "add_parts", "accumulate",
}  # fmt: skip
"""Rules whose laws are of kernels and labels, and not of two terms."""


def test_every_rule_has_instances_here() -> None:
    assert DRAWN.keys() == TABLE.keys()


@pytest.mark.parametrize("name", DRAWN)
def test_the_law_at_instances_of(name: str) -> None:
    found = list(DRAWN[name]())
    assert found
    assert all(i.where for i in found)
    for instance in found:
        assert TABLE[name].apply(instance) is instance.made


@pytest.mark.parametrize("name", sorted(DRAWN.keys() - OF_KERNELS))
def test_another_right_side_breaks_the_law_of(name: str) -> None:
    instance = next(iter(DRAWN[name]()))
    before, after = instance.sides()
    other = [of("not", n) if n.kind == "bool" else of("add", n, number(1)) for n in after]
    wrong = Instance("", None, between(before, other), instance.same_size, instance.splits)
    with pytest.raises(LawError, match=f"rule '{name}' broke its law"):
        verified(TABLE[name], wrong)


# --- the table is complete ------------------------------------------------------------------


def calls(path: Path, *names: str) -> list[ast.Call]:
    """The calls of functions and methods of these names in a file."""
    found = (n for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.Call))
    return [n for n in found if getattr(n.func, "id", getattr(n.func, "attr", "")) in names]


def made(path: Path) -> list[ast.Call]:
    """Where a file makes rules."""
    return calls(path, "Rule", "node_rule")


def assigned(path: Path) -> set[str]:
    """The names of the rules at the top of a file."""
    return {
        str(t.id)
        for n in ast.parse(path.read_text("utf-8")).body
        if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call)
        for t in n.targets
        if isinstance(t, ast.Name) and getattr(n.value.func, "id", "") in {"Rule", "node_rule"}
    }


def test_every_rule_that_is_made_is_in_the_table() -> None:
    """But for those that users add, each of which the door makes."""
    files = [p for p in sorted(ROOT.rglob("*.py")) if made(p)]
    own = [p for p in files if p.name not in {"rule.py", "door.py"}]
    rules = {name for p in own for name in assigned(p)}
    assert len(rules) == sum(len(made(p)) for p in own) == len(TABLE)
    assert {id(getattr(table, name)) for name in rules} == {id(r) for r in TABLE.values()}
    assert all(p.parent in ROOMS for p in own)


@pytest.mark.parametrize("called", ["verified", "hold_terms", "hold_ways", "stepped"])
def test_a_law_is_checked_where_a_rule_is_applied(called: str) -> None:
    """Nothing is traced or verified past `Rule.apply`, and a check is of the rule it is given."""
    for path in ROOT.rglob("*.py"):
        for n in calls(path, called):
            assert path.parent in ROOMS or path.name in {"rule.py", "door.py"}, path
            assert ast.unparse(n.args[0]) in {"rule", "rule.name"}, path
