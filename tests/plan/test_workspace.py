"""The memory that a plan needs beside inputs and outputs."""

from __future__ import annotations

import napkin as nk
from napkin.diagram.library import load
from napkin.plan.workspace import materialised_bytes

SIZES = {"q": 256, "x": 512, "d": 64}


def test_workspace_is_what_is_alive_at_once():
    plan = nk.derive(load("attention"), sizes=SIZES, materialise=["S"])
    # An exponential reads S, which is stored in float32 for it.
    assert materialised_bytes(plan) == {"S": 256 * 512 * 4}
    assert plan.workspace == 256 * 512 * 4
    assert nk.derive(load("attention"), sizes=SIZES).workspace == 0
