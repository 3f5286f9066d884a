"""CPU seconds to derive gradients of diagrams of the field, their work in settings
(`napkin.settings.effort`), and their plans' predicted times.

    python docs/measurements/planning.py NAME [NAME ...]
"""

from __future__ import annotations

import sys
import time
from importlib import import_module
from pathlib import Path

FIELD = Path(__file__).parents[2] / "tests" / "field"
sys.path.insert(0, str(FIELD))

from entries import FOUND  # noqa: E402
from table import FAMILIES  # noqa: E402

import napkin as nk  # noqa: E402
from napkin.plan.derive import memo_of, searched  # noqa: E402


def main() -> None:
    for family in FAMILIES:
        import_module(family)
    made = {e.name: e.make for found in FOUND.values() for e in found}
    for name in sys.argv[1:]:
        diagram, memo = nk.gradient(made[name]()), memo_of("h200", "bf16")
        start = time.process_time()
        plan = searched(diagram, diagram.check_sizes({}), memo).fitted()
        seconds = time.process_time() - start
        print(f"{name}: {seconds:.1f} s, work {memo.effort.work:,}, {plan.seconds * 1e6:.1f} us")


if __name__ == "__main__":
    main()
