"""Which fetchers there are, what they are told to leave alone, and what becomes of a thread that dies."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest

from rebalance.lease import lease_clock
from rebalance.subscription import java_string_hash
from simpleconsumer.types import Broker, TopicPartition
from tests.fetching.feeding import Drained, ScriptedLog, offsets, take
from tests.member.delivering import DEADLINE_S, P0, P1, Rig, rigged
from zkconsumer.testing.waiting import wait_until


class Fault(BaseException):
    """What no thread outlives."""


def fetchers(before: set[threading.Thread]) -> set[str]:
    return {thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("fetcher-")}


@contextmanager
def held(rig: Rig) -> Iterator[threading.Event]:
    """Hold the answers about offsets back; the event tells that one was asked for."""
    asked, answer = threading.Event(), threading.Event()
    answered = rig.broker.on_offsets

    def hold(topic: str, partition: int, time_ms: int) -> tuple[int, list[int]]:
        asked.set()
        answer.wait(DEADLINE_S)
        return answered(topic, partition, time_ms)

    rig.broker.on_offsets = hold
    try:
        yield asked
    finally:
        rig.broker.on_offsets = answered
        answer.set()


# -- fetchers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 7])
def test_partitions_are_shared_by_as_many_fetchers_of_a_broker_as_configured(count: int) -> None:
    before = set(threading.enumerate())
    with rigged(ScriptedLog(1000), num_consumer_fetchers=count, client_id="ann") as rig:
        partitions = [TopicPartition("t", number) for number in range(5)]
        for partition in partitions:
            rig.delivery.start(partition, "thread-0", 0)
        wait_until(
            lambda: all(status.leader for status in rig.delivery.partition_status().values()), DEADLINE_S, "leaders"
        )
        numbers = {abs(31 * java_string_hash("t") + number) % count for number in range(5)}
        assert fetchers(before) == {f"fetcher-ann-{rig.broker.broker.id}-{number}" for number in numbers}


def test_one_fetcher_serves_all_partitions_of_its_broker() -> None:
    before = set(threading.enumerate())
    with rigged(ScriptedLog(1000)) as rig:
        for partition in (P0, P1):
            rig.delivery.start(partition, "thread-0", 0)
        assert {message.partition for message in take(rig.streams[0], 200)} == {0, 1}
        ours = [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("fetcher-")]
        assert len(ours) == 1


def test_a_fetcher_without_work_ends_and_another_one_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zkconsumer.fetching.fetcher.IDLE_S", 0.05)
    before = set(threading.enumerate())
    with rigged(ScriptedLog(1000)) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        take(rig.streams[0], 1)
        assert len(fetchers(before)) == 1
        rig.delivery.abandon(P0)
        wait_until(lambda: not fetchers(before), DEADLINE_S, "the fetcher to end")
        rig.delivery.start(P0, "thread-0", 500)
        assert next(rig.streams[0]).offset == 500


def test_after_the_close_no_fetcher_is_started_for_a_leader_that_is_found_late() -> None:
    before = set(threading.enumerate())
    asked, answer = threading.Event(), threading.Event()
    with rigged(ScriptedLog(1000)) as rig:
        told = rig.broker.on_metadata

        def hold(topics: list[str]) -> bytes:
            asked.set()
            answer.wait(DEADLINE_S)
            return told(topics)

        rig.broker.on_metadata = hold
        rig.delivery.start(P0, "thread-0", 0)
        assert asked.wait(DEADLINE_S)
        rig.delivery.close(lease_clock())
        late = [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("leader-finder")]
        assert late, "the close does not wait for an answer longer than it may"
        answer.set()
        wait_until(lambda: not late[0].is_alive(), DEADLINE_S, "the finder to end")
        assert fetchers(before) == set()


def test_a_fetcher_that_is_busy_after_the_time_for_closing_is_named(caplog: pytest.LogCaptureFixture) -> None:
    busy, go_on = threading.Event(), threading.Event()

    def out_of_range(_: TopicPartition, gone: range, restart: int) -> None:
        busy.set()
        go_on.wait(DEADLINE_S)

    with rigged(ScriptedLog(1000), out_of_range=out_of_range) as rig:
        rig.delivery.start(P0, "thread-0", 5000)
        assert busy.wait(DEADLINE_S)
        rig.delivery.close(lease_clock() + 0.05)
        name = rig.broker.broker.id
        go_on.set()
    assert caplog.messages[-1] == f"the fetcher of broker {name} is still busy after the closing time-out"


def test_a_close_in_time_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    with rigged(ScriptedLog(1000)) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        take(rig.streams[0], 1)
        rig.delivery.close(lease_clock() + DEADLINE_S)
    assert caplog.messages == []


# -- threads that die --------------------------------------------------------------------------------------------------


def test_a_fetcher_that_dies_is_told_with_its_fault() -> None:
    dead: list[tuple[str, BaseException]] = []
    fault = Fault()

    def out_of_range(_: TopicPartition, gone: range, restart: int) -> None:
        raise fault

    with rigged(ScriptedLog(1000), out_of_range=out_of_range, died=lambda *told: dead.append(told)) as rig:
        rig.delivery.start(P0, "thread-0", 5000)
        wait_until(lambda: dead, DEADLINE_S, "word of it")
        assert dead == [(f"the fetcher of broker {rig.broker.broker.id}", fault)]


def test_a_finder_that_dies_is_told_with_its_fault() -> None:
    dead: list[tuple[str, str, BaseException]] = []
    fault = Fault()

    def leaders(_: object) -> None:
        raise fault

    def died(name: str, error: BaseException) -> None:
        dead.append((threading.current_thread().name, name, error))

    with rigged(ScriptedLog(1000), died=died, client_id="ann") as rig:
        rig.directory.leaders = leaders  # type: ignore[method-assign, assignment]
        rig.delivery.start(P0, "thread-0", 0)
        wait_until(lambda: dead, DEADLINE_S, "word of it")
        assert dead == [("leader-finder-ann", "the leader finder", fault)]


@pytest.mark.parametrize(("policy", "offset"), [("smallest", 30), ("largest", 900)])
def test_who_starts_outside_the_log_begins_where_the_configuration_says_and_the_partition_is_told(
    policy: str, offset: int
) -> None:
    told: list[tuple[TopicPartition, range, int]] = []
    log = ScriptedLog(900, start=30)
    with rigged(log, out_of_range=lambda *call: told.append(call), auto_offset_reset=policy) as rig:
        rig.delivery.start(P0, "thread-0", 5000)
        wait_until(lambda: told, DEADLINE_S, "word of it")
        assert told == [(P0, range(5000, 5001), offset)]
        log.end = 901
        assert next(rig.streams[0]).offset == offset


# -- leaders -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["pause", "drain", "abandon"])
def test_nobody_looks_for_the_leader_of_a_partition_that_is_not_wanted(end: str) -> None:
    with rigged(ScriptedLog(1000)) as rig:
        rig.directory.leaders = lambda wanted: {}  # type: ignore[method-assign]
        assert not rig.delivery.lacks_leaders()
        rig.delivery.start(P0, "thread-0", 0)
        assert rig.delivery.lacks_leaders() is True
        ends: dict[str, Callable[[], object]] = {
            "pause": lambda: rig.delivery.pause(P0),
            "drain": lambda: rig.delivery.drain(P0, Drained()),
            "abandon": lambda: rig.delivery.abandon(P0),
        }
        ends[end]()
        assert rig.delivery.lacks_leaders() is False


def test_a_leader_that_denies_it_is_no_leader_and_is_named_when_another_one_is_looked_for() -> None:
    log = ScriptedLog(1000)
    with rigged(log) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        take(rig.streams[0], 1)
        broker = rig.broker.broker
        assert rig.delivery.partition_status()[P0].leader == broker
        wanted: list[dict[TopicPartition, int | None]] = []
        leaders = rig.directory.leaders

        def nobody(asked: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, Broker]:
            wanted.append(dict(asked))
            return {}

        rig.directory.leaders = nobody  # type: ignore[method-assign]
        rig.broker.on_fetch = lambda *_: (6, -1, b"")
        taken = take(rig.streams[0], len(range(1, rig.delivery.partition_status()[P0].fetch_offset)))
        wait_until(lambda: wanted, DEADLINE_S, "another leader to be looked for")
        assert wanted[0] == {P0: broker.id}
        assert rig.delivery.partition_status()[P0].leader is None
        rig.broker.on_fetch, rig.directory.leaders = log.fetch, leaders  # type: ignore[method-assign]
        begin = taken[-1].offset + 1
        assert offsets(take(rig.streams[0], 20)) == list(range(begin, begin + 20))


@pytest.mark.parametrize("end", ["drain", "abandon"])
def test_a_leader_that_is_found_after_the_end_of_an_ownership_is_not_asked(
    caplog: pytest.LogCaptureFixture, end: str
) -> None:
    before = set(threading.enumerate())
    rounds: list[set[TopicPartition]] = []
    answer = threading.Event()

    with rigged(ScriptedLog(1000)) as rig:

        def leaders(asked: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, Broker]:
            rounds.append(set(asked))
            answer.wait(DEADLINE_S)
            return {P0: rig.broker.broker} if P0 in asked else {}

        rig.directory.leaders = leaders  # type: ignore[method-assign]
        rig.delivery.start(P0, "thread-0", 0)
        wait_until(lambda: rounds, DEADLINE_S, "a question")
        if end == "drain":
            rig.delivery.drain(P0, Drained())
        else:
            rig.delivery.abandon(P0)
        rig.delivery.start(P1, "thread-0", 0)
        answer.set()
        wait_until(lambda: len(rounds) > 1, DEADLINE_S, "the next question")
        assert fetchers(before) == set()
        assert caplog.messages == []


def test_a_new_partition_is_looked_for_at_once_however_long_the_backoff_is() -> None:
    with rigged(ScriptedLog(1000), refresh_leader_backoff_ms=3_600_000) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        assert next(rig.streams[0]).offset == 0
        done = Drained()
        rig.delivery.resolve(P1, "largest", done)
        assert done.was_called.wait(DEADLINE_S)


# -- one after the other -----------------------------------------------------------------------------------------------


def test_a_partition_that_is_started_anew_delivers_nothing_of_before() -> None:
    with rigged(ScriptedLog(1000)) as rig:
        rig.delivery.start(P0, "thread-0", 100)
        wait_until(lambda: rig.delivery.queued_bytes() > 0, DEADLINE_S, "a chunk")
        rig.delivery.start(P0, "thread-0", 500)
        assert offsets(take(rig.streams[0], 30)) == list(range(500, 530))


def test_a_question_about_the_ends_of_a_log_is_dropped_when_the_partition_starts() -> None:
    with rigged(ScriptedLog(1000)) as rig:
        done, other = Drained(), Drained()
        with held(rig) as asked:
            rig.delivery.resolve(P0, "largest", done)
            assert asked.wait(DEADLINE_S)
            assert rig.delivery.partition_status() == {}
            assert rig.delivery.positions() == {}
            with pytest.raises(KeyError, match=r"^'t/0 was not started'$"):
                rig.delivery.expire_drain(P0)
            rig.delivery.start(P0, "thread-0", 500)
        assert next(rig.streams[0]).offset == 500
        rig.delivery.resolve(P1, "largest", other)
        assert other.was_called.wait(DEADLINE_S)
        assert done.positions == []


def test_what_was_not_started_cannot_be_drained() -> None:
    with rigged(ScriptedLog(1000)) as rig, pytest.raises(KeyError, match=r"^'t/1 was not started'$"):
        rig.delivery.drain(P1, Drained())


def test_a_partition_that_is_paused_before_it_starts_can_be_resumed() -> None:
    with rigged(ScriptedLog(1000)) as rig:
        rig.delivery.pause(P0)
        told: list[object] = []
        rig.delivery.resume(P0, lambda *what: told.append(what))
        assert (rig.delivery.paused(), told) == (frozenset(), [])


def test_a_partition_that_went_another_way_does_not_go_on() -> None:
    with rigged(ScriptedLog(1000)) as rig:
        rig.delivery.start(P0, "thread-0", 100)
        told: list[tuple[object, int]] = []
        rig.delivery.pause(P0)
        rig.delivery.resume(P0, lambda *what: told.append(what))
        [(queue, position)] = told
        rig.delivery.start(P0, "thread-0", 500)
        rig.delivery.go_on(P0, queue, position)
        assert rig.delivery.positions() == {P0: 500}
        rig.delivery.abandon(P0)
        rig.delivery.go_on(P0, queue, position)
        assert rig.delivery.positions() == {}
        with held(rig):
            rig.delivery.resolve(P0, "largest", Drained())
            rig.delivery.go_on(P0, queue, position)
            assert rig.delivery.positions() == {}
