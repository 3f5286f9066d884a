"""Kernel files that run alone: their launches are those of `napkin.lower.launch`, and their values
the diagram's."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import napkin as nk
from napkin.check.inputs import Given
from napkin.check.rounding import roundings
from napkin.check.verdict import TOLERANCE, draw
from napkin.diagram.diagram import Diagram
from napkin.diagram.library import load
from napkin.ir.operators import POINTWISE
from napkin.ir.storage import packed_axis, storage_type
from napkin.ir.types import STORAGE
from napkin.lower.launch import Launch
from napkin.lower.printer import words
from napkin.plan.call import laid
from napkin.plan.plan import Plan
from napkin.plan.samples import cases
from napkin.plan.standalone import standalone
from napkin.run.recipe import Step
from napkin.schedule import WARPS

# --- launches -----------------------------------------------------------------------------------


@dataclass
class Recorder:
    """Stands in for a kernel."""

    name: str
    calls: list[tuple[str, Any, Sequence[Any], Mapping[str, Any]]] = field(repr=False)

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args, **keywords: self.calls.append((self.name, grid, args, keywords))


def imported(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def files(plan: Plan, folder: Path) -> list[ModuleType]:
    """The files of a plan, imported, with recorders for kernels; the later is of warpgroups."""
    for name, text in standalone(plan).items():
        (folder / name).write_text(text)
    found = [imported(folder / name, Path(name).stem) for name in standalone(plan)]
    del sys.modules["kernel"]
    return found


def tensors(
    diagram: Diagram, sizes: Mapping[str, int], dtype: str, layout: str
) -> dict[str, torch.Tensor]:
    """Inputs without memory: row-major, with the last two axes swapped, with 8 values after each
    row, or so far apart that offsets take 64 bits."""
    out: dict[str, torch.Tensor] = {}
    for n in diagram.inputs:
        shape = [sizes[a] for a in n.axes]
        shape = [*shape[:-1], shape[-1] // 2] if packed_axis(n) else shape
        order = list(range(len(shape)))
        if layout == "swapped":
            order[-2:] = order[-2:][::-1]
        strides, step = [0] * len(shape), 1
        for i in reversed(order):
            strides[i] = step
            step *= shape[i]
            step += {"padded": 8, "far": 2**28}.get(layout, 0) if i == order[-1] else 0
        kind = getattr(torch, STORAGE[storage_type(n, dtype)].torch)
        out[str(n.params[0])] = torch.empty_strided(shape, strides, dtype=kind, device="meta")
    return out


def same(have: Any, want: Any) -> bool:
    if isinstance(want, float):
        return type(have) is float and math.isclose(have, want, rel_tol=1e-14)
    return type(have) is type(want) and have == want


def check_launch(
    call: tuple[str, Any, Sequence[Any], Mapping[str, Any]],
    step: Step,
    want: Launch,
    known: dict[str, torch.Tensor],
    fast: bool,
) -> None:
    """One recorded launch is the one that is wanted, on these tensors."""
    name, grid, args, keywords = call
    assert (name, grid) == (step.entry.name, (want.grid,))
    schedule = step.entry.schedule
    settings = {"num_warps": schedule.warps, "num_stages": schedule.stages}
    settings = {"num_warps": WARPS} if fast else settings
    assert keywords == {**want.constexprs, **settings, **step.entry.options}
    assert len(args) == len(want.order)
    for a, have in zip(want.order, args, strict=True):
        if a not in want.tensors:
            assert same(have, want.scalars[a]), (a, have, want.scalars[a])
            continue
        tensor, t = step.tensor(a, want), have
        if a in want.boxes:
            box, t = want.boxes[a], have.base
            one = known[tensor]
            assert list(have.block_shape) == list(box.sizes)
            assert list(have.shape) == [one.shape[i] for i in box.order]
            assert list(have.strides) == [one.stride(i) for i in box.order]
            assert ("gluon" in type(have).__module__) == fast
            continue
        assert isinstance(t, torch.Tensor)
        assert t is known[tensor]


def check_file(
    module: ModuleType,
    plan: Plan,
    sizes: Mapping[str, int],
    layout: str,
    fast: bool,
) -> list[Launch] | None:
    """The launches of a file on tensors of these sizes are those of the recipe; None where it
    refuses them, as the recipe does not run its kernels of warpgroups on them."""
    diagram, recipe = plan.diagram, plan.recipe
    given = tensors(diagram, sizes, plan.dtype, layout)
    full = recipe.full(sizes)
    made = {t.name: torch.empty([full[a] for a in t.axes], device="meta") for t in recipe.stored}
    known = {**given, **made}
    strides = {t: x.stride() for t, x in known.items()}
    scalars = {s: v + 0.25 for s, v in diagram.scalars.items()}
    keywords = inspect.getfullargspec(module.run).kwonlyargs
    values = dict(zip(keywords, scalars.values(), strict=True))
    wanted: list[Launch] = []
    for s in recipe.steps:
        specialised = (
            s.launch_specialised(full, scalars, strides) if fast and s.specialised else None
        )
        if fast and s.specialised and specialised is None:
            with pytest.raises(ValueError, match="descriptors do not serve"):
                module.run(*given.values(), **values)
            return None
        wanted.append(specialised or s.launch(full, scalars, strides))
    calls: list[Any] = []
    fresh: list[torch.Tensor] = []

    def empty(shape: Any, **options: Any) -> torch.Tensor:
        fresh.append(torch.empty(shape, **options))
        return fresh[-1]

    for s in recipe.steps:
        setattr(module, s.entry.name, Recorder(s.entry.name, calls))
    module.torch = type("Torch", (), {**vars(torch), "empty": staticmethod(empty)})  # type: ignore[attr-defined]
    results = module.run(*given.values(), **values)
    for t, x in zip(recipe.stored, fresh, strict=True):
        assert list(x.shape) == [full[a] for a in t.axes]
        assert x.dtype == getattr(torch, STORAGE[t.dtype].torch)
        known[t.name] = x
    for call, s, want in zip(calls, recipe.steps, wanted, strict=True):
        check_launch(call, s, want, known, fast and s.specialised is not None)
    results = results if isinstance(results, tuple) else (results,)
    assert all(x is known[t] for x, t in zip(results, recipe.results, strict=True))
    return wanted


def smaller(diagram: Diagram, by: int) -> dict[str, int]:
    """Sizes that are smaller by so much, where that leaves some."""
    own = dict.fromkeys(diagram.same_size.get(a, a) for n in diagram.inputs for a in n.axes)
    packed = {packed_axis(n) for n in diagram.inputs}
    free = {a: diagram.sizes[a] for a in own if a in diagram.sizes and a not in diagram.counted}
    less = {a: by + by % 2 * (a in packed) for a in free}
    return diagram.check_sizes({a: n - less[a] if n > 2 * by else n for a, n in free.items()})


CASES = [("plain", 0), ("plain", 8), ("plain", 3), ("swapped", 0), ("padded", 8), ("far", 0)]


def check_plan(plan: Plan, folder: Path) -> list[Launch]:
    found: list[Launch] = []
    for fast, module in enumerate(files(plan, folder)):
        for layout, by in CASES:
            sizes = smaller(plan.diagram.with_sizes(**plan.sizes), by)
            found += check_file(module, plan, sizes, layout, bool(fast)) or []
    for text in standalone(plan).values():
        assert max(map(len, text[text.index("def _reach(") :].splitlines())) < 100
    return found


def test_launches_are_those_of_the_recipe(shipped: Plan, tmp_path: Path) -> None:
    check_plan(shipped, tmp_path)


# --- what no shipped plan has -------------------------------------------------------------------


@nk.diagram("q d, x d, x d -> q d", sizes={"q": 2048, "x": 2048, "d": 64})
def dilated(Q: Any, K: Any, V: Any) -> Any:
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    keys = nk.neighborhood(64, dilation=4, queries="q", keys="x")
    return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")


@nk.diagram("i c, w c o -> p o", sizes={"i": 1024, "w": 3, "c": 64, "o": 64})
def strided(X: Any, W: Any) -> Any:
    read = nk.slide(X, over="i", into="p w", stride=3, dilation=2, padding=(2, 1))
    return nk.contract(read, W, over="c w")


@nk.diagram("x torch, x -> x", sizes={"x": 512, "torch": 64})
def named(x: Any, GRID: Any, math: float = 2.0) -> Any:
    return nk.reduce(x, "sum", over="torch") * GRID * math * nk.tanh(nk.size("torch") * 0.01)


def test_axes_split_by_residue(tmp_path: Path) -> None:
    plan = nk.derive(dilated, on="h100")
    assert plan.recipe.steps[0].entry.splits
    check_plan(plan, tmp_path)


def test_parts(tmp_path: Path) -> None:
    check_plan(nk.derive(load("attention"), sizes={"x": 8192}, parts={"x": 8}), tmp_path)


def test_blocks(tmp_path: Path) -> None:
    plan = nk.derive(load("linear_cross_entropy"), on="h100")
    assert plan.recipe.blocks
    check_plan(plan, tmp_path)


def test_groups_that_share_l2(tmp_path: Path) -> None:
    heads = load("causal_attention").weave("b h").with_sizes(b=16, h=64)
    plan = nk.derive(heads, on="h100")
    kinds = {a.kind for s in plan.recipe.steps for a in s.entry.arguments}
    assert "section" in kinds
    found = check_plan(plan, tmp_path)
    assert len({call.scalars["SECTION"] for call in found}) > 1


def test_windows(tmp_path: Path) -> None:
    check_plan(nk.derive(strided, on="h100"), tmp_path)


def test_names_that_the_file_has_itself(tmp_path: Path) -> None:
    check_plan(nk.derive(named, on="h100"), tmp_path)


def test_operators_that_python_has_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`run` is given the constants of kernels with such operators."""
    without = replace(POINTWISE["tanh"], python="")
    monkeypatch.setitem(POINTWISE, "tanh", without)
    text = standalone(nk.derive(named, on="h100"))["kernel.py"]
    assert "def run(x, GRID_, *, scale, math_=2.0):" in text
    assert "scale is\n    tanh(torch * 0.01)." in text


