"""Neighborhoods against a reference written from their definition, query by query.

The reference is Python of its own and calls nothing of napkin: per axis, the leader of a query's
stride block, the window around it shifted to stay inside, and several axes multiplied.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

import napkin as nk
from napkin.ir.evaluate import aligned_to, evaluate
from napkin.ir.key_sets import member

PROBLEMS = 102_000
"""Random problems: a layout with window, stride, dilation and causality for each of its axes."""

LONGEST = 18
"""Every legal problem on one axis up to this size is tried."""

Params = tuple[int, int, int, bool]


def window(i: int, size: int, k: int, s: int, d: int, causal: bool) -> list[int]:
    """The keys of query i on one axis."""
    group, place = i % d, i // d
    length = -(-(size - group) // d)
    if causal:
        leader = min((place // s) * s + s - 1, length - 1)
        first, end = max(leader - k + 1, 0), place + 1
    else:
        leader = min((place // s) * s + s // 2, length - 1)
        first = min(max(leader - k // 2, 0), length - k)
        end = first + k
    return [group + j * d for j in range(first, end)]


@cache
def axis_mask(size: int, k: int, s: int, d: int, causal: bool) -> np.ndarray:
    """Queries by keys of one axis."""
    out = np.zeros((size, size), bool)
    for i in range(size):
        out[i, window(i, size, k, s, d, causal)] = True
    return out


def reference(layout: tuple[int, ...], params: tuple[Params, ...]) -> np.ndarray:
    """Queries by keys, both row-major."""
    out = np.ones((1, 1), bool)
    for size, (k, s, d, causal) in zip(layout, params, strict=True):
        one = axis_mask(size, k, s, d, causal)
        n = len(out) * size
        out = (out[:, None, :, None] & one[None, :, None, :]).reshape(n, n)
    return out


def legal(size: int) -> Iterator[Params]:
    """Every window, stride, dilation and causality that fit an axis."""
    for d in range(1, size + 1):
        for k in range(1, size // d + 1):
            for s in range(1, k + 1):
                yield k, s, d, False
                yield k, s, d, True


def drawn(rng: random.Random, size: int) -> Params:
    d = rng.randint(1, rng.choice((1, min(3, size), size)))
    k = rng.randint(1, size // d)
    return k, rng.randint(1, k), d, rng.random() < 0.5


def made(params: tuple[Params, ...]) -> nk.KeySet:
    return nk.neighborhood(*zip(*params, strict=True))


@pytest.mark.parametrize(("dims", "longest"), [(1, 24), (2, 8), (3, 5)])
def test_random_problems(dims: int, longest: int) -> None:
    """Many sets at once on each layout: what they share is then evaluated once."""
    rng = random.Random(dims)
    sets, layouts, done = 250, 6, 0
    while done < PROBLEMS // 3:
        base = tuple(rng.randint(1, longest) for _ in range(dims))
        params = [tuple(drawn(rng, n) for n in base) for _ in range(sets)]
        found = [made(p) for p in params]
        tests = [member(x.node) for x in found]
        one = found[0]
        axes = (*one.query_axes, *one.key_axes)
        for _ in range(layouts):
            layout = tuple(n + rng.randint(0, 2) for n in base)
            sizes = dict(zip(axes, layout * 2, strict=True))
            held = {a: range(n) for a, n in sizes.items()}
            tokens = int(np.prod(layout))
            for p, x, test, value in zip(
                params, found, tests, evaluate(tests, {}, sizes), strict=True
            ):
                grid = aligned_to(value, test.axes, axes, held).reshape(tokens, tokens)
                assert np.array_equal(grid, reference(layout, p)), f"{x} on {layout}"
            done += sets


def test_every_problem_on_one_axis() -> None:
    count = 0
    for size in range(1, LONGEST + 1):
        for p in legal(size):
            assert np.array_equal(made((p,)).mask(size), axis_mask(size, *p)), f"{p} on {size}"
            count += 1
    assert count == 3582


def test_mask_keys_and_picture_agree() -> None:
    rng = random.Random(0)
    for dims in (1, 2, 3):
        for _ in range(40):
            layout = tuple(rng.randint(1, (20, 7, 4)[dims - 1]) for _ in range(dims))
            params = tuple(drawn(rng, n) for n in layout)
            wanted, found = reference(layout, params), made(params)
            assert np.array_equal(found.mask(layout), wanted)
            assert found.picture(layout) == "\n".join(
                "".join(".#"[int(x)] for x in row) for row in wanted
            )
            every = list(itertools.product(*map(range, layout)))
            at = rng.randrange(len(every))
            keys = [every[j] for j in np.flatnonzero(wanted[at])]
            shown = [k[0] for k in keys] if dims == 1 else keys
            assert found.keys(every[at], layout) == shown


def test_a_number_stands_for_every_axis() -> None:
    layout, params = (6, 7), ((3, 2, 2, True),) * 2
    found = nk.neighborhood(3, 2, 2, True, queries="i j", keys="k l")
    assert np.array_equal(found.mask(layout), reference(layout, params))
    mixed = nk.neighborhood((3, 4), 2, is_causal=(False, True))
    assert np.array_equal(
        mixed.mask((6, 7)), reference((6, 7), ((3, 2, 1, False), (4, 2, 1, True)))
    )


def test_causal_on_one_axis_leaves_the_others_alone() -> None:
    both = nk.neighborhood((3, 3), is_causal=(True, False)).mask((5, 6))
    split = both.reshape(5, 6, 5, 6)
    assert np.array_equal(split.any((0, 2)), axis_mask(6, 3, 1, 1, False))
    assert np.array_equal(split.any((1, 3)), axis_mask(5, 3, 1, 1, True))


def test_a_window_larger_than_the_axis_is_clipped_where_that_is_allowed() -> None:
    for size in range(1, 12):
        for k, s, d, causal in itertools.product((1, 3, 8), (1, 3), (1, 2, 3), (False, True)):
            if s > k:
                continue
            found = nk.neighborhood(k, s, d, causal, clip=True).mask(size)
            for i in range(size):
                length = -(-(size - i % d) // d)
                keys = window(i, size, min(k, length), s, d, causal)
                if causal:  # windows of its own leader, which no axis cuts short
                    leader = min((i // d // s) * s + s - 1, length - 1)
                    keys = [i % d + j * d for j in range(max(leader - k + 1, 0), i // d + 1)]
                assert np.flatnonzero(found[i]).tolist() == keys


# --- the examples in words ------------------------------------------------------------------------

EXAMPLES = [
    ((8, 3, 1, 1, False), "012 012 123 234 345 456 567 567"),
    ((8, 4, 1, 1, False), "0123 0123 0123 1234 2345 3456 4567 4567"),
    (
        (10, 4, 2, 1, False),
        "0123 0123 1234 1234 3456 3456 5678 5678 6789 6789",
    ),
    (
        (10, 5, 3, 1, False),
        "01234 01234 01234 23456 23456 23456 56789 56789 56789 56789",
    ),
    ((10, 4, 4, 1, False), "0123 0123 0123 0123 4567 4567 4567 4567 6789 6789"),
    ((11, 3, 1, 3, False), "036 147 258 036 147 258 369 47a 258 369 47a"),
    ((8, 3, 1, 1, True), "0 01 012 123 234 345 456 567"),
    ((10, 4, 2, 1, True), "0 01 012 0123 234 2345 456 4567 678 6789"),
    ((10, 3, 1, 2, True), "0 1 02 13 024 135 246 357 468 579"),
]


@pytest.mark.parametrize(("problem", "keys"), EXAMPLES)
def test_worked_examples(problem: tuple[int, int, int, int, bool], keys: str) -> None:
    size, k, s, d, causal = problem
    found = nk.neighborhood(k, s, d, causal)
    shown = ["".join(f"{j:x}" for j in found.keys(i, size)) for i in range(size)]
    assert shown == keys.split()


@pytest.mark.parametrize(("k", "s", "d"), [(4, 1, 1), (4, 2, 1), (4, 3, 1), (3, 2, 2), (3, 3, 3)])
def test_queries_behind_the_last_key(k: int, s: int, d: int) -> None:
    """A causal one leads itself, whatever the stride; another one has the last window."""
    size, every = 12, 20
    x = nk.neighborhood(k, s, d, True, queries="q", keys="x", at=[nk.index("q")])
    y = nk.neighborhood(k, s, d, queries="q", keys="x", at=nk.index("q"))
    causal, plain = (
        evaluate([member(n.node)], {}, {"q": every, "x": size})[0].astype(bool) for n in (x, y)
    )
    assert np.array_equal(causal[:size], axis_mask(size, k, s, d, True))
    assert np.array_equal(plain[:size], axis_mask(size, k, s, d, False))
    for i in range(size, every):
        own = [i - j * d for j in range(k)]
        assert np.flatnonzero(causal[i]).tolist() == sorted(j for j in own if j < size)
        residue = [j for j in range(size) if j % d == i % d]
        assert np.flatnonzero(plain[i]).tolist() == residue[-k:]


def test_picture() -> None:
    assert nk.neighborhood(3).picture(5) == "###..\n###..\n.###.\n..###\n..###"
