"""What Nsight Compute and compute-sanitizer print, read."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.diagram.library import load
from napkin.measure import counters
from napkin.measure.check import decisive
from napkin.measure.counters import (
    Arrays,
    Counters,
    Profile,
    counted,
    parse,
    profile_of,
    read_off_each,
)
from napkin.measure.sanitize import judged, sanitized
from napkin.plan.plan import Plan

HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    '"Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)


def row(launch: int, kernel: str, metric: str, value: str, unit: str = "byte") -> str:
    return (
        f'"{launch}","77","python","host","{kernel}","1","7","(128, 1, 1)","(32, 1, 1)","0","9.0",'
        f'"Command line profiler metrics","{metric}","{unit}","{value}"'
    )


def printed(*plans: Plan, scale: float = 1.0) -> str:
    """What ncu prints where every kernel reads `scale` times what is predicted."""
    lines = ["==PROF== Connected to process 77", "==PROF== Profiling", HEAD]
    for i, k in enumerate(k for plan in plans for k in plan.kernels):
        read = sum(n for (_, d), n in k.bytes.items() if str(d) == "read")
        written = sum(n for (_, d), n in k.bytes.items() if str(d) == "write")
        values = (read * scale, written, 5e6, 0)
        lines += [
            row(i, k.name, m, f"{round(v):,}")
            for m, v in zip(counters.METRICS, values, strict=True)
        ]
    return "\n".join([*lines, "==PROF== Disconnected from process 77"])


def read_off(plan: Plan, profile: Profile, arrays: Arrays | None = None) -> Counters:
    """The counters of a plan that ran alone."""
    return read_off_each([plan], profile, [arrays])[0]


@pytest.fixture(scope="module")
def plan() -> Plan:
    return nk.derive(load("mlp"))


def test_launches_in_order_with_units() -> None:
    text = "\n".join(
        [HEAD, row(0, "f", "a.sum", "1,234"), row(1, "f", "a.sum", "2.5", "Mbyte"),
         row(0, "f", "b.sum", "n/a"), row(1, "f", "b.sum", "7")]
    )  # fmt: skip
    assert parse(text) == [("f", {"a.sum": 1234}), ("f", {"a.sum": 2.5e6, "b.sum": 7})]
    assert parse("==ERROR== nothing") == []


def test_reads_are_those_predicted(plan: Plan) -> None:
    assert len(plan.kernels) == 2
    found = read_off(plan, profile_of(printed(plan), "", 0))
    assert found.ok
    assert not found.note
    assert [r.kernel for r in found.rows] == [k.name for k in plan.kernels]
    assert all(r.read == r.read_predicted and r.from_memory == 5e6 for r in found.rows)
    assert read_off(plan, profile_of(printed(plan, scale=1.009), "", 0)).ok
    assert not read_off(plan, profile_of(printed(plan, scale=1.02), "", 0)).ok
    assert not read_off(plan, profile_of(printed(plan, scale=0.98), "", 0)).ok


def test_memory_stands_beside_its_model(plan: Plan) -> None:
    """Inputs, weights and what is kept between kernels cross once where L2 holds them; weights
    that it does not hold are read again by every wave of groups."""
    small = nk.derive(load("mlp"), sizes={"n": 1024, "d": 1024, "f": 4096, "e": 1024})
    for of, again in ((small, False), (plan, True)):
        rows = read_off(of, profile_of(printed(of), "", 0)).rows
        for k, r in zip(of.kernels, rows, strict=True):
            once = {"read": 0, "write": 0}
            for t in k.H.parts:
                once[t.direction] += 2 * math.prod(k.choice.sizes[a] for a in t.axes)
            assert r.to_memory_predicted == once["write"]
            assert (r.from_memory_predicted > once["read"]) == again
            assert again or r.from_memory_predicted == once["read"]
            assert (r.from_memory, r.to_memory) == (5_000_000, 0)
            assert k.choice.time.pipes["DRAM bandwidth"] > 0


def test_several_plans_in_one_process(plan: Plan) -> None:
    one = nk.derive(load("softmax"))
    both, nothing = [plan, one], [None, None]
    first, second = read_off_each(both, profile_of(printed(*both), "", 0), nothing)
    assert [r.kernel for r in first.rows] == [k.name for k in plan.kernels]
    assert [r.kernel for r in second.rows] == ["softmax"]
    assert first.ok
    assert second.ok
    # What ends early leaves those before it.
    cut = profile_of(printed(plan), "RuntimeError: out of memory", 1)
    first, second = read_off_each(both, cut, nothing)
    assert len(first.rows) == 2
    assert "0 kernels of 1 were counted" in second.note
    assert "out of memory" in second.note
    # Kernels of another plan are none of this.
    found, _ = read_off_each([one, plan], profile_of(printed(*both), "", 0), nothing)
    assert "where softmax was to run" in found.note


def test_which_keys_are_read_depends_on_the_documents() -> None:
    plan = nk.derive(load("document_attention"))
    (k,) = plan.kernels
    lengths = np.array([4000, 90, 6, 0, 0, 0, 0, 0])
    wanted = k.bytes_at(k.choice.sizes, {"N": lengths})
    assert wanted != k.bytes
    (row,) = read_off(plan, profile_of(printed(plan), "", 0), {"N": lengths}).rows
    assert row.read_requested == sum(n for (_, d), n in wanted.items() if str(d) == "read")
    crossing = k.crossing_at(k.choice.sizes, {"N": lengths})
    assert row.read_predicted == sum(n for (_, d), n in crossing.items() if str(d) == "read")
    assert not row.ok


def test_where_counters_may_not_be_read(plan: Plan) -> None:
    said = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"
    found = read_off(plan, profile_of(said, "", 1))
    assert found.ok
    assert "NVreg_RestrictProfilingToAdminUsers=0" in found.note
    found = read_off(plan, profile_of(printed(plan).replace('"0","77"', '"1","77"'), "", 0))
    assert "1 kernels of 2 were counted" in found.note
    found = read_off(plan, profile_of(printed(plan).replace("dram__bytes_read", "other"), "", 0))
    assert found.note == "this device has no counter dram__bytes_read.sum"
    found = read_off(plan, profile_of("", "RuntimeError: CUDA out of memory", 1))
    assert "RuntimeError: CUDA out of memory" in found.note


def test_where_the_tools_are_missing(plan: Plan, monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", "")
    assert counted(plan, ["true"]).note.startswith("Nsight Compute (ncu) is not on the PATH")
    tools = sanitized("h100", 0)
    assert [t.status for t in tools] == ["skipped", "skipped"]
    assert "compute-sanitizer is not on the PATH" in tools[0].note


BANNER = "========= COMPUTE-SANITIZER\n"
OUT_OF_BOUNDS = f"""{BANNER}========= Invalid __global__ read of size 16 bytes
=========     at matmul+0x8f0 in kernel_3f2a.py:61
=========     by thread (96,0,0) in block (3,0,0)
=========     Address 0x7f4c5be00400 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f4c5bd00000 of size 1,049,600 bytes
=========
========= ERROR SUMMARY: 3 errors
"""
RACE = f"""{BANNER}========= Error: Race reported between Write access at softmax+0x4a0 in k.py:33
=========     and Read access at softmax+0x530 in k.py:33 [512 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
TRACEBACK = f"""{BANNER}Traceback (most recent call last):
  File "driver.py", line 61, in <module>
torch.AcceleratorError: CUDA error: an illegal memory access was encountered
========= ERROR SUMMARY: 0 errors
"""


@pytest.mark.parametrize(
    ("tool", "text", "status", "is_", "said"),
    [
        ("memcheck", BANNER + "========= ERROR SUMMARY: 0 errors", 0, "ok", "0 errors"),
        ("memcheck", OUT_OF_BOUNDS, 0, "wrong", "read of size 16 bytes at matmul+0x8f0 in kernel"),
        ("memcheck", TRACEBACK, 1, "wrong", "an illegal memory access was encountered"),
        ("memcheck", BANNER + "Segmentation fault\n========= ERROR SUMMARY: 0 errors", 139,
         "wrong", "status 139: Segmentation fault"),
        ("racecheck", RACE, 0, "wrong", "Error: Race reported between Write access at softmax"),
        ("racecheck", RACE.replace("Error:", "Warning:").replace("1 error, 0 w", "0 errors, 1 w"),
         0, "ok", "(0 errors, 1 warnings)"),
        ("racecheck", BANNER + "========= RACECHECK SUMMARY: 0 hazards displayed "
         "(0 errors, 0 warnings)", 0, "ok", "0 hazards"),
        ("racecheck", BANNER + "========= Error: Target application terminated before first "
         "instrumented API call", 1, "refused", "Target application terminated before first"),
        ("memcheck", BANNER + "========= Internal Sanitizer Error: The Sanitizer encountered an "
         "error when reading device memory", 0, "refused", "Internal Sanitizer Error"),
        ("memcheck", "compute-sanitizer: error while loading shared libraries", 127, "refused",
         "status 127: compute-sanitizer: error while loading"),
        ("memcheck", "", 0, "refused", "it said nothing"),
    ],
)  # fmt: skip
def test_what_compute_sanitizer_says(
    tool: str, text: str, status: int, is_: str, said: str
) -> None:
    found = judged(tool, text, status)
    assert found.status == is_
    assert said in found.note


def test_the_values_that_counters_are_given() -> None:
    """Reals that say which keys are visited are among them: bytes depend on these."""

    @nk.diagram("q d, x d, n -> q d", sizes={"q": 512, "x": 512, "d": 64, "n": 16})
    def seen_up_to_the_largest(Q, K, N):
        keys = nk.causal("q", "x", at=nk.argmax(N, over="n") * 9)
        S = nk.contract(Q, K, over="d")
        return nk.contract(nk.softmax(S, over="x", keys=keys), K, over="x")

    assert decisive(nk.derive(seen_up_to_the_largest)) == {"N"}
    assert decisive(nk.derive(load("causal_attention"))) == set()
