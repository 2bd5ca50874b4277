"""The coordinator's commands, against a broker on a real socket."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from rebalance.lease import lease_clock
from simpleconsumer.types import Message, TopicPartition
from tests.fetching.feeding import Drained, ScriptedLog, offsets, take
from tests.member.delivering import DEADLINE_S, P0, P1, rigged
from zkconsumer.errors import ConsumerTimeout, PartitionStopped
from zkconsumer.testing.waiting import wait_until


def on_another_thread(call: Callable[[], object]) -> int:
    """Run a call on a thread of its own; return the thread's identity."""
    thread = threading.Thread(target=call)
    thread.start()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert thread.ident is not None
    return thread.ident


# -- start and resolve -------------------------------------------------------------------------------------------------


def test_a_started_partition_is_delivered_from_its_offset() -> None:
    with rigged(ScriptedLog(1000)) as rig:
        rig.delivery.start(P0, "thread-0", 500)
        assert offsets(take(rig.streams[0], 30)) == list(range(500, 530))
        assert rig.delivery.positions() == {P0: 529}


def test_each_partition_goes_to_the_stream_of_its_thread() -> None:
    with rigged(ScriptedLog(1000), streams=2) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        rig.delivery.start(P1, "thread-1", 0)
        assert {message.partition for message in take(rig.streams[0], 30)} == {0}
        assert {message.partition for message in take(rig.streams[1], 30)} == {1}


@pytest.mark.parametrize(("policy", "offset"), [("smallest", 30), ("largest", 900)])
def test_resolve_finds_either_end_of_the_log(policy: str, offset: int) -> None:
    with rigged(ScriptedLog(900, start=30)) as rig:
        done = Drained()
        rig.delivery.resolve(P0, policy, done)
        assert done.was_called.wait(DEADLINE_S)
        assert done.positions == [offset]
        assert rig.delivery.positions() == {}


def test_resolve_tries_until_the_leader_answers() -> None:
    with rigged(ScriptedLog(10)) as rig:
        answers = iter([(6, []), (-1, []), (0, []), (3, []), (0, [10])])
        rig.broker.on_offsets = lambda *_: next(answers)
        done = Drained()
        rig.delivery.resolve(P0, "largest", done)
        assert done.was_called.wait(DEADLINE_S)
        assert done.positions == [10]


def test_an_abandoned_resolve_reports_nothing() -> None:
    with rigged(ScriptedLog(10)) as rig:
        asked, answer = threading.Event(), threading.Event()

        def held(*_: object) -> tuple[int, list[int]]:
            asked.set()
            answer.wait(DEADLINE_S)
            return 0, [7]

        rig.broker.on_offsets = held
        done, other = Drained(), Drained()
        rig.delivery.resolve(P0, "largest", done)
        assert asked.wait(DEADLINE_S)
        assert rig.delivery.abandon(P0) is None
        answer.set()
        rig.delivery.resolve(P1, "largest", other)
        assert other.was_called.wait(DEADLINE_S)
        assert done.positions == []


def test_bounds_finds_both_ends_of_the_log() -> None:
    with rigged(ScriptedLog(900, start=30)) as rig:
        found: list[tuple[int, int]] = []
        told = threading.Event()
        rig.delivery.bounds(P0, lambda earliest, latest: (found.append((earliest, latest)), told.set()))  # type: ignore[arg-type, return-value, func-returns-value]
        assert told.wait(DEADLINE_S)
        assert found == [(30, 900)]
        assert rig.delivery.positions() == {}


def test_a_refused_partition_is_raised_about_once_and_never_asked_for() -> None:
    with rigged(ScriptedLog(1000), consumer_timeout_ms=100) as rig:
        rig.delivery.refuse(P0, "thread-0", 500, "offset -1 was returned")
        with pytest.raises(PartitionStopped, match="t/0 at 500: stopped: offset -1 was returned"):
            next(rig.streams[0])
        with pytest.raises(ConsumerTimeout):
            next(rig.streams[0])
        assert rig.broker.requests == {}
        assert rig.delivery.positions() == {P0: 500}
        assert "offset -1 was returned" in str(rig.delivery.partition_status()[P0].last_error)
        drained = Drained()
        rig.delivery.drain(P0, drained)
        assert drained.positions == [500]


# -- drain, expire, abandon --------------------------------------------------------------------------------------------


