"""What a user adds is treated as napkin's own. Nothing but the package's face is used here."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.plan.standalone import standalone

DEFINED = """
import math
import napkin as nk
from napkin.plan.standalone import standalone

softplus = nk.operator(
    "softplus", 1,
    evaluate=lambda xp, x: xp.logaddexp(x, xp.zeros_like(x)),
    triton="tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))",
    sign="nonnegative", increasing=True, flops=3, special=2,
    derivative=lambda x: nk.sigmoid(x),
)

def both(a, b):
    top = nk.maximum(nk.maximum(a, b), -3.4e38)
    return top + nk.log(nk.exp(a - top) + nk.exp(b - top))

logaddexp = nk.reduction("logaddexp", combine=both, identity=-math.inf, over="add")
"""
USED = """
@nk.diagram("m x, m x -> m", sizes={"m": 512, "x": 2048})
def smooth(A, T):
    return logaddexp(softplus(A) + T, over="x")
"""
_names: dict[str, Any] = {}
exec(compile(DEFINED, "defined", "exec"), _names)
softplus, logaddexp = _names["softplus"], _names["logaddexp"]


@nk.diagram("m x, m x -> m")
def peak(A: Any, T: Any) -> Any:
    top = nk.reduce(A, "max", over="x")
    return nk.reduce(softplus(top) * T, "max", over="x")


@nk.diagram("m x, m x -> m")
def grows(A: Any, T: Any) -> Any:
    top = nk.reduce(A, "max", over="x")
    return nk.reduce(softplus(T - top), "max", over="x")


@nk.diagram("m x, m x -> m")
def shifted(A: Any, T: Any) -> Any:
    total = nk.reduce(A, "sum", over="x")
    return nk.reduce(T + total, "logaddexp", over="x")


@nk.diagram("q d, x d, x e -> q e")
def attention(Q: Any, K: Any, V: Any) -> Any:
    S = nk.contract(Q, K, over="d") * 0.2
    L = logaddexp(S, over="x", keys=nk.causal("q", "x"))
    P = nk.exp(S - L)
    return nk.contract(softplus(P), V, over="x")


def smooth_of(a: Any, t: Any) -> Any:
    return np.logaddexp.reduce(np.logaddexp(a, 0.0) + t, axis=-1)


def test_both_evaluate() -> None:
    rng = np.random.default_rng(0)
    A, T = rng.normal(size=(2, 3, 5)) * 10
    total = A.sum(1, keepdims=True)
    np.testing.assert_allclose(shifted.evaluate(A, T), np.logaddexp.reduce(T + total, axis=1))
    top = A.max(1, keepdims=True)
    np.testing.assert_allclose(grows.evaluate(A, T), np.logaddexp(T - top, 0.0).max(1))
    nothing = shifted.evaluate(np.ones((2, 0)), np.ones((2, 0)))
    assert np.array_equal(nothing, [-np.inf, -np.inf])


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8])
def test_a_reduction_takes_any_number_of_values(n: int) -> None:
    @nk.diagram("a b c -> b")
    def summed(X: Any) -> Any:
        return logaddexp(X, over="a c")

    X = np.random.default_rng(n).normal(size=(n, 2, 3))
    np.testing.assert_allclose(summed.evaluate(X), np.logaddexp.reduce(X, axis=(0, 2)))


def test_a_reduction_of_no_whole_numbers_is_a_whole_number() -> None:
    """It has an infinite identity, and kernels keep whole numbers in int32."""
    near = nk.operator(
        "near_zero",
        2,
        evaluate=lambda xp, a, b: xp.where(abs(a) < abs(b), a, xp.where(a == -b, abs(a), b)),
        triton="tl.where(tl.abs(a) < tl.abs(b), a, tl.where(a == -b, tl.abs(a), b))",
        kind=None,
    )
    nearest = nk.reduction("nearest_zero", combine=near, identity=math.inf)

    @nk.diagram("a x:int -> a")
    def least(X: Any) -> Any:
        return nearest(X, over="x")

    assert np.asarray(least.evaluate(np.array([[3, -1, 2]]))).tolist() == [-1]
    assert np.asarray(least.evaluate(np.ones((2, 0), int))).tolist() == [2**31 - 1] * 2


def test_whole_numbers_are_reduced_as_reals_where_reals_are_joined() -> None:
    """Padded lanes and hidden positions have the identity, which is no whole number."""

    @nk.diagram("m x:int -> m")
    def levels(T: Any) -> Any:
        return logaddexp(T, over="x")

    @nk.diagram("m x:int -> m")
    def seen(T: Any) -> Any:
        return logaddexp(T, over="x", keys=nk.sliding(2, 9, queries="m", keys="x"))

    T = np.array([[-(2**31), 3, 2**31 - 1], [-(2**31)] * 3, [1, 2, 3]])
    for d in (levels, seen):
        for given in (T, T[:, :0]) if d is levels else (T,):
            plan = nk.derive(d, sizes={"m": 3, "x": 3}, dtype="fp32")
            assert np.allclose(plan(given), d.evaluate(given))


def test_what_separates_streams() -> None:
    assert "softplus(top) * T = [T] * [softplus(top)]" in str(peak.stream("x"))
    assert "softplus(max(T, over x) - top)" in str(grows.stream("x"))
    assert "T + total = [T] + [1] * [total]; deferred total" in str(shifted.stream("x"))


def test_what_does_not_separate_is_refused() -> None:
    @nk.diagram("m x, m x -> m")
    def scaled(A: Any, T: Any) -> Any:
        total = nk.reduce(A, "sum", over="x")
        return logaddexp(T * total, over="x")

    with pytest.raises(nk.Refusal, match="multiplies the chunk by a running result"):
        scaled.stream("x")

    @nk.diagram("m x, m x -> m")
    def summed(A: Any, T: Any) -> Any:
        total = nk.reduce(A, "sum", over="x")
        return nk.reduce(softplus(T - total), "sum", over="x")

    with pytest.raises(nk.Refusal, match=r"softplus\(T - total\) does not separate from total"):
        summed.stream("x")


def test_a_sum_by_another_name_streams_as_a_sum_does() -> None:
    nk.reduction("totalled", combine=lambda a, b: a + b, identity=0.0)

    @nk.diagram("m x, x v -> m v", sizes={"m": 64, "x": 256, "v": 16})
    def weighed(S: Any, V: Any) -> Any:
        P = nk.exp(S - nk.reduce(S, "max", over="x"))
        return nk.reduce(P * V, "totalled", over="x") / nk.reduce(P, "totalled", over="x")

    assert "running m (rescale exp(m_old - m_new))" in str(weighed.stream("x"))
    verdict = nk.derive(weighed).check()
    assert verdict.ok, str(verdict)


def test_a_shift_comes_out_of_a_reduction_over_another_axis() -> None:
    @nk.diagram("b x, x -> ()")
    def shared(T: Any, A: Any) -> Any:
        total = nk.reduce(A, "sum", over="x")
        return nk.reduce(logaddexp(T + total, over="b"), "max", over="x")

    assert "; deferred total" in str(shared.stream("x"))
    verdict = nk.derive(shared, sizes={"b": 4, "x": 256}).check()
    assert verdict.ok, str(verdict)


@pytest.mark.parametrize("made", [peak, grows, shifted])
def test_kernels_are_checked(made: Any) -> None:
    plan = nk.derive(made, sizes={"m": 256, "x": 1024})
    assert len(plan.kernels) == 1
    verdict = plan.check()
    assert verdict.ok, str(verdict)


def test_attention_by_a_reduction_of_ones_own() -> None:
    plan = nk.derive(attention, sizes={"q": 512, "x": 512, "d": 32, "e": 32})
    verdict = plan.check()
    assert verdict.ok, str(verdict)


def test_they_are_drawn() -> None:
    assert "softplus" in peak.draw()
    assert "logaddexp" in shifted.draw()


def napkin(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "napkin", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_commands_take_a_file_with_them(tmp_path: Path) -> None:
    page = tmp_path / "smooth.py"
    page.write_text(DEFINED + USED, encoding="utf-8")
    derived = napkin("derive", str(page))
    assert "group m" in derived
    explained = napkin("explain", str(page))
    assert "logaddexp(softplus(A) + T, over x)" in explained
    assert "def combine_logaddexp(a, b):" in explained
    assert "def softplus(x):" in explained


def kept(folder: Path, log: str) -> str:
    """The name under which another process keeps the recipe of a diagram, where softplus takes its
    logarithm by `log`."""
    body = DEFINED.replace("tl.log(1.0 +", log) + USED
    body += "from napkin.diagram.fingerprint import fingerprint\nprint(fingerprint(smooth))"
    page = folder / "kept.py"
    page.write_text(body, encoding="utf-8")
    environment = {**os.environ, "PYTHONHASHSEED": str(len(log))}
    done = subprocess.run(
        [sys.executable, str(page)], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout


def test_another_definition_of_the_same_name_is_another_diagram(tmp_path: Path) -> None:
    first = kept(tmp_path, "tl.log(1.0 +")
    assert kept(tmp_path, "tl.log(1.0 +") == first
    assert kept(tmp_path, "tl.log(1 + ") != first


def test_what_listings_print_is_no_python() -> None:
    """A launcher computes constants of a kernel."""
    text: dict[str, Any] = {"triton": "tl.abs(x)", "text": "|{0}| {{}}"}
    size = nk.operator("magnitude", 1, evaluate=lambda xp, x: xp.abs(x), **text)

    @nk.diagram("x d -> x", sizes={"x": 3, "d": 1024})
    def weighted(X: Any, s: float = -5.0) -> Any:
        return nk.reduce(X * size(s + nk.size("x")), "sum", over="d")

    plan = nk.derive(weighted, dtype="fp32")
    X = np.ones((3, 1024), np.float32)
    assert any("|(s + x)| {}" in text for text in standalone(plan).values())
    assert np.allclose(plan(X), weighted.evaluate(X))


# --- what is refused ------------------------------------------------------------------------------

SQUARE: dict[str, Any] = {"evaluate": lambda xp, x: x * x, "triton": "x * x"}


@pytest.mark.parametrize(
    ("name", "arity", "changed", "says"),
    [
        ("exp", 1, {}, "operator exp: napkin has something of that name; choose another"),
        ("sum", 1, {}, "operator sum: napkin has something of that name"),
        ("softmax", 1, {}, "operator softmax: napkin has something of that name"),
        ("largest", 1, {}, "operator largest: napkin has something of that name"),
        ("softplus", 1, {}, "operator softplus is defined already, and otherwise"),
        ("a b", 1, {}, "operator 'a b': the name is no Python name"),
        ("lambda", 1, {}, "operator 'lambda': the name is no Python name"),
        ("square", 0, {}, "arity is 0; it is 1, 2 or 3"),
        ("square", 1, {"kind": "float"}, "kind is 'float'; it is 'real', 'int', 'bool' or None"),
        ("square", 1, {"evaluate": 3}, "evaluate is 3, which is no function"),
        ("square", 1, {"evaluate": lambda xp: 1}, "evaluate(numpy, ...) raised TypeError"),
        ("square", 1, {"evaluate": lambda xp, x: x.sum()}, "it gives a number for each position"),
        ("square", 1, {"triton": ""}, "triton is empty; write an expression of x"),
        ("square", 1, {"triton": "x *"}, "triton is no Python"),
        ("square", 1, {"triton": "y * y"}, "triton names 'y'"),
        ("square", 1, {"triton": "import os"}, "one expression, or assignments and a return"),
        ("square", 1, {"sign": "negative"}, "sign is 'negative'; it is 'positive', 'nonnegative'"),
        ("square", 1, {"sign": "positive"}, "said to be positive, but square(0) is 0"),
        ("square", 1, {"sign": lambda a: "yes"}, "sign gave 'yes'"),
        ("square", 1, {"increasing": True}, "said to increase, but square("),
        ("square", 1, {"meaning": lambda sp, x: x**3}, "its meaning x0**3 is"),
        ("square", 1, {"text": "{0} ** {1}"}, "text is '{0} ** {1}'; it names each argument"),
        *(
            ("square", 1, {"text": text}, f"text is {text!r}; it names each argument once, {{0}}")
            for text in ("{0:x}", "{0!z}", "{0:{1}}", "{0} {", "{{0}}", "{x}", "{}")
        ),
        ("square", 1, {"triton": "{0} * {0}"}, "triton has braces; write x: {0} * {0}"),
        ("square", 1, {"gluon": "x * {x}"}, "gluon has braces; write x: x * {x}"),
        ("square", 1, {"flops": -1}, "flops is -1; it counts operations"),
    ],
)
def test_an_operator_that_is_wrong_is_refused(
    name: str, arity: int, changed: dict[str, Any], says: str
) -> None:
    with pytest.raises(nk.InputError) as found:
        nk.operator(name, arity, **{**SQUARE, **changed})
    assert says in str(found.value)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"combine": lambda a, b: (a + b) / 2}, "combine(a, 0.0) = a fails at a = 1: 0.5 is not 1"),
        ({"combine": lambda a, b: a - b}, "combine(a, b) = combine(b, a) fails at"),
        (
            {"combine": lambda a, b: a + b + a * a * b * b},
            "combine(combine(a, b), c) = combine(a, combine(b, c)) fails at",
        ),
        (
            {"combine": lambda a, b: a + b + a * b, "over": "add"},
            "add(combine(a, b), c) = combine(add(a, c), add(b, c)) fails at",
        ),
        ({"combine": lambda a: a}, "no function of two arrays"),
        ({"combine": lambda a, b: 1.0}, "it gave 1.0, which is no array"),
        ({"combine": lambda a, b: a + nk.index("x")}, "it uses index"),
        ({"combine": softplus}, "combine is softplus, which takes 1 arrays; it takes 2"),
        ({"combine": None}, "combine is None, which is no function"),
        ({"identity": math.nan}, "identity is nan; it is a number"),
        ({"over": "div"}, "over is 'div'; it is 'add', 'mul' or ''"),
        (
            {"evaluate": lambda xp, x, axes, start: x.sum(axes)},
            "is not its values combined",
        ),
    ],
)
def test_a_reduction_that_is_wrong_is_refused(changed: dict[str, Any], says: str) -> None:
    good: dict[str, Any] = {"combine": lambda a, b: a + b + a * b, "identity": 0.0}
    with pytest.raises(nk.InputError) as found:
        nk.reduction("compound", **{**good, **changed})
    assert says in str(found.value)


def test_a_refused_reduction_leaves_nothing_behind() -> None:
    with pytest.raises(nk.InputError, match="combine"):
        nk.reduction("growth", combine=lambda a, b: a - b, identity=0.0)
    made = nk.reduction("growth", combine=lambda a, b: a + b + a * b, identity=0.0)

    @nk.diagram("x -> ()")
    def grown(X: Any) -> Any:
        return made(X, over="x")

    assert grown.evaluate(np.array([0.5, 1.0])) == pytest.approx(2.0)
    with pytest.raises(nk.InputError, match="reduction growth is defined already, and otherwise"):
        nk.reduction("growth", combine=lambda a, b: a + b, identity=0.0)


def test_the_same_definition_again_is_the_same() -> None:
    again: dict[str, Any] = {}
    exec(compile(DEFINED, "again", "exec"), again)
    assert again["softplus"].name == "softplus"


def test_the_number_of_arrays_is_checked() -> None:
    with pytest.raises(nk.InputError, match="softplus takes 1 array, not 2"):

        @nk.diagram("x -> x")
        def twice(X: Any) -> Any:
            return softplus(X, X)


def test_an_operator_of_two_arrays_joins_values() -> None:
    larger = nk.operator(
        "larger_size", 2, kind=None,
        evaluate=lambda xp, a, b: xp.where(abs(a) >= abs(b), abs(a), abs(b)),
        triton="tl.maximum(tl.abs(a), tl.abs(b))",
        sign=lambda a, b: "nonnegative", text="{0} |> {1}",
    )  # fmt: skip

    @nk.diagram("x, x -> x")
    def sizes(A: Any, B: Any) -> Any:
        return larger(A, B)

    assert "A |> B" in str(sizes)
    plan = nk.derive(sizes, sizes={"x": 4096})
    verdict = plan.check()
    assert verdict.ok, str(verdict)


def test_a_reduction_of_whole_numbers_to_a_real_gives_reals() -> None:
    """Its value was a whole number in float64's place, and a softmax of it overflowed."""
    total = nk.reduction("total_of_reals", combine=lambda a, b: a + b, identity=0.0, over="mul")

    @nk.diagram("a d:int -> d")
    def weights(K):
        return nk.softmax(nk.reduce(K, "total_of_reals", over="a"), over="d")

    assert total
    np.testing.assert_array_equal(weights.evaluate(np.ones((3, 2), dtype=int)), [0.5, 0.5])
