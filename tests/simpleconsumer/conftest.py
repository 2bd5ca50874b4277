"""Fixtures of the decoder tests."""

from __future__ import annotations

import pytest

from simpleconsumer import kernel


@pytest.fixture
def plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode without the compiled kernel."""
    monkeypatch.setattr(kernel, "compiled", None)
