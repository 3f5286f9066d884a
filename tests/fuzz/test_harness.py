"""The harness itself: processes that end, runs that are cut short, what is counted and kept."""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import algebra
import candidates
import drawn
import forced
import modes
import numpy as np
import pool
import pytest
import run
import sources
import traits
from draw import draw
from drawing import ENDS, SHARED
from elsewhere import ELSEWHERE, WHY_RULE
from handmade import by_hand
from in_numpy import ahead, execute
from judged import COUNTS, Failure
from modes import AGAIN, APART, again
from programs import Input, Keys, Program, Ref, Step
from record import Record
from written import diagram, text

import napkin as nk
from napkin.diagram.library import load
from napkin.ir.node import postorder
from napkin.plan.derive import derive
from napkin.plan.fitting import formed
from napkin.run._wire import Job
from napkin.run.worker import KernelError

HERE = Path(__file__).parent


def numbered(seed: int):
    """Ends its process at seed 3, hangs at seed 5."""
    if seed == 3:
        os._exit(7)
    if seed == 5:
        time.sleep(60)
    return None, {"counts": {"tried": 1}}


def test_what_a_process_that_ended_had_not_come_to_is_done_by_others(monkeypatch):
    monkeypatch.setattr(pool, "LOOKED", 0.05)
    made = pool.Pool(numbered, 2, limit=0.1, memory=0, ahead=3)
    found = {r.seed: r.failure for r in made.run(range(12), 60)}
    made.close()
    assert sorted(found) == list(range(12))
    failed = {seed: f.category for seed, f in found.items() if f is not None}
    assert failed == {3: "crash", 5: "timeout"}


def test_what_took_too_long_beside_others_is_tried_again_after_them(monkeypatch, tmp_path):
    def work(seed: int):
        if seed == 2 and not (once := tmp_path / "once").exists():
            once.touch()
            time.sleep(60)
        if seed == 5:
            time.sleep(60)
        return None, None

    monkeypatch.setattr(pool, "LOOKED", 0.05)
    made = pool.Pool(work, 4, limit=0.1, memory=0, ahead=3)
    found = [(r.seed, r.failure and r.failure.category) for r in made.run(range(8), 60)]
    made.close()
    assert sorted(found) == [(i, "timeout" if i == 5 else None) for i in range(8)]
    assert {seed for seed, _ in found[-2:]} == {2, 5}


def test_a_run_that_is_told_to_end_writes_what_it_found(monkeypatch, tmp_path):
    def work(seed: int):
        if seed == 4:
            os.kill(os.getppid(), signal.SIGTERM)
            time.sleep(5)
        return Failure("crash", "made up") if seed == 1 else None, None

    monkeypatch.setattr(modes, "worker", lambda *_: work)
    asked = argparse.Namespace(
        mode="algebra", seeds="0..1000", jobs=1, limit=9.0, seconds=60.0, coverage=False, again=None
    )
    before = {s: signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)}
    record = Record("algebra", tmp_path / "out.json")
    try:
        run.tried(asked, record)
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
    record.write()
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["cut"]
    assert written["programs"] < 10
    assert [(r["seed"], r["cause"]) for r in written["failed"]] == [(1, "made up")]
    assert written["failed"][0]["program"].startswith("@nk.diagram(")


KERNEL = """
@triton.jit
def helper(a):
    return a + 1


@triton.jit
def kernel(X, out, N, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(X + at, mask=at < N)
    tl.store(out + at, helper(x))
"""


def job(text: str, kernel: str = "kernel", **names: str) -> Job:
    """A compilation of a kernel of that text, some of its parameters under other names."""
    x, out = names.get("X", "X"), names.get("out", "out")
    signature = {x: "*fp32", out: "*fp32", "N": "i32"}
    return Job(text, kernel, signature, {"BLOCK": 8}, divisible=frozenset({x}))


def test_kernels_that_differ_only_in_names_are_compiled_once():
    other = KERNEL.replace("X", "Y").replace("kernel", "drawn").replace("helper", "h")
    other = f"{other}\n\ndef unused(q):\n    return q\n"
    first = sources.digest(job(KERNEL))
    assert first == sources.digest(job(other, "drawn", X="Y"))
    assert first != sources.digest(job(KERNEL.replace("mask=", "other=")))
    assert first != sources.digest(job(KERNEL.replace("+ 1", "+ 2")))
    assert first != sources.digest(job(KERNEL.replace("X + at", "out + at")))


