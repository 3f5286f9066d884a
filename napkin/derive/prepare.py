"""A diagram made ready for derivation: composites opened, scales brought out of sums, every array
named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from napkin.algebra.rule import Rule
from napkin.algebra.terms import repeated
from napkin.derive.kernel import tensor_of
from napkin.diagram.diagram import Diagram
from napkin.diagram.interface import Output
from napkin.errors import Refusal
from napkin.ir.listing import assign_names
from napkin.ir.names import check_uncut
from napkin.ir.node import COMPOSITES, Node, over, postorder
from napkin.ir.rewrite import substitute
from napkin.ir.storage import unstored
from napkin.rewrite.compared import COMPARED
from napkin.rewrite.counts import MEANS
from napkin.rewrite.disjoint import DISJOINT
from napkin.rewrite.exact import EXACT, exact_terms
from napkin.rewrite.expand import EXPANDED
from napkin.rewrite.read import READ
from napkin.rewrite.result_names import RENAMED
from napkin.rewrite.scale import SCALED, scales
from napkin.rewrite.square import SQUARED, WEIGHTED, difference, weighted


@dataclass(frozen=True, eq=False)
class Prepared:
    """Outputs without composites, distinct names, and what was opened, in words."""

    outputs: tuple[Output, ...]
    names: Mapping[Node, str]
    expansions: tuple[str, ...]


def prepare(diagram: Diagram) -> Prepared:
    """Open the composites of a diagram and name its arrays.

    Raises:
        InputError: an axis is called as the parts or the blocks of another one are.
    """
    check_uncut(diagram.axes, diagram.name)
    roots = [o.node for o in diagram.outputs]
    done = EXPANDED.everywhere(diagram.roots, roots)
    done = _then(READ, done, roots, done.values())
    sums = dict.fromkeys(n for n in postorder(done.values()) if scales(n))
    done = _then(SCALED, done, roots, done.values())
    for rule in (MEANS, RENAMED, COMPARED):
        done = _then(rule, done, roots, [done[n] for n in roots])
    # Those that weaves repeat have the axes of the weave, which are cut into groups; other kernels
    # find the array in memory without them.
    outputs = tuple(replace(o, node=repeated(done[o.node], o.axes)) for o in diagram.outputs)
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
    texts = [f"{n.op} over {' '.join(over(n))} into {what[n.op]}" for n in opened]
    texts += [
        f"{' and '.join(map(tensor_of, scales(n)))} out of the sum over {' '.join(over(n))}"
        for n in sums
    ]
    return Prepared(outputs, names, tuple(dict.fromkeys(texts)))


def _then(
    rule: Rule, done: Mapping[Node, Node], roots: Sequence[Node], terms: Iterable[Node]
) -> dict[Node, Node]:
    """The map from nodes to their forms, rewritten by a rule under `terms`."""
    made = rule.everywhere(terms, [done[n] for n in roots])
    return {old: made[new] for old, new in done.items() if new in made}


def multiplied_out(ready: Prepared) -> Prepared:
    """The same terms, with squared and weighted differences multiplied out.

    Raises:
        Refusal: there are none whose product is a matrix product.
    """
    roots = [o.node for o in ready.outputs]
    squares = [n for n in postorder(roots) if difference(n)]
    done = SQUARED.everywhere(roots, roots)
    others = [n for n in postorder(done[n] for n in roots) if weighted(n)]
    if not squares and not others:
        raise Refusal(
            "multiply_out",
            ", ".join(o.name for o in ready.outputs),
            "no sum of (x - y) ** 2 has an x and a y that each carry an axis of their own, and in "
            "no sum of w * (x - y) does x lack the summed axis while w and y have one of their own",
            "leave it out",
        )
    texts = [f"the square under the sum over {' '.join(over(n))}, multiplied out" for n in squares]
    texts += [
        f"the difference under the sum over {' '.join(over(n))}, multiplied out" for n in others
    ]
    made = _rewritten(ready, _then(WEIGHTED, done, roots, [done[n] for n in roots]))
    return replace(made, expansions=(*ready.expansions, *texts))


def exact(ready: Prepared, dtype: str, sizes: Mapping[str, int]) -> Prepared:
    """The same terms, with the casts to fp32 of `napkin.rewrite.exact` in a plan of this type,
    but for results."""
    roots = [o.node for o in ready.outputs]
    found, done = exact_terms(roots, dtype, sizes), EXACT.everywhere(roots, roots, dtype, sizes)
    own = {n: unstored(done[n]) if n in found else done[n] for n in roots}
    outputs = tuple(replace(o, node=own[o.node]) for o in ready.outputs)
    names = {done[n]: name for n, name in ready.names.items()}
    names |= {own[n]: ready.names[n] for n in roots if n in ready.names}
    return replace(ready, outputs=outputs, names=names)


def split_windows(ready: Prepared, sizes: Mapping[str, int]) -> Prepared:
    """The same terms, with windows that share no position as axes that are split."""
    roots = [o.node for o in ready.outputs]
    found = {f.sides()[0][0]: DISJOINT.apply(f) for f in DISJOINT.matches(roots, sizes)}
    return _rewritten(ready, substitute(roots, found))


def _rewritten(ready: Prepared, done: Mapping[Node, Node]) -> Prepared:
    """The same terms in other forms, with the names of those that are left."""
    outputs = tuple(replace(o, node=done[o.node]) for o in ready.outputs)
    left = {*postorder(o.node for o in outputs)}
    names = {done[n]: name for n, name in ready.names.items() if done.get(n) in left}
    return replace(ready, outputs=outputs, names=names)
