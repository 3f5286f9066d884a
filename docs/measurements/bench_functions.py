"""Times the functions of napkin.torch on the GPU that is there, beside the libraries' own.

Every row is one round of calls taken in turns, each with a cold L2 (`napkin.measure.timing`). The
error is that of napkin's result against float32 on the same inputs, by relative norm.

    python docs/measurements/bench_functions.py [attention] [products] [rows] [decode] [windows]
"""

import importlib
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import problems
import torch
import torch.nn.functional as F  # noqa: N812
from heading import heading
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import napkin as nk
import napkin.torch as nkt
from napkin.measure.timing import interleaved

ATTENTION = [
    (1, 16, 16384, 128), (4, 16, 4096, 128), (16, 16, 1024, 128), (4, 32, 4096, 64),
    (4, 16, 4096, 96), (2, 16, 4096, 192), (2, 16, 4096, 256),
]  # fmt: skip
"""Batch, heads, tokens, head size."""

PRODUCTS = [(4096,) * 3, (8192,) * 3, (8192, 8192, 1024), (512, 8192, 8192), (64, 8192, 8192)]
"""Rows, columns, and what is summed."""

WINDOWS = {
    "1d": ((32768,), 1, (2048,), [(1,), (256,)]),
    "2d": ((256, 256), 24, (80, 80), [(1, 1), (16, 16)]),
    "3d": ((30, 48, 80), 24, (18, 24, 24), [(1, 1, 1), (2, 8, 8)]),
}
"""Layout, heads, window, strides."""

DECODE = [(32, 65536, 128), (32, 65536, 64), (8, 131072, 128)]
"""Heads, keys, head size; one query a head."""

