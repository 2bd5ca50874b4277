"""Keeps the figures of the fault suite and prints them as one table at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from fault_servers import AnyCluster, Servers
from fault_stage import Row

_ROWS = pytest.StashKey[list[Row]]()


@pytest.fixture(scope="session")
def report(request: pytest.FixtureRequest) -> list[Row]:
    """The rows so far; each test adds its own."""
    return request.config.stash.setdefault(_ROWS, [])


@pytest.fixture(scope="session")
def shared_servers() -> Iterator[Callable[[Servers], AnyCluster]]:
    """Gives running clusters by their kind, one for all tests that ask for the same: nobody stops its servers."""
    running: dict[str, AnyCluster] = {}
    with ExitStack() as stack:

        def cluster(servers: Servers) -> AnyCluster:
            if servers.name not in running:
                running[servers.name] = stack.enter_context(servers.running({}))
            return running[servers.name]

        yield cluster


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = config.stash.get(_ROWS, [])
    if rows:
        terminalreporter.section("faults")
        terminalreporter.write_line(Row.HEAD)
        for row in rows:
            terminalreporter.write_line(str(row))
