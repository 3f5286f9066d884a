"""Results under other axis names: what only outputs are computed of is not stored before."""

from __future__ import annotations

import napkin as nk
from napkin.derive.prepare import prepare
from napkin.ir.node import postorder

SIZES = {"n": 64, "d": 48, "f": 96}


def test_a_residual_ends_in_the_kernel_of_its_product() -> None:
    @nk.diagram("n d, d f, f d -> n d", sizes=SIZES)
    def block(X, U, W):
        H = nk.maximum(nk.contract(X, U, over="d"), 0.0)
        return X + nk.contract(H, W.rename(d="o"), over="f").rename(o="d")

    plan = nk.derive(block, on="h100")
    assert len(plan.kernels) <= 2
    assert "o" not in {a for k in plan.kernels for a in k.tiles}
    plan.check(sizes={"n": 37, "d": 41, "f": 53}, resources=False).raise_if_wrong()


def test_what_is_read_under_both_names_is_stored() -> None:
    @nk.diagram("n d, d f, f d -> n d, n o", sizes={**SIZES, "o": 48})
    def both(X, U, W):
        Y = nk.contract(nk.contract(X, U, over="d"), W.rename(d="o"), over="f")
        return X + Y.rename(o="d"), Y

    made = prepare(both)
    assert any(n.op == "rename" for n in postorder(o.node for o in made.outputs))
    nk.derive(both, on="h100").check(
        sizes={"n": 37, "d": 41, "f": 53}, resources=False
    ).raise_if_wrong()


def test_keys_under_another_name_are_stored_once_for_all_queries() -> None:
    """A reduction reads them: which kernel computes them is for the cut to say."""

    @nk.diagram("t m, m d -> t d", sizes={"t": 64, "m": 32, "d": 16})
    def attends(X, W):
        K = nk.contract(X, W, over="m")
        S = nk.contract(K, K.rename(t="x"), over="d")
        return nk.contract(nk.softmax(S, over="x"), K.rename(t="x"), over="x")

    made = prepare(attends)
    assert any(n.op == "rename" for n in postorder(o.node for o in made.outputs))


def test_a_name_that_a_sum_goes_over_stays_outside() -> None:
    @nk.diagram("n f, f o -> n f", sizes={"n": 32, "f": 16, "o": 16})
    def square(X, W):
        return nk.contract(X, W, over="f").rename(o="f")

    nk.derive(square, on="h100").check(
        sizes={"n": 21, "f": 13, "o": 13}, resources=False
    ).raise_if_wrong()


def test_there_and_back_is_no_other_name() -> None:
    """Nothing is stored in order to be read under the name that it has."""

    @nk.diagram("n d, d o -> n o", sizes={"n": 33, "d": 21, "o": 19})
    def turned(X, W):
        Y = nk.softmax(nk.contract(X, W, over="d"), over="o")
        return (1.0 + Y.rename(n="t")).rename(t="n")

    plan = nk.derive(turned, on="h100")
    assert len(plan.kernels) == 1
    plan.check(sizes={"n": 17, "d": 11, "o": 13}, resources=False).raise_if_wrong()


def test_a_loss_over_rows_and_columns() -> None:
    """CLIP's loss (arXiv 2103.00020): a reduction of columns meets one of rows under its name, so
    what a kernel computes of columns is stored as it is, and named by the next."""

    @nk.diagram("i d, i d -> i", sizes={"i": 64, "d": 32})
    def contrastive(X, Y):
        S = nk.contract(X, Y.rename(i="j"), over="d")
        rows = nk.reduce(S, "logsumexp", over="j")
        columns = nk.reduce(S, "logsumexp", over="i").rename(j="i")
        own = nk.reduce(nk.where(nk.index("i") == nk.index("j"), S, 0.0), "sum", over="j")
        return 0.5 * (rows + columns) - own

    plan = nk.derive(contrastive, on="h100", dtype="fp32")
    plan.check(sizes={"i": 37, "d": 19}, resources=False).raise_if_wrong()
