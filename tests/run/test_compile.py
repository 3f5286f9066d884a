"""Kernels compiled ahead of time: what they occupy, and what is refused."""

import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from napkin.errors import InputError
from napkin.run import compile as compiling
from napkin.run.arrays import Descriptor, DeviceArray, empty, to_device
from napkin.run.compile import (
    Job,
    Resources,
    allocations,
    compilations,
    resources_many,
    specialise,
)
from napkin.run.worker import CompileError

KERNELS = Path(__file__).parent / "kernels"
ROOT = Path(__file__).parents[2]


def matmul_job(tiles: tuple[int, int, int], arch: str, warps: int, stages: int) -> Job:
    A, B, C = (empty((256, 256), dtype) for dtype in ("bf16", "bf16", "fp32"))
    sizes = dict.fromkeys("MNK", 256)
    strides = {f"stride_{name}": 256 for name in ("am", "bk", "cm")}
    ones = {f"stride_{name}": 1 for name in ("ak", "bn", "cn")}
    types = specialise({"A": A, "B": B, "C": C, **sizes, **strides, **ones})
    return Job(
        KERNELS / "matmul.py",
        "matmul",
        types.signature,
        dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), tiles, strict=True)),
        arch,
        warps,
        stages,
        types.divisible,
        types.ones,
    )


def attention_job(tiles: tuple[int, int, int], arch: str, warps: int, stages: int) -> Job:
    arrays = {name: empty((256, tiles[2]), "bf16") for name in ("Q", "K", "V", "Out")}
    sizes = {"scale": 0.125, "q": 256, "x": 256, "d": tiles[2]}
    strides = {f"stride_{name}": tiles[2] for name in ("qq", "kx", "vx", "oq")}
    ones = {f"stride_{name}d": 1 for name in "qkvo"}
    types = specialise({**arrays, **sizes, **strides, **ones})
    return Job(
        KERNELS / "attention.py",
        "attention",
        types.signature,
        dict(zip(("BLOCK_Q", "BLOCK_X", "BLOCK_D"), tiles, strict=True)),
        arch,
        warps,
        stages,
        types.divisible,
        types.ones,
    )


def succeed(jobs: list[Job]) -> list[Resources]:
    found = resources_many(jobs)
    good = [each for each in found if isinstance(each, Resources)]
    assert len(good) == len(jobs), found
    return good


def test_shared_memory_of_a_matrix_product() -> None:
    configs = [((128, 128, 64), 4, 3), ((64, 64, 32), 4, 4), ((128, 128, 32), 8, 2)]
    jobs = [matmul_job(tiles, arch, w, s) for tiles, w, s in configs for arch in ("sm_80", "sm_90")]
    for job, found in zip(jobs, succeed(jobs), strict=True):
        m, n, k = (int(str(size)) for size in job.constexprs.values())
        ring = 2 * (m * k + k * n)
        if job.arch == "sm_90":
            assert found.shared_bytes == max(ring * job.num_stages, 4 * m * n)
        else:
            assert found.shared_bytes == ring * max(job.num_stages - 1, 1)


def test_shared_memory_of_attention() -> None:
    configs = [((128, 64, 128), 8, 2), ((64, 64, 64), 4, 3)]
    jobs = [
        attention_job(tiles, arch, w, s) for tiles, w, s in configs for arch in ("sm_80", "sm_90")
    ]
    for job, found in zip(jobs, succeed(jobs), strict=True):
        q, x, d = (int(str(size)) for size in job.constexprs.values())
        slots = job.num_stages if job.arch == "sm_90" else max(job.num_stages - 1, 1)
        assert found.shared_bytes == 2 * (q * d + 2 * x * d * slots)


def test_every_architecture_gives_every_figure() -> None:
    jobs = [matmul_job((64, 64, 32), arch, 4, 3) for arch in ("sm_80", "sm_90", "sm_100")]
    for job, found in zip(jobs, succeed(jobs), strict=True):
        assert found.registers is not None
        assert 16 < found.registers < 256
        assert (found.spills, found.spilled, found.note) == (0, 0, "")
        assert (found.tensor_memory_columns > 0) == (job.arch == "sm_100")


def test_too_many_values_for_the_registers_spill() -> None:
    found = succeed([attention_job((128, 64, 128), "sm_80", 4, 1)])[0]
    assert found.registers == 255
    assert found.spills is not None
    assert found.spills > 100
    # Every word of that stack is written once or more.
    assert found.spilled is not None
    assert found.spilled >= 0.9 * found.spills


