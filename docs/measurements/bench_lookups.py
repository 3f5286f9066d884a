"""Times the gradients of tables that are read at places, beside torch's backward of an embedding.

Tokens are random; with "hot", a quarter of them are among 100. Every row is one round of calls
taken in turns, each with a cold L2 (`napkin.measure.timing`). Errors are relative norms against
float32 sums. The last row is of a mixture of experts: all four gradients, against float64.

    python docs/measurements/bench_lookups.py
"""

from typing import Any

import torch
from heading import heading

import napkin as nk
from napkin.diagram.library import load
from napkin.measure.timing import interleaved

SHAPES = (
    (128256, 4, 2048, 4096, False),
    (128256, 4, 2048, 4096, True),
    (32000, 4, 4096, 2048, False),
    (128256, 4, 8192, 4096, True),
)
"""Places, batch, tokens, features, and whether some tokens are hot."""


@nk.diagram("v d, b t:int -> b t d")
def embedding(W: Any, P: Any) -> Any:
    """Rows of a table."""
    return nk.take(W, v=P)


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """The relative error by norm."""
    return ((found.to(wanted.dtype) - wanted).norm() / wanted.norm()).item()


def row(v: int, b: int, t: int, d: int, hot: bool) -> None:
    """The times of one shape."""
    plan = nk.derive(
        nk.gradient(embedding, wrt="W"), on="h200", sizes={"v": v, "b": b, "t": t, "d": d}
    )
    dO = torch.randn(b, t, d, device="cuda").bfloat16()
    P = torch.randint(0, v, (b, t), device="cuda")
    if hot:
        P[:, : t // 4] = torch.randint(0, 100, (b, t // 4), device="cuda")
    W, own = torch.empty(v, d, device="cuda", dtype=torch.bfloat16), P.int()
    wanted = torch.zeros(v, d, device="cuda").index_add_(0, P.flatten(), dO.flatten(0, 1).float())
    off = error(plan(W, own, dO), wanted)
    found = interleaved(
        {
            "napkin": plan.bound_call(W, own, dO),
            "torch": lambda: torch.ops.aten.embedding_dense_backward(dO, P, v, -1, False),
            "fill": lambda: W.zero_(),
        }
    )
    predicted = 1e6 * sum(k.choice.time.seconds for k in plan.kernels)
    times = "  ".join(f"{name} {s.median:7.1f}" for name, s in found.items())
    shape = f"{v} {b} {t} {d}{' hot' if hot else ''}"
    print(f"{shape:26} {times}  predicted {predicted:7.1f}  error {off:.1e}", flush=True)


def experts() -> None:
    """All gradients of `grouped_experts`, each row of a block a choice of a token."""
    f = load("grouped_experts")
    s, plan = f.sizes, nk.derive(nk.gradient(f), on="h200")
    real = {"X": "t m", "U": "e m f", "W": "e f n", "G": "t k", "dO": "t n"}
    given = {
        x: (0.1 * torch.randn([s[a] for a in axes.split()], device="cuda")).bfloat16()
        for x, axes in real.items()
    }
    slots = torch.randperm(s["b"] * s["s"], device="cuda")[: s["t"] * s["k"]]
    rows = torch.randint(0, s["t"], (s["b"] * s["s"],), device="cuda")
    rows[slots] = torch.arange(s["t"], device="cuda").repeat_interleave(s["k"])
    slots = slots.view(s["t"], s["k"])
    places = {
        "I": rows.view(s["b"], s["s"]),
        "E": torch.randint(0, s["e"], (s["b"],), device="cuda"),
        "B": slots // s["s"],
        "P": slots % s["s"],
    }

    def forward(*x: torch.Tensor) -> torch.Tensor:
        X, U, W, G = x
        inner = torch.einsum("bsm,bmf->bsf", X[places["I"]], U[places["E"]])
        Y = torch.einsum("bsf,bfn->bsn", torch.nn.functional.gelu(inner), W[places["E"]])
        return (G[..., None] * Y[places["B"], places["P"]]).sum(1)

    def backward(dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
        x = [given[n].to(dtype).requires_grad_() for n in "XUWG"]
        return torch.autograd.grad(forward(*x), x, given["dO"].to(dtype))

    names = plan.diagram.input_names
    arrays = [given[n] if n in given else places[n].int() for n in names]
    pairs = zip(plan(*arrays), backward(torch.float64), strict=True)
    errors = " ".join(f"{error(a, b):.1e}" for a, b in pairs)
    torch.cuda.empty_cache()
    found = interleaved(
        {
            "napkin": plan.bound_call(*arrays),
            "torch, forward and backward": lambda: backward(torch.bfloat16),
        }
    )
    predicted = 1e6 * sum(k.choice.time.seconds for k in plan.kernels)
    times = "  ".join(f"{name} {x.median:7.1f}" for name, x in found.items())
    print(f"grouped_experts  {times}  predicted {predicted:7.1f}  errors {errors}")


def main() -> None:
    """A row for each shape, and one of a mixture of experts."""
    torch.manual_seed(0)
    print(heading("bf16; us"))
    for shape in SHAPES:
        row(*shape)
    experts()


if __name__ == "__main__":
    main()
