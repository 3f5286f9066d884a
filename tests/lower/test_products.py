"""Matrix products as kernels write them."""

from __future__ import annotations

import napkin as nk


def test_a_factor_beside_the_operands_scales_the_product_alone() -> None:
    """0.5 is a factor of the streamed product, but not of the accumulator it adds to."""

    @nk.diagram("n d, d f, f e -> n e", sizes={"n": 2048, "d": 64, "f": 4096, "e": 64})
    def network(X, U, W):
        Y = nk.contract(X, U, over="d")
        return nk.contract(0.5 * Y * (1.0 + nk.erf(Y)), W, over="f")

    plan = nk.derive(network, on="h100", dtype="bf16", materialise=())
    (kernel,) = plan.kernels
    assert kernel.choice.kernel.stream.axes == ("f",)
    assert kernel.tiles["f"] < 512  # the accumulator is scaled more than once, if it is
    plan.check(sizes={"n": 24, "d": 40, "f": 300, "e": 56}).raise_if_wrong()
