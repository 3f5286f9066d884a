"""Operations of kernels, beside those counted position by position, and beside what is written."""

from __future__ import annotations

import ast
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import napkin as nk
from napkin.algebra.contraction import MIN_DOT, NARROW_DEPTH
from napkin.count.work import counts, flops, work
from napkin.derive.kernel import Kernel
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.diagram.library import load
from napkin.ir.symbols import size_symbol
from napkin.lower.program import looped, packed_axes
from napkin.lower.write import write
from napkin.schedule import Schedule


def labelled(diagram: nk.Diagram, streamed: str = "", group: str | None = None) -> Kernel:
    ready, own = prepare(diagram), None if group is None else group.split()
    return label(diagram.name, ready.outputs, ready.names, streamed=streamed, group=own)


class Tally:
    """Positions, one by one, that groups and chunks of these tiles compute."""

    def __init__(self, kernel: Kernel, sizes: Mapping[str, int], tiles: Mapping[str, int]) -> None:
        self.kernel, self.sizes, self.tiles = kernel, sizes, tiles

    def __call__(self, axes: str, grid: str) -> int:
        """Positions of an array that is computed once for each tile along the axes of a grid."""
        return sum(1 for _ in self._positions(axes.split(), grid.split()))

    def _positions(self, axes: list[str], grid: list[str]) -> Iterator[tuple[int, ...]]:
        begins = [range(0, self.sizes[a], self.tiles[a]) for a in grid]
        for corner in itertools.product(*begins):
            begin = dict(zip(grid, corner, strict=True))
            yield from itertools.product(*(self._along(a, begin) for a in axes))

    def _along(self, a: str, begin: Mapping[str, int]) -> range:
        if a not in begin:
            return range(self.sizes[a])
        return range(begin[a], min(begin[a] + self.tiles[a], self.sizes[a]))


def pipes(product: int, arithmetic: int, special: int = 0) -> dict[str, float]:
    return {"product": product, "arithmetic": arithmetic, "special": special}


@nk.diagram("a b, b c -> a c", sizes={"a": 48, "b": 64, "c": 32})
def matrices(A: Any, B: Any):
    return nk.contract(A, B, over="b")


@pytest.mark.parametrize(
    ("tiles", "product"),
    [((16, 16, 16), True), ((8, 16, 32), False), ((32, 16, 8), False), ((16, 8, 16), False)],
)
def test_a_product_on_small_tiles_is_arithmetic(tiles: tuple[int, ...], product: bool) -> None:
    """`tl.dot` takes 16 rows, columns and positions that are summed; of fewer, each is multiplied
    and added, and the sum of a chunk is added to the state."""
    kernel, sizes = labelled(matrices, "b"), {"a": 48, "b": 64, "c": 32}
    named = dict(zip("abc", tiles, strict=True))
    tally, written = Tally(kernel, sizes, named), write(looped(kernel, Schedule(named))).source
    both = 2 * tally("a b c", "a b c")
    assert written.count("tl.dot(") == product
    found = work(kernel, sizes, named)
    assert found == (pipes(both, 0) if product else pipes(0, both + tally("a c", "a b c")))
    assert flops(kernel) == 2 * size_symbol("a") * size_symbol("b") * size_symbol("c")


@nk.diagram("a b, b -> a", sizes={"a": 48, "b": 64})
def matrix_and_vector(A: Any, x: Any):
    return nk.contract(A, x, over="b")


def test_a_matrix_times_a_vector_is_arithmetic() -> None:
    kernel, sizes = labelled(matrix_and_vector, "b"), {"a": 48, "b": 64}
    tiles = {"a": 16, "b": 32}
    tally = Tally(kernel, sizes, tiles)
    wanted = 2 * tally("a b", "a b") + tally("a", "a b")
    assert work(kernel, sizes, tiles) == pipes(0, wanted)
    plan = nk.derive(matrix_and_vector, on="h100", sizes={"a": 8192, "b": 8192}, dtype="bf16")
    assert "tl.dot" not in plan.source
    assert not any(k.choice.run.work["product"] for k in plan.kernels)


