"""A machine file for the GPU that is there: what a copy, products and exponentials reach on it.

The figures that CUDA reports and those that are measured replace the ones of the shipped machine
that is nearest; each source says which it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from napkin.machine.hardware import Figure, Level, Machine, Pipe

COPIED = 2**30
"""Bytes of the array that is copied: many times any L2."""

SIDE = 8192
"""Rows, columns and depth of the products."""

ITERATIONS, THREADS = 2048, 2**20
"""Exponentials that a thread computes one after another, and threads."""

PRODUCTS = {
    "fp16": "tensor_fp16",
    "bf16": "tensor_bf16",
    "tf32": "tensor_tf32",
    "fp32": "fma_fp32",
}
"""The types of the products, with the compute pipe of each."""


@dataclass(frozen=True)
class Facts:
    """What CUDA reports of a device: bytes and counts."""

    name: str
    arch: str
    sms: int
    memory: int
    l2: int


def measured(
    base: Machine, facts: Facts, seconds: Mapping[str, float], about: Mapping[str, str], date: str
) -> Machine:
    """The machine `base` with the figures of a device.

    Args:
        seconds: of a call that copies ("copy"), multiplies (each of `PRODUCTS`) and computes
            exponentials ("exp"); what is missing stays as it is.
        about: the device and versions, for the sources.
    """
    told = ", ".join(f"{k} {v}" for k, v in about.items() if v and k not in {"device", "arch"})
    where = f"on {facts.name} ({told}), {date}"
    share = facts.sms / base.sms

    def reported(value: float, unit: str, what: str) -> Figure:
        return Figure(float(value), unit, f"{what} as CUDA reports it {where}")

    chip = {**base.chip, "sms": reported(facts.sms, "1", "multiprocessors")}
    compute = dict(base.compute)
    each = facts.sms * base.clock
    for dtype, unit in PRODUCTS.items():
        if dtype in seconds and unit in compute:
            rate = 2 * SIDE**3 / seconds[dtype]
            how = f"torch.matmul of {SIDE} x {SIDE} x {SIDE} {dtype}, {rate / 1e12:.4g} TFLOP/s"
            compute[unit] = _per_clock(rate / each, how, where)
    if "exp" in seconds:
        rate = THREADS * ITERATIONS / seconds["exp"]
        how = f"{ITERATIONS} exponentials in each of {THREADS} threads, {rate / 1e12:.4g}e12/s"
        compute["special"] = _per_clock(rate / each, how, where)

    def level(one: Level) -> Level:
        known = {"dram": (facts.memory, "memory"), "l2": (facts.l2, "L2 cache")}
        if one.name in known:
            size, what = known[one.name]
            one = replace(one, capacity=reported(size, "B", what))
        if one.per == "sm":
            return replace(one, count=facts.sms)
        if one.counted is not None and share != 1:
            count = max(round(one.count * share), 1)
            return replace(one, count=count, counted=_scaled(one.counted, count, facts.sms))
        return one

    outer = base.path("dram", "shared")[0]
    inside = _inside(base)

    def pipe(one: Pipe) -> Pipe:
        if one == outer and "copy" in seconds:
            rate = 2 * COPIED / seconds["copy"]
            source = f"measured: a copy of {COPIED} B, read and written, {where}"
            return replace(one, rate=Figure(_short(rate), "B/s", source))
        if one.target in inside and share != 1:
            rate = _short(one.rate.value * share)
            return replace(one, rate=_scaled(one.rate, rate, facts.sms))
        return one

    return replace(
        base,
        title=f"{facts.name}, measured",
        arch=facts.arch,
        chip=chip,
        compute=compute,
        levels=tuple(map(level, base.levels)),
        pipes=tuple(map(pipe, base.pipes)),
    )


def _inside(machine: Machine) -> set[str]:
    """The levels of multiprocessors, whose rates grow with their number."""
    return {"shared"} | {p.target for p in machine.pipes if p.source in {"shared", "registers"}}


def _per_clock(value: float, how: str, where: str) -> Figure:
    source = f"measured: {how}, over chip.sms x chip.clock, {where}"
    return Figure(_short(value), "op/clk/SM", source)


def _scaled(figure: Figure, value: float, sms: int) -> Figure:
    return Figure(float(value), figure.unit, f"{figure.source}; scaled to {sms} SMs")


def _short(value: float) -> float:
    return float(f"{value:.4g}")


# --- on the device --------------------------------------------------------------------------------


def measure() -> Machine:
    """The machine of the current CUDA device; `device.require` has found one."""
    import datetime

    import torch

    from napkin.measure.device import described
    from napkin.measure.timing import interleaved
    from napkin.torch.device_machine import shipped

    found: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
    about = described()
    facts = Facts(
        found.name, about["arch"], found.multi_processor_count, found.total_memory,
        found.L2_cache_size,
    )  # fmt: skip
    seconds = {name: 1e-6 * s.median for name, s in interleaved(_calls(), seconds=1.0).items()}
    return measured(shipped(), facts, seconds, about, datetime.date.today().isoformat())


def _calls() -> dict[str, Any]:
    """What is timed, by name."""
    import torch

    from napkin.measure._exponentials import exponentials

    calls: dict[str, Any] = {}
    source = torch.empty(COPIED // 4, dtype=torch.int32, device="cuda")
    target = torch.empty_like(source)
    calls["copy"] = lambda: target.copy_(source)
    types = {"fp16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32}
    for name, dtype in {**types, "fp32": torch.float32}.items():
        a, b = (torch.randn(SIDE, SIDE, device="cuda").to(dtype) for _ in range(2))
        out = torch.empty(SIDE, SIDE, device="cuda", dtype=dtype)
        calls[name] = _product(a, b, out, name == "tf32")
    values = torch.rand(THREADS, device="cuda")
    calls["exp"] = lambda: exponentials(values, ITERATIONS)
    return calls


def _product(a: Any, b: Any, out: Any, tf32: bool) -> Any:
    import torch

    def call() -> None:
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = tf32
        try:
            torch.matmul(a, b, out=out)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before

    return call
