"""The sympy symbols that stand for sizes: one place, so that every formula uses the same ones.

Axis sizes are positive integer symbols named after the axis; `g_a` is the group (tile) size of
axis `a`, `s_a` its stream (chunk) size, `M` the memory of the inner level in values
(arXiv 2412.03317, section 2).
"""

from __future__ import annotations

from functools import cache

import sympy


@cache
def size_symbol(axis: str) -> sympy.Symbol:
    """The size of `axis`, in values."""
    return sympy.Symbol(axis, positive=True, integer=True)


@cache
def group_symbol(axis: str) -> sympy.Symbol:
    """The group size of `axis`: how many of its values one group holds."""
    return sympy.Symbol(f"g_{axis}", positive=True, integer=True)


@cache
def stream_symbol(axis: str) -> sympy.Symbol:
    """The stream size of `axis`: how many of its values one chunk holds."""
    return sympy.Symbol(f"s_{axis}", positive=True, integer=True)


MEMORY = sympy.Symbol("M", positive=True)
"""Values that fit in the inner level."""
