"""Sizes that fit a program: axes of one size, windows, slots, and the least that key sets need."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from programs import WIDER_STEPS, Keys, Program, Step, shapes, union


def fit(program: Program, wanted: Mapping[str, int]) -> dict[str, int] | None:
    """Sizes near those that are wanted, of every axis of the program; None where none are found."""
    axes = union(*(s.axes for s in shapes(program)), *(a for _, a in program.outputs))
    root = _roots(program, axes)
    out: dict[str, int] = {}
    least: dict[str, int] = {}
    for a in axes:
        out[root[a]] = max(out.get(root[a], 0), wanted.get(a, 1))
    for _ in range(6):  # windows may follow from windows
        still = True
        for step in program.steps:
            before = dict(out)
            _settle(program, step, root, out, least)
            still &= out == before
        for given in program.inputs:
            if given.storage in {"int4", "uint4"} and given.axes and out[root[given.axes[-1]]] % 2:
                out[root[given.axes[-1]]] += 1
                still = False
        if still:
            return {a: out[root[a]] for a in axes}
    return None


def shrunk(
    program: Program, wanted: Mapping[str, int], fits: Callable[[dict[str, int]], bool]
) -> dict[str, int] | None:
    """Sizes that fit a program, with the longest axes halved as often as it takes until they fit
    otherwise, too, or are 1; None where none are found."""
    wanted = dict(wanted)
    while (sizes := fit(program, wanted)) is not None:
        if not wanted or fits(sizes) or max(wanted.values()) <= 1:
            return sizes
        longest = max(wanted, key=wanted.__getitem__)
        wanted[longest] //= 2
    return None


def longest(program: Program, sizes: Mapping[str, int]) -> float:
    """Values of the largest input or output, with the axes of a weave."""
    every = [*(i.axes for i in program.inputs), *(axes for _, axes in program.outputs)]
    woven = (union(axes, program.weave[0]) for axes in every)
    return max(math.prod(float(sizes[a]) for a in axes if a in sizes) for axes in woven)


def _roots(program: Program, axes: tuple[str, ...]) -> dict[str, str]:
    """For each axis the one that stands for all of its size."""
    root = {a: a for a in axes}

    def tie(a: str, b: str) -> None:
        old, new = root.get(b, b), root.get(a, a)
        for x in [x for x, r in root.items() if r == old]:
            root[x] = new

    for step in program.steps:
        if step.op == "rename":
            for old, new in step.options:
                tie(old, str(new))
        if "product" in step.option:
            tie(step.option["within"], step.option["product"])
        for keys in step.keys:
            for k in keys.each() if keys is not None else ():
                if k.pattern not in {"&", "|"} and k.at is None:
                    for q, x in zip(k.queries, k.keys, strict=True):
                        tie(q, x)
    return root


def _settle(
    program: Program,
    step: Step,
    root: Mapping[str, str],
    out: dict[str, int],
    least: dict[str, int],
) -> None:
    """What a step says of sizes; `least` is what windows ask of an axis that others make."""
    option = step.option
    for keys in step.keys:
        for k in keys.each() if keys is not None else ():
            for x, n in zip(k.keys, needs(k), strict=True):
                out[root[x]] = max(out[root[x]], n)
            for a in looked_up(k, program):
                out[root[a]] = max(1, out[root[a]])
    if step.op == "slide":
        (over,) = step.over[0]
        p, w = option["into"]
        if "window" in option:
            out[root[w]] = option["window"]
        out[root[w]] = max(1, out[root[w]])
        reach = option.get("dilation", 1) * (out[root[w]] - 1) + 1
        padding = option.get("padding", 0)
        padded = sum(padding) if isinstance(padding, tuple) else 2 * padding
        stride = option.get("stride", 1)
        need = (least.get(root[p], 1) - 1) * stride + reach - padded
        least[root[over]] = max(least.get(root[over], 1), need)
        out[root[over]] = max(out[root[over]], least[root[over]])
        out[root[p]] = (out[root[over]] + padded - reach) // stride + 1
    if step.op in {"compress", "spread"}:
        slots = option["into"] if step.op == "compress" else step.over[0]
        for a, n in zip(slots, counts(step.keys[0]), strict=True):
            out[root[a]] = n
    if step.op == "take":
        for a in step.over[0]:
            out[root[a]] = max(1, out[root[a]])


def needs(keys: Keys) -> tuple[int, ...]:
    """The least size of each key axis."""
    if keys.pattern != "neighborhood" or dict(keys.options).get("clip"):
        return (0,) * len(keys.keys)
    return tuple(k * d for k, d in zip(_per(keys, keys.numbers[0]),
                                       _per(keys, dict(keys.options).get("dilation", 1)),
                                       strict=True))  # fmt: skip


def held(program: Program) -> set[str]:
    """The axes that a group holds whole: of lengths of documents, and of states of scans that a
    step takes in."""
    sets = [k for s in program.steps for keys in s.keys if keys for k in keys.each()]
    known = shapes(program)
    found = {
        a for k in sets if k.pattern == "documents" for t in k.tables for a in known[t.at].axes
    }
    scans = [s.option for s in program.steps if s.option.get("form") in WIDER_STEPS]
    return found | {str(o[name]) for o in scans for name in ("within", "product") if name in o}


def looked_up(keys: Keys, program: Program) -> list[str]:
    """The axes along which a set reads its tables at computed positions."""
    tables = keys.tables if keys.pattern == "bigbird" else ()
    known = shapes(program)
    return [known[t.at].axes[-1] for t in tables]


def counts(keys: Keys) -> tuple[int | None, ...]:
    """The most keys that a query sees along each key axis; None where no number bounds them."""
    p, given = keys.numbers, dict(keys.options)
    if keys.pattern == "&":
        left, right = (counts(k) for k in keys.parts)
        return tuple(a if b is None else b if a is None else min(a, b)
                     for a, b in zip(left, right, strict=True))  # fmt: skip
    if keys.pattern in {"sliding", "dilated"}:
        return (p[0] + p[1] + 1,)
    if keys.pattern == "blocked":
        return ((p[1] + p[2] + 1) * p[0],)
    if keys.pattern == "sinks":
        return (p[0],)
    if keys.pattern == "neighborhood" and not given.get("clip"):
        return _per(keys, p[0])
    return (None,) * len(keys.keys)


def _per(keys: Keys, value: object) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value,) * len(keys.keys)
