"""Kernels of warpgroups that add products up: side by side and in turn, on the CPU."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.diagram.diagram import Diagram
from napkin.lower.build import build
from napkin.lower.warpgroups.cta import SpecialisedCta
from napkin.lower.warpgroups.gluon import HEAD
from napkin.lower.warpgroups.whether import why_not
from napkin.lower.warpgroups.write_gluon import write_cta
from napkin.plan.fitting import job_of
from napkin.plan.planned import PlannedKernel
from napkin.run import warpgroups
from napkin.run.compile import Resources, allocations, resources_many
from napkin.run.worker import KernelError
from napkin.schedule import specialised

Runner = Callable[..., Any]


@nk.diagram("a b, b c -> a c")
def product(A: Any, B: Any) -> Any:
    return nk.contract(A, B, over="b")


@nk.diagram("a b, c b, c -> a c")
def linear(A: Any, B: Any, bias: Any) -> Any:
    return nk.gelu(nk.contract(A, B, over="b") + bias)


@nk.diagram("h a b, h b c, h a c -> h a c")
def residual(A: Any, B: Any, R: Any) -> Any:
    return nk.contract(A, B, over="b") + R


@nk.diagram("a b, b c, b c -> a c, a c")
def pair(A: Any, B: Any, G: Any) -> Any:
    """Two sums, of one reading and of another each."""
    left, right = nk.contract(A, B, over="b"), nk.contract(A, G, over="b")
    return left * right, nk.cast(left - right, "fp32")


@nk.diagram("a b, b c, b c -> a c")
def swish(A: Any, B: Any, G: Any) -> Any:
    """With functions that Gluon lacks."""
    gate = nk.silu(nk.contract(A, B, over="b"))
    return gate * nk.maximum(nk.contract(A, G, over="b"), 0.0)


@nk.diagram("a b d, b d c -> a c")
def over_two(A: Any, B: Any) -> Any:
    return nk.contract(A, B, over="b d")


@nk.diagram("a g b:fp8, c g b:fp8, a g:fp32, c g:fp32 -> a c")
def scaled_fp8(A: Any, B: Any, SA: Any, SB: Any) -> Any:
    return nk.contract(nk.contract(A, B, over="b"), SA, SB, over="g")


@nk.diagram("a b:fp8, c b:fp8, c -> a c")
def narrow(A: Any, B: Any, bias: Any) -> Any:
    return nk.contract(A, B, over="b") + bias


@nk.diagram("a g b, g b c, g c -> a c")
def gated(A: Any, B: Any, S: Any) -> Any:
    """What is added of each product is neither linear in it nor scaled."""
    return nk.reduce(nk.exp(nk.contract(A, B, over="b") * 0.1 + S), "sum", over="g")


@nk.diagram("a g b, g b c, c g -> a c")
def squared(A: Any, B: Any, S: Any) -> Any:
    """A sum multiplies the square out: its factor is read once."""
    return nk.contract(nk.contract(A, B, over="b"), S * S, over="g")


CASES: list[tuple[Diagram, dict[str, int], dict[str, int], str, int, int]] = [
    (product, {"a": 392, "b": 200, "c": 264}, {"a": 64, "c": 64, "b": 64}, "a", 2, 3),
    (product, {"a": 392, "b": 200, "c": 264}, {"a": 64, "c": 64, "b": 64}, "", 2, 3),
    (product, {"a": 392, "b": 64, "c": 264}, {"a": 128, "c": 32, "b": 64}, "", 2, 2),
    (linear, {"a": 328, "b": 136, "c": 72}, {"a": 64, "c": 64, "b": 32}, "a", 3, 2),
    (linear, {"a": 328, "b": 136, "c": 200}, {"a": 64, "c": 64, "b": 32}, "", 2, 2),
    (residual, {"h": 3, "a": 136, "b": 72, "c": 136}, {"h": 1, "a": 64, "c": 64, "b": 64},
     "a", 2, 2),
    (residual, {"h": 3, "a": 136, "b": 72, "c": 136}, {"h": 1, "a": 64, "c": 64, "b": 64},
     "", 2, 4),
    (pair, {"a": 136, "b": 200, "c": 136}, {"a": 64, "c": 64, "b": 64}, "a", 2, 2),
    (pair, {"a": 136, "b": 200, "c": 136}, {"a": 64, "c": 64, "b": 64}, "", 2, 2),
    (swish, {"a": 136, "b": 72, "c": 136}, {"a": 64, "c": 64, "b": 64}, "", 2, 2),
    (over_two, {"a": 136, "b": 5, "d": 64, "c": 72}, {"a": 64, "c": 64, "b": 1, "d": 64}, "", 2, 3),
    (squared, {"a": 200, "g": 3, "b": 64, "c": 72}, {"a": 64, "c": 64, "g": 1, "b": 64}, "a", 2, 2),
    (scaled_fp8, {"a": 200, "g": 5, "b": 64, "c": 144}, {"a": 64, "c": 64, "g": 1, "b": 64},
     "a", 2, 3),
    (narrow, {"a": 328, "b": 2064, "c": 208}, {"a": 64, "c": 128, "b": 128}, "a", 3, 2),
    (gated, {"a": 200, "g": 3, "b": 64, "c": 136}, {"a": 64, "c": 64, "g": 1, "b": 64}, "a", 2, 2),
]  # fmt: skip

PROGRAMS = 3
"""Blocks of a launch: each has several groups, some one less than others."""


@cache
def kernel_of(diagram: Diagram, sizes: tuple[tuple[str, int], ...]) -> PlannedKernel:
    """The one kernel of a diagram, which several tests need."""
    (k,) = nk.derive(diagram, on="h100", sizes=dict(sizes), dtype="bf16").kernels
    return k


def cta_of_tiles(
    diagram: Diagram,
    sizes: Mapping[str, int],
    tiles: Mapping[str, int],
    axis: str,
    groups: int,
    stages: int,
    rows: int = 0,
) -> tuple[PlannedKernel, SpecialisedCta]:
    """The kernel of a diagram, and a warp-specialised CTA of groups of these tiles."""
    long = {a: n * 16 if a in "ac" else n for a, n in sizes.items()}
    k = kernel_of(diagram, tuple(long.items()))
    schedule = specialised(tiles, groups, axis, stages, persistent=PROGRAMS, swizzle=rows)
    program = build(k.choice.kernel, schedule, 2)
    assert why_not(program) == ""
    return k, SpecialisedCta(program)


def off(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize(("diagram", "sizes", "tiles", "axis", "groups", "stages"), CASES)
def test_values_and_bytes(
    ran: Runner,
    diagram: Diagram,
    sizes: dict[str, int],
    tiles: dict[str, int],
    axis: str,
    groups: int,
    stages: int,
) -> None:
    k, cta = cta_of_tiles(diagram, sizes, tiles, axis, groups, stages)
    found, wanted, moved = ran(k, cta, diagram, sizes)
    for f, w in zip(found, wanted, strict=True):
        assert off(f, w) < 1e-2
    choice = replace(k.choice, schedule=cta.program.schedule)
    predicted = replace(k, choice=choice).bytes_at(sizes)
    assert moved == {(k.binding[t], way): n for (t, way), n in predicted.items()}


def test_groups_in_blocks_of_rows(ran: Runner) -> None:
    diagram, sizes, tiles, *_ = CASES[0]
    for axis in ("a", ""):
        k, cta = cta_of_tiles(diagram, sizes, tiles, axis, 2, 2, rows=4)
        found, wanted, _ = ran(k, cta, diagram, sizes)
        assert off(found[0], wanted[0]) < 1e-2


def broken(cta: SpecialisedCta, statement: str, instead: str = "pass") -> str:
    text = f"{HEAD}\n\n{write_cta(cta).source}"
    assert statement in text
    return text.replace(statement, instead)


def test_warpgroups_that_do_not_wait_for_their_turn_show(
    ran: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warpgroups, "PATIENCE", 0.3)
    diagram, sizes, tiles, axis, groups, stages = CASES[1]
    k, cta = cta_of_tiles(diagram, sizes, tiles, axis, groups, stages)
    text = broken(cta, "mbarrier.wait(order.index(warpgroup), rounds % 2)")
    try:
        found, wanted, _ = ran(k, cta, diagram, sizes, text)
    except KernelError:
        return
    assert not off(found[0], wanted[0]) < 1e-2


@pytest.mark.parametrize("case", [0, 1])
def test_a_place_given_back_before_its_product_is_done_shows(
    ran: Runner, monkeypatch: pytest.MonkeyPatch, case: int
) -> None:
    monkeypatch.setattr(warpgroups, "PATIENCE", 0.3)
    diagram, sizes, tiles, axis, groups, _ = CASES[case]
    k, cta = cta_of_tiles(diagram, sizes, tiles, axis, groups, 2)
    name = write_cta(cta).source.split(" = warpgroup_mma_wait(1")[0].split()[-1]
    text = broken(cta, f"{name} = warpgroup_mma_wait(1, [{name}])")
    text = text.replace("if 0 < b_start:\n                mbarrier.arrive(free.index((turns - 1)",
                        "if True:\n                mbarrier.arrive(free.index(turns")  # fmt: skip
    try:
        found, wanted, _ = ran(k, cta, diagram, sizes, text)
    except KernelError:
        return
    assert not off(found[0], wanted[0]) < 1e-2


@pytest.mark.parametrize(
    ("tiles", "axis", "says"),
    [
        ({"a": 32, "c": 64, "b": 64}, "a", "a group has 32 rows, not a multiple of 64"),
        ({"a": 64, "c": 64, "b": 64}, "c", "c is not that of the rows"),
    ],
)
def test_what_runs_in_no_band_is_said(tiles: dict[str, int], axis: str, says: str) -> None:
    sizes = {"a": 4096, "b": 4096, "c": 4096}
    (k,) = nk.derive(product, on="h100", sizes=sizes, dtype="bf16").kernels
    assert why_not(build(k.choice.kernel, specialised(tiles, 2, axis))) == says


@nk.diagram("a b:fp8, b c:fp8 -> a c")
def across(A: Any, B: Any) -> Any:
    return nk.contract(A, B, over="b")


@pytest.mark.parametrize(
    ("diagram", "axis", "says"),
    [
        (across, "a", "operands of 8 bits do not lie along what is summed"),
        (narrow, "", "one warpgroup computes while another multiplies only side by side"),
    ],
)
def test_what_tensor_cores_take_of_8_bits(diagram: Diagram, axis: str, says: str) -> None:
    k = kernel_of(diagram, (("a", 4096), ("b", 4096), ("c", 4096)))
    program = build(k.choice.kernel, specialised({"a": 64, "c": 64, "b": 128}, 2, axis))
    assert why_not(program) == says


def test_sums_of_8_bits_go_on_in_float32(ran: Runner) -> None:
    """Each chunk's product begins from nothing, and its place is free as soon as it is made."""
    diagram, sizes, tiles, *_ = CASES[-2]
    k, cta = cta_of_tiles(diagram, sizes, tiles, "a", 2, 2)
    text = write_cta(cta).source
    assert "use_acc=False" in text
    assert "[16, 128, 32]" in text
    made = text.index("warpgroup_mma_wait(0")
    assert made < text.index("mbarrier.arrive(free") < text.index(" + A_B")
    early = broken(cta, "A_B_2 = warpgroup_mma_wait(0, [A_B_2])")
    with pytest.raises(KernelError):
        ran(k, cta, diagram, sizes, early)


