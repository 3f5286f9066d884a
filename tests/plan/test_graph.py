"""The graph of a plan, and the memory that it needs beside inputs and outputs."""

from __future__ import annotations

import napkin as nk
from napkin.diagram.library import load
from napkin.plan.graph import graph, materialised_bytes

SIZES = {"q": 256, "x": 512, "d": 64}


def test_kernels_and_tensors_are_nodes_and_edges_carry_bytes():
    plan = nk.derive(load("attention"), sizes=SIZES, materialise=["S"])
    found = graph(plan)
    kernels = [n for n, data in found.nodes(data=True) if data["kind"] == "kernel"]
    assert kernels == [0, 1]
    assert {("Q", 0), (0, "S"), ("S", 1)} <= set(found.edges)
    assert found.edges["Q", 0]["bytes"] == plan.kernels[0].bytes["Q", "read"]


def test_workspace_is_what_is_alive_at_once():
    plan = nk.derive(load("attention"), sizes=SIZES, materialise=["S"])
    # An exponential reads S, which is stored in float32 for it.
    assert materialised_bytes(plan) == {"S": 256 * 512 * 4}
    assert plan.workspace == 256 * 512 * 4
    assert nk.derive(load("attention"), sizes=SIZES).workspace == 0