def test_what_the_launcher_knows_changes_the_figure() -> None:
    job = matmul_job((64, 64, 32), "sm_90", 4, 3)
    (blind,) = succeed([replace(job, divisible=(), ones=())])
    assert blind.shared_bytes != succeed([job])[0].shared_bytes


def test_specialise_mirrors_the_launcher() -> None:
    whole = np.zeros((4, 8), np.float32)
    types = specialise(
        {
            "A": to_device(whole, "bf16"),
            "B": DeviceArray(whole[:, 1:], "fp32"),
            "D": Descriptor(to_device(whole, "fp16"), (4, 8)),
            "n": 48,
            "m": 7,
            "zero": 0,
            "one": 1,
            "big": 2**33,
            "scale": 16.0,
            "flag": True,
        }
    )
    assert types.signature == {
        "A": "*bf16",
        "B": "*fp32",
        "D": "tensordesc<fp16[4, 8]>",
        "n": "i32",
        "m": "i32",
        "zero": "i32",
        "one": "i32",
        "big": "i64",
        "scale": "fp32",
        "flag": "u1",
    }
    assert types.divisible == {"A", "n", "zero", "big"}
    assert types.ones == {"one"}


def test_specialise_agrees_with_triton() -> None:
    pytest.importorskip("triton")
    from triton.backends.compiler import BaseBackend
    from triton.runtime.jit import mangle_type, native_specialize_impl

    values = {"n": 48, "m": 7, "zero": 0, "one": 1, "big": 2**33, "scale": 16.0, "flag": True}
    types = specialise(values)
    for name, value in values.items():
        kind, key = native_specialize_impl(BaseBackend, value, False, True, True)
        assert (kind == "constexpr") == (name in types.ones)
        assert mangle_type(value) == types.signature[name]
        if kind != "constexpr":
            assert (key == "D") == (name in types.divisible)


@pytest.mark.parametrize("kernel", ["copy_device", "copy_host"])
def test_descriptors_compile(kernel: str) -> None:
    X, out = empty((64, 64), "bf16"), empty((64, 64), "bf16")
    block = (16, 64)
    args = (
        {"X": X, "Out": out, "rows": 64, "cols": 64}
        if kernel == "copy_device"
        else {"X": Descriptor(X, block), "Out": Descriptor(out, block)}
    )
    types = specialise(args)
    blocks = {"BLOCK_R": 16, "BLOCK_C": 64}
    place = KERNELS / "descriptors.py"
    (found,) = succeed([Job(place, kernel, types.signature, blocks, divisible=types.divisible)])
    assert found.shared_bytes >= 2 * 16 * 64


WRONG = """import triton
import triton.language as tl


@triton.jit
def inner(x):
    return tl.dot(x, x)


@triton.jit
def thin(X, n: tl.constexpr):
    i = tl.arange(0, n)
    x = tl.load(X + i[:, None] * n + i[None, :])
    tl.store(X + i, tl.sum(inner(x), 0))


@triton.jit
def unknown(X, n: tl.constexpr):
    tl.store(X, missing + n)
"""


def test_what_the_compiler_refuses_is_one_line() -> None:
    thin, unknown = resources_many(
        [
            Job(WRONG, "thin", {"X": "*bf16"}, {"n": 8}, "sm_80"),
            Job(WRONG, "unknown", {"X": "*bf16"}, {"n": 8}),
        ]
    )
    assert str(thin) == (
        "kernel thin does not compile for sm_80: AssertionError: Input shapes should have M >= 1, "
        "N >= 1 and K >= 16, at: tl.store(X + i, tl.sum(inner(x), 0))"
    )
    assert isinstance(unknown, CompileError)
    assert "missing is not defined" in str(unknown)
    assert str(unknown).endswith(", at: tl.store(X, missing + n)")


