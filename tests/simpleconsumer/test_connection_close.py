"""close() from any thread, one call at a time, and no descriptor that stays open."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest
from calling import call, connect, dies, echo, never_reads, wait_for
from decoding import MEBIBYTE
from scripted_broker import DEADLINE_S, Peer, ScriptedBroker, answer, correlation_id

from simpleconsumer.errors import ConnectionFailed, DecodeError


def in_thread(action: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - looked at by the test
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, raised


@pytest.mark.parametrize("sent", [0, 2, 20])
def test_close_from_another_thread_ends_a_blocked_call_at_once(sent: int) -> None:
    blocked = threading.Event()

    def stall(peer: Peer) -> None:
        peer.send(answer(correlation_id(peer.request()), bytes(200))[:sent])
        blocked.set()
        peer.stall()

    with ScriptedBroker(stall) as broker:
        connection = connect(broker, timeout_s=600.0)
        thread, raised = in_thread(lambda: call(connection, 1, resend=True))
        assert blocked.wait(DEADLINE_S)
        connection.close()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
        assert [str(error) for error in raised] == [f"127.0.0.1:{broker.port}: closed by close()"]
        assert isinstance(raised[0], ConnectionFailed)
        assert connection._transport is None


def test_close_ends_a_call_that_is_still_sending() -> None:
    with ScriptedBroker(never_reads) as broker:
        connection = connect(broker, timeout_s=600.0)
        thread, raised = in_thread(lambda: connection.call(bytes(64 * MEBIBYTE), correlation_id=1))
        wait_for(lambda: broker.connections == 1)
        connection.close()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
        assert [type(error) for error in raised] == [ConnectionFailed]


def test_close_is_final_and_may_be_repeated() -> None:
    with ScriptedBroker(echo(1)) as broker:
        connection = connect(broker)
        call(connection, 1)
        connection.close()
        connection.close()
        with pytest.raises(ConnectionFailed, match="closed"):
            call(connection, 2)
    assert broker.connections == 1


def test_two_calls_at_a_time_are_refused_and_the_first_goes_on() -> None:
    asked, go_on = threading.Event(), threading.Event()

    def script(peer: Peer) -> None:
        received = peer.request()
        asked.set()
        assert go_on.wait(DEADLINE_S)
        peer.answer(b"first", received)
        peer.wait_until_closed()

    with ScriptedBroker(script) as broker:
        connection = connect(broker)
        answers: list[bytes] = []
        thread, raised = in_thread(lambda: answers.append(call(connection, 1)))
        assert asked.wait(DEADLINE_S)
        with pytest.raises(RuntimeError, match="a connection is for one call at a time"):
            call(connection, 2)
        go_on.set()
        thread.join(DEADLINE_S)
        assert (answers, raised) == ([b"first"], [])
        connection.close()


@pytest.mark.catalogue("F12")
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
def test_no_descriptor_is_left_behind_by_a_hundred_faults() -> None:
    def negative(peer: Peer) -> None:
        peer.request()
        peer.send(b"\xff" * 8)

    with ScriptedBroker(*([dies, negative] * 50)) as broker:
        connection = connect(broker)
        before = len(os.listdir("/proc/self/fd"))
        for number in range(1, 101):
            with pytest.raises((ConnectionFailed, DecodeError)):
                call(connection, number)
        connection.close()
        # One more may be the script's end of the last connection, which closes in its own time.
        assert len(os.listdir("/proc/self/fd")) <= before + 1
