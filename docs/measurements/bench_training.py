"""Two networks trained with napkin's kernels, beside torch's, from one run.

    python docs/measurements/bench_training.py [gpt] [dinat] [--steps N] [--seeds N] [--called]
        [--only gradients|times|losses] [--tiny]

A small language model on the project's own text (`gpt.py`), and a DiNAT-style network on images of
noisy waves (`networks.py`). In napkin's variants every kernel of the forward and the backward pass
is napkin's but for those of linear maps, convolutions, the embedding, means, and in the second
network sums of residuals, which are torch's. Weights and activations are bf16; AdamW moves a
float32 copy of the weights.

Three statements are computed, and the run fails where one does not hold. Gradients at the start are
off from float64 by no more than 1.5 times what torch's are. The loss on held-out batches falls.
Over all steps at which it is taken it differs from that of torch's eager run from the same seed by
less than torch's runs from different seeds do from each other, as a root mean square.

Step times are medians of steps taken in turns, as Python calls them and replayed as CUDA graphs,
which leave out what launches cost the processor; losses are those of replayed steps. With --called
there are no graphs. Memory is the most that a called step has allocated, with weights and
optimiser. With --tiny, the same on the CPU, a few steps in Triton's interpreter.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gpt
import torch
import torch.nn.functional as F  # noqa: N812
from bench_network import by_the_clock, off, said
from heading import heading
from networks import SWITCHES, DiNAT
from torch import nn

import napkin.torch as nkt
from napkin.measure.timing import interleaved

Batch = tuple[torch.Tensor, torch.Tensor]

FACTOR = 1.5
"""How much farther than torch's from float64 napkin's gradients may be."""

HELD = 2**31
"""The seed of held-out batches."""

torch._dynamo.config.recompile_limit = 64  # pyright: ignore[reportPrivateUsage]
# Beyond 8 shapes FlexAttention would hold all scores.


class Classified(nn.Module):
    """A network with its loss."""

    def __init__(self, network: nn.Module, loss: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.network, self.loss = network, loss

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.loss(self.network(x), target)


@dataclass(frozen=True)
class Words:
    """A language model, and rows of text in a batch."""

    how: gpt.GPT
    rows: int

    def made(self, name: str) -> nn.Module:
        """The variant of that name."""
        functions = {"napkin": gpt.NAPKIN, "liger": gpt.liger()}.get(name, gpt.TORCH)
        if functions is None:
            raise ModuleNotFoundError("liger_kernel is not installed")
        return self.how.made(functions)

    def batches(self, seed: int, device: str) -> Iterator[Batch]:
        """Rows from random places of the text, the last part of which is held out."""
        every, random = gpt.text(self.how.words).to(device), torch.Generator().manual_seed(seed)
        parts = (every[: -len(every) // 16], every[-len(every) // 16 :])
        words, length = parts[seed == HELD], self.how.length
        while True:
            starts = torch.randint(len(words) - length, (self.rows, 1), generator=random)
            row = words[starts.to(device) + torch.arange(length + 1, device=device)]
            yield row[:, :-1], row[:, 1:]

    def __str__(self) -> str:
        return f"{self.how}, {self.rows} rows"


@dataclass(frozen=True)
class Waves:
    """A classifier of waves, by their direction and length, and images in a batch."""

    how: DiNAT
    images: int
    kinds: int = 12
    noise: float = 2.0

    def made(self, name: str) -> nn.Module:
        """The variant of that name."""
        # FlexAttention has no backward pass on the CPU; there keys are gathered.
        torchs = "torch" if torch.get_default_device().type == "cuda" else "exact"
        switch = {"napkin": "all", "exact": "exact", "eager": torchs}[name]
        loss = nkt.cross_entropy if name == "napkin" else F.cross_entropy
        return Classified(self.how.made(SWITCHES[switch]), loss)

    def batches(self, seed: int, device: str) -> Iterator[Batch]:
        """Waves of random phases under noise."""
        random = torch.Generator(device).manual_seed(seed)
        at = torch.arange(self.how.image, device=device) / self.how.image
        while True:
            drawn = torch.rand(3, self.images, 1, 1, device=device, generator=random)
            turn, long = (self.kinds * drawn[:2]).long()
            angle = turn * (torch.pi / self.kinds)
            along = angle.cos() * at[:, None] + angle.sin() * at
            wave = torch.sin(2 * torch.pi * ((4 + long) * along + drawn[2]))[:, None]
            shape = (self.images, 3, *wave.shape[-2:])
            noise = torch.randn(shape, device=device, generator=random)
            yield wave + self.noise * noise, (turn * self.kinds + long).flatten()

    def __str__(self) -> str:
        return f"{self.how}, {self.images} images"


Problem = Words | Waves

PROBLEMS: dict[str, Problem] = {
    "gpt": Words(gpt.GPT(depth=4), 4),
    "dinat": Waves(DiNAT(112, (64, 128, 256), (2, 2, 4)), 64),
}
TINY: dict[str, Problem] = {
    "gpt": Words(gpt.GPT(64, width=64, heads=4, shared=2, depth=1, hidden=48, length=16), 2),
    "dinat": Waves(DiNAT(24, (16,), (1,), head=16, window=3), 2),
}
VARIANTS = {
    "napkin": "napkin", "eager": "eager", "compile": "eager", "napkin, compiled": "napkin",
    "liger": "liger",
}  # fmt: skip
"""What is timed, and the variant of a problem that it is."""

COMPILED = ("compile", "napkin, compiled")

UNCAPTURED = ("liger",)
"""What no CUDA graph holds: Liger's loss waits for a number of targets from the device."""


