"""What the commands that measure print, write and end with; the device is a stand-in."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from napkin.measure.counters import Counters

torch = pytest.importorskip("torch")

SMALL = ("--sizes", "q=70,x=90,d=16")
Napkin = Callable[..., tuple[int, str, str]]


# --- without a device ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "attention", "--gpu"], "check --gpu needs a CUDA device"),
        (["bench", "attention"], "bench needs a CUDA device"),
        (["derive", "attention", "--tune", "3"], "derive --tune needs a CUDA device"),
        *(
            ([command, "attention", "--tune", "3", "--tuned"], "--tuned uses those remembered befo")
            for command in ("derive", "bench")
        ),
        (["verify", "--gpu"], "verify --gpu needs a CUDA device"),
        (["verify"], "write napkin verify --gpu"),
        (["bench", "attenton"], "did you mean 'attention'?"),
        (["bench", "attention", "--sizes", "z=1"], "attention has no axis 'z'"),
        (["bench", "attention", "--storage", "W=fp8"], "attention has no input 'W'"),
        (["bench", "attention", "--against", "spda"], "did you mean 'sdpa'?"),
        (["bench", "attention", "--plot", "times.doc"], "--plot times.doc: the ending says"),
        (["check", "attention", "--gpu", "--sizes", "q=0"], "q=0 is too small"),
        (["check", "attention", "--gpu", "--gradient"], "check --gpu needs a CUDA device"),
        (["bench", "attention", "--gradient"], "bench needs a CUDA device"),
        (["bench", "greedy_token", "--gradient"], "gradient is refused at greedy_token: no output"),
        (["verify", "--gpu", "--only", "nothing"], "no problem has that in its name; groups: gen"),
        (["derive", "attention", "--top", "-1"], "invalid value for '--top'"),
    ],
)
def test_what_is_said_without_a_device(
    napkin: Napkin, monkeypatch: Any, arguments: list[str], said: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    status, out, err = napkin(*arguments)
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_where_torch_is_missing(napkin: Napkin, monkeypatch: Any) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    status, _, err = napkin("bench", "attention")
    assert status == 2
    assert "pip install 'napkin[torch]'" in err


# --- settings -----------------------------------------------------------------------------------


def test_the_first_settings(napkin: Napkin) -> None:
    status, out, _ = napkin("derive", "attention", *SMALL, "--top", "3", "--json")
    assert status == 0
    found = json.loads(out)["settings"]["attention"]
    assert len(found) == 3
    assert found[0]["tiles"] == json.loads(out)["kernels"][0]["tiles"]
    assert [f["predicted_us"] for f in found] == sorted(f["predicted_us"] for f in found)
    status, out, _ = napkin("derive", "attention", *SMALL, "--top", "3")
    assert "settings of attention, least predicted time first" in out
    assert "settings" not in json.loads(napkin("derive", "attention", *SMALL, "--json")[1])


def test_tuned_settings_are_taken_later(napkin: Napkin, device: Any, tmp_path: Path) -> None:
    device.us = {"0": 30.0, "1": 25.0, "2": 20.0, "3": 50.0}
    status, out, _ = napkin("derive", "attention", *SMALL, "--tune", "4", "--json")
    assert status == 0
    data = json.loads(out)
    (ranking,) = data["tuned"]["kernels"]
    assert [c["measured_rank"] for c in ranking["candidates"]] == [3, 2, 1, 4]
    assert ranking["first_over_best"] == 1.5
    best = ranking["candidates"][2]
    assert data["kernels"][0]["tiles"] == best["tiles"]
    assert Path(data["tuned"]["remembered"]).parent == tmp_path / "cache"
    planned = json.loads(napkin("derive", "attention", *SMALL, "--json")[1])["kernels"][0]
    taken = json.loads(napkin("derive", "attention", *SMALL, "--tuned", "--json")[1])["kernels"][0]
    assert planned["H"] != taken["H"]  # of other labels, if not of other tiles
    assert taken["tiles"] == best["tiles"]
    status, out, _ = napkin("derive", "attention", *SMALL, "--tune", "2")
    assert "the first choice takes 1.200 times the fastest, which was ranked 2" in out


def test_a_setting_that_fails_or_is_wrong_is_not_taken(napkin: Napkin, device: Any) -> None:
    asked = iter([None, RuntimeError("out of resources")])
    device.refuse = lambda plan: next(asked, None)
    device.change = lambda t, launch: t * 2 if launch in (1, 3) else t
    out = napkin("derive", "attention", *SMALL, "--tune", "5", "--json")[1]
    candidates = json.loads(out)["tuned"]["kernels"][0]["candidates"]
    off = "its results are off by 1.0e+00"
    notes = [off, "RuntimeError: out of resources", "", off, ""]
    assert [c["note"] for c in candidates] == notes
    assert [c["measured_rank"] for c in candidates] == [None, None, 1, None, 2]


# --- check --------------------------------------------------------------------------------------


@pytest.fixture
def nothing_else(monkeypatch: Any) -> None:
    """The checks of the CPU left out, and no counters."""
    from napkin.check.verdict import Verdict

    none = Verdict("attention", (), (), ())
    monkeypatch.setattr("napkin.plan.plan.Plan.check", lambda self, **_: none)
    monkeypatch.setattr("napkin.measure.counters.counted", lambda *_: Counters(note="no ncu"))


@pytest.mark.usefixtures("nothing_else")
def test_check_on_the_device(napkin: Napkin, device: Any) -> None:
    device.us = {"attention": 12.0}
    status, out, err = napkin("check", "attention", *SMALL, "--gpu", "--json")
    assert status == 0, err
    data = json.loads(out)["device"]
    assert data["ok"]
    assert data["device"] == "a stand-in"
    (row,) = data["values"]
    assert row["relative_error"] < 1e-2
    assert data["counters_note"] == "no ncu"
    assert data["time"]["measured_us"] == 12.0
    status, out, _ = napkin("check", "attention", *SMALL, "--gpu")
    assert status == 0
    assert "values on the device" in out
    assert "results are the same from run to run" in out
    assert "time: 12.0 us (11.0 to 14.0" in out
    assert "every prediction holds" in out


def test_check_of_a_gradient_on_the_device(
    napkin: Napkin, device: Any, nothing_else: None, monkeypatch: Any
) -> None:
    """Its kernels are compared with the gradient in float64, and counted in a process of its own
    that derives the same plan."""
    ran: list[list[str]] = []
    monkeypatch.setattr(
        "napkin.measure.counters.counted", lambda _, command, *__: ran.append(command) or Counters()
    )
    given = ("check", "attention", *SMALL, "--gpu", "--gradient", "--storage", "K=fp16")
    status, out, err = napkin(*given, "--json")
    assert status == 0, err
    values = json.loads(out)["device"]["values"]
    assert [r["output"] for r in values] == ["dQ", "dK", "dV"]
    assert all(r["relative_error"] < 1e-2 for r in values)
    (job,) = json.loads(ran[0][-1])
    assert (job["gradient"], job["storage"]) == (True, {"K": "fp16"})
    device.change = lambda t, launch: t * 1.1
    assert napkin(*given)[0] == 1


def test_the_job_of_a_gradient(monkeypatch: Any, device: Any) -> None:
    """It derives the plan of the gradient and launches it."""
    from napkin.measure import driver

    profiler = SimpleNamespace(cudaProfilerStart=lambda: None, cudaProfilerStop=lambda: None)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: profiler)
    opened = device.opened
    plans: list[Any] = []
    monkeypatch.setattr(
        "napkin.torch.run.opened", lambda plan, *more: plans.append(plan) or opened(plan, *more)
    )
    sizes = {"q": 70, "x": 90, "d": 16}
    job = {"name": "attention", "on": "h100", "sizes": sizes, "dtype": "bf16", "seed": 1}
    driver.main(json.dumps([{**job, "gradient": True, "storage": {"K": "fp16"}}]))
    assert [o.name for o in plans[0].diagram.outputs] == ["dQ", "dK", "dV"]
    assert device.launches == 2


@pytest.mark.usefixtures("nothing_else")
@pytest.mark.parametrize(
    "change",
    [
        lambda t, launch: t * 1.1,
        lambda t, launch: t + 1e-2 * launch,
        lambda t, launch: torch.where(torch.arange(len(t))[:, None] == 69, torch.nan, t),
    ],
)
def test_check_finds_what_is_wrong(napkin: Napkin, device: Any, change: Any) -> None:
    device.change = change
    status, out, _ = napkin("check", "attention", *SMALL, "--gpu")
    assert status == 1
    assert "resources hold, the device's figures do NOT hold" in out


@pytest.mark.usefixtures("nothing_else")
def test_check_on_another_device(napkin: Napkin, device: Any) -> None:
    _, out, _ = napkin("check", "attention", *SMALL, "--on", "a100", "--gpu")
    assert "the plan is for a100 (sm_80), and this device is sm_90" in out


# --- bench --------------------------------------------------------------------------------------


def test_bench(napkin: Napkin, device: Any, tmp_path: Path) -> None:
    device.us = {"napkin": 10.0, "sdpa": 25.0, "torch": 40.0}
    table, plot = tmp_path / "times.json", tmp_path / "times.svg"
    given = ("bench", "attention", *SMALL, "--against", "sdpa,fa3,torch", "--seed", "5")
    status, out, _ = napkin(*given, "-o", str(table), "--plot", str(plot))
    assert status == 0
    data = json.loads(table.read_text())
    rows = {r["name"]: r for r in data["rows"]}
    assert list(rows) == ["napkin", "sdpa", "fa3", "torch"]
    assert rows["sdpa"]["over_napkin"] == 2.5
    assert rows["fa3"]["median_us"] is None
    assert rows["fa3"]["note"].startswith("not installed; pip install fa3-fwd")
    assert all(rows[n]["relative_error"] < 1e-2 for n in ("napkin", "sdpa"))
    assert rows["napkin"]["low_us"] == 9.0
    assert data["flops"] == 4 * 70 * 90 * 16
    assert (data["seed"], data["device"], data["sizes"]["q"]) == (5, "a stand-in", 70)
    assert "2.50x" in out
    assert "pip install fa3-fwd" in out
    text = plot.read_text()
    ElementTree.fromstring(text)
    assert "sdpa, 2.50x" in text
    assert "fa3" not in text


def test_useful_operations_are_those_of_keys_that_are_seen() -> None:
    from napkin.diagram.library import load
    from napkin.measure.bench import operations
    from napkin.measure.tensors import drawn

    for name, sizes, pairs in (
        ("causal_attention", {"q": 9, "x": 9, "d": 16}, 45),
        ("neighborhood_attention_2d", {"q0": 24, "q1": 22, "x0": 24, "x1": 22, "d": 16}, 400 * 528),
        ("streaming_llm", {"q": 600, "x": 600, "d": 16}, 512 * 600 - 512 * 511 // 2 + 4 * 88 - 6),
    ):
        diagram = load(name)
        known = diagram.check_sizes(sizes)
        tensors = drawn(diagram, known, "bf16", 0, device="cpu")
        assert operations(diagram, known, tensors) == pytest.approx(4 * pairs * 16, rel=1e-3), name
    assert operations(load("softmax"), {"n": 4, "x": 4}, [torch.ones(4, 4)]) == 0


def test_bench_of_what_is_no_attention(napkin: Napkin, device: Any) -> None:
    sizes = ("--sizes", "n=20,d=30")
    given = ("bench", "layernorm", *sizes, "--dtype", "fp32", "--against", "torch,flex", "--json")
    status, out, _ = napkin(*given)
    assert status == 0
    rows = {r["name"]: r for r in json.loads(out)["rows"]}
    assert rows["torch"]["relative_error"] < 1e-5
    assert rows["flex"]["note"].startswith("the diagram is not attention as flex has it")


def test_bench_of_inputs_with_a_type_of_their_own(napkin: Napkin, device: Any) -> None:
    given = ("bench", "attention", *SMALL, "--storage", "K=fp16", "--against", "torch", "--json")
    status, out, err = napkin(*given)
    assert (status, err) == (0, "")
    rows = {r["name"]: r for r in json.loads(out)["rows"]}
    assert rows["torch"]["relative_error"] < 1e-2


def test_bench_of_a_gradient(napkin: Napkin, device: Any) -> None:
    device.us = {"napkin": 10.0, "sdpa": 8.0}
    given = ("bench", "attention", *SMALL, "--gradient", "--against", "sdpa,torch,natten", "--json")
    status, out, err = napkin(*given)
    assert (status, err) == (0, "")
    data = json.loads(out)
    rows = {r["name"]: r for r in data["rows"]}
    assert data["name"] == "attention_gradient"
    assert rows["sdpa"]["over_napkin"] == 0.8
    assert all(rows[n]["relative_error"] < 1e-2 for n in ("napkin", "sdpa", "torch"))
    assert rows["natten"]["note"].startswith("the diagram is not attention as natten has it")
    # Five products of the backward pass, the forward's result once more, and dO with it.
    assert data["flops"] == 12 * 70 * 90 * 16 + 2 * 70 * 16


def test_bench_of_wrong_results_fails(napkin: Napkin, device: Any) -> None:
    device.change = lambda t, launch: t * 1.5
    status, out, _ = napkin("bench", "attention", *SMALL, "--against", "sdpa")
    assert status == 1
    assert "5.0e-01 WRONG" in out