@nk.diagram("h a b, h b c -> h a c", sizes={"h": 4, "a": 32, "b": 32, "c": 32})
def batch(A: Any, B: Any):
    return nk.contract(A, B, over="b")


@pytest.mark.parametrize("h", [1, 2])
def test_a_tile_with_several_products_of_a_batch_is_none(h: int) -> None:
    kernel, sizes = labelled(batch), {"h": 4, "a": 32, "b": 32, "c": 32}
    tiles = {"h": h, "a": 16, "b": 32, "c": 16}
    both = 2 * Tally(kernel, sizes, tiles)("h a b c", "h a c")
    assert write(looped(kernel, Schedule(tiles))).source.count("tl.dot(") == (h == 1)
    assert work(kernel, sizes, tiles) == (pipes(both, 0) if h == 1 else pipes(0, both))


@nk.diagram("a b y, b c -> a c", sizes={"a": 32, "b": 32, "c": 32, "y": 4})
def one_sided(A: Any, B: Any):
    return nk.contract(A, B, over="b y")


def test_what_one_factor_alone_reduces_is_no_depth() -> None:
    """Held whole, y has several positions on every tile."""
    kernel = labelled(one_sided)
    assert not any(c.is_product for c in kernel.contractions.values())
    apart = labelled(one_sided, "y")
    tiles = {"a": 16, "b": 32, "c": 16, "y": 1}
    sizes = {"a": 32, "b": 32, "c": 32, "y": 4}
    assert write(looped(apart, Schedule(tiles))).source.count("tl.dot(") == 1
    both = 2 * Tally(apart, sizes, tiles)("a b c y", "a c y")
    assert work(apart, sizes, tiles) == pipes(both, 0)


@nk.diagram("a b, b c, a, c -> a c", sizes={"a": 32, "b": 64, "c": 32})
def scaled(A: Any, B: Any, s: Any, t: Any):
    return nk.contract(A * s, B * t, over="b")


def test_factors_outside_scale_a_product() -> None:
    """Each value of the result is multiplied by both once, and not once for each that is summed."""
    kernel, sizes = label("scaled", scaled.outputs, {}), {"a": 32, "b": 64, "c": 32}
    tiles = {"a": 16, "b": 64, "c": 32}
    (sum_,) = [c for c in kernel.contractions.values() if c.is_product]
    assert [p.axes for p in sum_.outside] == [("a",), ("c",)]
    tally = Tally(kernel, sizes, tiles)
    wanted = pipes(2 * tally("a b c", "a c"), 2 * tally("a c", "a c"))
    assert work(kernel, sizes, tiles) == wanted
    small = {"a": 8, "b": 64, "c": 32}
    wanted = pipes(0, 2 * tally("a b c", "a c") + 2 * tally("a c", "a c"))
    assert work(kernel, sizes, small) == wanted


def test_attention() -> None:
    kernel, sizes = labelled(load("attention"), "x"), {"q": 64, "x": 128, "d": 32}
    tiles = {"q": 32, "x": 32, "d": 32}
    tally, found = Tally(kernel, sizes, tiles), work(kernel, sizes, tiles)
    scores, rows = tally("q x", "q x"), tally("q", "q x")
    # Of a score: its scale, the largest, its distance from that, an exponential, and their sum. Of
    # a row in each chunk: the largest so far, how far it moved, an exponential, and the sum,
    # rescaled and added to. Results are rescaled in each chunk. Last, a divisor that is not 0.
    arithmetic = 4 * scores + 4 * rows + tally("q d", "q x") + 2 * tally("q", "q")
    special = scores + rows + tally("q d", "q")
    assert found == pipes(4 * tally("q x d", "q x"), arithmetic, special)
    # 8 rows are fewer than an instruction takes, so that no accumulator is added to either.
    few = {**tiles, "q": 8}
    tally = Tally(kernel, sizes, few)
    arithmetic += 4 * tally("q x d", "q x") + tally("q d", "q x")
    assert work(kernel, sizes, few) == pipes(0, arithmetic, special)


