"""Terms: in which order their nodes are listed."""

from __future__ import annotations

import copy
import pickle
import random
import sys
import threading
from collections.abc import Container, Iterable, Iterator

import pytest

from napkin.diagram import library
from napkin.ir.infer import pointwise
from napkin.ir.node import LISTED, Node, node, postorder
from napkin.ir.rewrite import rewrite, substitute


def listed(roots: Iterable[Node], stop: Container[Node], seen: set[Node]) -> Iterator[Node]:
    """Arguments first, by recursion."""
    for n in roots:
        if n not in seen:
            seen.add(n)
            yield from listed(() if n in stop else n.args, stop, seen)
            yield n


def drawn(seed: int, most: int) -> list[Node]:
    """Terms over each other."""
    rng = random.Random(seed)
    made = [node("input", params=(f"{seed}.{i}",), axes=("a",)) for i in range(3)]
    while len(made) < most:
        made.append(pointwise(rng.choice(("add", "mul", "sub")), rng.choices(made, k=2)))
    return made


def test_nodes_come_after_their_arguments_each_once_however_often_they_are_listed() -> None:
    for seed in range(40):
        rng, made = random.Random(seed), drawn(seed, 30)
        for _ in range(20):
            roots = rng.choices(made, k=rng.choice((1, 1, 2, 3)))
            stop = set(rng.sample(made, rng.choice((0, 0, 1, 4))))
            assert list(postorder(iter(roots), stop)) == list(listed(roots, stop, set()))


def test_a_long_term_keeps_no_list_and_parts_of_it_do() -> None:
    end = start = node("input", params=("long",), axes=("a",))
    for _ in range(LISTED + 10):
        end = pointwise("neg", (end,))
    assert len(list(postorder([end]))) == LISTED + 11
    assert end.below is None
    part = end
    for _ in range(50):
        part = part.args[0]
    assert next(iter(postorder([part]))) is start
    assert part.below is not None


def test_a_substitution_is_a_rewriting_that_changes_what_is_named_alone() -> None:
    for seed in range(20):
        rng, made, other = random.Random(seed), drawn(seed, 12), drawn(-1 - seed, 12)
        for old in (made[0], rng.choice(made), other[-1]):
            roots, by = rng.choices(made, k=2), {old: other[0]}
            wanted = rewrite(roots, lambda old, args: None, by)
            assert substitute(iter(roots), by) == wanted


def test_threads_that_make_equal_terms_make_one() -> None:
    """Threads that take turns after every few steps, as two that derive at once do now and then."""
    start, made = threading.Barrier(4), list[list[Node]]()

    def make() -> None:
        start.wait()
        made.append([node("number", params=(f"{i}",)) for i in range(20_000)])

    often = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(often)
    assert all(len({*map(id, equal)}) == 1 for equal in zip(*made, strict=True))


@pytest.mark.parametrize("name", ["greedy_token", "causal_attention"])
def test_a_copy_of_a_term_is_that_term(name: str) -> None:
    """What a derivation makes anew is then found among what was copied."""
    diagram = library.load(name)
    for other in (copy.deepcopy(diagram), pickle.loads(pickle.dumps(diagram))):
        assert all(a is b for a, b in zip(diagram.roots, other.roots, strict=True))