@dataclass(frozen=True)
class Place:
    """Where and how networks are trained.

    Attributes:
        dtype: of weights and activations.
        rate: the learning rate.
        warm: steps until it is reached.
        held: batches that are held out.
        graphs: whether steps are also captured and replayed.
    """

    device: str = "cuda"
    dtype: torch.dtype = torch.bfloat16
    rate: float = 3e-4
    warm: int = 50
    held: int = 4
    graphs: bool = True

    def images_of(self, batch: Batch, dtype: torch.dtype | None = None) -> Batch:
        """A batch in the type of the weights."""
        x, target = batch
        if not x.is_floating_point():
            return batch
        return x.to(dtype or self.dtype, memory_format=torch.channels_last), target


TRIAL = Place("cpu", torch.float32, rate=1e-2, warm=1, held=1, graphs=False)
"""How --tiny trains."""


class Trained:
    """A variant of a problem with its optimiser."""

    def __init__(self, problem: Problem, name: str, place: Place, seed: int) -> None:
        torch.manual_seed(seed)
        self.place = place
        with torch.device(place.device):
            self.net = problem.made(VARIANTS.get(name, name))
        self.net.to(memory_format=torch.channels_last)
        self.masters = [p.detach().clone() for p in self.net.parameters()]
        self.net.to(place.dtype)
        self.call: Any = self.net
        if name in COMPILED:
            self.call = torch.compile(self.net, dynamic=False)
        fused = place.device == "cuda"
        self.rate, self.steps = torch.zeros((), device=place.device), 0
        how: Any = {"betas": (0.9, 0.95), "fused": fused, "capturable": fused}
        self.optimiser = torch.optim.AdamW(self.masters, self.rate, **how)

    def gradients(self, *batch: torch.Tensor) -> list[torch.Tensor]:
        """Those of the loss by every weight."""
        return list(torch.autograd.grad(self.call(*batch), list(self.net.parameters())))

    def step(self, *batch: torch.Tensor) -> torch.Tensor:
        """One step of AdamW; the loss before it."""
        self.steps += 1
        self.rate.fill_(self.place.rate * min(1.0, self.steps / self.place.warm))
        return self.moved(*batch)

    def capture(self, *batch: torch.Tensor) -> None:
        """Make steps replay a CUDA graph, after three steps on a batch."""
        given = [t.clone() for t in batch]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step(*given)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = self.moved(*given)

        def replay(*batch: torch.Tensor) -> torch.Tensor:
            torch._foreach_copy_(given, batch)
            graph.replay()
            return loss

        self.moved = replay

    def moved(self, *batch: torch.Tensor) -> torch.Tensor:
        """A step at the rate that is set."""
        loss, weights = self.call(*batch), list(self.net.parameters())
        gradients = torch.autograd.grad(loss, weights)
        for master, gradient in zip(self.masters, gradients, strict=True):
            master.grad = torch.empty_like(master).copy_(gradient)  # AdamW wants its layout
        self.optimiser.step()
        with torch.no_grad():
            torch._foreach_copy_(weights, self.masters)
        return loss

    @torch.no_grad()
    def loss(self, batches: Sequence[Batch]) -> float:
        """The mean over batches."""
        return statistics.fmean(float(self.call(*batch)) for batch in batches)


def gradients_at_start(problem: Problem, place: Place) -> bool:
    """How far napkin's and torch's gradients are from float64, printed; whether napkin's are as
    near."""
    batch = next(problem.batches(0, place.device))
    exact = Trained(problem, "exact", place, 0)
    exact.net.double()
    wanted = exact.gradients(*place.images_of(batch, torch.float64))
    flat = torch.cat([g.flatten() for g in wanted])
    del exact, wanted
    gaps = dict[str, float]()
    for name in ("napkin", "eager"):
        found = Trained(problem, name, place, 0).gradients(*place.images_of(batch))
        gaps[name] = off(torch.cat([g.flatten() for g in found]), flat)
        del found
    near = gaps["napkin"] <= FACTOR * gaps["eager"]
    print(f"  gradients at the start, off from float64: napkin {gaps['napkin']:.2e}, torch"
          f" {gaps['eager']:.2e}: {'as near' if near else 'NOT as near'}", flush=True)  # fmt: skip
    return near