@pytest.mark.parametrize("diagram", [scaled_fp8, narrow])
def test_products_of_8_bits_spill_nothing(diagram: Diagram) -> None:
    sizes = {"a": 4096, "b": 128, "c": 4096, "g": 56}
    sizes = sizes if diagram is scaled_fp8 else {"a": 4096, "b": 7168, "c": 4096}
    plan = nk.derive(diagram, on="h100", sizes=sizes, dtype="bf16")
    (k,) = plan.launched.kernels
    assert k.schedule.warpgroups
    (taken,) = resources_many([job_of(k, plan.sizes, "sm_90")])
    assert isinstance(taken, Resources)
    assert taken.spilled == 0
    assert k.operand_bytes < taken.shared_bytes <= k.shared_bytes < k.operand_bytes + 2048


def test_a_group_past_the_end_stores_nothing(ran: Runner) -> None:
    """The second of two groups has no row."""
    sizes = {"a": 40, "b": 64, "c": 72}
    k, cta = cta_of_tiles(product, sizes, {"a": 64, "c": 64, "b": 64}, "a", 2, 2)
    found, wanted, moved = ran(k, cta, product, sizes)
    assert off(found[0], wanted[0]) < 1e-2
    assert moved[product.outputs[0].name, "write"] == 2 * math.prod((40, 72))