def test_both_ways_of_a_choice_are_marked():
    text = (
        "def f(x):\n    y = 1 if x else 2\n    if y == 1:\n        raise KeyError\n    return y\n"
    )
    made = drawn._Marked("f.py", 0)
    tree = ast.fix_missing_locations(made.visit(ast.parse(text)))
    taken: set[int] = set()
    marks = type("Marks", (), {"__setitem__": lambda self, i, _: taken.add(i)})()

    def way(number: int, value: object) -> object:
        taken.add(number)
        return value

    space = {"__marks__": marks, "__way__": way}
    exec(compile(tree, "f.py", "exec"), space)
    assert space["f"](0) == 2
    names = [made.ways[i].name.partition(" ")[2] for i in sorted(taken)]
    assert names == ["column 8 orelse", "fails", "f is called"]
    assert [w.name for w in made.ways if w.refuses] == ["f.py:3 holds"]


def test_rules_are_counted_where_they_are_applied():
    """The file was named by its place before it moved, and every rule was drawn 0 times."""
    (tree,) = (t for path, (t, _) in drawn.marked().items() if path == drawn.root() / drawn.RULE)
    assert "__applied__(self.name, found.made)" in ast.unparse(tree)


def test_what_is_drawn_elsewhere_exists():
    lie_in = {(w.name.partition(":")[0].removeprefix(drawn.EMITTERS), w.inside)
              for w in drawn.ways()}  # fmt: skip
    assert ELSEWHERE.keys() <= lie_in
    assert WHY_RULE.keys() <= {f"rule {r}" for r in drawn.rules()}
    (way,) = (w for w in drawn.ways() if w.inside == "seen" and "launch.py" in w.name)
    assert way.why == ELSEWHERE["launch.py", "seen"]


def test_a_rule_for_all_nodes_is_drawn_where_it_changes_one():
    drawn.RULES.clear()
    drawn._applied("nothing", {"a": "a"})
    drawn._applied("something", {"a": "b"})
    drawn._applied("kernel", object())
    assert {"something", "kernel"} == drawn.RULES


def test_a_program_without_axes_is_tried():
    program = Program((Input("X", ()),), (Step("exp", (Ref(0),)),), ((Ref(1), ()),), {})
    for seed in range(12):  # of one in seven an axis has no positions
        assert modes.tried(modes.prepared("algebra"), program, seed) is None


def test_values_on_the_edge_of_a_step_are_no_wrong_rewriting():
    """Two values as far from their mean as each other are compared with the mean of both, which a
    quotient taken after the sum rounds otherwise."""
    seed = 32001164
    assert modes.tried(modes.prepared("algebra"), draw(seed), seed) is None


EDGES = {
    153003373: "equal values beside their mean",
    67002305: "values that a maximum makes equal beside their mean",
    164010103: "a sum of deviations from a mean, which a kernel knows to be 0",
    148005527: "a + b - a b of thousands of numbers below and above 0, which grows and shrinks",
}
"""What rounding decides, and moving inputs does not show."""


@pytest.mark.parametrize("seed", EDGES, ids=EDGES.get)
def test_values_that_the_order_of_a_sum_decides_are_no_wrong_kernel(seed: int) -> None:
    assert modes.tried(modes.prepared("algebra"), draw(seed), seed) is None


def test_a_kernel_that_is_off_by_more_than_its_sums_is_found(monkeypatch) -> None:
    """Beside a step that rounding turns: a mean of equal values, and the values times 1 + 1e-6."""
    right = algebra.execute

    def off(*given, **more):
        found = right(*given, **more)
        for name, value in found.outputs.items():
            found.outputs[name] = value * (1 + 1e-6)
        return found

    monkeypatch.setattr(algebra, "execute", off)
    steps = (
        Step("sum", (Ref(0),), (("x",),)),
        Step("maximum", (Ref(0), Ref(1))),
        Step("mean", (Ref(2),), (("x",),)),
        Step("greater", (Ref(2), Ref(3))),
        Step("where", (Ref(4), Ref(2), Ref(0))),
    )
    given = Input("X", ("x",), fill="positive")
    program = Program((given,), steps, ((Ref(5), ("x",)),), {"x": 7})
    failure = modes.tried(modes.prepared("algebra"), program, 0)
    assert failure.category == "wrong value"
    assert failure.cause.startswith("kernel")


