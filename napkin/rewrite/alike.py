"""Terms of one form, of which one stands for the others under other names of their tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from napkin.algebra.rule import Instance, Rule, Sides
from napkin.ir.node import Node, node
from napkin.ir.rewrite import rewrite
from napkin.ir.storage import Tensor, own_type


def _matches(
    terms: Sequence[Node], known: Sequence[Node], names: Mapping[str, str]
) -> Iterator[Instance]:
    """Terms that are like known ones.

    Args:
        names: for each tensor of the known terms the one that stands in its place.
    """
    yield Instance(", ".join(names.values()), known, partial(_sides, terms, known, names))


def _sides(terms: Sequence[Node], known: Sequence[Node], names: Mapping[str, str]) -> Sides:
    done = rewrite(known, partial(called, names))
    return terms, [done[n] for n in known]


def called(names: Mapping[str, str], old: Node, args: tuple[Node, ...]) -> Node | None:
    """For `rewrite`: a reading of a tensor under another name."""
    if old.op != "input":
        return None
    name, own = names[str(old.params[0])], own_type(old)
    tensor = Tensor(name, own) if own else name
    return node("input", args, (tensor, *old.params[1:]), old.axes, old.kind)


ALIKE = Rule(
    "run what is alike",
    "t(x) = t'(x) under other names of its tensors",
    _matches,
    ("both have one form: operators, axes and sizes",),
    infinite=True,
)