@nk.diagram("a b, b h c -> a h c")
def heads(A: Any, B: Any) -> Any:
    return nk.contract(A, B, over="b")


def test_several_axes_within_the_rows_of_an_operand_make_no_matrix() -> None:
    sizes = {"a": 4096, "b": 1024, "h": 12, "c": 64}
    plan = nk.derive(heads, on="h100", sizes=sizes, dtype="bf16")
    kernel = plan.kernels[0].choice.kernel
    tiles = {"a": 64, "b": 64, "h": 2, "c": 64}
    program = build(kernel, specialised(tiles, 2, "a"))
    assert why_not(program) == "several axes lie inside the rows of an operand"
    assert why_not(build(kernel, specialised({**tiles, "h": 1}, 2, "a"))) == ""
    assert plan.launched.tiles["h"] == 1


def test_kernels_of_one_plan_have_functions_of_their_own() -> None:
    @nk.diagram("a b, b c, c d, d e -> a e")
    def g(A: Any, B: Any, D: Any, E: Any) -> Any:
        h = nk.gelu(nk.contract(A, B, over="b"))
        h_rows = nk.gelu(nk.contract(h, D, over="c"))
        return nk.contract(h_rows, E, over="d")

    plan = nk.derive(g, on="h100", sizes=dict.fromkeys("abcde", 8192), dtype="bf16")
    assert [k.schedule.warpgroups > 0 for k in plan.launched.kernels] == [True] * 3
    names = re.findall(r"^def (\w+)", plan.warpgroups, re.MULTILINE)
    assert len(names) == len(set(names)) == 3 * 3 + 1  # and the function of gelu