def test_weights_times_a_vector_of_layernorm_linear() -> None:
    """Streamed along d, G W and B W are sums of d alone, which every group of rows adds up."""
    kernel = labelled(load("layernorm_linear"), "d")
    sizes, tiles = {"n": 64, "d": 64, "m": 64}, {"n": 16, "d": 32, "m": 32}
    tally, found = Tally(kernel, sizes, tiles), work(kernel, sizes, tiles)
    assert found["product"] == 2 * tally("n d m", "n d m")
    sums = [c for c in counts(kernel) if set(c.axes) == {"d", "m"}]
    assert [(c.pipe, c.per_value) for c in sums] == [("arithmetic", 2)] * 2
    added = sum(c.number(sizes, tiles) for c in sums)
    assert added == 2 * 2 * tally("d m", "n d m")
    assert flops(kernel) == 2 * size_symbol("n") * size_symbol("d") * size_symbol("m")


@pytest.mark.parametrize(
    ("name", "few", "grid"),
    [("matmul_dense_and_sparse", "a c s", "a c"), ("mixture_of_experts", "t n k", "t n")],
)
def test_sums_that_are_no_products(name: str, few: str, grid: str) -> None:
    """The sparse part of a product, and the results of the experts of a token, are taken at
    positions that both factors have: nothing is a matrix, however large the tiles are."""
    plan = nk.derive(load(name), on="h100")
    kernel = plan.kernels[-1].choice.kernel
    sizes = dict(plan.kernels[-1].choice.sizes)
    axes = set(few.split())
    own = [c for c in counts(kernel) if set(c.axes) == axes]
    assert {c.pipe for c in own} == {"arithmetic"}
    small = {a: min(n, 32) for a, n in sizes.items()}
    tiles = {a: min(n, 16) for a, n in small.items()}
    tally = Tally(kernel, small, tiles)
    found = sum(c.number(small, tiles) for c in own if c.done(tiles))
    assert found == 2 * tally(few, grid)


@nk.diagram("a c, c e, e b -> a b", sizes={"a": 32, "c": 32, "e": 48, "b": 32})
def chain(A: Any, W: Any, B: Any):
    return nk.contract(nk.contract(A, W, over="c"), B, over="e")


def test_a_product_without_a_grouped_axis_is_computed_by_each_group_along_it() -> None:
    kernel, sizes = labelled(chain), {"a": 32, "c": 32, "e": 48, "b": 32}
    tiles = {"a": 16, "c": 32, "e": 48, "b": 16}
    tally = Tally(kernel, sizes, tiles)
    assert work(kernel, sizes, tiles) == pipes(
        2 * tally("a c e", "a b") + 2 * tally("a e b", "a b"), 0
    )


@nk.diagram("a c d, d e, c -> a", sizes={"a": 4, "c": 12, "d": 2, "e": 20})
def three(A: Any, B: Any, C: Any):
    return nk.contract(nk.exp(A), nk.tanh(B), C, over="c d e")


def test_what_lacks_a_streamed_axis_is_computed_for_each_of_its_chunks() -> None:
    kernel, sizes = labelled(three, "c e"), {"a": 4, "c": 12, "d": 2, "e": 20}
    tiles = {"a": 4, "c": 3, "d": 2, "e": 5}
    tally, found = Tally(kernel, sizes, tiles), work(kernel, sizes, tiles)
    assert found["product"] == 0
    assert found["special"] == tally("a c d", "a c e") + 4 * tally("d e", "a c e")
    summed = [c for c in counts(kernel) if len(c.axes) == 4]
    assert sum(c.number(sizes, tiles) for c in summed) == 3 * tally("a c d e", "a c e")


# --- beside what is written ---------------------------------------------------------------------


