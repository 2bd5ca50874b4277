"""What the tests of changes and views of groups share."""

from __future__ import annotations

import pytest

from zkconsumer.admin.offsets import kafka_offsets


@pytest.fixture
def soon_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait less long for an offset manager that does not answer."""
    monkeypatch.setattr(kafka_offsets, "READ_TIMEOUT_S", 0.8)