def test_a_drain_ends_with_the_message_in_hand_and_the_next_owner_goes_on_there() -> None:
    with rigged(ScriptedLog(1000), streams=2, consumer_timeout_ms=200) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        assert offsets(take(rig.streams[0], 25)) == list(range(25))
        done = Drained()
        rig.delivery.drain(P0, done)
        assert done.positions == []
        assert rig.delivery.positions() == {P0: 24}
        with pytest.raises(ConsumerTimeout):
            next(rig.streams[0])
        assert done.positions == [25]
        assert rig.delivery.positions() == {}
        rig.delivery.start(P0, "thread-1", 25)
        assert offsets(take(rig.streams[1], 3)) == [25, 26, 27]


@pytest.mark.catalogue("B11")
def test_a_drain_beside_an_idle_reader_is_over_at_once() -> None:
    with rigged(ScriptedLog(0)) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        done = Drained()
        rig.delivery.drain(P0, done)
        assert done.positions == [0]


@pytest.mark.catalogue("J4")
def test_an_expired_drain_leaves_out_the_message_in_hand() -> None:
    with rigged(ScriptedLog(1000), consumer_timeout_ms=100) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        take(rig.streams[0], 5)
        done = Drained()
        rig.delivery.drain(P0, done)
        assert rig.delivery.expire_drain(P0) == 4
        with pytest.raises(ConsumerTimeout):
            next(rig.streams[0])
        assert done.positions == []


def test_a_drain_that_ended_just_before_it_expired_has_one_final_position() -> None:
    with rigged(ScriptedLog(1000), consumer_timeout_ms=100) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        take(rig.streams[0], 5)
        done = Drained()
        rig.delivery.drain(P0, done)
        with pytest.raises(ConsumerTimeout):
            next(rig.streams[0])
        assert rig.delivery.expire_drain(P0) == 5
        assert done.positions == [5]


def test_abandoning_ends_at_once_and_tells_what_is_done() -> None:
    with rigged(ScriptedLog(1000), consumer_timeout_ms=100) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        take(rig.streams[0], 5)
        assert rig.delivery.abandon(P0) == 4
        assert rig.delivery.abandon(P0) is None
        with pytest.raises(ConsumerTimeout):
            next(rig.streams[0])
        assert rig.delivery.queued_bytes() == 0


@pytest.mark.catalogue("A3")
def test_an_answer_that_was_under_way_during_a_revocation_reaches_nobody() -> None:
    log = ScriptedLog(1000)
    with rigged(log, consumer_timeout_ms=100) as rig:
        asked, answer = threading.Event(), threading.Event()

        def held(topic: str, partition: int, offset: int, max_bytes: int) -> tuple[int, int, bytes]:
            asked.set()
            answer.wait(DEADLINE_S)
            return log.fetch(topic, partition, offset, max_bytes)

        rig.broker.on_fetch = held
        rig.delivery.start(P0, "thread-0", 100)
        assert asked.wait(DEADLINE_S)
        rig.delivery.abandon(P0)
        rig.delivery.start(P0, "thread-0", 500)
        answer.set()
        assert next(rig.streams[0]).offset == 500


# -- commits of the application ----------------------------------------------------------------------------------------


def test_an_explicit_commit_counts_what_the_calling_thread_has_in_hand_and_nothing_else() -> None:
    with rigged(ScriptedLog(1000), streams=2) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        rig.delivery.start(P1, "thread-1", 0)
        take(rig.streams[0], 3)
        other = on_another_thread(lambda: take(rig.streams[1], 3))
        assert rig.delivery.explicit_positions(threading.get_ident()) == {P0: 3, P1: 2}
        assert rig.delivery.explicit_positions(other) == {P0: 2, P1: 3}
        assert rig.delivery.positions() == {P0: 2, P1: 2}


def test_what_was_committed_completes_a_drain_that_waits_for_it() -> None:
    with rigged(ScriptedLog(1000)) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        take(rig.streams[0], 3)
        done = Drained()
        rig.delivery.drain(P0, done)
        rig.delivery.mark_committed({P0: 2})
        assert done.positions == []
        rig.delivery.mark_committed({P0: 3})
        assert done.positions == [3]


def test_a_commit_behind_the_message_in_hand_does_not_move_the_position_ahead_of_it() -> None:
    with rigged(ScriptedLog(1000)) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        take(rig.streams[0], 3)
        rig.delivery.mark_committed({P0: 800})
        assert rig.delivery.positions() == {P0: 3}
        next(rig.streams[0])
        assert rig.delivery.positions() == {P0: 4}


# -- the end -----------------------------------------------------------------------------------------------------------


