"""Settings are held to what the compiler allocates: the winner is asked about, and it fits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

import napkin as nk
from napkin.diagram.library import load
from napkin.machine.machines import machine
from napkin.plan import fitting
from napkin.plan.fitting import at_most, contiguous, job_of
from napkin.plan.plan import Plan
from napkin.plan.planned import PlannedKernel, distinct
from napkin.run.compile import Resources, allocations, resources_many
from napkin.run.worker import CompileError

# --- on small diagrams ----------------------------------------------------------------------


@nk.diagram("a b c -> a b, a c")
def matrices_of_a_cube(X):
    """Results of tiles with three axes, which are stored as matrices."""
    return nk.reduce(X * X, "sum", over="c"), nk.reduce(X, "max", over="b")


@nk.diagram("a b, b, b -> a b")
def rows_beside_tiles(X, u, v):
    """Rows that go from their own layout to that of a tile, one of them through arithmetic."""
    return nk.maximum(X * u, 0.5 * v - 0.1)


@nk.diagram("c, a c, b -> a b")
def outer_of_rows(t, X, u):
    """A tile that no load and no store has."""
    return nk.reduce(t * (nk.silu(X) + u), "sum", over="c")


@nk.diagram("a c, a c -> c, c a")
def columns_stored_as_rows(X, Y):
    """Loads one value at a time beside stores of eight."""
    t = nk.reduce(X, "sum", over="a")
    return t, t / (nk.abs(X) + 1.0) + Y


@nk.diagram("a b d, b d -> a b")
def operand_from_an_earlier_pass(X, Y):
    """An operand that a loop before the product's has made: held for the whole loop."""
    return nk.contract(nk.reduce(X, "min", over="b"), Y, over="d")


@nk.diagram("a b, b -> a")
def fewer_values_than_threads(X, u):
    """Loads that fix no layout: what is stored is rounded after it is brought to the store's."""
    return nk.reduce(X * (u / nk.sqrt(nk.reduce(u * u, "sum", over="b") + 1e-3)) * u, "sum", "b")


@nk.diagram("b c d -> b")
def last_axis_of_one_value(X):
    """A stride of 1 that is not the last axis's."""
    return nk.reduce(nk.reduce(X, "mean", over="d"), "mean", over="c")


@nk.diagram("q d, x d, x d, x:bool -> q d")
def attention_with_a_key_mask(Q, K, V, M):
    """A row of truth values beside the columns of a product."""
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    return nk.contract(nk.softmax(nk.where(M, S, -math.inf), over="x"), V, over="x")


@nk.diagram("q d, x d, x d, x -> q d")
def attention_with_a_bias(Q, K, V, B):
    """The same with numbers."""
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5 + B
    return nk.contract(nk.softmax(S, over="x"), V, over="x")


@nk.diagram("n x -> n x")
def running_sums(X):
    """A scan across warps, in several blocks."""
    return nk.cumsum(X, along="x")


@nk.diagram("n x -> n x")
def sorted_rows(X):
    """A network of comparisons, some of them across warps."""
    return nk.sort(X, along="x")


@nk.diagram("a b c -> a b c")
def softmax_of_a_cube(X):
    """A tile of three axes that are all kept."""
    return nk.softmax(X, over="b")


@nk.diagram("n x -> n")
def variance(X):
    """A count of positions is a reduction, too."""
    return nk.reduce((X - nk.reduce(X, "mean", over="x")) ** 2, "mean", over="x")


@nk.diagram("a b, b c, e -> e a c")
def product_in_a_cube(X, W, G):
    """A product that is stored in a tile of three dimensions."""
    return nk.contract(X, W, over="b") * G


@nk.diagram("n d, m d -> n m")
def cosines(X, Y):
    """Operands that are reduced beside their product: each is waited for by itself."""
    x, y = (nk.rsqrt(nk.reduce(t * t, "sum", over="d") + 1e-6) for t in (X, Y))
    return nk.contract(X, Y, over="d") * x * y


@nk.diagram("a b, b c, a c:int -> a c")
def product_where_positive(X, W, M):
    """Truth values of numbers that are loaded beside a product."""
    return nk.where(M > 0, nk.contract(X, W, over="b"), -1.0)


@nk.diagram("h a b, b c -> h a c")
def batches_in_one_product(X, W):
    """A left operand of two axes, which wgmma takes from registers."""
    return nk.contract(X, W, over="b")


@nk.diagram("a b, b c, c b, a c -> a c")
def products_of_one_operand(X, W, U, R):
    """Two products that share a box, one of them with a load by address."""
    return nk.contract(X, W, over="b") + nk.contract(X, U, over="b") * R


