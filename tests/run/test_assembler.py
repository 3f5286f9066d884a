"""Machine code that reads what nothing wrote is found, and not made."""

from __future__ import annotations

import os

import pytest
from triton import knobs
from triton.backends.nvidia import compiler

from napkin.measure.calls import Scaled
from napkin.plan.derive import derive
from napkin.run import _compiler
from napkin.run import assembler as assembling
from napkin.run.assembler import assembler, right
from napkin.run.compile import Job, Resources, specialise
from napkin.run.machine_code import unwritten


def test_a_register_that_no_path_writes() -> None:
    text = """
        ULDC UR4, c[0x0][0x258]
        S2UR UR16, SR_CgaCtaId
        UIADD3 UR9, UP0, UR9, 0x40, URZ
        UIADD3.X UR10, UR10, -0x7fffffe0, URZ, UP0, !UPT
        @P0 BRA 0x60
        ULDC.64 UR20, c[0x0][0x208]
        LDG.E R2, desc[UR20][R4.64]
        HGMMA.64x32x16.F32.BF16 R152, R40, gdesc[UR36].tnspB, R152
        UIADD3.64 UR10, UR20, 0x2, URZ
        UIADD3 UR5, UR11, 0x1, URZ
        @!P1 BRA 0x30
        EXIT
        UIADD3 UR6, UR7, 0x1, URZ
    """
    code = [(16 * i, line.strip()) for i, line in enumerate(text.strip().splitlines())]
    # UR10 comes from the turn before, UR20 from one of two ways; UR7 is past the end.
    assert unwritten(code) == ["UIADD3 UR9, UP0, UR9, 0x40, URZ"]
    assert unwritten([]) == []


def test_predicates_are_no_registers() -> None:
    code = [
        (0, "ULDC UR4, c[0x0][0x258]"),
        (16, "UISETP.NE.AND UP0, UPT, UR4, UR5, UPT"),
        (32, "ULOP3.LUT UP1, UR6, UR4, 0x1, URZ, 0xc0, !UPT"),
        (48, "IMAD R4, R5, UR6, RZ"),
        (64, "R2UR UR8, R4"),
        (80, "BRA.U UP0, 0x70"),
        (96, "UMOV UR12, UR8"),
        (112, "UIADD3 UR13, UR5, 0x1, URZ"),
        (128, "MOV.SPILL R8, UR75"),
    ]
    assert unwritten(code) == [code[1][1], code[7][1]]


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton as before 3.9, which takes the assembler for Blackwell for nothing else."""
    monkeypatch.delenv("TRITON_PTXAS_PATH", raising=False)
    compiler.get_ptxas_version.cache_clear()  # other tests may have asked it of the newer Triton
    monkeypatch.setattr(
        compiler,
        "get_ptxas",
        lambda arch: knobs.nvidia.ptxas_blackwell if arch >= 100 else knobs.nvidia.ptxas,
    )


@pytest.mark.usefixtures("older")
def test_hopper_has_the_latest_assembler() -> None:
    own, latest = knobs.nvidia.ptxas, knobs.nvidia.ptxas_blackwell
    assert own.path != latest.path
    before = compiler.get_ptxas_version(90)
    with assembler(90):
        assert compiler.get_ptxas(90).path == latest.path
        # What it makes is kept apart from what the other made.
        assert compiler.get_ptxas_version(90) != before
    assert compiler.get_ptxas(90).path == own.path
    assert compiler.get_ptxas_version(90) == before
    assert "TRITON_PTXAS_PATH" not in os.environ


@pytest.mark.usefixtures("older")
def test_code_of_an_older_assembler_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    latest = tuple(map(int, knobs.nvidia.ptxas_blackwell.version.split(".")))
    assert latest >= assembling.RIGHT
    monkeypatch.setattr(assembling, "RIGHT", latest)
    assert right(80)
    assert right(100)
    assert not right(90)
    with assembler(90):
        assert right(90)
    monkeypatch.setenv("TRITON_PTXAS_PATH", knobs.nvidia.ptxas.path)
    with assembler(90):
        assert not right(90)


@pytest.mark.usefixtures("older")
def test_other_devices_and_chosen_assemblers_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    own = knobs.nvidia.ptxas.path
    with assembler(80):
        assert compiler.get_ptxas(80).path == own
    monkeypatch.setenv("TRITON_PTXAS_PATH", own)
    with assembler(90):
        assert compiler.get_ptxas(90).path == own


@pytest.mark.usefixtures("older")
def test_after_an_error_the_assembler_is_the_same() -> None:
    own = knobs.nvidia.ptxas.path
    with pytest.raises(ZeroDivisionError), assembler(90):
        _ = 1 / 0
    assert compiler.get_ptxas(90).path == own
    assert "TRITON_PTXAS_PATH" not in os.environ


def test_a_loop_with_many_products_is_assembled_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of 33 and 57 values go without descriptors, and addresses take every register."""
    sizes = {"b": 1, "g": 1, "r": 1, "q": 512, "x": 65536, "d": 64, "e": 64}
    recipe = derive(Scaled().diagram(), "h100", sizes, "bf16").recipe
    sizes = recipe.full(sizes | {"q": 300, "d": 33, "e": 57})
    step = recipe.steps[0]
    schedule = step.entry.schedule
    strides: dict[str, list[int]] = {}
    for tensor, axes in step.entry.axes_of.items():
        counts = [sizes[a] for a in axes]
        rows = [1]
        for n in reversed(counts[1:]):
            rows.insert(0, rows[0] * n)
        strides[step.binding[tensor]] = rows
    call = step.launch(sizes, {}, strides)
    assert not call.boxes
    own = {t: "*bf16" for t in ("Q", "K", "V")} | {t.name: f"*{t.dtype}" for t in recipe.stored}
    types = specialise(dict(call.scalars))
    pointers = {a: own[step.tensor(a, call)] for a in call.tensors}
    job = Job(
        recipe.source, step.entry.name, {**types.signature, **pointers}, call.constexprs,
        num_warps=schedule.warps, num_stages=schedule.stages,
        divisible={*types.divisible, *pointers}, ones=types.ones,
    )  # fmt: skip
    asked: list[int] = []
    monkeypatch.setattr(_compiler, "right", asked.append)  # so that what it makes is looked at
    found = _compiler.handle(job)
    assert isinstance(found, Resources)
    assert found.registers
    assert not found.note
    assert asked == [90]
