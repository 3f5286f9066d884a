"""Settings for every test: the same hypothesis examples on every run, unless more are asked for."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
if "NAPKIN_EXAMPLES" not in os.environ:
    settings.load_profile("repeatable")
