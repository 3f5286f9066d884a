"""Costs over several levels of memory: facts 23 to 30 and 35."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import sympy

from napkin.bound.multilevel import Program, canonical, memory_symbol, rate_symbol, weighted
from napkin.bound.symbolic_cost import Cost
from napkin.bound.whole_tiles import levels
from napkin.count.alignment import alignments, combined
from napkin.count.traffic import transfers
from napkin.derive.kernel import Kernel
from napkin.diagram.library import load
from napkin.ir.symbols import MEMORY as M
from napkin.ir.symbols import group_symbol, size_symbol
from napkin.machine.chain import Chain, chains, joined
from napkin.machine.machines import Machine, machine

a, b, c, d, q, x = map(size_symbol, "abcdqx")
SHIPPED = Path(__file__).parents[2] / "napkin" / "machine"


def attention() -> Kernel:
    return load("attention").stream("x").group("q").kernel


def matmul() -> Kernel:
    return load("matmul").stream("b").group("a", "c").kernel


SIZES = {
    "attention": {"q": 2**20, "x": 2**20, "d": 128},
    "matmul": {"a": 2**16, "b": 2**16, "c": 2**16},
}
KERNELS = {"attention": attention, "matmul": matmul}


def sixteen(kernel: Kernel) -> dict[str, Fraction]:
    return {t.tensor: Fraction(2) for t in transfers(kernel)}


def program(name: str) -> Program:
    kernel = KERNELS[name]()
    return Program(kernel, SIZES[name], sixteen(kernel))


def least(
    transfers: Any, operations: Any, unknown: Any, rate: float, peak: float, large: Sequence[Any]
) -> Any:
    """The least tile, axis or memory that is bound by compute, where H / K <= Hdot / Kdot
    (arXiv 2412.03317, App. B.1).

    Args:
        transfers: H in values, in symbols.
        operations: K.
        rate: values/s of the pipe.
        peak: operations/s.
        large: symbols that grow without limit.
    """
    ratio = sympy.expand(transfers / operations)
    for symbol in large:
        ratio = sympy.limit(ratio, symbol, sympy.oo)
    root = sympy.Dummy("root", positive=True)  # the unknown's square root, so that M**-1/2 is plain
    (found,) = sympy.solve(ratio.subs(unknown, root**2) - sympy.Float(rate / peak, 30), root)
    return found**2


def only(on: Machine, *names: str) -> Chain:
    (found,) = chains(on, names)
    return found


def bound(name: str, memory: float) -> float:
    """H* of one level in bytes, for `memory` bytes."""
    cost = Cost(KERNELS[name]())
    numbers = {size_symbol(k): n for k, n in SIZES[name].items()}
    return 2 * float(cost.bound.subs({**numbers, M: memory / 2}))


def test_fact_23_balance_of_dram() -> None:
    h100, cost = machine("h100"), Cost(matmul())
    pipe = h100.pipe("dram", "l2").rate.value / 2  # values of FP16 per second
    assert pipe == 1.675e12
    assert round(least(cost.bound, cost.flops, b, pipe, h100.peak("fp16"), [M])) == 295
    # 681.5 with 4096 per clock and SM at 1.83 GHz; 680.9 with the 989 TFLOP/s of the paper
    for peak, kib in ((h100.peak("fp16"), 681.5), (989e12, 680.9)):
        room = least(cost.bound, cost.flops, M, pipe, peak, [b])
        assert float(2 * room / 1024) == pytest.approx(kib, abs=0.05)


def test_fact_24_balance_of_l2() -> None:
    h100, cost = machine("h100"), Cost(matmul())
    pipe = h100.pipe("l2", "shared").rate.value / 2
    assert pipe == 6e12
    peak = h100.peak("fp16")
    assert round(least(cost.bound, cost.flops, b, pipe, peak, [M])) == 82
    room = h100.registers_per_sm / 2
    assert room == 256 * 1024 / 2
    held = cost.bound.subs(M, room)
    assert round(least(held, cost.flops, b, pipe, peak, [])) == 151


@pytest.mark.parametrize(
    ("name", "ratios"), [("attention", {0: 2, 1: 4}), ("matmul", {0: 2, 0.5: 2.83})]
)
def test_fact_25_halving_bytes(name: str, ratios: dict[float, float]) -> None:
    kernel = KERNELS[name]()
    item = sympy.Symbol("item", positive=True)
    terms = canonical(Cost(kernel), {t.tensor: item for t in transfers(kernel)})
    assert {float(t.beta) for t in terms} == set(ratios)
    for t in terms:
        assert sympy.simplify(t.alpha / t.alpha.subs(item, 1) - item ** (1 + t.beta)) == 0
        halved = t.alpha.subs(item, 2) / t.alpha.subs(item, 1)
        assert float(halved) == pytest.approx(ratios[float(t.beta)], abs=2e-3)


def test_fact_25_mixed_types_are_other_coefficients() -> None:
    wide, narrow = sympy.symbols("q_wide q_narrow", positive=True)
    item = {"Q": wide, "K": narrow, "V": narrow, "O": wide}
    constant, falling = canonical(Cost(attention()), item)
    assert sympy.simplify(constant.alpha - 2 * wide * q * d) == 0
    assert sympy.simplify(falling.alpha - 4 * wide * narrow * q * x * d**2) == 0


@pytest.mark.parametrize("name", KERNELS)
def test_fact_26_the_cost_is_the_weighted_sum(name: str) -> None:
    h100 = machine("h100")
    # Rooms that fall inwards, so that each level's own memory binds it.
    chain = only(h100, "dram", "shared", "fragments")
    found = program(name).solve(chain)
    wanted = [s.read * bound(name, s.memory) for s in chain.stages]
    assert found.seconds == pytest.approx(wanted, rel=1e-6)
    assert found.total == pytest.approx(sum(wanted), rel=1e-6)
    assert len(chain.stages) == len(chain.names) - 1  # the top costs nothing
    # the same in symbols
    form = weighted(Cost(KERNELS[name]()).terms, [s.name for s in chain.stages])
    numbers = {size_symbol(k): n for k, n in SIZES[name].items()}
    for s in chain.stages:
        numbers |= {memory_symbol(s.name): s.memory / 2, rate_symbol(s.name): 1 / s.read / 2}
    assert float(form.subs(numbers)) == pytest.approx(found.total, rel=1e-6)


@pytest.mark.parametrize("name", KERNELS)
def test_fact_27_a_cache_holds_what_its_children_do(name: str) -> None:
    h100 = machine("h100")
    chain = only(h100, "dram", "l2", "shared")
    l2, shared = chain.stages
    assert (l2.memory, l2.children) == (132 * h100.shared_per_block, 132)
    found = program(name).solve(chain)
    assert sum(found.bytes[0]) == pytest.approx(bound(name, 132 * shared.memory), rel=1e-5)
    assert sum(found.bytes[1]) == pytest.approx(bound(name, shared.memory), rel=1e-6)
    # the condition: no more groups inside one of the cache than it has children
    outer, inner = (sympy.prod(t.values()) for t in found.tiles)
    assert float(outer / inner) == pytest.approx(132, rel=1e-5)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("siblings", [2, 4, 8])
def test_fact_28_cross_transfer(name: str, siblings: int) -> None:
    plain = only(machine("h100_pcie"), "dram", "shared")
    (own,) = plain.stages
    link = own.read * 0.6
    chain = joined(plain, "shared", siblings, link)
    family, inner = chain.stages
    many, one = bound(name, siblings * own.memory), bound(name, own.memory)
    wanted = own.read * many + link * (one - many)
    # (Hdot_hc^-1 - Hdot_xc^-1) H*(N M) + Hdot_xc^-1 H*(M)
    inserted = family.read * bound(name, family.memory) + inner.read * bound(name, inner.memory)
    assert inserted == pytest.approx(wanted, rel=1e-12)
    made = program(name)
    found = made.solve(chain)
    reads_only = chain.stages[0].write * found.bytes[0][1] + inner.write * found.bytes[1][1]
    writes = found.bytes[1][1]
    assert found.total - reads_only == pytest.approx(wanted - own.read * writes, rel=1e-5)
    # the saving, term by term
    terms = canonical(Cost(made.kernel), made.item)
    numbers = {size_symbol(k): n for k, n in SIZES[name].items()}
    saved = sum(
        float(t.alpha.subs(numbers) * own.memory**-t.beta * (1 - siblings**-t.beta)) for t in terms
    )
    assert made.solve(plain).total - found.total == pytest.approx(
        (own.read - link) * saved, rel=1e-4
    )


def test_fact_29_the_best_cluster(tmp_path: Path) -> None:
    """Luo et al. (arXiv 2402.13499) measured 2.04 TB/s into SMs, 3.27 and 2.65 TB/s between two and
    four of them, on an H800 PCIe."""
    text = (SHIPPED / "h100_pcie.toml").read_text()
    assert text.count("value = 2e12") == 1
    h800 = tmp_path / "h800.toml"
    h800.write_text(text.replace("value = 2e12", "value = 2.04e12"))
    on = machine(h800)
    assert [p.rate.value for p in on.links("shared").values()] == [3.27e12, 2.65e12]
    shares = {"attention": {2: 0.188, 4: 0.173}, "matmul": {2: 0.110, 4: 0.115}}
    for name, wanted in shares.items():
        made = program(name)
        plain = made.solve(only(on, "dram", "shared"))
        _, falling = canonical(Cost(made.kernel), made.item)
        numbers = {size_symbol(k): n for k, n in SIZES[name].items()}
        for siblings, share in wanted.items():
            clustered = made.solve(only(on, "dram", f"cluster:{siblings}", "shared"))
            stage = only(on, "dram", "shared").stages[0]
            term = stage.read * float(falling.alpha.subs(numbers) * stage.memory**-falling.beta)
            assert (plain.total - clustered.total) / term == pytest.approx(share, abs=5e-4)
        best = max(wanted, key=lambda n: wanted[n])
        chosen = levels(made, on, ("dram", "cluster", "shared")).chain
        assert chosen.names == ("dram", f"cluster:{best}", "shared")


def test_fact_30_marks_combine() -> None:
    item = {"Q": Fraction(1), "K": Fraction(1), "V": Fraction(2), "O": Fraction(2)}
    found = alignments(attention(), only(machine("h100"), "dram", "l2", "shared"), item)
    on_d = {m.multiple: m.reason for m in found if m.axis == "d"}
    assert "128-byte granules of Q, K, 1 B a value" in on_d[128]
    assert "128-byte granules of V, O, 2 B a value" in on_d[64]
    assert any(m.multiple == 32 and "reduce 32 bytes" in m.reason for m in found if m.axis == "d")
    assert combined(found)["d"] == 128
    with_fp8 = combined(m for m in found if m.axis == "d" and m.multiple != 128)
    assert with_fp8["d"] == 64  # none of the others asks for so much


FEWEST = {"a100_80": 153, "a100_40": 201, "h100": 295, "h200": 206}


@pytest.mark.parametrize("name", FEWEST)
def test_fact_35_fewest_query_rows(name: str) -> None:
    on, cost = machine(name), Cost(attention())
    rate = on.dram_rate / 2  # FP16 values per second
    rows = least(cost.H.total, cost.flops, group_symbol("q"), rate, on.peak("fp16"), [x])
    assert round(rows) == FEWEST[name]