def test_a_rewriting_that_is_off_by_more_than_rounding_is_found(monkeypatch):
    right = candidates.Values.output
    monkeypatch.setattr(candidates.Values, "output", lambda *given: right(*given) * (1 + 1e-6))
    step = Step("exp", (Ref(0),))
    program = Program((Input("X", ("x",)),), (step,), ((Ref(1), ("x",)),), {"x": 3})
    failure = modes.tried(modes.prepared("algebra"), program, 0)
    assert (failure.category, failure.cause) == ("wrong value", "rewriting")


def test_a_case_for_a_device_runs_where_its_tensors_are():
    pytest.importorskip("torch")
    import ongpu
    from forced import plans

    program = draw(0)
    (plan, *_) = plans(diagram(program), dict(program.sizes), "fp32", random.Random(0), 1)
    case = ongpu.Case(program, plan, program.sizes, 0, on="cpu")
    case.check()
    facts = case.noted(Failure("wrong value", "made up")).facts
    assert json.loads(json.dumps(facts))["dtype"] == "fp32"
    assert "@triton.jit" in facts["source"]


@pytest.mark.parametrize("seed", [7000092, 7000266, 7001667, 7001784, 7003971])
def test_threads_of_drawn_plans_hold_what_compiles_in_seconds(seed: int) -> None:
    """Of 2,048 values of one tensor a compilation took six minutes."""
    program = draw(seed)
    forcing = forced.Forcing(diagram(program), program.sizes, "bf16", random.Random(seed))
    for plan in filter(None, (forcing.plan() for _ in range(4))):
        for k in plan.kernels:
            terms = [n for n in postorder(k.program.roots) if not n.constant]
            values = max(k.program.span(formed(k.program, n)) for n in terms)
            assert values <= forced.HELD * 32 * k.schedule.warps


@pytest.mark.parametrize("seed", [15015696, 18013466])
def test_arrays_in_slots_of_kernels_with_batches_and_with_empty_axes_are_stored(seed: int) -> None:
    """One is repeated along an axis of a batch, of the other an axis has no positions."""
    assert modes.tried(modes.prepared("algebra"), draw(seed), seed) is None


def test_drawn_plans_that_do_not_fit_or_compile_are_not_launched(monkeypatch):
    """As the planner has it: 300,000 bytes are more than a group of any machine has."""
    pytest.importorskip("torch")
    import ongpu

    plan = derive(load("matmul"), "h100")
    asked = "drawn plans that the compiler does not take"
    before = COUNTS[asked]
    monkeypatch.setattr(ongpu, "allocations", lambda jobs: [100_000 for _ in jobs])
    assert ongpu.compiles(plan)
    assert COUNTS[asked] == before
    for taken in (300_000, KernelError("it does not compile")):
        monkeypatch.setattr(ongpu, "allocations", lambda jobs, taken=taken: [taken for _ in jobs])
        assert not ongpu.compiles(plan)
    assert COUNTS[asked] == before + 2


@pytest.mark.parametrize("kinds", [False, True])
def test_what_is_rare_is_drawn_as_often_as_what_is_common(kinds: bool) -> None:
    program = draw(0)
    forcing = forced.Forcing(diagram(program), program.sizes, "fp32", random.Random(0), kinds)
    rare = sum(forcing._drawn([*range(1, 20), 0], bool) == 0 for _ in range(200))
    assert (70 < rare < 130) if kinds else rare < 30


def test_windows_that_share_no_position_are_drawn_split() -> None:
    x = Input("X", ("i",))
    options = (("into", ("p", "w")), ("stride", 2), ("window", 2))
    slide = Step("slide", (Ref(0),), (("i",),), options)
    most = Step("max", (Ref(1),), (("w",),))
    sizes = {"i": 8, "p": 4, "w": 2}
    program = Program((x,), (slide, most), ((Ref(2), ("p",)),), sizes)
    assert [t.law for t in candidates.split(diagram(program), sizes)] == ["windows split"]
    assert not list(candidates.split(diagram(draw(0)), draw(0).sizes))


def test_labels_of_a_person_run_alone() -> None:
    """A program that is called as a function of kernel files is called otherwise there."""
    total = Step("sum", (Ref(0),), (("b",),))
    sizes = {"a": 3, "b": 5}
    program = Program((Input("X", ("a", "b")),), (total,), ((Ref(1), ("a",)),), sizes,
                      name="linear_scan")  # fmt: skip
    made = diagram(program)
    forcing = forced.Forcing(made, program.sizes, "fp32", random.Random(0), True)
    kernels = filter(None, (by_hand(made, random.Random(i)) for i in range(20)))
    plans = list(filter(None, map(forcing.of, kernels)))
    assert plans
    assert all(k.name == "linear_scan_kernel" for p in plans for k in p.kernels)


