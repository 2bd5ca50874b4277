"""A log line of an earlier test's ZooKeeper client does not appear in the test that runs now."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

DEADLINE_S = 10.0
KAZOO = logging.getLogger("kazoo.client")


class LeftClient:
    """A thread that logs a line when it is asked to."""

    def __init__(self) -> None:
        self._go = threading.Event()
        self._thread = threading.Thread(target=self._log, daemon=True)
        self._thread.start()

    def _log(self) -> None:
        self._go.wait(DEADLINE_S)
        KAZOO.warning("Connection dropped")

    def log(self) -> None:
        self._go.set()
        self._thread.join(DEADLINE_S)


@pytest.fixture(scope="module")
def left_client() -> Iterator[LeftClient]:
    """Started before the tests that use it."""
    client = LeftClient()
    yield client
    client.log()


def test_a_client_that_was_there_before_is_not_heard(left_client: LeftClient, caplog: pytest.LogCaptureFixture) -> None:
    left_client.log()
    assert caplog.messages == []


def test_a_client_of_this_test_is_heard(caplog: pytest.LogCaptureFixture) -> None:
    LeftClient().log()
    KAZOO.warning("and this thread")
    assert caplog.messages == ["Connection dropped", "and this thread"]
