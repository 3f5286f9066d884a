"""Every rule that these tests apply is held to its law."""

from __future__ import annotations

import pytest

from napkin.algebra import rule as rules


@pytest.fixture(autouse=True)
def verifying(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "VERIFYING", True)
