"""A signal that does not interrupt the main thread's wait is noticed all the same.

The system hands it to another thread here; the moment before a wait begins, in which a signal has the same fate,
cannot be aimed at.
"""

from __future__ import annotations

import select
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from zkconsumer.cli.terminal import LeaveSignals
from zkconsumer.wakeup import Wakeup

DEADLINE_S = 30.0


@pytest.fixture
def another_thread() -> Iterator[Callable[[signal.Signals], None]]:
    """Have a signal go to a thread that is not the main one, once that waits.

    One that comes when the test has failed and put its handlers away does nothing: it would end the run.
    """
    threads: list[threading.Thread] = []
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGUSR1, signal.SIGTERM)}

    def strike(number: signal.Signals) -> None:
        def run() -> None:
            threading.Event().wait(0.1)
            signal.pthread_kill(threading.get_ident(), number)

        threads.append(threading.Thread(target=run))
        threads[-1].start()

    yield strike
    for thread in threads:
        thread.join()
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_reader_that_waits_without_end_notices_it(another_thread: Callable[[signal.Signals], None]) -> None:
    wakeup, heard = Wakeup(), []
    signal.signal(signal.SIGUSR1, lambda *_: (heard.append("signal"), wakeup.wake()))
    rescue = threading.Timer(DEADLINE_S, lambda: (heard.append("rescued"), wakeup.wake()))
    rescue.start()
    another_thread(signal.SIGUSR1)
    wakeup.wait(None)
    rescue.cancel()
    assert heard == ["signal"]


def test_a_command_that_waits_for_its_end_notices_it(another_thread: Callable[[signal.Signals], None]) -> None:
    with LeaveSignals() as signals:
        signals.wait_quietly()
        another_thread(signal.SIGTERM)
        deadline = time.monotonic() + DEADLINE_S
        while not signals.came and time.monotonic() < deadline:  # other signals that have a handler end the wait, too
            poll = select.poll()  # `select.select` takes no descriptor above 1023
            poll.register(signals.fd, select.POLLIN)
            assert poll.poll(DEADLINE_S * 1000)
            signals.drain()
        assert signals.came