def test_equal_outputs_are_tensors_of_their_own(tmp_path: Path) -> None:
    @nk.diagram("n x -> n, n")
    def twice(X: Any) -> Any:
        total = nk.reduce(X, "sum", over="x")
        return total, total

    plan = nk.derive(twice, sizes={"n": 4, "x": 8}, dtype="fp32")
    module = files(plan, tmp_path)[-1]
    vars(module)[plan.recipe.steps[0].entry.name] = Recorder("twice", [])
    first, second = module.run(torch.ones(4, 8))
    assert first.data_ptr() != second.data_ptr()


def test_an_axis_longer_than_its_tile_and_shapes_that_disagree(tmp_path: Path) -> None:
    [module, *_] = files(nk.derive(load("attention"), on="h100"), tmp_path)
    Q, K, V = (torch.empty((n, 129), device="meta") for n in (8, 9, 9))
    with pytest.raises(ValueError, match="tiles hold up to 128 of d, not 129"):
        module.run(Q, K, V)
    with pytest.raises(ValueError, match=r"V is \(8, 129\), not \(9, 129\)"):
        module.run(Q, K, Q)


# --- values -------------------------------------------------------------------------------------

CHILD = """
import importlib.util, pathlib, sys
sys.modules["napkin"] = None
import torch
for folder in map(pathlib.Path, sys.argv[1:]):
    spec = importlib.util.spec_from_file_location(folder.name, folder / "kernel.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for given in sorted(folder.glob("*.in")):
        made = module.run(*torch.load(given))
        made = made if isinstance(made, tuple) else (made,)
        torch.save([t.double() for t in made], given.with_suffix(".out"))
"""

