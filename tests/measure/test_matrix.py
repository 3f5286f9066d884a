"""The matrix covers what it says, and a check of the device would find what it looks for."""

from __future__ import annotations

import itertools
import json
import math
import sys
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.diagram.library import load, names
from napkin.measure.calls import Scaled, Windowed
from napkin.measure.driver import command
from napkin.measure.matrix import ATTENTION, CALLED, SANITIZED, calls, each, pairs, problems
from napkin.measure.outcome import Outcome, brief
from napkin.measure.trials import RUN
from napkin.measure.verify import summed

torch = pytest.importorskip("torch")


def test_every_pair_of_values_stands_together() -> None:
    rows = pairs(ATTENTION)
    for (f, first), (g, second) in itertools.combinations(ATTENTION.items(), 2):
        found = {(row[f], row[g]) for row in rows}
        assert found == set(itertools.product(first, second))
    assert len(rows) < 130  # of 40,500


def test_quick_has_every_value() -> None:
    rows = each(ATTENTION)
    assert len(rows) == max(map(len, ATTENTION.values()))
    assert all({row[f] for row in rows} == set(values) for f, values in ATTENTION.items())


@pytest.mark.parametrize("quick", [True, False])
def test_problems_have_sizes_for_their_diagrams(quick: bool) -> None:
    found = problems(quick)
    assert len({str(p) for p in found}) == len(found)
    assert {p.title for p in found if p.group == "generated"} == set(names())
    seen: set[str] = set()
    for p in found:
        assert p.how in RUN
        if (kind := p.title.split(",")[0]) not in seen:
            seen.add(kind)
            p.diagram().check_sizes(p.sizes)
    lengths = [n for p in found if p.group == "attention" for n in (p.sizes["q"], p.sizes["x"])]
    assert (min(lengths), max(lengths)) == (1, 65536)


def test_large_tensors_pass_32_bits() -> None:
    for p in problems():
        if p.bytes:
            diagram = p.diagram()
            sizes = diagram.check_sizes(p.sizes)
            arrays = [*(n.axes for n in diagram.inputs), *(o.axes for o in diagram.outputs)]
            counts = [torch.Size([sizes[a] for a in axes]).numel() for axes in arrays]
            assert max(counts) > 2**31


def test_groups_are_summed() -> None:
    rows = [
        Outcome("a", "1", "ok", 1e-3, 1e-2, 1.0),
        Outcome("a", "2", "ok", 9e-6, 1e-5, 2.0),
        Outcome("a", "3", "refused", None, 1e-2, 0.5),
        Outcome("b", "1", "wrong", float("inf"), 1e-2, 1.0),
    ]
    first, second = summed(rows)
    assert (first["problems"], first["ok"], first["refused"]) == (3, 2, 1)
    assert (first["worst"], first["at_most"], first["seconds"]) == (9e-6, 1e-5, 3.5)
    assert (second["wrong"], second["worst"]) == (1, float("inf"))


def test_a_message_keeps_its_end() -> None:
    assert brief("a  b\n c") == "a b c"
    long = brief("at 12:4:\n" + "x " * 400 + "\nnot enough shared memory")
    assert long.startswith("at 12:4: x")
    assert long.endswith("not enough shared memory")
    assert len(long) < 300


def test_a_process_is_told_its_jobs() -> None:
    python, _, module, text = command(SANITIZED)
    assert (python, module) == (sys.executable, "napkin.measure.driver")
    assert json.loads(text) == list(SANITIZED)


@pytest.mark.parametrize("job", SANITIZED, ids=lambda job: job["name"])
def test_what_is_watched_has_sizes_for_its_diagram(job: dict[str, Any]) -> None:
    load(job["name"]).check_sizes(job["sizes"])


@pytest.mark.parametrize("layout", ["plain", "transposed", "reversed", "heads last", "inside"])
def test_layouts_hold_the_same_numbers_elsewhere(layout: str) -> None:
    from napkin.measure.tensors import drawn

    diagram = load("multi_head_attention")
    sizes = {"b": 2, "h": 3, "q": 5, "x": 7, "d": 4}
    found = drawn(diagram, sizes, "fp32", 1, layout, device="cpu")
    again = drawn(diagram, sizes, "fp32", 1, layout, device="cpu")
    assert all(torch.equal(a, b) for a, b in zip(found, again, strict=True))
    assert [tuple(t.shape) for t in found] == [(2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4)]
    q = found[0]
    strides = {
        "plain": (60, 20, 4, 1),
        "transposed": (60, 20, 1, 5),
        "reversed": (1, 2, 6, 30),
        "heads last": (60, 4, 12, 1),
        "inside": (5 * 7 * 6, 7 * 6, 6, 1),
    }
    assert q.stride() == strides[layout]
    assert found[1].is_contiguous() == (layout in {"plain", "transposed"})
    if layout == "inside":
        assert q.storage_offset() == 5 * 7 * 6 + 7 * 6 + 6 + 1
        whole = torch.as_strided(q, (q.storage_offset(),), (1,), 0)
        assert bool(whole.isnan().all())
    assert not any(bool(t.isnan().any()) for t in found)