@pytest.mark.parametrize("name", ["async_load", "sigmoid", "warpgroup_mma", "gl"])
def test_a_diagram_named_as_what_the_file_has(name: str) -> None:
    @nk.diagram("a b, b c -> a c", name=name)
    def named(A: Any, B: Any) -> Any:
        return nk.contract(A, B, over="b")

    plan = nk.derive(named, on="h100", sizes={"a": 4096, "b": 4096, "c": 4096}, dtype="bf16")
    assert plan.launched.kernels[0].schedule.warpgroups
    assert f"def {name}_kernel(" in plan.warpgroups


@nk.diagram("a b, b c -> a c")
def wide(A: Any, B: Any) -> Any:
    return nk.cast(nk.contract(A, B, over="b"), "fp32")


@nk.diagram("a b, b c, a c -> a c")
def added(A: Any, B: Any, R: Any) -> Any:
    return nk.contract(A, B, over="b") + R


@pytest.mark.parametrize("diagram", [wide, added, product])
def test_shared_memory_is_at_most_as_estimated(diagram: Diagram) -> None:
    """Also where tiles come and go by addresses, with strides of 1."""
    plan = nk.derive(diagram, on="h100", sizes={"a": 8192, "b": 1024, "c": 8192}, dtype="bf16")
    assert plan.launched is not plan
    (k,) = plan.launched.kernels
    (taken,) = allocations([job_of(k, plan.sizes, "sm_90")])
    assert isinstance(taken, int)
    assert k.operand_bytes < taken <= k.shared_bytes < k.operand_bytes + 512


@nk.diagram("a b, b c -> a c", sizes={"a": 4096, "b": 4096, "c": 4096})
def eighth(A: Any, B: Any) -> Any:
    return nk.cast(nk.contract(A, B, over="b"), "fp8")


def test_results_of_8_bits() -> None:
    plan = nk.derive(eighth, on="h100")
    assert plan.launched is not plan
    verdict = plan.check(sizes={"a": 300, "b": 136, "c": 264}, resources=False)
    verdict.raise_if_wrong()
    assert "eighth, warpgroups" in str(verdict)