@nk.diagram("a b, b c, a c -> a c")
def product_added_to(X, W, R):
    """Fewer values for each thread where they are loaded than where a product starts from them."""
    return nk.contract(X, W, over="b") + R


@nk.diagram("q d, x d, x -> q")
def weights_of_a_row(Q, K, y):
    """A row that is multiplied with a product in its loop, wider there than as it is loaded."""
    return nk.contract(nk.softmax(nk.contract(Q, K, over="d"), over="x"), y, over="x")


@nk.diagram("q d, x d, x -> q")
def largest_of_a_row(Q, K, y):
    """A row that is added to a product."""
    return nk.reduce(nk.contract(Q, K, over="d") + y, "max", over="x")


@nk.diagram("q d, x d, x d, s -> q d")
def attention_with_a_sink(Q, K, V, T):
    """States that start from a row, which is brought to the loop's layout before it."""
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    P, _ = nk.softmax([S, T + 0.0 * nk.index("q")], over=["x", "s"])
    return nk.contract(P, V, over="x")


@nk.diagram("a b:fp8, b c:fp8 -> a c")
def product_of_bytes(X, W):
    """A right operand that wgmma does not read as it lies in memory."""
    return nk.contract(X, W, over="b")


SMALL = [
    # diagram, sizes, dtype, machine
    (matrices_of_a_cube, {"a": 512, "b": 256, "c": 64}, "fp32", "a100"),
    (matrices_of_a_cube, {"a": 64, "b": 32, "c": 128}, "bf16", "h100"),
    (rows_beside_tiles, {"a": 256, "b": 1024}, "bf16", "h100"),
    (rows_beside_tiles, {"a": 100, "b": 128}, "fp16", "a100"),
    (outer_of_rows, {"a": 256, "b": 32, "c": 1024}, "bf16", "h100"),
    (columns_stored_as_rows, {"a": 1024, "c": 128}, "bf16", "h100"),
    (operand_from_an_earlier_pass, {"a": 1024, "b": 32, "d": 100}, "bf16", "h100"),
    (fewer_values_than_threads, {"a": 32, "b": 2}, "fp16", "h100"),
    (last_axis_of_one_value, {"b": 100, "c": 128, "d": 1}, "fp32", "h100"),
    (attention_with_a_key_mask, {"q": 1024, "x": 1000, "d": 64}, "bf16", "h100"),
    (attention_with_a_key_mask, {"q": 1024, "x": 1024, "d": 64}, "fp32", "h100"),
    (attention_with_a_bias, {"q": 1024, "x": 1024, "d": 64}, "bf16", "h100"),
    (running_sums, {"n": 64, "x": 4096}, "bf16", "h100"),
    (sorted_rows, {"n": 64, "x": 64}, "fp32", "h100"),
    (softmax_of_a_cube, {"a": 16, "b": 16, "c": 16}, "fp32", "h100"),
    (softmax_of_a_cube, {"a": 64, "b": 64, "c": 64}, "bf16", "a100"),
    (variance, {"n": 4, "x": 128}, "bf16", "h100"),
    (variance, {"n": 4, "x": 256}, "fp16", "a100"),
    (product_added_to, {"a": 77, "b": 130, "c": 264}, "bf16", "h100"),
    (weights_of_a_row, {"q": 4096, "x": 4096, "d": 128}, "bf16", "h100"),
    (largest_of_a_row, {"q": 4096, "x": 4096, "d": 128}, "bf16", "h100"),
]
BOXED = [
    # diagram, sizes: kernels as they are chosen for the H100, most of them with boxes
    (product_in_a_cube, {"a": 2048, "b": 1024, "c": 2048, "e": 4}),
    (cosines, {"n": 4096, "m": 4096, "d": 1024}),
    (product_where_positive, {"a": 4096, "b": 4096, "c": 4096}),
    (batches_in_one_product, {"h": 3, "a": 1000, "b": 1000, "c": 1000}),
    (products_of_one_operand, {"a": 4096, "b": 4096, "c": 4096}),
    (weights_of_a_row, {"q": 4096, "x": 4096, "d": 128}),
    (attention_with_a_sink, {"q": 4096, "x": 4096, "d": 128, "s": 1}),
    (product_of_bytes, {"a": 4096, "b": 4096, "c": 4096}),
]


def bytes_of(k: PlannedKernel, served: bool = True) -> int:
    """What the compiler allocates for a kernel, on its own machine."""
    (found,) = allocations([job_of(k, k.choice.sizes, k.machine.arch, served)])
    assert isinstance(found, int), found
    return found


