"""What stands over every table: the device, the versions, and the command."""

from __future__ import annotations

import shlex
import sys

import torch


def heading(note: str = "") -> str:
    """Two lines, and a third with what else should be known."""
    from napkin.measure.device import described

    if torch.cuda.is_available():
        d = described()
        first = f"{d['device']}, {d['arch']}, driver {d['driver'] or 'unknown'}, CUDA {d['cuda']}"
        first += f", torch {d['torch']}, triton {d['triton']}, napkin {d['napkin']}"
    else:
        first = f"no CUDA device: nothing here is a measurement; torch {torch.__version__}"
    return "\n".join([first, shlex.join(["python", *sys.argv]), *filter(None, [note])])