RUN = {
    "causal_attention": "a100", "grouped_query_attention": "h100", "matmul": "h100",
    "layernorm_linear": "a100", "conv1d": "h100", "matmul_w4a16": "h100",
    "unfused_neighborhood_attention_2d": "h100", "document_attention": "a100",
}  # fmt: skip


def test_values_where_there_is_no_napkin(tmp_path: Path) -> None:
    """In Triton's own interpreter, which computes on fp16 and fp32."""
    plans = {name: nk.derive(load(name), on=on, dtype="fp16") for name, on in RUN.items()}
    wanted: dict[Path, tuple[Plan, Any]] = {}
    for name, plan in plans.items():
        for text, content in standalone(plan).items():
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / text).write_text(content)
        for case in cases(plan)[:2]:
            path = tmp_path / name / f"{case.name}.in"
            rng = np.random.default_rng(0)
            given = draw(plan.diagram, case.sizes, plan.dtype, rng, flip=True, said=Given())
            torch.save([torch.from_numpy(a.data) for a in given.values()], path)
            made = plan.diagram.evaluate(*(a.to_float64() for a in given.values()))
            wanted[path] = plan, made if isinstance(made, tuple) else (made,)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment["TRITON_INTERPRET"] = "1"
    command = [sys.executable, "-c", CHILD, *(str(tmp_path / name) for name in plans)]
    subprocess.run(command, check=True, env=environment, cwd=tmp_path)
    for path, (plan, results) in wanted.items():
        for o, have, want in zip(
            plan.diagram.outputs, torch.load(path.with_suffix(".out")), results, strict=True
        ):
            limit = max(TOLERANCE[t] for t in roundings(plan, plan.tensor_of[o.name]))
            error = np.linalg.norm(have.numpy() - want) / np.linalg.norm(want)
            assert error <= limit, (path, o.name, error)


def test_a_name_is_never_broken_across_lines() -> None:
    """A file with a name of 39 letters was no Python."""
    name = "positions_of_the_keys_that_a_query_sees"
    step = f"STEP_{name.upper()}=_step({name}, first.stride(), second.stride())"
    even = f"EVEN_{name.upper()}={name} % 32 == 0 and {name} == 64"
    lines = laid("kernel[GRID](", [["x"], [step, even]], ")")
    assert ast.unparse(ast.parse("\n".join(lines))).count(name) == 3
    assert words("first, " + 120 * "x", 20) == ["first,", 120 * "x"]
