"""Fixtures of the decoder tests."""

from __future__ import annotations

import pytest

from simpleconsumer import kernel


@pytest.fixture
def plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode without the compiled kernel."""
    monkeypatch.setattr(kernel, "compiled", None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out tests that count what the kernel reads, where there is none."""
    if kernel.compiled is None and item.get_closest_marker("compiled") is not None:
        pytest.skip(f"needs the compiled kernel, here is {kernel.description}")