def test_stop_counts_the_callers_message_and_ends_the_streams() -> None:
    with rigged(ScriptedLog(1000)) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        take(rig.streams[0], 3)
        assert rig.delivery.stop(threading.get_ident(), lease_clock() + DEADLINE_S) == {P0: 3}
        assert list(rig.streams[0]) == []


def test_stop_waits_for_the_message_in_hand_of_another_thread() -> None:
    with rigged(ScriptedLog(1000)) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        has_it, go_on = threading.Event(), threading.Event()

        def work() -> None:
            for _ in rig.streams[0]:
                has_it.set()
                assert go_on.wait(DEADLINE_S)

        worker = threading.Thread(target=work)
        worker.start()
        assert has_it.wait(DEADLINE_S)
        threading.Timer(0.05, go_on.set).start()
        assert rig.delivery.stop(threading.get_ident(), lease_clock() + DEADLINE_S) == {P0: 1}
        worker.join(DEADLINE_S)
        assert not worker.is_alive()


def test_stop_leaves_out_what_is_still_in_hand_at_the_deadline() -> None:
    with rigged(ScriptedLog(1000)) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        on_another_thread(lambda: take(rig.streams[0], 3))
        assert rig.delivery.stop(threading.get_ident(), lease_clock() + 0.05) == {P0: 2}


@pytest.mark.parametrize(("left_s", "position"), [(0.001, 1), (0.0, 0), (-1.0, 0)])
def test_stop_waits_as_long_as_any_time_is_left_and_not_at_all_without(left_s: float, position: int) -> None:
    asked, go_on, has_it = threading.Event(), threading.Event(), threading.Event()

    def clock() -> float:
        """Stand still: only the message in hand can end the wait."""
        if threading.current_thread().name == "leaver":
            asked.set()
        return 100.0

    with rigged(ScriptedLog(1000), clock=clock) as rig:
        rig.delivery.start(P0, "thread-0", 0)

        def work() -> None:
            for _ in rig.streams[0]:
                has_it.set()
                assert go_on.wait(DEADLINE_S)

        worker = threading.Thread(target=work)
        worker.start()
        assert has_it.wait(DEADLINE_S)
        final: list[dict[TopicPartition, int]] = []
        leaver = threading.Thread(target=lambda: final.append(rig.delivery.stop(None, 100.0 + left_s)), name="leaver")
        leaver.start()
        assert asked.wait(DEADLINE_S)
        if position == 0:
            leaver.join(DEADLINE_S)
            assert final == [{P0: 0}]
        go_on.set()
        leaver.join(DEADLINE_S)
        worker.join(DEADLINE_S)
        assert final == [{P0: position}]


def test_stop_inside_next_does_not_count_a_message_that_was_not_handed_over() -> None:
    # As a signal handler does: the message is decoded, and the application has not seen it.
    with rigged(ScriptedLog(1000), value_decoder=lambda value: inside(value)) as rig:
        stopped: list[dict[TopicPartition, int]] = []

        def inside(value: bytes) -> bytes:
            if value.startswith(b"5 "):
                stopped.append(rig.delivery.stop(threading.get_ident(), lease_clock() + DEADLINE_S))
            return value

        rig.delivery.start(P0, "thread-0", 0)
        assert offsets(list(rig.streams[0])) == [0, 1, 2, 3, 4]
        assert stopped == [{P0: 5}]


def test_a_partition_that_is_started_while_stopping_delivers_nothing() -> None:
    with rigged(ScriptedLog(1000)) as rig:
        rig.delivery.stop(None, lease_clock())
        rig.delivery.start(P0, "thread-0", 0)
        assert list(rig.streams[0]) == []


def test_a_failure_reaches_every_stream() -> None:
    with rigged(ScriptedLog(1000), streams=2) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        take(rig.streams[0], 3)
        rig.delivery.fail(RuntimeError("session refused"))
        for stream in rig.streams:
            with pytest.raises(RuntimeError, match="session refused"):
                next(stream)


def test_close_leaves_no_thread_and_may_come_twice() -> None:
    before = set(threading.enumerate())
    with rigged(ScriptedLog(1000)) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        take(rig.streams[0], 3)
        new = set(threading.enumerate()) - before
        ours = {thread for thread in new if thread.name.startswith(("fetcher", "leader"))}
        assert len(ours) == 2
        for _ in range(2):
            rig.delivery.close(lease_clock() + DEADLINE_S)
        assert not any(thread.is_alive() for thread in ours)


# -- slow streams, status ----------------------------------------------------------------------------------------------


