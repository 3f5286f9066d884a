"""Values, bytes and resources are three verdicts, and each says what it found."""

from __future__ import annotations

from dataclasses import replace

import pytest

import napkin as nk
from napkin.check.verdict_rows import CheckFailed, ResourceRow, TrafficRow, ValueRow, Verdict

ROW = ResourceRow("mine", "sm_90", 32_768, 232_448, 213_048, 187, 0)
HELD = Verdict(
    "mine",
    (ValueRow("even", "O", 1e-3, 1e-2),),
    (TrafficRow("even", "mine", "Q", "read", 64, 64),),
    (ROW,),
)


def test_a_row_of_resources_says_what_is_promised_and_what_is_found() -> None:
    assert ROW.ok
    assert ROW.said == "32,768 <= 213,048 <= 232,448 bytes"
    large = replace(ROW, allocated=240_000)
    assert not large.ok
    assert large.said == "32,768 <= 240,000 >  232,448 bytes"
    small = replace(ROW, allocated=16)
    assert not small.ok
    assert small.said == "32,768 >  16 <= 232,448 bytes"


def test_nothing_is_promised_for_another_architecture_but_that_the_kernel_compiles() -> None:
    other = replace(ROW, arch="sm_80", operands=0, room=0)
    assert other.ok
    assert other.said == "213,048 bytes"
    refused = replace(other, allocated=None)
    assert not refused.ok
    assert refused.said == "none: it does not compile"


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (
            replace(HELD, values=(ValueRow("even", "O", 0.5, 1e-2),)),
            "values do NOT hold, bytes hold, resources hold",
        ),
        (
            replace(HELD, traffic=(TrafficRow("even", "mine", "Q", "read", 64, 65),)),
            "values hold, bytes do NOT hold, resources hold",
        ),
        (
            replace(HELD, resources=(replace(ROW, allocated=240_000),)),
            "values hold, bytes hold, resources do NOT hold",
        ),
    ],
)
def test_one_broken_promise_leaves_the_other_verdicts_standing(broken: Verdict, said: str) -> None:
    assert str(HELD).splitlines()[0] == "mine: every prediction holds"
    assert HELD.ok
    assert not broken.ok
    assert str(broken).splitlines()[0] == f"mine: {said}"
    assert broken.to_json()["ok"] is False
    with pytest.raises(CheckFailed, match="mine: 1 predictions do not hold"):
        broken.raise_if_wrong()


@nk.diagram("n c, m c -> n", sizes={"n": 93, "m": 117, "c": 3})
def soft_chamfer(A, B):
    squares = [nk.reduce(t * t, "sum", over="c") for t in (A, B)]
    return nk.reduce(2.0 * nk.contract(A, B, over="c") - squares[0] - squares[1], "logsumexp", "m")


@nk.diagram(
    "q r d, x r d, q d, x d, x v -> q v", sizes={"q": 512, "x": 512, "r": 2, "d": 32, "v": 64}
)
def rotary(Q, K, C, E, V):
    """Attention whose queries and keys are turned by angles, a half of each vector at a time."""
    S = nk.contract(Q * C, K * E, over="r d") * 0.125
    return nk.contract(nk.softmax(S, over="x"), V, over="x")


@pytest.mark.parametrize(("diagram", "dtype"), [(soft_chamfer, "fp32"), (rotary, "bf16")])
def test_memory_beside_operands_breaks_no_promise(diagram: nk.Diagram, dtype: str) -> None:
    """What the compiler takes to change layouts is not predicted, and need not be."""
    verdict = nk.derive(diagram, dtype=dtype).check()
    assert verdict.ok, verdict
    assert all(r.allocated for r in verdict.resources)
