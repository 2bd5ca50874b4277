"""What is told is told by the code under test."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture(autouse=True)
def kazoo_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that an earlier test has left behind may still be looking for its server, and say so."""
    monkeypatch.setattr(logging.getLogger("kazoo"), "propagate", False)
