"""Multi-head latent attention: where its projections are computed follows from the sizes."""

from __future__ import annotations

import math

import numpy as np

import napkin as nk
from napkin.diagram.library import load
from napkin.plan.plan import Plan

DECODE = {"b": 64, "q": 1, "x": 8192}
SMALL = {"b": 2, "h": 5, "q": 3, "x": 37, "c": 24, "n": 16, "r": 8, "v": 20}


def rules(plan: Plan) -> list[str]:
    return [m.rule for m in plan.trail if m.rule in {"refactor", "materialise"}]


def test_many_queries_read_projected_keys_and_values() -> None:
    plan = nk.derive(load("latent_attention"))
    assert rules(plan) == ["materialise", "materialise"]
    assert set(plan.materialised) == {"K", "V"}
    *projections, attention = plan.kernels
    for k in projections:
        assert [a.tensor for a in k.choice.kernel.reads].count("C") == 1
    assert {a.tensor for a in attention.choice.kernel.reads} == {"Q", "P", "K", "R", "V"}


def test_one_query_absorbs_both_projections() -> None:
    """The projections of keys and of values are turned, and the cache is read as it lies."""
    written, absorbed = load("latent_attention"), load("latent_attention_absorbed")
    plan = nk.derive(written, sizes=DECODE)
    assert rules(plan).count("refactor") == 2
    inner = next(k for k in plan.kernels if k.choice.kernel.stream.axes == ("x",))
    (alone,) = nk.derive(absorbed, sizes={"b": 64}).kernels
    cache = {"C", "R"}
    sent = [sum(n for (t, _), n in k.bytes.items() if t in cache) for k in (inner, alone)]
    assert sent[0] == sent[1]
    assert [a.tensor for a in inner.choice.kernel.reads].count("C") == 1
    plan.check(sizes=SMALL | {"q": 1}, resources=False).raise_if_wrong()


def test_absorbing_keeps_the_value() -> None:
    rng = np.random.default_rng(0)
    written, absorbed = load("latent_attention"), load("latent_attention_absorbed")
    Q, P, C, R, U, W = (rng.normal(size=[SMALL[a] for a in n.axes]) for n in written.inputs)
    found = written.evaluate(Q, P, C, R, U, W)
    scale = 1 / math.sqrt(SMALL["n"] + SMALL["r"])
    for q in range(SMALL["q"]):
        latent = np.einsum("bhn,hcn->bhc", Q[:, :, q], U)
        inner = absorbed.evaluate(latent, P[:, :, q], C, R, scale=scale)
        np.testing.assert_allclose(np.einsum("bhc,hcv->bhv", inner, W), found[:, :, q])