flex = torch.compile(flex_attention, dynamic=False)


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def off(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Relative error by norm."""
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())


def backend(which: SDPBackend, *arrays: torch.Tensor, **how: Any) -> torch.Tensor:
    with sdpa_kernel(which):
        return F.scaled_dot_product_attention(*arrays, **how)


def tried(what: str, do: Callable[[], None]) -> None:
    """A problem that does not run leaves the others standing."""
    try:
        do()
    except Exception as e:
        print(f"{what}: {type(e).__name__}: {' '.join(str(e).split())[:300]}", flush=True)


def row(
    name: str, calls: Mapping[str, Callable[[], Any]], amount: float, unit: str, error: float
) -> None:
    """One line: the median of each call, the rate, and napkin's rate over the others'."""
    kept: dict[str, Callable[[], Any]] = {}
    for key, call in calls.items():
        try:
            call()
            torch.cuda.synchronize()
            kept[key] = call
        except Exception as e:  # what a library does not do is left out of the row
            print(f"  ({key}: {type(e).__name__}: {str(e).splitlines()[0][:80]})")
    times = {key: s.median for key, s in interleaved(kept).items()}
    ours = times["napkin"]
    parts = [f"{k} {us:9.1f} us {amount / us:7.1f}" for k, us in times.items()]
    ratios = [f"{us / ours:.2f}x {k}" for k, us in times.items() if k != "napkin"]
    print(f"{name:34s} {unit}  {' | '.join(parts)} | {', '.join(ratios)} | error {error:.1e}",
          flush=True)  # fmt: skip


def hopper_flash() -> Callable[..., Any] | None:
    """FlashAttention-3, where it is installed (`pip install fa3-fwd`)."""
    for module in ("fa3_fwd_interface", "flash_attn_interface"):
        try:
            return importlib.import_module(module).flash_attn_func
        except ImportError:
            continue
    return None


def attention() -> None:
    for shape in ATTENTION:
        for causal in (False, True):
            what = f"{' '.join(map(str, shape))} {'causal' if causal else 'full'}"
            tried(what, partial(attended, what, *shape, causal))


def attended(what: str, b: int, h: int, s: int, d: int, causal: bool) -> None:
    q, k, v = (draw(b, h, s, d) for _ in range(3))
    block = None
    torch._dynamo.reset()  # it gives up after so many shapes
    if causal:
        block = create_block_mask(lambda b, h, q, k: q >= k, None, None, s, s)
    start = time.perf_counter()
    found = nkt.attention(q, k, v, is_causal=causal)
    torch.cuda.synchronize()
    first = time.perf_counter() - start
    some = [t[:1, :1].float() for t in (q, k, v)]
    wanted = backend(SDPBackend.MATH, *some, is_causal=causal)
    calls = {
        "napkin": partial(nkt.attention, q, k, v, is_causal=causal),
        "cuDNN": partial(backend, SDPBackend.CUDNN_ATTENTION, q, k, v, is_causal=causal),
        "FA2": partial(backend, SDPBackend.FLASH_ATTENTION, q, k, v, is_causal=causal),
        "flex": partial(flex, q, k, v, block_mask=block),
    }
    if flash3 := hopper_flash():
        last = [t.transpose(1, 2).contiguous() for t in (q, k, v)]
        calls["FA3"] = partial(flash3, *last, causal=causal)
    flops = 4 * b * h * s * s * d / (2 if causal else 1)
    row(f"{what}, first {first:.1f} s", calls, flops / 1e6, "TFLOP/s", off(found[:1, :1], wanted))


def products() -> None:
    @nk.diagram("a b, b c -> a c")
    def matmul(A: Any, B: Any) -> Any:
        return nk.contract(A, B, over="b")

    @nk.diagram("a b, b c, c -> a c")
    def biased(A: Any, B: Any, C: Any) -> Any:
        return nk.gelu(nk.contract(A, B, over="b") + C)

    plain, gelu = nkt.compile(matmul), nkt.compile(biased)
    beside = torch.compile(lambda A, B, C: F.gelu(A @ B + C), dynamic=False)
    for a, c, b in PRODUCTS:
        A, B, C = draw(a, b), draw(b, c) / b**0.5, draw(c)
        calls = {"napkin": partial(plain, A, B), "cuBLAS": partial(torch.matmul, A, B)}
        error = off(plain(A, B), A.float() @ B.float())
        row(f"matmul {a} {b} {c}", calls, 2 * a * b * c / 1e6, "TFLOP/s", error)
        calls = {
            "napkin": partial(gelu, A, B, C), "torch.compile": partial(beside, A, B, C),
            "cuBLASLt (tanh)": partial(torch._addmm_activation, C, A, B, use_gelu=True),
            "cuBLAS alone": partial(torch.matmul, A, B),
        }  # fmt: skip
        error = off(gelu(A, B, C), F.gelu(A.float() @ B.float() + C.float()))
        row(f"with bias and gelu {a} {b} {c}", calls, 2 * a * b * c / 1e6, "TFLOP/s", error)


def rows() -> None:
    from diagrams.cross_entropy import cross_entropy
    from diagrams.layernorm import layernorm
    from diagrams.rmsnorm import rmsnorm
    from diagrams.softmax import softmax

    n, d = 16384, 8192
    X = draw(n, d)
    other = torch.empty_like(X)
    both = 2 * 2 * n * d / 1e6
    copy = {"napkin": lambda: other.copy_(X)}
    row(f"copy {n} {d} (torch)", copy, both, "TB/s", 0.0)
    G, B = draw(d), draw(d)
    f = nkt.compile(rmsnorm)
    wanted = F.rms_norm(X.float(), (d,), G.float(), 1e-5)
    calls = {"napkin": partial(f, X, G), "torch": lambda: F.rms_norm(X, (d,), G, 1e-5)}
    row(f"rmsnorm {n} {d}", calls, both, "TB/s", off(f(X, G), wanted))
    f2 = nkt.compile(layernorm)
    wanted = F.layer_norm(X.float(), (d,), G.float(), B.float(), 1e-5)
    calls = {"napkin": partial(f2, X, G, B), "torch": lambda: F.layer_norm(X, (d,), G, B, 1e-5)}
    row(f"layernorm {n} {d}", calls, both, "TB/s", off(f2(X, G, B), wanted))
    f3 = nkt.compile(softmax)
    calls = {"napkin": partial(f3, X), "torch": lambda: X.softmax(-1)}
    row(f"softmax {n} {d}", calls, both, "TB/s", off(f3(X), X.float().softmax(-1)))
    n, v = 8192, 128256
    L, T = draw(n, v), torch.randint(v, (n,), device="cuda", dtype=torch.int32)
    f4, long = nkt.compile(cross_entropy), T.long()
    calls = {
        "napkin": partial(f4, L, T),
        "torch": lambda: F.cross_entropy(L, long, reduction="none"),
    }
    wanted = F.cross_entropy(L[:256].float(), long[:256], reduction="none")
    row(f"cross entropy {n} {v}", calls, 2 * n * v / 1e6, "TB/s", off(f4(L, T)[:256], wanted))


def decode() -> None:
    """One query a head, beside a copy that moves as many bytes as the keys and values have."""
    f = nkt.compile(problems.heads())
    for h, x, d in DECODE:
        q, k, v = draw(h, 1, d), draw(h, x, d), draw(h, x, d)
        other = torch.empty_like(k)
        found = f(q, k, v)
        wanted = F.scaled_dot_product_attention(q.float(), k.float(), v.float())
        calls = {"napkin": partial(f, q, k, v), "copy": partial(other.copy_, k)}
        row(f"decode {h} {x} {d}", calls, 2 * 2 * h * x * d / 1e6, "TB/s", off(found, wanted))


def windows() -> None:
    natten = None
    try:
        import natten

        natten.allow_flex_compile()
    except ImportError:
        print("  (NATTEN is not installed)")
    for kind, (layout, heads, window, strides) in WINDOWS.items():
        ours = getattr(nkt, f"na{kind}")
        q, k, v = (draw(1, *layout, heads, 128) for _ in range(3))
        for stride in strides:
            start = time.perf_counter()
            found = ours(q, k, v, kernel_size=window, stride=stride)
            torch.cuda.synchronize()
            first = time.perf_counter() - start
            calls: dict[str, Callable[[], Any]] = {
                "napkin": partial(ours, q, k, v, kernel_size=window, stride=stride)
            }
            error = float("nan")
            if natten is not None:
                theirs = partial(
                    getattr(natten, f"na{kind}"), q, k, v, kernel_size=window, stride=stride,
                    backend="flex-fna", torch_compile=True,
                )  # fmt: skip
                calls["NATTEN flex"] = theirs
                error = off(found, theirs())
            tokens = q[..., 0, 0].numel()
            keys = 1
            for w in window:
                keys *= w
            flops = 4 * tokens * heads * keys * 128
            name = f"na{kind} s={'x'.join(map(str, stride))}, first {first:.1f} s"
            row(name, calls, flops / 1e6, "TFLOP/s", error)


if __name__ == "__main__":
    print(heading(), flush=True)
    every = {f.__name__: f for f in (attention, products, rows, decode, windows)}
    for chosen in sys.argv[1:] or every:
        print(f"\n{chosen}", flush=True)
        tried(chosen, every[chosen])