@pytest.mark.parametrize(
    ("signature", "constexprs", "arch", "message"),
    [
        ({"X": "*bf16"}, {"n": 8}, "sm90", "cannot compile for 'sm90'; did you mean 'sm_90'"),
        ({"X": "*bf16"}, {}, "sm_90", "needs a type or a value for n"),
        ({"X": "*bf16", "n": "constexpr"}, {}, "sm_90", "a value for the compile-time 'n'"),
        ({"Y": "*bf16"}, {"n": 8}, "sm_90", "has no parameter 'Y'"),
    ],
)
def test_a_wrong_call_is_refused(
    signature: dict[str, str], constexprs: dict[str, object], arch: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        resources_many([Job(WRONG, "thin", signature, constexprs, arch)])


def test_without_cuobjdump_the_registers_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    from napkin.run import _compiler

    def absent(*args: object, **more: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(_compiler.subprocess, "run", absent)
    registers, spills, note = _compiler._usage(Path("kernel.cubin"))
    assert (registers, spills) == (None, None)
    assert "cuobjdump failed (FileNotFoundError)" in note


def test_a_listing_of_machine_code_that_fails_is_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """`cuobjdump` may print what a kernel uses, and then fail to list its instructions."""
    from napkin.run import _compiler

    tool = _compiler._tool

    def fails(name: str, *arguments: str | Path) -> str:
        if "--dump-sass" in arguments:
            raise subprocess.CalledProcessError(1, name)
        return tool(name, *arguments)

    monkeypatch.setattr(_compiler, "_tool", fails)
    monkeypatch.setattr(_compiler, "right", lambda _: False)
    types = dict(X="*fp32", Out="*fp32", rows="i32", cols="i32")
    job = Job(KERNELS / "descriptors.py", "copy_device", types, dict(BLOCK_R=8, BLOCK_C=16))
    found = _compiler.handle(compiling._read(job))
    assert isinstance(found, Resources)
    assert found.registers
    assert found.note == "machine code not checked: cuobjdump failed (CalledProcessError)"


def test_a_compilation_gives_shared_memory_alone() -> None:
    types = dict(X="*fp32", Out="*fp32", rows="i32", cols="i32")
    job = Job(KERNELS / "descriptors.py", "copy_device", types, dict(BLOCK_R=8, BLOCK_C=16))
    (whole,) = resources_many([job])
    assert isinstance(whole, Resources)
    assert compilations([job]) == allocations([job]) == [whole.shared_bytes]


def test_a_home_that_cannot_be_written_is_no_trouble() -> None:
    script = textwrap.dedent(f"""
        from pathlib import Path
        from napkin.run.compile import Job, resources_many
        kernels = Path({str(KERNELS)!r}) / "descriptors.py"
        types = dict(X="*fp32", Out="*fp32", rows="i32", cols="i32")
        blocks = dict(BLOCK_R=8, BLOCK_C=16)
        (found,) = resources_many([Job(kernels, "copy_device", types, blocks)])
        print(found.registers > 0)
    """)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TRITON")}
    environment |= {
        "HOME": "/dev/null/nowhere",
        "TRITON_INTERPRET": "1",  # the child compiles whatever its parent does
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "True", done.stderr


def test_allocated_bytes_are_kept_between_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Job] = []

    def answers(jobs: list[Job]) -> list[int | CompileError]:
        asked.extend(jobs)
        return [CompileError("no") if jobs[0].num_stages == 9 else 16 * jobs[0].num_warps]

    monkeypatch.setenv("NAPKIN_CACHE", str(tmp_path))
    monkeypatch.setattr(compiling, "_answers", answers)
    job = matmul_job((64, 64, 32), "sm_90", 4, 3)
    wrong = replace(job, num_stages=9)

    def again() -> list[object]:
        monkeypatch.setattr(compiling, "_allocated", {})  # as in a new process
        return [str(x) for x in allocations([job, wrong])]

    assert again() == again() == ["64", "no"]
    assert [j.num_stages for j in asked] == [3, 9, 9]  # what is refused is asked again
    for change in ({"num_warps": 8}, {"ones": ()}, {"constexprs": {}}, {"arch": "sm_80"}):
        before = len(asked)
        allocations([replace(job, **change)])
        assert len(asked) == before + 1, change
    for kept in (tmp_path / "allocations").iterdir():
        kept.write_text("6e1")
    before = len(asked)
    assert again() == ["64", "no"]
    assert len(asked) == before + 2  # what is not as it was written is asked again


def test_a_job_has_one_digest_in_all_processes() -> None:
    script = """
from tests.run.test_compile import attention_job
from napkin.run.compile import _digest, _read
print(_digest(_read(attention_job((64, 64, 64), "sm_90", 4, 2))))
"""
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            cwd=ROOT, capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(found) == 1