def written(kernel: Kernel, tiles: Mapping[str, int]) -> Counter[str]:
    """The products that a kernel's statements compute before, in and after each loop: "loop 0"."""
    made, found = write(looped(kernel, Schedule(tiles))), Counter[str]()
    (function,) = ast.parse(made.source).body[-1:]
    assert isinstance(function, ast.FunctionDef)
    loops = [n for n in ast.walk(function) if isinstance(n, ast.For)]
    for n in ast.walk(function):
        if isinstance(n, ast.Call) and ast.unparse(n.func) == "tl.dot":
            found["in loops" if any(n in ast.walk(x) for x in loops) else "once"] += 1
    return found


def counted(kernel: Kernel, tiles: Mapping[str, int]) -> Counter[str]:
    """The products that are counted, each as often as there are loops that compute it."""
    program, s = looped(kernel, Schedule(tiles)), kernel.stream
    many = Counter(loop.part for loop in program.loops)
    products = [c for c in counts(kernel) if c.pipe == "product" and c.done(tiles)]
    found = Counter[str]()
    for c in products:
        assert c.sum is not None
        moves = bool(c.chunked) or s.carried(c.axes)
        found["in loops" if moves and not c.tail else "once"] += 1
    assert len(many) < 2 or set(many.values()) == {1}
    found["in loops"] *= max(many.values(), default=0)
    return +found


def forced(kernel: Kernel, tiles: Mapping[str, int]) -> list[dict[str, int]]:
    """Tiles of a plan, and others along each axis that is cut: too few for an instruction, and just
    enough. Values that share a byte are in one tile; a chunk of pairs has one length."""
    packed = packed_axes(kernel)
    chunked = () if kernel.stream.twin else kernel.stream.axes
    cut = [a for a in (*kernel.group, *chunked) if tiles[a] > 1]
    lengths = (1, MIN_DOT // 2, MIN_DOT, NARROW_DEPTH)
    others = [{**tiles, a: n} for a in cut for n in lengths if n > (a in packed) and n != tiles[a]]
    return [dict(tiles), *others]


def test_products_that_are_written_are_those_that_are_counted(shipped: nk.Plan) -> None:
    for k in shipped.kernels:
        kernel = k.choice.kernel
        for tiles in forced(kernel, k.tiles):
            assert written(kernel, tiles) == counted(kernel, tiles), tiles


def multiplied(source: str) -> set[str]:
    """The results of the products that a warp-specialised kernel issues."""
    assigned = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Assign)]
    made = [n for n in assigned if isinstance(n.value, ast.Call)]
    found = [n for n in made if ast.unparse(n.value).startswith("warpgroup_mma(")]
    return {ast.unparse(n.targets[0]) for n in found}


@pytest.mark.parametrize("name", ["matmul", "mlp", "multi_head_attention", "latent_attention"])
def test_warp_specialised_kernels_issue_the_products_that_are_counted(name: str) -> None:
    """In several places of their loops, each into one accumulator."""
    specialised = [
        k for k in nk.derive(load(name), on="h100").launched.kernels if k.schedule.warpgroups
    ]
    assert specialised
    for k in specialised:
        products = [c for c in counts(k.choice.kernel) if c.pipe == "product"]
        products = [c for c in products if c.done(k.schedule.group)]
        assert len(multiplied(k.written.source)) == len(products)


def test_operands_are_converted_from_the_type_in_memory() -> None:
    """A value of int4 takes 9 instructions to become one of bf16, which each group takes again."""
    kernel = nk.derive(load("matmul_w4a16"), on="h100").kernels[0].choice.kernel
    found = [c for c in counts(kernel) if set(c.axes) == {"c", "g", "b"} and c.pipe != "product"]
    assert [(c.pipe, c.per_value, c.repeated) for c in found] == [("arithmetic", 9, ("a",))]
    kernel = nk.derive(load("attention_fp8_kv"), on="h100").kernels[0].choice.kernel
    found = [c for c in counts(kernel) if c.pipe == "special" and set(c.axes) == {"x", "d"}]
    assert [c.per_value for c in found] == [1, 1]


def test_products_of_eight_bits_convert_nothing() -> None:
    kernel = nk.derive(load("matmul_w8a8"), on="h100").kernels[0].choice.kernel
    assert not [c for c in counts(kernel) if c.axes == ("c", "b") and c.pipe != "product"]
