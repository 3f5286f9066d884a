"""`napkin cost --sweep`, `--against` and the roofline of every kernel."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import napkin as nk
from napkin.cli.parse import parse_prices, parse_sweep
from napkin.diagram.library import load
from napkin.machine.machines import machine
from napkin.show.words import Range


def test_ranges() -> None:
    assert parse_sweep("q=1024..8192") == Range(("q",), (1024, 2048, 4096, 8192))
    assert parse_sweep(" q , x = 100..1000 ") == Range(("q", "x"), (100, 200, 400, 800))
    assert parse_sweep("q=1024..4095:1024").sizes == (1024, 2048, 3072)
    assert parse_sweep("q=1024..4096:1024").sizes == (1024, 2048, 3072, 4096)
    assert parse_sweep("q=7..7").sizes == (7,)
    assert parse_prices("h100=2.5, a100=1") == {"h100": 2.5, "a100": 1.0}


def test_a_sweep_is_a_plan_for_each_size(napkin: Callable[..., Any], here: Path) -> None:
    given = ("cost", "attention", "--sizes", "d=64", "--sweep", "q,x=512..2048")
    shown = napkin(*given, "--csv", "rows.csv")
    assert shown.status == 0
    assert "attention on h100, bf16, d=64" in shown.out
    assert "q=x" in shown.out
    assert "compulsory: every input and output once" in " ".join(shown.out.split())
    data = json.loads(napkin(*given, "--json").out)
    assert (data["axes"], data["sizes"]) == (["q", "x"], {"d": 64})
    assert [r["q"] for r in data["rows"]] == [r["x"] for r in data["rows"]] == [512, 1024, 2048]
    for r in data["rows"]:
        n, room = r["q"], machine("h100").shared_per_block / 2
        plan = nk.derive(load("attention"), sizes={"q": n, "x": n, "d": 64})
        assert r["seconds"] == plan.seconds
        assert r["moved"] == sum(sum(k.bytes.values()) for k in plan.kernels)
        assert r["compulsory"] == 2 * 4 * n * 64
        assert r["operations"] == pytest.approx(4 * n * n * 64)
        assert r["rate"] == pytest.approx(r["operations"] / r["seconds"])
        # up to M/2d = 908 queries one group takes them all: each value once
        least = 4 * n * 64 if n < room / 128 else 2 * n * 64 + 4 * n * n * 64**2 / room
        assert r["optimum"] / 2 == pytest.approx(least)
    with (here / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [{k: str(v) for k, v in r.items()} for r in data["rows"]] == rows


def test_a_sweep_of_folds_of_blocks(napkin: Callable[..., Any], here: Path) -> None:
    """Neither of their two kernels has a term of its own, so that no least traffic is known."""
    shown = napkin("cost", "linear_cross_entropy", "--sweep", "n=4096..4096", "--json")
    (row,) = json.loads(shown.out)["rows"]
    assert (row["kernels"], row["optimum"]) == (2, None)


def test_several_machines(napkin: Callable[..., Any], here: Path) -> None:
    given = ("cost", "attention", "--sizes", "q=4096,x=4096", "--against", "a100,h100,l40s")
    shown = napkin(*given)
    assert shown.status == 0
    assert "give prices: --prices h100=2.5,a100=1.2" in shown.out
    asked = (*given, "--prices", "h100=36,a100=0.01")
    data = json.loads(napkin(*asked, "--json", "--csv", "rows.csv").out)
    assert [r["by_time"] for r in data["machines"]] == [1, 2, 3]
    seconds = [r["seconds"] for r in data["machines"]]
    assert seconds == sorted(seconds)
    rows = {r["machine"]: r for r in data["machines"]}
    assert set(rows) == {"a100", "h100", "l40s"}
    assert rows["h100"]["seconds"] < rows["a100"]["seconds"]
    assert (rows["a100"]["by_cost"], rows["h100"]["by_cost"]) == (1, 2)
    assert rows["h100"]["usd"] == pytest.approx(36 / 3600 * rows["h100"]["seconds"])
    assert rows["l40s"]["usd"] is rows["l40s"]["by_cost"] is None
    assert rows["h100"]["peak"] == machine("h100").peak("bf16")
    assert (here / "rows.csv").read_text().startswith("machine,by_time,kernels,")
    assert [r["constants_of"] for r in data["machines"]] == ["h100"] * 3
    shown = napkin(*asked)
    assert "Without a price: l40s." in shown.out
    (others,) = {"a100", "l40s"} & {line.split(",")[0] for line in shown.out.splitlines()}
    assert "were measured on the h100." in " ".join(shown.out.split())
    assert f"{others}, {({'a100', 'l40s'} - {others}).pop()}: rates and capacities" in shown.out


def test_the_price_of_a_machine_file(napkin: Callable[..., Any], here: Path) -> None:
    shipped = Path(nk.__file__).parent / "machine" / "h100.toml"
    title, rest = shipped.read_text().split("\n", 1)
    price = '{ value = 3.0, unit = "USD/h", source = "an offer" }'
    (here / "mine.toml").write_text(f"{title}\nprice = {price}\n{rest}")
    given = ("cost", "matmul", "--sizes", "a=512,b=512,c=512", "--against", "mine.toml", "--json")
    (row,) = json.loads(napkin(*given).out)["machines"]
    assert row["usd_per_hour"] == 3.0
    for name in ("mine.toml", "mine"):
        (row,) = json.loads(napkin(*given, "--prices", f"{name}=4").out)["machines"]
        assert row["usd_per_hour"] == 4.0


def test_where_a_machine_has_no_plan(napkin: Callable[..., Any], here: Path) -> None:
    (here / "held.py").write_text(
        "import napkin as nk\n"
        "@nk.diagram('q x, q x -> q x', sizes={'q': 64, 'x': 4194304})\n"
        "def held(A, B):\n    return nk.softmax(nk.sort(A, 'x') + B, over='x')\n"
    )
    found = napkin("cost", "held.py", "--against", "a100,h100", "--csv", "rows.csv")
    assert (found.status, found.out) == (2, "")
    assert "there is no plan on a100, h100\n  a100: derive" in found.err
    assert "is refused at" in found.err
    assert not (here / "rows.csv").exists()
    source = (here / "held.py").read_text().replace("4194304", "1024")
    (here / "held.py").write_text(source)
    given = ("cost", "held.py", "--sizes", "x=256", "--storage", "A=fp8", "--against", "a100,h100")
    data = json.loads(napkin(*given, "--json").out)
    assert [r["machine"] for r in data["refused"]] == ["a100"]
    assert [r["machine"] for r in data["machines"]] == ["h100"]
    assert "a100: storage fp8 is refused" in napkin(*given).out


def test_sizes_without_a_plan_do_not_cost_the_others(
    napkin: Callable[..., Any], here: Path
) -> None:
    (here / "held.py").write_text(
        "import napkin as nk\n"
        "@nk.diagram('q x, q x -> q x', sizes={'q': 64, 'x': 64})\n"
        "def held(A, B):\n    return nk.softmax(nk.sort(A, 'x') + B, over='x')\n"
    )
    given = ("cost", "held.py", "--sweep", "x=16384..4194304:4177920")
    data = json.loads(napkin(*given, "--json", "--csv", "rows.csv").out)
    assert [r["x"] for r in data["rows"]] == [16384]
    (none,) = data["refused"]
    assert none["x"] == 4194304
    assert "is refused at" in none["reason"]
    assert len((here / "rows.csv").read_text().splitlines()) == 2
    shown = napkin(*given)
    assert "x=4,194,304: derive held for h100 is refused" in shown.out
    found = napkin("cost", "held.py", "--sweep", "x=4194304..4194304")
    assert (found.status, found.out) == (2, "")
    assert "--sweep: there is no plan at any size: derive held" in found.err


def test_what_follows_from_a_swept_size_is_not_said_to_be_fixed(
    napkin: Callable[..., Any],
) -> None:
    given = ("cost", "conv1d", "--sizes", "c=64,o=64", "--sweep", "i=64..128")
    assert "conv1d on h100, bf16, c=64,w=3,o=64\n" in napkin(*given).out
    data = json.loads(napkin(*given, "--json").out)
    assert data["sizes"] == {"c": 64, "w": 3, "o": 64}


def test_what_does_not_fit_the_memory_of_a_machine(napkin: Callable[..., Any]) -> None:
    given = ("cost", "matmul", "--sizes", f"a={2**24},b=1024,c=512")
    bytes_all = 2 * (2**24 * 1024 + 1024 * 512 + 2**24 * 512)  # 51.5 GB
    assert 48e9 < bytes_all < 80e9
    rows = json.loads(napkin(*given, "--against", "l40s,h100", "--json").out)["machines"]
    assert {r["resident"] for r in rows} == {bytes_all}
    assert {r["machine"]: r["fits"] for r in rows} == {"h100": True, "l40s": False}
    said = "results and arrays between kernels take 51.5 GB, but its DRAM has 48.0 GB"
    for more in (("--against", "l40s,h100"), ("--on", "l40s")):
        assert f"l40s: inputs, {said}" in " ".join(napkin(*given, *more).out.split())
    assert "DRAM has" not in napkin(*given).out


def test_whose_constants_times_rest_on(napkin: Callable[..., Any]) -> None:
    given = ("cost", "matmul", "--sizes", "a=512,b=512,c=512")
    said = "a100: rates and capacities are its own; other constants (launch, iteration overhead,"
    for more in ((), ("--sweep", "a=64..64")):
        chosen = (*given[:2], *more) if more else given
        assert said in " ".join(napkin(*chosen, "--on", "a100").out.split())
        assert "other constants" not in napkin(*chosen).out


def test_what_symbols_beside_sizes_stand_for(napkin: Callable[..., Any]) -> None:
    parted = napkin("cost", "decode_attention", "--sizes", "b=1,k=2,r=1,x=8192", "--parts", "x=4")
    assert "x_part4 = 4: the parts in which an axis is folded." in parted.out
    documents = napkin("cost", "document_attention", "--sizes", "q=256,x=256")
    said = "visited_x: values of x that a group visits, on average; N is taken to hold equal"
    assert said in " ".join(documents.out.split())
    window = napkin("cost", "streaming_llm")
    assert "K, V: bytes are those of whole chunks" in window.out


def test_a_title_stands_in_one_line(napkin: Callable[..., Any]) -> None:
    shown = napkin("cost", "decode_attention", "--sizes", "b=1,k=2,r=1,x=8192", "--parts", "x=4")
    assert "kernel decode_attention_merge: pipes and their slack\n" in shown.out


def test_rooflines(napkin: Callable[..., Any]) -> None:
    given = ("cost", "attention", "--sizes", "q=8192,x=8192,d=128", "--dtype", "fp16")
    shown = " ".join(napkin(*given).out.split())
    assert "pipes and their slack" in shown
    assert "limited by" in shown
    (kernel,) = json.loads(napkin(*given, "--json").out)["kernels"]
    found = kernel["roofline"]
    h100 = machine("h100")
    assert found["operations"] == pytest.approx(4 * 8192 * 8192 * 128)
    assert found["peak"] == h100.peak("fp16")
    assert found["limited_by"] == kernel["limited_by"]
    (plan_kernel,) = nk.derive(
        load("attention"), sizes={"q": 8192, "x": 8192, "d": 128}, dtype="fp16"
    ).kernels
    time = plan_kernel.choice.time
    assert {p["name"]: p["seconds"] for p in found["pipes"]} == pytest.approx(dict(time.pipes))
    for p in found["pipes"]:
        assert p["share"] == pytest.approx(p["seconds"] / time.seconds)
        assert p["slack"] == pytest.approx(time.seconds - p["seconds"])
    busy = [p["seconds"] for p in found["pipes"]]
    assert busy == sorted(busy, reverse=True)
    l2, shared = found["levels"]
    assert (l2["target"], shared["target"]) == ("l2", "shared")
    assert l2["bytes"] == 2 * 4 * 8192 * 128
    assert shared["bytes"] == sum(kernel["bytes"].values())
    assert l2["balance"] == pytest.approx(295, abs=0.5)
    assert shared["balance"] == pytest.approx(82, abs=0.6)
    assert l2["intensity"] == pytest.approx(found["operations"] / l2["bytes"])
    assert (l2["bound"], l2["roof"]) == ("compute", h100.peak("fp16"))
    assert shared["roof"] == pytest.approx(
        min(h100.peak("fp16"), shared["intensity"] * h100.l2_rate)
    )


def test_the_kernels_that_run_have_their_tables(napkin: Callable[..., Any]) -> None:
    sizes = {"q": 16384, "x": 16384, "d": 128}
    given = ("cost", "attention", "--sizes", ",".join(f"{a}={n}" for a, n in sizes.items()))
    plan = nk.derive(load("attention"), sizes=sizes)
    (fast,) = plan.launched.kernels
    assert fast.schedule.warpgroups
    shown = napkin(*given).out
    assert f"kernel attention, {fast.schedule.side}: pipes and their slack\n" in shown
    assert f"limited by {plan.limited_by}\n" in shown
    assert f"\npredicted time {plan.seconds * 1e6:,.1f} us\n" in shown
    (found,) = json.loads(napkin(*given, "--json").out)["warpgroups"]
    assert found["roofline"]["seconds"] == pytest.approx(plan.seconds)
    assert found["roofline"]["levels"][-1]["bytes"] == plan.moved
    (row,) = json.loads(napkin(*given[:2], "--sweep", "q,x=16384..16384", "--json").out)["rows"]
    assert (row["seconds"], row["moved"]) == (plan.seconds, plan.moved)


def test_a_roofline_without_products(napkin: Callable[..., Any]) -> None:
    (kernel,) = json.loads(napkin("cost", "softmax", "--json").out)["kernels"]
    found = kernel["roofline"]
    assert (found["pipe"], found["peak"]) == ("fp32 arithmetic", machine("h100").peak("fp32"))
    assert {x["bound"] for x in found["levels"]} == {"memory"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--sweep", "q"), "--sweep: 'q' has no '='; write --sweep q,x=1024..65536"),
        (("--sweep", "q=1024"), "'1024' is no range; write --sweep q,x=1024..65536"),
        (("--sweep", "q=2048..1024"), "2048..1024 runs backwards; write 1024..2048"),
        (("--sweep", "q=0..1024"), "q=0 is too small"),
        (("--sweep", "q=1..1024:0"), "step=0 is too small"),
        (("--sweep", "q=1..1024:1"), "1,024 sizes, at most 256; take a larger step"),
        (("--sweep", "q=1..4k"), "q='4k' is not a whole number"),
        (("--sweep", "Q=1..4"), "'Q' is not the name of an axis"),
        (("--sweep", "q,q=1..4"), "axis q stands twice"),
        (("--sweep", "z=1..4"), "--sweep: attention has no axis 'z'; known: q, d, x"),
        (("--sweep", "q=1..4,x=1..4"), "has more than one range; axes that are swept together"),
        (("--sweep", "q=1..4:1,x=1..4"), "has more than one range; axes that are swept together"),
        (("--sweep", "q=1..4", "--csv", "none/rows.csv"), "none/rows.csv cannot be written: No"),
        (("--sweep", "q=16..64", "--sizes", "q=64"), "q is swept, so leave it out of --sizes"),
        (("--sweep", "q=16..64", "--on", "h101"), "unknown machine 'h101'"),
        (("--against", "h100,h101"), "unknown machine 'h101'; did you mean 'h100'?"),
        (("--against", "h100,"), "a machine is empty; write --against a100,h100,b200"),
        (("--against", "h100,h100"), "h100 is given twice"),
        (("--against", "a100,a100_80"), "--against: a100_80 is a100; write it once"),
        (("--against", "h100", "--prices", "a100=1"), "--prices: a100 is none of h100"),
        (("--against", "h100", "--prices", "h100=a"), "h100='a' is no price; write USD per hour"),
        (("--against", "h100", "--prices", "h100=-1"), "h100='-1' is no price"),
        (("--against", "h100", "--prices", "h100=1,h100=2"), "h100 is given twice"),
        (("--prices", "h100=1"), "--prices goes with --against"),
        (("--against", "a100", "--prices", "a100=0"), "a100='0' is no price; write USD per hour"),
        (("--against", "a100", "--on", "h200"), "--against says which machines; add h200 to them"),
        (("--against", "h100", "--sweep", "q=16..64"), "--sweep and --against are tables"),
        (("--against", "h100", "--dtype", "bf17"), "dtype 'bf17'"),
    ],
)
def test_wrong_input(napkin: Callable[..., Any], arguments: tuple[str, ...], message: str) -> None:
    found = napkin("cost", "attention", *arguments)
    assert (found.status, found.out) == (2, "")
    assert message in found.err