def losses(problem: Problem, place: Place, name: str, seed: int, steps: int) -> list[float]:
    """The loss on held-out batches, at the start and after every twentieth part of the steps."""
    trained = Trained(problem, name, place, seed)
    held = itertools.islice(problem.batches(HELD, place.device), place.held)
    fixed = [place.images_of(b) for b in held]
    batches, found = problem.batches(seed, place.device), [trained.loss(fixed)]
    if place.graphs:
        trained.capture(*place.images_of(next(batches)))
    for i in range(1, steps + 1):
        trained.step(*place.images_of(next(batches)))
        if i % max(1, steps // 20) == 0:
            found.append(trained.loss(fixed))
    print(f"  {name:6} seed {seed}:", *(f"{x:.3f}" for x in found), flush=True)
    return found


def apart(a: Sequence[float], b: Sequence[float]) -> float:
    """The root mean square of the difference of two runs."""
    return statistics.fmean((x - y) ** 2 for x, y in zip(a, b, strict=True)) ** 0.5


def follows(problem: Problem, place: Place, steps: int, seeds: int) -> bool:
    """The losses of all runs, printed; whether those of napkin fall and follow torch's."""
    print(f"  losses at the start and every {max(1, steps // 20)} steps")
    ours = losses(problem, place, "napkin", 0, steps)
    theirs = [losses(problem, place, "eager", seed, steps) for seed in range(seeds)]
    spread = [apart(a, b) for a, b in itertools.combinations(theirs, 2)]
    gap, least = apart(ours, theirs[0]), min(spread)
    holds = gap < least and ours[-1] < ours[0]
    print(f"  napkin's are {gap:.1e} from torch's of the same seed; torch's of two seeds are"
          f" {least:.1e} to {max(spread):.1e} apart: {'follows' if holds else 'does NOT follow'}",
          flush=True)  # fmt: skip
    return holds


def times(problem: Problem, place: Place) -> bool:
    """A table of the variants, printed: their steps and memory. It states nothing."""
    cuda = place.device == "cuda"
    batch = place.images_of(next(problem.batches(0, place.device)))
    made, memory = dict[str, Trained](), dict[str, float]()
    for name in [n for n in VARIANTS if cuda or n not in COMPILED]:
        before = torch.cuda.memory_allocated() if cuda else 0
        try:
            trained = Trained(problem, name, place, 0)
            trained.step(*batch)
        except Exception as error:  # which leaves the others standing
            print(f"  {name:16} {said(error)}", flush=True)
            continue
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        trained.step(*batch)
        made[name] = trained
        memory[name] = (torch.cuda.max_memory_allocated() - before if cuda else 0) / 2**30
    calls = {name: partial(trained.step, *batch) for name, trained in made.items()}
    taken = [interleaved(calls, 0.6) if cuda else by_the_clock(calls)]
    if place.graphs:
        captured = {n: trained for n, trained in made.items() if n not in UNCAPTURED}
        for trained in captured.values():
            trained.capture(*batch)
        calls = {name: partial(trained.step, *batch) for name, trained in captured.items()}
        taken.append(interleaved(calls, 0.6))
    for name in made:
        line = f"  {name:16} memory {memory[name]:6.2f} GiB"
        for what, table in zip(("called", "replayed"), taken, strict=False):
            if name not in table:
                continue
            t = table[name]
            line += f"  {what} {t.median:9.1f} us ({t.low:.1f} to {t.high:.1f})"
            line += f" {t.median / table['napkin'].median:.3f}x"
        print(line, flush=True)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Print all; 1 where a statement does not hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("which", nargs="*", metavar="gpt|dinat")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--called", action="store_true", help="no CUDA graphs")
    parser.add_argument("--seeds", type=int, default=3, help="of torch's runs")
    parser.add_argument("--only", action="append", choices=["gradients", "times", "losses"])
    given = parser.parse_args(arguments)
    for name in given.which:
        if name not in PROBLEMS:
            parser.error(f"there is no network {name!r}; there are gpt and dinat")
    print(heading(), flush=True)
    place, good = TRIAL if given.tiny else Place(graphs=not given.called), True
    for name, problem in (TINY if given.tiny else PROBLEMS).items():
        if given.which and name not in given.which:
            continue
        print(problem, flush=True)
        parts = {
            "gradients": partial(gradients_at_start, problem, place),
            "times": partial(times, problem, place),
            "losses": partial(follows, problem, place, given.steps, given.seeds),
        }
        for part in (parts[name] for name in given.only or parts):
            try:
                good &= part()
            except Exception as error:  # which leaves the others standing
                print(f"  {said(error)}", flush=True)
                good = False
    return int(not good)


if __name__ == "__main__":
    raise SystemExit(main())