def test_errors_are_by_norm_and_special_values_count() -> None:
    from napkin.measure.values import Errors, same_bits

    def error(found: list[Any], wanted: list[Any]) -> float:
        total = Errors()
        total.add(torch.tensor(found), torch.tensor(wanted, dtype=torch.float64))
        return total.relative

    inf, nan = float("inf"), float("nan")
    assert error([3.0, 4.5], [3.0, 4.0]) == pytest.approx(0.1)
    assert error([nan, inf, 1.0], [nan, inf, 1.0]) == 0
    assert error([nan, 1.0], [0.0, 1.0]) == inf
    assert error([1.0, 1.0], [nan, 1.0]) == inf
    assert error([-inf, 1.0], [inf, 1.0]) == inf
    assert error([inf, 1.0], [1.0, 1.0]) == inf
    assert error([1e-3], [0.0]) == pytest.approx(1e-3)
    parts = Errors()
    parts.add(torch.tensor([3.0]), torch.tensor([3.0]))
    parts.add(torch.tensor([4.5]), torch.tensor([4.0]))
    assert parts.relative == pytest.approx(0.1)
    a = torch.tensor([nan, 0.0])
    assert same_bits(a, a.clone())
    assert not same_bits(a, torch.tensor([nan, -0.0]))


def test_inputs_are_drawn_in_ranges_that_are_named() -> None:
    from napkin.measure.tensors import drawn

    diagram = nk.diagram("a b, b -> a b")(lambda X, W: X * W)
    X, W = drawn(diagram, {"a": 64, "b": 64}, "bf16", 1, device="cpu", ranges={"W": (2.0, 3.0)})
    assert X.min() < 0 < X.max()
    assert 2.0 <= W.min() < 2.2 < 2.8 < W.max() <= 3.0


@pytest.mark.parametrize(
    ("found", "wanted", "right"),
    [
        ([math.inf, 1.0], [70000.0, 1.0], True),
        ([65504.0, 1.0], [65519.0, 1.0], True),
        ([math.inf, 1.0], [65519.0, 1.0], True),  # which rounding on the way may pass
        ([math.inf, 1.0], [60000.0, 1.0], False),
        ([-math.inf, 1.0], [70000.0, 1.0], False),
        ([math.nan, 1.0], [70000.0, 1.0], False),
        ([60000.0, 1.0], [70000.0, 1.0], False),
        ([65504.0, 1.0], [math.inf, 1.0], False),
    ],
)
def test_past_the_largest_number(found: list[float], wanted: list[float], right: bool) -> None:
    from napkin.ir.evaluate import close_to
    from napkin.measure.values import Errors

    total = Errors()
    total.add(torch.tensor(found, dtype=torch.float16), torch.tensor(wanted, dtype=torch.float64))
    assert (total.relative < 1e-3) == right
    assert (close_to(np.array(found), np.array(wanted), "fp16") < 1e-3) == right
    assert close_to(np.array(found), np.array(wanted)) > 0


@pytest.mark.parametrize(
    ("found", "wanted", "right"),
    [
        ([0.0, 2.0**-9], [2.0**-11, 1.4 * 2.0**-9], True),
        ([0.0, 2.0**-9], [2.0**-9, 2.0**-9], False),
        ([0.0, 1.0], [2.0**-3, 1.0], False),
        ([448.0, 1.0], [1000.0, 1.0], True),
        ([384.0, 1.0], [1000.0, 1.0], False),
    ],
)
def test_what_fp8_cannot_hold_is_no_error(
    found: list[float], wanted: list[float], right: bool
) -> None:
    """Half a step near 0, and what lies past the largest number."""
    from napkin.ir.evaluate import close_to
    from napkin.measure.values import Errors

    total, stored = Errors(), torch.tensor(found).to(torch.float8_e4m3fn)
    total.add(stored, torch.tensor(wanted, dtype=torch.float64))
    assert (total.relative < 5e-2) == right
    assert (close_to(np.array(found), np.array(wanted), "fp8") < 5e-2) == right
    assert close_to(np.array(found), np.array(wanted)) > 5e-2


SMALL_WINDOWS: tuple[tuple[dict[str, int], Windowed], ...] = (
    ({"q0": 23, "x0": 23}, Windowed({"kernel_size": (5,), "stride": (2,), "dilation": (3,)})),
    (
        {"q0": 20, "x0": 20, "a": 3},
        Windowed({"kernel_size": (7,), "is_causal": (True,)}, True, True),
    ),
    ({"q0": 6, "q1": 7, "x0": 6, "x1": 7}, Windowed({"kernel_size": (3, 4)}, lse=True)),
)


def called(how: Scaled | Windowed, sizes: dict[str, int]) -> None:
    """The function on the CPU is what the diagram says, in float64."""
    from napkin.measure.tensors import drawn
    from napkin.measure.values import Errors

    made = how.diagram()
    tensors = drawn(made, sizes, "fp32", 7, "heads last", "cpu")
    found, wanted = how(*tensors), made.evaluate(*(t.double().numpy() for t in tensors))
    pairs_ = zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]
    for f, w in pairs_:
        total = Errors()
        total.add(f, torch.from_numpy(np.asarray(w)))
        assert total.relative < 1e-5


@pytest.mark.parametrize("how", CALLED["how"][1:4], ids=str)
def test_attention_is_its_diagram(how: Scaled) -> None:
    called(how, {"b": 2, "g": 2, "r": 3, "q": 11, "x": 19, "d": 24, "e": 40})


@pytest.mark.parametrize(("sizes", "how"), SMALL_WINDOWS)
def test_windows_are_their_diagrams(sizes: dict[str, int], how: Windowed) -> None:
    called(how, sizes | {"b": 2, "h": 2, "d": 16})


def test_every_call_names_its_sizes() -> None:
    for p in calls():
        made = p.diagram()
        assert set(p.sizes) == set(made.axes), p
        assert p.call is not None
    assert {p.layout for p in calls()} >= {"plain", "inside", "heads last", "transposed"}
    assert len(calls(quick=True)) < len(calls()) / 4