def test_a_stream_that_nobody_reads_stops_no_other() -> None:
    with rigged(ScriptedLog(100_000), streams=2) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        rig.delivery.start(P1, "thread-1", 0)
        assert offsets(take(rig.streams[1], 2000)) == list(range(2000))
        status = rig.delivery.partition_status()[P0]
        assert (status.position, status.queued_chunks, status.fetch_offset) == (0, 3, 30)


def test_status_says_how_far_each_partition_is() -> None:
    with rigged(ScriptedLog(1000)) as rig:
        rig.delivery.start(P0, "thread-0", 990)
        take(rig.streams[0], 10)
        wait_until(lambda: rig.delivery.partition_status()[P0].answer_age_s is not None, DEADLINE_S, "an answer")
        status = rig.delivery.partition_status()[P0]
        assert (status.position, status.fetch_offset, status.high_watermark) == (999, 1000, 1000)
        assert (status.leader, status.last_error) == (rig.broker.broker, None)


def test_status_counts_what_was_fetched_in_all_ownerships_and_lately() -> None:
    now, log = [100.0], ScriptedLog(20)
    with rigged(log, clock=lambda: now[0]) as rig:
        go_on, is_held = threading.Event(), threading.Event()
        go_on.set()

        def held_at_the_end(topic: str, partition: int, offset: int, max_bytes: int) -> tuple[int, int, bytes]:
            if not go_on.is_set():
                is_held.set()
                go_on.wait(DEADLINE_S)
            return log.fetch(topic, partition, offset, max_bytes)

        rig.broker.on_fetch = held_at_the_end
        for begin in (0, 10):
            rig.delivery.start(P0, "thread-0", begin)
            take(rig.streams[0], 20 - begin)
            wait_until(lambda: rig.delivery.partition_status()[P0].fetch_offset == 20, DEADLINE_S, "the end")
            if begin == 0:
                rig.delivery.abandon(P0)
        go_on.clear()
        assert is_held.wait(DEADLINE_S)
        now[0] = 107.0
        status = rig.delivery.partition_status()[P0]
        size_bytes = 30 * (12 + 14 + 20)
        assert (status.fetched_messages, status.fetched_bytes) == (30, size_bytes)
        assert (status.messages_per_s, status.bytes_per_s) == (round(30 / 7, 3), round(size_bytes / 7, 3))
        assert status.answer_age_s == 7.0
        rig.delivery.refuse(P1, "thread-0", 0, "no")
        other = rig.delivery.partition_status()[P1]
        assert (other.fetched_messages, other.messages_per_s) == (0, 0.0)
        go_on.set()


def test_status_says_nothing_of_a_log_that_nobody_has_answered_for() -> None:
    with rigged(ScriptedLog(0)) as rig:
        leaders = rig.directory.leaders
        rig.directory.leaders = lambda wanted: {}  # type: ignore[method-assign]
        rig.delivery.start(P0, "thread-0", 0)
        status = rig.delivery.partition_status()[P0]
        assert (status.high_watermark, status.leader, status.answer_age_s) == (None, None, None)
        rig.directory.leaders = leaders  # type: ignore[method-assign]
        wait_until(lambda: rig.delivery.partition_status()[P0].answer_age_s is not None, DEADLINE_S, "an answer")
        assert rig.delivery.partition_status()[P0].high_watermark == 0


def test_status_says_what_is_queued_paused_and_refused() -> None:
    with rigged(ScriptedLog(1000)) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        take(rig.streams[0], 1)
        wait_until(lambda: rig.delivery.partition_status()[P0].queued_chunks == 3, DEADLINE_S, "a full queue")
        status = rig.delivery.partition_status()[P0]
        assert status.queued_bytes == rig.delivery.queued_bytes() > 0
        assert status.is_paused is False
        rig.delivery.pause(P0)
        assert rig.delivery.partition_status()[P0].is_paused is True
        rig.delivery.refuse(P1, "thread-0", 0, "offset -1 was returned")
        assert rig.delivery.partition_status()[P1].last_error == "offset -1 was returned"


def test_a_stream_that_has_had_one_message_for_too_long_is_named() -> None:
    with rigged(ScriptedLog(1000), streams=2, max_processing_interval_ms=1000) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        take(rig.streams[0], 1)
        assert rig.delivery.stuck_streams(100.0) == []
        assert rig.delivery.stuck_streams(101.0) == []
        assert rig.delivery.stuck_streams(101.1) == ["thread-0"]
        message: Message = next(rig.streams[0])
        assert message.offset == 1
        assert rig.delivery.stuck_streams(101.2) == []
