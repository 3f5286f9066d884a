"""Backward passes of attention and of neighborhoods, beside those of cuDNN and of FlexAttention.

    python docs/measurements/bench_gradients.py [attention] [windows] [TEXT ...]

Each row is `torch.autograd.grad` of one call of `napkin.torch`, of cuDNN's attention and of
FlexAttention as `torch.compile` makes it, where these have it, taken in turns with a cold L2
(`napkin.measure.timing`). The device waits long enough before each run that what Python takes is no
part of the time; `called` is the time with it, from a device that has nothing to do. A kind that is
deterministic adds nothing up in memory. Errors of dQ, dK and dV are those of one head by float64,
by relative norm, and operations of attention are 2.5 times the forward's, half of them where it is
causal. Those of neighborhoods count the keys in the windows alone; beside stands the forward.

A TEXT chooses the rows that it is in.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from bench_functions import WINDOWS, backend, draw, off, tried
from heading import heading
from torch.nn.attention import SDPBackend
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

import napkin.torch as nkt
from napkin.measure.timing import interleaved

SHAPES = [(4, 16, 4096, 128), (1, 16, 16384, 128), (4, 32, 4096, 64), (16, 16, 1024, 128)]
WIDE, GROUPED, LONG = (2, 16, 4096, 256), (4, 32, 4096, 128), (1, 16, 32768, 128)
"""Batch, heads, tokens, head size."""

HEADS, SEEN = 8, 1024
"""Heads of keys of `GROUPED`, and the keys that a query of `LONG` sees."""

LEAD = 1_500_000
"""Clocks that the device waits before each run, about 0.8 ms."""

FLEX: Any = torch.compile(flex_attention, dynamic=False)

Call = Callable[[], Any]


def called(call: Call, runs: int = 12) -> float:
    """Microseconds of a call, the median, from a device that has nothing to do."""
    found: list[float] = []
    for i in range(runs + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        if i >= 3:
            found.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(found)


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    """Where nothing is added up in memory."""
    torch.utils.deterministic.fill_uninitialized_memory = False  # pyright: ignore
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def backward(of: Call, inputs: Sequence[torch.Tensor], cotangent: torch.Tensor) -> Call:
    """The backward pass of one call."""
    return partial(torch.autograd.grad, of(), inputs, cotangent, retain_graph=True)


def surely(call: Call) -> Any:
    """A call that adds nothing up in memory."""
    with deterministic():
        return call()


def exactly(arrays: Sequence[torch.Tensor], seen: torch.Tensor | None) -> Sequence[torch.Tensor]:
    """The gradients of the first head by float64, of queries, keys, values and the cotangent."""
    *own, cotangent = (t[:1, :1].detach().double() for t in arrays)
    q, k, v = (t.requires_grad_() for t in own)
    scores = q @ k.mT * q.shape[-1] ** -0.5
    masked = scores if seen is None else scores.masked_fill(~seen, -torch.inf)
    return torch.autograd.grad(masked.softmax(-1) @ v, (q, k, v), cotangent)


def attended(what: str, shape: tuple[int, ...], causal: bool, heads: int, window: int = 0) -> None:
    """A row of attention, over a `window` of the last keys where there is one."""
    b, h, s, d = shape
    inputs = [draw(b, n, s, d).requires_grad_() for n in (h, heads, heads)]
    cotangent, grouped = draw(*shape), heads < h
    block = seen = None
    torch._dynamo.reset()  # it gives up after so many shapes
    if causal:
        block = blocks(s, window or s)
        at = torch.arange(s, device="cuda")
        seen = at[:, None] >= at
        seen &= at[:, None] - at < (window or s)
    how: dict[str, Any] = {"is_causal": causal, "enable_gqa": grouped}
    calls: dict[str, Call] = {"napkin": partial(nkt.attention, *inputs, **how)}
    if window:
        # Neighborhoods have heads behind tokens.
        tokens = [t.transpose(1, 2) for t in inputs]
        calls = {"napkin": lambda: nkt.na1d(*tokens, window, is_causal=True).transpose(1, 2)}
    else:
        calls["cuDNN"] = partial(backend, SDPBackend.CUDNN_ATTENTION, *inputs, **how)
    calls["flex"] = partial(FLEX, *inputs, block_mask=block, enable_gqa=grouped)
    made = dict[str, Call]()
    for name, call in calls.items():
        with contextlib.suppress(*[Exception] * (name != "napkin")):
            made[name] = backward(call, inputs, cotangent)
            made[name]()
    made["deterministic"] = partial(surely, made["napkin"])
    pairs = 1.0 * s * s if not causal else window * s if window else s * s / 2
    # One head of grouped ones has no gradient of its own.
    wanted = None if grouped or s > 16384 else exactly([*inputs, cotangent], seen)
    row(what, made, 10 * b * h * d * pairs, wanted)


def blocks(size: int, window: int) -> BlockMask:
    """The blocks of a causal mask over the last keys."""
    return create_block_mask(lambda b, h, q, k: (q >= k) & (q - k < window), None, None, size, size)


def row(
    what: str, calls: dict[str, Call], work: float, wanted: Sequence[torch.Tensor] | None
) -> None:
    """One line: times and rates, the others' times over napkin's, and errors."""
    times = {k: s.median for k, s in interleaved(calls, 0.3, LEAD).items()}
    parts = [f"{k} {us:9.1f} us {work / us / 1e6:5.0f}" for k, us in times.items()]
    ratios = [f"{us / times['napkin']:.2f}x {k}" for k, us in times.items() if k != "napkin"]
    apart = [f"{k} {called(c):.0f}" for k, c in calls.items()]
    said = ""
    if wanted is not None:
        errors = {k: [off(a[:1, :1], b) for a, b in zip(c(), wanted, strict=True)]
                  for k, c in calls.items()}  # fmt: skip
        said = "; ".join(f"{k} {' '.join(f'{e:.1e}' for e in own)}" for k, own in errors.items())
    print(f"{what:34s} TFLOP/s  {' | '.join(parts)} | {', '.join(ratios)}\n"
          f"{'':34s} called {', '.join(apart)} us; errors {said or 'not computed'}",
          flush=True)  # fmt: skip


def neighborhood(what: str, layout: tuple[int, ...], heads: int, window: Any, stride: Any) -> None:
    """A row of neighborhoods, of 128 values a head."""
    of = {1: nkt.na1d, 2: nkt.na2d, 3: nkt.na3d}[len(layout)]
    inputs = [draw(1, *layout, heads, 128).requires_grad_() for _ in range(3)]
    forward = partial(of, *inputs, window, stride)
    made = {"napkin": backward(forward, inputs, draw(1, *layout, heads, 128))}
    made["deterministic"] = partial(surely, made["napkin"])
    with torch.no_grad():
        ahead = interleaved({"forward": forward}, 0.2, LEAD)["forward"].median
    times = {k: s.median for k, s in interleaved(made, 0.3, LEAD).items()}
    pairs = heads * 128 * torch.Size(layout).numel() * torch.Size(window).numel()
    rate, own = 4 * pairs / ahead / 1e6, {k: 10 * pairs / us / 1e6 for k, us in times.items()}
    parts = [f"{k} {times[k]:9.1f} us {r:5.0f} ({r / rate:.2f})" for k, r in own.items()]
    print(f"{what:34s} TFLOP/s  forward {ahead:9.1f} us {rate:5.0f} | {' | '.join(parts)}",
          flush=True)  # fmt: skip


def rows() -> Iterator[tuple[str, str, Call]]:
    """The kind and the name of every row, and what prints it."""
    for shape in SHAPES:
        for causal in (False, True):
            what = f"{' '.join(map(str, shape))} {'causal' if causal else 'full'}"
            yield "attention", what, partial(attended, what, shape, causal, shape[1])
    more = [
        ("full", WIDE, False, WIDE[1], 0),
        (f"causal, {HEADS} heads of keys", GROUPED, True, HEADS, 0),
        (f"last {SEEN}", LONG, True, LONG[1], SEEN),
    ]
    for kind, shape, *how in more:
        what = f"{' '.join(map(str, shape))} {kind}"
        yield "attention", what, partial(attended, what, shape, *how)
    for name, (layout, heads, window, strides) in WINDOWS.items():
        for stride in strides:
            what = f"{name} {layout} {window} stride {stride}"
            yield "windows", what, partial(neighborhood, what, layout, heads, window, stride)


def main() -> None:
    """Times the rows that are asked for."""
    print(heading("others' times over napkin's; of neighborhoods the rate over the forward's"))
    kinds = {"attention", "windows"}.intersection(sys.argv[1:])
    texts = [a for a in sys.argv[1:] if a not in kinds]
    for kind, what, call in rows():
        chosen = not kinds or kind in kinds
        if chosen and (not texts or any(t in what for t in texts)):
            tried(what, call)


if __name__ == "__main__":
    main()
