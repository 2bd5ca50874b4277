"""Keeps the figures of the fault suite and prints them as one table at the end."""

from __future__ import annotations

import pytest
from fault_stage import Row

_ROWS = pytest.StashKey[list[Row]]()


@pytest.fixture(scope="session")
def report(request: pytest.FixtureRequest) -> list[Row]:
    """The rows so far; each test adds its own."""
    return request.config.stash.setdefault(_ROWS, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = config.stash.get(_ROWS, [])
    if rows:
        terminalreporter.section("faults")
        terminalreporter.write_line(Row.HEAD)
        for row in rows:
            terminalreporter.write_line(str(row))