def test_a_program_may_call_another_and_say_storage_types_later() -> None:
    steps = (Step("tanh", (Ref(0),)), Step("sum", (Ref(1),), (("b",),)))
    given = (Input("X", ("a", "b"), storage="fp16"),)
    plain = Program(given, steps, ((Ref(2), ("a",)),), {"a": 3, "b": 5})
    other = replace(plain, called=1, stored=True)
    assert "t0 = drawn_first(X)" in text(other)
    assert "drawn.stored(**{'X': 'fp16'})" in text(other)
    assert diagram(plain).roots == diagram(other).roots


LONG_SCAN = """
from unittest import mock
import interpret
from judged import COUNTS
from napkin.ir.node import over, postorder
from test_harness import SCANNED
from written import diagram

def check(case):
    positions = 0
    for k in case.plan.kernels:
        known = k.choice.kernel.sized(case.plan.full(case.sizes))
        groups = [-(-known[a] // k.tiles[a]) for a in k.choice.kernel.group]
        scans = [n for n in postorder(k.program.roots) if n.op == "recurrence"]
        lengths = sum(interpret.math.prod(k.tiles[a] for a in over(n)) for n in scans)
        positions += interpret.math.prod(groups) * lengths
    print(positions)

program = SCANNED[SEED]
with mock.patch.object(interpret.Case, "check", check):
    interpret.planned(program, diagram(program), SEED)
print(COUNTS["plans for large sizes that take long"])
"""

FIELD = tuple(
    Keys("neighborhood", (n,), options, ("a", "b"), ("c", "d"))
    for n, options in (
        ((1, 2), (("stride", (1, 2)), ("dilation", (3, 2)), ("is_causal", (True, True)))),
        ((4, 4), (("stride", (2, 3)),)),
    )
)