@pytest.mark.parametrize(
    ("diagram", "sizes", "dtype", "on"),
    [*SMALL, *((x, sizes, "bf16", "h100") for x, sizes in BOXED)],
    ids=lambda x: getattr(x, "name", ""),
)
def test_kernels_fit_and_the_bounds_hold(
    diagram: nk.Diagram, sizes: Mapping[str, int], dtype: str, on: str
) -> None:
    for k in distinct(nk.derive(diagram, on, sizes, dtype).kernels):
        for served in {bool(k.schedule.described), False}:
            taken = bytes_of(k, served)
            assert taken <= min(at_most(k), k.machine.shared_per_block)
            assert not served or taken >= k.operand_bytes


@pytest.mark.parametrize("served", [True, False])
def test_what_is_asked_for_is_what_a_whole_compilation_takes(served: bool) -> None:
    for name, on in (("attention", "h100"), ("matmul_bias_gelu", "a100"), ("softmax", "h100")):
        for k in distinct(nk.derive(load(name), on).kernels):
            job = job_of(k, k.choice.sizes, k.machine.arch, served)
            (whole,) = resources_many([job])
            assert isinstance(whole, Resources)
            assert allocations([job]) == [whole.shared_bytes]


# --- what does not fit ----------------------------------------------------------------------


def product() -> Plan:
    """Of a size for which products fill shared memory."""
    return nk.derive(load("matmul"), "h100")


def told(monkeypatch: pytest.MonkeyPatch, *answers: int | CompileError) -> list[PlannedKernel]:
    """The kernels that the compiler is asked about, in turn; these are its answers."""
    requests: list[PlannedKernel] = []
    left = list(answers)

    def answer(jobs: list[PlannedKernel]) -> list[int | CompileError]:
        requests.extend(jobs[:1])
        return [left.pop(0) if left else 0]

    monkeypatch.setattr(fitting, "job_of", lambda k, *_: k)
    monkeypatch.setattr(fitting, "allocations", answer)
    return requests


def test_fewer_stages_are_taken_where_that_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    (k,) = product().kernels
    requests = told(monkeypatch, 300_000)
    found = fitting.fitting(k)
    assert found.schedule == replace(k.schedule, stages=k.schedule.stages - 1)
    assert [a.schedule.stages for a in requests] == [k.schedule.stages, k.schedule.stages - 1]


def test_the_next_setting_is_taken_where_no_stages_make_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (k,) = product().kernels
    told(monkeypatch, *[300_000] * k.schedule.stages)
    found = fitting.fitting(k)
    assert (found.schedule.tiles, found.schedule.warps) != (k.tiles, k.schedule.warps)
    assert found.rank >= k.choice.rank


def test_the_next_setting_is_taken_where_one_does_not_compile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (k,) = product().kernels
    requests = told(
        monkeypatch, CompileError("kernel matmul does not compile for sm_90: no layout")
    )
    found = fitting.fitting(k)
    assert (found.schedule.tiles, found.schedule.warps) != (k.tiles, k.schedule.warps)
    assert len(requests) == 2


def test_a_kernel_that_never_fits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    (k,) = product().kernels
    told(monkeypatch, *[300_000] * 200)
    with pytest.raises(nk.Refusal) as caught:
        fitting.fitting(k)
    assert caught.value.reason == (
        "the compiler allocates 300,000 bytes of shared memory, of 232,448; no better are the 16 "
        "settings that are predicted to be the fastest"
    )


def test_small_kernels_fit_without_being_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = told(monkeypatch)
    nk.derive(load("softmax"), "h100", {"n": 64, "x": 256})
    assert not requests


def test_small_products_are_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass of the compiler may fail on them, whatever they take of shared memory."""
    refused = CompileError("kernel matmul does not compile for sm_90: no layout")
    requests = told(monkeypatch, refused)
    (k,) = nk.derive(load("matmul"), "h100", {"a": 64, "b": 64, "c": 16}).kernels
    first, second = requests
    assert at_most(first) <= k.machine.shared_per_block
    assert k.choice is second.choice


def test_a_specialised_kernel_is_compiled_for_rows_that_descriptors_serve() -> None:
    plan = nk.derive(load("matmul"), "h100", {"a": 8192, "b": 8191, "c": 4096})
    (k,) = plan.launched.kernels
    assert k.schedule.warpgroups
    bytes_of(k)


def test_no_compiler_is_asked_for_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    (k,) = product().kernels
    requests = told(monkeypatch, 300_000)
    other = replace(k, machine=replace(machine("h100"), arch="gfx942"))
    assert fitting.fitting(other) is k.choice
    monkeypatch.setattr(fitting, "available", lambda: False)
    assert fitting.fitting(k) is k.choice
    assert not requests


def test_rows_lie_one_after_another() -> None:
    assert contiguous([3, 4, 5]) == (20, 5, 1)
    assert contiguous([]) == ()
