"""A diagram made ready for derivation: composites opened, scales brought out of sums, every array
named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce

from napkin.derive.kernel import tensor_of
from napkin.derive.rules.rule import Rule, verified
from napkin.derive.terms import EXTREMA, WRITTEN, compares, is_read, narrow_type, scaled
from napkin.diagram.diagram import Diagram, Output
from napkin.diagram.expand import expanded, result_names
from napkin.diagram.infer import along, pointwise
from napkin.diagram.keys.slots import read_inputs
from napkin.diagram.listing import assign_names
from napkin.diagram.node import COMPOSITES, Node, factors, over, postorder, rewrite
from napkin.diagram.taking import read_table

EXPANDED = Rule(
    "expand composites",
    "softmax, logsumexp, mean, renames and takes = what they stand for",
    ("a maximum starts at the lowest finite number", "a sum of 0 divides as 1"),
    infinite=True,
)
READ = Rule(
    "read where values lie",
    "take(T, p) = T at p, spread(T, keys) = T at its slots",
    ("T is read from memory",),
    infinite=True,
)
SCALED = Rule(
    "scale sums",
    "sum_b S x = S sum_b x",
    ("S carries no axis of b", "every occurrence of S comes out"),
)
RENAMED = Rule(
    "compute under result names",
    "rename(sum_b x) = sum_b rename(x)",
    ("nothing else reads the sum", "x carries none of the new names"),
    infinite=True,
)
COMPARED = Rule(
    "compute as it is written",
    "max_x a = max_x a, rounded as a is",
    ("something is compared with it",),
    infinite=True,
)


@dataclass(frozen=True, eq=False)
class Prepared:
    """Outputs without composites, distinct names, and what was opened, in words."""

    outputs: tuple[Output, ...]
    names: Mapping[Node, str]
    expansions: tuple[str, ...]


def prepare(diagram: Diagram) -> Prepared:
    """Open the composites of a diagram and name its arrays."""
    roots = [o.node for o in diagram.outputs]
    done = expanded(diagram.roots)
    verified(EXPANDED, roots, _all(roots, done))
    read = rewrite(done.values(), lambda old, args: read_table(old, args) or read_inputs(old, args))
    verified(READ, _all(roots, done), _all(_all(roots, done), read))
    done = {old: read[new] for old, new in done.items()}
    apart = rewrite(done.values(), _scaled_sum)
    verified(SCALED, _all(roots, done), _all(_all(roots, done), apart))
    done = {old: apart[new] for old, new in done.items()}
    called = result_names(_all(roots, done))
    verified(RENAMED, _all(roots, done), _all(_all(roots, done), called))
    done = {old: called[new] for old, new in done.items() if new in called}
    held = as_compared(_all(roots, done))
    verified(COMPARED, _all(roots, done), _all(_all(roots, done), held))
    done = {old: held[new] for old, new in done.items() if new in held}
    outputs = tuple(replace(o, node=done[o.node]) for o in diagram.outputs)
    hints = {done[n]: text for n, text in diagram.names.items() if n in done}
    taken = {o.name for o in outputs}
    names = assign_names([o.node for o in outputs], hints, taken)
    for o in outputs:
        if o.node.op != "input":
            names[o.node] = o.name
    opened = [n for n in postorder(diagram.roots) if n.op in COMPOSITES]
    what = {
        "softmax": "max, exp, sum and divide",
        "logsumexp": "max, exp, sum and log",
        "mean": "sum and count",
    }
    sums = dict.fromkeys(n for n in read.values() if _scales(n))
    texts = [f"{n.op} over {' '.join(over(n))} into {what[n.op]}" for n in opened]
    texts += [
        f"{' and '.join(map(tensor_of, _scales(n)))} out of the sum over {' '.join(over(n))}"
        for n in sums
    ]
    return Prepared(outputs, names, tuple(dict.fromkeys(texts)))


def as_compared(roots: Iterable[Node]) -> Mapping[Node, Node]:
    """The terms, with every maximum and minimum of reals that something is compared with marked to
    be computed as it is written: x == max_x x holds where both are rounded alike, and in another
    kernel b max_x a would not be rounded as max_x (a b)."""
    roots = list(roots)
    tests = [n for n in postorder(roots) if compares(n)]
    found = {n for n in postorder(tests) if n.op in EXTREMA and n.kind == "real"}

    def marked(old: Node, args: tuple[Node, ...]) -> Node | None:
        start = (*old.params[1:], WRITTEN)
        return along(old.op, args[0], over(old), start) if old in found else None

    return rewrite(roots, marked)


def _all(nodes: Iterable[Node], by: Mapping[Node, Node]) -> list[Node]:
    return [by[n] for n in nodes]


def _scales(n: Node) -> list[Node]:
    """The inputs that are factors of a sum of products and do not go along it, as scales are; of
    whole numbers that would wrap without them, none."""
    if n.op != "sum" or n.kind != "real":
        return []
    parts = factors(n.args[0])
    found = [p for p in parts if is_read(p) and p.axes and not set(p.axes) & set(over(n))]
    rest = [p for p in parts if p not in found]
    real = any(p.kind == "real" for p in rest) or narrow_type(rest) == "int8"
    return found if len(rest) > 1 and real else []


def _scaled_sum(old: Node, args: tuple[Node, ...]) -> Node | None:
    """For `rewrite`: sum_b S x = S sum_b x, so that the product of what is stored comes first."""
    found = _scales(along("sum", args[0], over(old))) if old.op == "sum" else []
    if not found:
        return None
    rest = [p for p in factors(args[0]) if p not in found]
    total = along("sum", reduce(lambda a, b: pointwise("mul", (a, b)), rest), over(old))
    return reduce(scaled, found, total)
