"""To which types an output is rounded on its way, which says how exact it can be.

Inputs are drawn in their storage types and are exact: the evaluation that a kernel is compared with
reads the rounded ones. Between them and a store all is float32, so the log-sum-exp of a plan in
bf16 that is stored in fp32 is as exact as one of a plan in fp32. What does round on the way is an
operand of a product that is computed (the weights of attention), a cast, and an array that an
earlier kernel stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from napkin.algebra.terms import is_read, narrow_type, rounded
from napkin.derive.kernel import tensor_of
from napkin.ir.node import Node, factors
from napkin.lower.dots import dot_of, multiplied_as
from napkin.plan.plan import Plan
from napkin.plan.planned import PlannedKernel


def roundings(plan: Plan, tensor: str) -> set[str]:
    """The types to which the values of a tensor, and what they are computed from, are rounded.

    Args:
        tensor: a tensor that some kernel of the plan writes, by its name in the plan.
    """
    found: set[str] = set()
    todo, seen = [tensor], set[str]()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        for k in plan.kernels:
            for theirs in {o.name for o in k.choice.origin if k.binding[o.name] == name}:
                here, reads = _in_kernel(k, theirs)
                found |= here | {k.dtypes[theirs]}
                todo += [k.binding[t] for t in reads]
    return found & {"fp32", "fp16", "bf16", "fp8"} or {"fp32"}


def _in_kernel(k: PlannedKernel, output: str) -> tuple[set[str], set[str]]:
    """What an output of one kernel is rounded to on its way, and the tensors that it is read of."""
    program, found, reads = k.program, set[str](), set[str]()
    steps = {name: n for loop in program.loops for name, n in loop.steps.items()}
    stores = [program.tails, *(loop.emits for loop in program.loops)]
    for n in _within([s[output] for s in stores if output in s], steps):
        if is_read(n):
            reads.add(tensor_of(n))
        if n.op == "cast" and n.kind == "real":
            found.add(str(n.params[0]))
        dot, rounds = dot_of(program, n), program.kernel.rounds
        if dot is None and rounds and n.op == "sum" and rounded(factors(n.args[0])):
            found.add(rounds)
        if dot is None or narrow_type(dot.parts):
            continue
        if not (dot.lies(0) and dot.lies(1)):
            like = multiplied_as(program.kernel, dot.parts)
            found |= {k.dtypes[like]} if like else {rounds}
    return found, reads


def _within(roots: Iterable[Node], steps: Mapping[str, Node]) -> Iterator[Node]:
    """Every term of one step under `roots`; states are followed to their steps in `steps`."""
    seen: set[Node] = set()
    stack = list(roots)
    while stack:
        n = stack.pop()
        if n in seen or n.constant:
            continue
        seen.add(n)
        yield n
        if n.op == "state" and n.params[0] in steps:
            stack.append(steps[str(n.params[0])])
        elif not is_read(n):
            stack.extend(factors(n.args[0]) if n.op == "sum" else n.args)