SCANNED = {
    25004232: Program(
        (Input("T", ("h", "n", "x", "q")), Input("W", ("k", "x")), Input("Y", ("k", "x"))),
        (
            Step("contract", (Ref(1), Ref(0)), (("x",),)),
            Step("contract", (Ref(2), Ref(0)), (("x",),)),
            Step("tanh", (Ref(3),)),
            Step("sigmoid", (Ref(4),)),
            Step("scan", (0.5, Ref(6), Ref(5)), (("k",),), (("form", "decayed"),)),
            Step("scan", (0.0, 0.5, Ref(7)), (("k",),), (("form", "decayed"),)),
        ),
        ((Ref(8), ("h", "n", "q", "k")),),
        {"x": 33, "q": 16, "k": 64, "h": 5, "n": 5},
    ),
    25005860: Program(
        (Input("W", ("a", "b", "e")), Input("V", ("c", "d", "e"))),
        (
            Step("contract", (Ref(0), Ref(1)), (("e",),)),
            Step("softmax", (Ref(2),), (("c", "d"),), (), (
                Keys("|", (), (), ("a", "b"), ("c", "d"), parts=FIELD),
            )),
            Step("softmax", (Ref(3),), (("c",),)),
            Step("scan", (0.5, 0.5, Ref(4)), (("c",),), (("form", "average"),)),
            Step("scan", (0.0, 0.5, Ref(5)), (("c",),), (("form", "decayed"),)),
        ),
        ((Ref(6), ("b", "c", "a", "d")),),
        {"a": 4, "b": 5, "e": 2, "c": 4, "d": 5},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("seed", "over"), [(25004232, 0), (25005860, 1)])
def test_an_interpreter_scans_few_positions_in_turn(seed: int, over: int) -> None:
    """Of tiles for 2,048 positions it scanned 409,600, which took 45 s; where no smaller sizes take
    less, the plan is counted as passed over."""
    here = {**os.environ, "TRITON_INTERPRET": "1"}
    text = LONG_SCAN.replace("SEED", str(seed))
    command = [sys.executable, "-c", text]
    ran = subprocess.run(command, cwd=HERE, env=here, capture_output=True, text=True, check=True)
    *positions, passed = map(int, ran.stdout.split())
    assert passed == over
    assert len(positions) == 1 - over
    assert all(0 < n <= 30_000 for n in positions)


def test_algebra_is_tried_at_sizes_whose_numbers_take_no_time(monkeypatch) -> None:
    """A form of this program has an array of 33 x 32 x 128 values, on which candidates would be
    run."""
    tried: list[dict[str, int]] = []
    known = algebra._Algebra.__init__

    def noted(self, program, diagram, forms, sizes, seed) -> None:
        tried.append(sizes)
        assert algebra._largest(forms, sizes) <= algebra.VALUES
        known(self, program, diagram, forms, sizes, seed)

    monkeypatch.setattr(algebra._Algebra, "__init__", noted)
    monkeypatch.setattr(algebra._Algebra, "check", lambda self: None)
    COUNTS.clear()
    algebra.algebra(draw(30_000_002), 30_000_002)
    assert draw(30_000_002).sizes == {"b": 33, "n": 32, "long_axis": 128}
    assert tried[0] != draw(30_000_002).sizes
    assert all(tried[0][a] <= size for a, size in draw(30_000_002).sizes.items())
    assert COUNTS["programs at smaller sizes"] == 1


def test_only_what_goes_by_positions_is_found_ahead_of_groups_and_chunks():
    """Scores are; what a maximum so far goes into is not, nor a sum over what is cut."""
    kernel = by_hand_streamed()
    sizes = {"q": 4, "x": 6, "d": 3}
    rng = np.random.default_rng(0)
    given = {t: rng.normal(size=[sizes[a] for a in axes]) for t, axes in READ.items()}
    reads = {a.leaf: given[a.tensor] for a in kernel.reads}
    found = ahead(kernel, ("q", "x"), reads, sizes, {}, {})
    (scores,) = found
    np.testing.assert_allclose(found[scores], given["Q"] @ given["K"].T * 3**-0.5)
    assert not any(n.op == "state" for n in postorder([scores]))
    assert not ahead(kernel, ("q", "x", "d"), reads, sizes, {}, {})


def test_values_that_were_found_ahead_are_those_of_a_run_without(monkeypatch):
    kernel = by_hand_streamed()
    sizes, tiles = {"q": 5, "x": 7, "d": 3}, {"q": 2, "x": 3, "d": 3}
    rng = np.random.default_rng(0)
    given = {t: rng.normal(size=[sizes[a] for a in axes]) for t, axes in READ.items()}
    (found,) = execute(kernel, given, sizes, tiles).outputs.values()
    monkeypatch.setattr("in_numpy.ahead", lambda *_: {})
    (wanted,) = execute(kernel, given, sizes, tiles).outputs.values()
    np.testing.assert_allclose(found, wanted, rtol=1e-13)


READ = {"Q": "qd", "K": "xd", "V": "xd"}
"""The arrays of attention, with their axes."""


def by_hand_streamed():
    """Attention that streams x."""
    return load("attention").stream("x").group(q=2).kernel


def test_another_try_has_plans_of_the_same_kind() -> None:
    """Gradients that run as warpgroups end where infinities begin."""
    first, plans = again(88_610_061 + 300 * AGAIN)
    assert first == 88_610_061
    assert SHARED < plans < ENDS
    assert again(140_000_000 + 2 * AGAIN)[1] == 140_000_000 + 2 * APART


def test_what_kernels_have_is_seen_by_twos():
    plan = derive(load("causal_attention"), "h100")
    (kernel,) = plan.kernels
    traits.SEEN.clear()
    traits.saw(kernel, {**plan.sizes, "q": 100, "x": 100}, warpgroups=True)
    assert "kernels with visits and a chain of products" in traits.SEEN
    assert "kernels with products and warpgroups" in traits.SEEN
    assert "kernels with warpgroups and a short last tile" in traits.SEEN
    assert not any("an empty axis" in pair or "parts" in pair for pair in traits.SEEN)
    assert not traits.SEEN - {*traits.all_pairs()}


def test_a_key_set_is_seen_in_each_part_of_a_scan():
    """Parts visit all their chunks, so that `visits` says nothing of them."""

    @nk.diagram("t p -> t p", sizes={"t": 400, "p": 5})
    def scanned(S):
        seen = nk.sliding(1, queries="t", keys="p", at=nk.index("t") // 64)
        return nk.cumsum(S * nk.tanh(nk.reduce(S, "sum", over="p", keys=seen)), along="t")

    plan = derive(scanned, "h100", dtype="fp32", parts={"t": 3})
    for kernel, of_scan in zip(plan.kernels, (True, False, True), strict=True):
        traits.SEEN.clear()
        traits.saw(kernel, plan.sizes, warpgroups=False)
        assert ("kernels with parts of a scan and a key set" in traits.SEEN) == of_scan
