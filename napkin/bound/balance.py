"""Balance: from where on computing takes longer than moving, arXiv 2412.03317, App. B.1.

A kernel is bound by compute where H / K <= Hdot / Kdot: transfers per operation against the values
that a pipe moves per operation of the machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sympy

from napkin.errors import InputError


def least(
    transfers: Any, operations: Any, unknown: Any, rate: float, peak: float, large: Iterable[Any]
) -> Any:
    """The least value of `unknown` (a tile, an axis, a memory) that is bound by compute.

    Args:
        transfers: H in values, in symbols.
        operations: K.
        rate: values/s of the pipe.
        peak: operations/s.
        large: symbols that grow without limit.

    Raises:
        InputError: transfers per operation do not fall with `unknown`, or never far enough.
    """
    ratio = sympy.expand(transfers / operations)
    for symbol in large:
        ratio = sympy.limit(ratio, symbol, sympy.oo)
    falls = sympy.diff(ratio, unknown)
    if falls == 0 or not falls.subs({s: 1 for s in falls.free_symbols}).is_negative:
        raise InputError(f"transfers per operation, {ratio}, do not fall with {unknown}")
    root = sympy.Dummy("root", positive=True)  # the unknown's square root, so that M**-1/2 is plain
    found = sympy.solve(ratio.subs(unknown, root**2) - sympy.Float(rate / peak, 30), root)
    real = [f**2 for f in found if f.is_real is not False]
    if len(real) != 1:
        raise InputError(f"transfers per operation never fall to {rate / peak:.3g}")
    return real[0]
