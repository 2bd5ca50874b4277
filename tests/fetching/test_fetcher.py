"""How fetching handles faulty answers of scripted brokers, and the answers of real ones."""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice, pairwise
from typing import Any

import pytest

from rebalance.lease import lease_clock
from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.errors import MessageTooLarge
from simpleconsumer.types import Broker, Message, TopicPartition
from tests.fetching.feeding import FETCH, METADATA, OFFSETS, ScriptedLog, config_of, message_set, offsets, take
from tests.member.delivering import DEADLINE_S, P0, P1, Rig, rigged
from zkconsumer.cluster.leaders import BrokerDirectory
from zkconsumer.errors import PartitionStopped
from zkconsumer.fetching.fetch_plan import PlannedFetch
from zkconsumer.fetching.partition_queue import FetchTask
from zkconsumer.member.delivery import Delivery
from zkconsumer.streams.stream import KafkaStream, StreamParts
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import wait_until


def fetches_of(rig: Rig, partition: TopicPartition) -> int:
    """How often the broker was asked for a partition."""
    return sum((topic, number) == partition for topic, number, *_ in rig.broker.fetched)


def wait_polls(rig: Rig, partition: TopicPartition, polls: int) -> None:
    """Let time pass until an idle partition was polled so many times more."""
    before = fetches_of(rig, partition)
    wait_until(lambda: fetches_of(rig, partition) >= before + polls, DEADLINE_S, f"{polls} polls of {partition}")


def await_rest(rig: Rig) -> None:
    """Wait until all that may be queued is queued, so that nothing more is asked for."""

    def rests() -> bool:
        asked, queued = len(rig.broker.fetched), rig.delivery.queued_bytes()
        time.sleep(0.2)
        return queued > 0 and (len(rig.broker.fetched), rig.delivery.queued_bytes()) == (asked, queued)

    wait_until(rests, DEADLINE_S, "fetching to come to rest")


def in_time(messages: Iterable[Any]) -> Iterator[Any]:
    """The messages or batches, as long as they come within a generous time in all."""
    begun = time.monotonic()
    for message in messages:
        assert time.monotonic() - begun < 2 * DEADLINE_S
        yield message


def first_answers(rig: Rig, *answers: tuple[int, int, bytes]) -> None:
    """Have the broker give these to the first fetches of partition 0, then what the log has."""
    script = iter(answers)

    def fetch(topic: str, partition: int, offset: int, max_bytes: int) -> tuple[int, int, bytes]:
        scripted = next(script, None) if partition == 0 else None
        return scripted or rig.log.fetch(topic, partition, offset, max_bytes)

    rig.broker.on_fetch = fetch


# -- partitions to which nothing comes ---------------------------------------------------------------------------------


def fetches_planned(rig: Rig) -> list[int]:
    """Filled from now on: how many partitions each fetch had that was planned anew."""
    [fetcher] = rig.delivery._pool.fetchers()
    planned: list[int] = []
    plan = fetcher._plans.plan

    def noted(tasks: list[FetchTask], changes: int) -> PlannedFetch:
        planned.append(len(tasks))
        return plan(tasks, changes)

    fetcher._plans.plan = noted  # type: ignore[method-assign]
    return planned


def idle_rig(rig: Rig) -> list[int]:
    """Read two partitions to their ends, and wait until the last fetch is made again as it was."""
    rig.delivery.start(P0, "thread-0", 0)
    rig.delivery.start(P1, "thread-0", 0)
    take(rig.streams[0], 20)
    wait_polls(rig, P0, 3)
    planned = fetches_planned(rig)
    wait_polls(rig, P0, 3)
    assert planned == []
    return planned


def test_a_fetch_to_which_nothing_came_is_made_again_without_a_plan() -> None:
    with rigged(ScriptedLog(10), fetch_wait_max_ms=10) as rig:
        planned = idle_rig(rig)
        rig.log.end = 11
        assert [message.offset for message in take(rig.streams[0], 2)] == [10, 10]
        assert planned != []


def test_the_status_shows_that_answers_come_although_they_say_the_same() -> None:
    now = [100.0]
    with rigged(ScriptedLog(10), clock=lambda: now[0], fetch_wait_max_ms=10) as rig:
        idle_rig(rig)
        now[0] = 150.0
        wait_polls(rig, P0, 3)
        assert {each.answer_age_s for each in rig.delivery.partition_status().values()} == {0.0}


def test_a_partition_that_comes_while_nothing_does_is_fetched() -> None:
    with rigged(ScriptedLog(10), fetch_wait_max_ms=10) as rig:
        idle_rig(rig)
        rig.delivery.start(TopicPartition("t", 2), "thread-0", 5)
        assert offsets(take(rig.streams[0], 5)) == list(range(5, 10))


def test_a_partition_that_goes_while_nothing_comes_is_not_asked_for_any_more() -> None:
    with rigged(ScriptedLog(10), fetch_wait_max_ms=10) as rig:
        planned = idle_rig(rig)
        rig.delivery.abandon(P1)
        wait_until(lambda: planned[-1:] == [1], DEADLINE_S, "a fetch of one partition")
        before = fetches_of(rig, P1)
        wait_polls(rig, P0, 3)
        assert fetches_of(rig, P1) <= before + 1


@pytest.mark.parametrize("code", [6, 3, 1])
def test_an_error_behind_equal_answers_is_handled(code: int) -> None:
    with rigged(ScriptedLog(10), fetch_wait_max_ms=10) as rig:
        planned = idle_rig(rig)
        first_answers(rig, (code, -1, b""))
        wait_until(lambda: planned != [], DEADLINE_S, "another plan")
        rig.log.end = 12
        assert sorted(offsets(take(rig.streams[0], 4))) == [10, 10, 11, 11]


def test_a_log_that_continues_without_messages_is_still_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with rigged(ScriptedLog(10), fetch_wait_max_ms=10) as rig:
        idle_rig(rig)
        rig.broker.on_fetch = lambda topic, partition, offset, max_bytes: (0, 15, b"")
        wait_until(lambda: "the broker sends nothing from offset 10 on" in caplog.text, DEADLINE_S, "the warning")


# -- errors of one partition -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [-1, 2, 3, 5, 6, 29, 77])
def test_an_error_code_holds_up_its_partition_and_no_other(code: int) -> None:
    with rigged(ScriptedLog(1000), streams=2) as rig:
        first_answers(rig, (code, -1, b""), (code, -1, b""))
        rig.delivery.start(P0, "thread-0", 0)
        rig.delivery.start(P1, "thread-1", 0)
        assert offsets(take(rig.streams[1], 50)) == list(range(50))
        assert offsets(take(rig.streams[0], 50)) == list(range(50))


@pytest.mark.catalogue("F7")
def test_an_error_that_lasts_is_named_by_the_status_and_asked_about_ever_less_often() -> None:
    with rigged(ScriptedLog(0), fetch_wait_max_ms=10) as rig:
        rig.broker.on_fetch = lambda _, partition, *__: (29, -1, b"") if partition == 0 else (0, 0, b"")
        rig.delivery.start(P0, "thread-0", 0)
        rig.delivery.start(P1, "thread-0", 0)
        wait_polls(rig, P1, 60)
        assert 2 <= fetches_of(rig, P0) <= 12
        assert "TopicAuthorizationFailed" in str(rig.delivery.partition_status()[P0].last_error)
        assert rig.delivery.partition_status()[P1].last_error is None


@pytest.mark.catalogue("F7")
@pytest.mark.parametrize("code", [3, 6])
def test_a_leader_that_denies_for_long_is_named_once_and_asked_ever_less_often_and_read_when_it_leads(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """In ZooKeeper and in the metadata it stays the leader: of a log that it has lost, or not yet got."""
    log, denies = ScriptedLog(10), [True]
    with rigged(log, fetch_wait_max_ms=10) as rig, caplog.at_level(logging.WARNING):
        rig.broker.on_offsets = lambda topic, partition, at: (
            (code, []) if partition == 0 and denies[0] else log.offsets(topic, partition, at)
        )
        rig.broker.on_fetch = lambda topic, partition, *asked: (
            (code, -1, b"") if partition == 0 and denies[0] else log.fetch(topic, partition, *asked)
        )
        rig.delivery.start(P0, "thread-0", 0)
        rig.delivery.start(P1, "thread-0", 0)
        assert offsets(take(rig.streams[0], 10)) == list(range(10))
        wait_polls(rig, P1, 120)
        tries = fetches_of(rig, P0) + rig.broker.requests[OFFSETS]
        assert 5 <= tries <= 25, "of some 60 without a pause that grows"
        status = rig.delivery.partition_status()
        assert f"(code {code})" in str(status[P0].last_error)
        assert status[P1].last_error is None
        assert caplog.text.count(f"t/0 on broker {rig.broker.broker.id}") == 1
        denies[0] = False
        assert offsets(take(rig.streams[0], 10)) == list(range(10))
        assert rig.delivery.partition_status()[P0].last_error is None


@pytest.mark.catalogue("F8")
@pytest.mark.parametrize(
    ("policy", "position", "expected"), [("smallest", 5, 100), ("largest", 5, 200), ("smallest", 950, 100)]
)
def test_a_position_outside_of_the_log_is_reset_and_said(
    policy: str, position: int, expected: int, caplog: pytest.LogCaptureFixture
) -> None:
    log = ScriptedLog(200, start=100)
    with rigged(log, auto_offset_reset=policy) as rig, caplog.at_level(logging.WARNING):
        rig.delivery.start(P0, "thread-0", position)
        wait_until(lambda: "continuing at" in caplog.text, DEADLINE_S, "the reset")
        log.end = 205
        message = next(rig.streams[0])
        assert message.offset == expected
        assert rig.delivery.positions() == {P0: expected}
    said = f"t/0: offset {position} is out of range, the log has 100 to 200; continuing at {expected}"
    assert said in caplog.text


@pytest.mark.catalogue("E12")
def test_out_of_range_about_a_position_inside_the_log_resets_nothing() -> None:
    with rigged(ScriptedLog(1000, start=100), auto_offset_reset="smallest") as rig:
        first_answers(rig, (1, -1, b""), (1, -1, b""), (1, -1, b""))
        rig.delivery.start(P0, "thread-0", 500)
        assert next(rig.streams[0]).offset == 500


def test_an_answer_that_lies_below_the_position_is_not_delivered_and_not_asked_for_in_a_loop() -> None:
    with rigged(ScriptedLog(1000)) as rig:
        first_answers(rig, (0, 1000, message_set(0, 10)))
        rig.delivery.start(P0, "thread-0", 500)
        assert next(rig.streams[0]).offset == 500


def test_a_negative_end_of_a_log_is_no_position(caplog: pytest.LogCaptureFixture) -> None:
    log = ScriptedLog(1000, start=100)
    with rigged(log, auto_offset_reset="smallest", refresh_leader_backoff_ms=20) as rig:
        answers = iter([(0, [5 - 2**63]), (0, [-1])])
        rig.broker.on_offsets = lambda *asked: next(answers, None) or log.offsets(*asked)
        rig.delivery.start(P0, "thread-0", 5)
        assert next(rig.streams[0]).offset == 100
    assert f"the broker reports offset {5 - 2**63}, which is negative" in caplog.text


# -- odd messages ------------------------------------------------------------------------------------------------------


@pytest.mark.catalogue("G1")
def test_a_message_larger_than_the_fetch_size_is_fetched_all_the_same() -> None:
    with rigged(ScriptedLog(20, value_bytes=150_000)) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        messages = take(rig.streams[0], 20)
        assert offsets(messages) == list(range(20))
        assert messages[19].value == rig.log.value(19)


def test_a_message_larger_than_the_budget_is_raised_and_passed_over() -> None:
    def fetch(topic: str, partition: int, offset: int, max_bytes: int) -> tuple[int, int, bytes]:
        if offset == 3:
            return 0, 10, struct.pack(">qi", 3, 5_000_000).ljust(max_bytes, b"x")
        return log.fetch(topic, partition, offset, max_bytes)

    log = ScriptedLog(10, batch=1)
    with rigged(log, queued_max_bytes=1_000_000) as rig:
        rig.broker.on_fetch = fetch
        rig.delivery.start(P0, "thread-0", 0)
        assert offsets(take(rig.streams[0], 3)) == [0, 1, 2]
        with pytest.raises(MessageTooLarge, match=r"t/0 at 3: .* takes 5000012 bytes, and the limit is 1000000"):
            next(rig.streams[0])
        assert offsets(take(rig.streams[0], 6)) == [4, 5, 6, 7, 8, 9]


BROKEN = struct.pack(">qi", 0, -5) + b"x" * 40


def test_broken_framing_that_passes_is_not_noticed() -> None:
    with rigged(ScriptedLog(1000)) as rig:
        first_answers(rig, (0, 1000, BROKEN), (0, 1000, BROKEN), (0, 1000, BROKEN))
        rig.delivery.start(P0, "thread-0", 0)
        assert offsets(take(rig.streams[0], 20)) == list(range(20))


def test_broken_framing_that_lasts_stops_that_partition_behind_its_last_good_message() -> None:
    log = ScriptedLog(1000)
    with rigged(log) as rig:
        good = message_set(0, 7)
        rig.broker.on_fetch = lambda topic, partition, offset, size: (
            (0, 1000, good + BROKEN) if partition == 0 else log.fetch(topic, partition, offset, size)
        )
        rig.delivery.start(P0, "thread-0", 0)
        assert offsets(take(rig.streams[0], 7)) == list(range(7))
        with pytest.raises(PartitionStopped, match=r"t/0 at 7: stopped: .*size -5"):
            next(rig.streams[0])
        tries = len(rig.broker.fetched)
        assert tries == 4
        rig.delivery.start(P1, "thread-0", 0)
        assert {message.partition for message in take(rig.streams[0], 30)} == {1}
        assert {partition for _, partition, *_ in rig.broker.fetched[tries:]} == {1}
        assert "stopped" in str(rig.delivery.partition_status()[P0].last_error)
        assert rig.delivery.positions()[P0] == 7


# -- connections -------------------------------------------------------------------------------------------------------


@pytest.mark.catalogue("F1")
def test_a_connection_that_breaks_is_made_again() -> None:
    with rigged(ScriptedLog(10_000)) as rig:
        number = count()
        rig.broker.on_request = lambda key: key == FETCH and next(number) % 5 == 3
        rig.delivery.start(P0, "thread-0", 0)
        assert offsets(take(rig.streams[0], 500)) == list(range(500))


@pytest.mark.catalogue("F1")
def test_an_answer_that_makes_no_sense_costs_the_connection_and_nothing_else() -> None:
    with rigged(ScriptedLog(10_000)) as rig:
        broken = iter([struct.pack(">i", 2_000_000_000), struct.pack(">i", 0), struct.pack(">ii", 8, 12345) + b"abcd"])
        rig.broker.instead_of = lambda key: next(broken, None) if key == FETCH else None
        rig.delivery.start(P0, "thread-0", 0)
        assert offsets(take(rig.streams[0], 50)) == list(range(50))


def test_a_broker_that_is_down_is_tried_again_after_pauses() -> None:
    with rigged(ScriptedLog(10_000), refresh_leader_backoff_ms=100) as rig:
        rig.broker.on_request = lambda key: key == FETCH
        rig.delivery.start(P0, "thread-0", 0)
        wait_until(lambda: len(rig.broker.metadata_at) >= 5, DEADLINE_S, "five tries")
        times = rig.broker.metadata_at[:5]
        assert min(later - earlier for earlier, later in pairwise(times)) >= 0.07
        assert rig.broker.requests[FETCH] <= 2 * rig.broker.requests[METADATA]


@pytest.mark.catalogue("F10")
def test_after_a_change_of_leader_the_log_end_is_asked_for_first(caplog: pytest.LogCaptureFixture) -> None:
    log = ScriptedLog(40)  # so much that its queue never fills: it goes on asking
    with rigged(log) as rig, caplog.at_level(logging.WARNING):
        rig.delivery.start(P0, "thread-0", 0)
        take(rig.streams[0], 30)
        assert rig.broker.requests[OFFSETS] == 0
        log.end = 12  # what an unclean election leaves
        first_answers(rig, (6, -1, b""))
        wait_until(lambda: "below the position" in caplog.text, DEADLINE_S, "the report", interval_s=0.01)


# -- where logs start and end ------------------------------------------------------------------------------------------


def resolve_all(rig: Rig, partitions: int, policy: str = "largest") -> dict[int, int]:
    """Ask for the start of many partitions; return the dictionary that the answers fill."""
    told: dict[int, int] = {}
    for number in range(partitions):
        rig.delivery.resolve(("t", number), policy, lambda at, number=number: told.__setitem__(number, at))  # type: ignore[misc]
    return told


def test_the_starts_of_many_partitions_are_asked_for_in_a_few_requests() -> None:
    partitions = 1200
    with rigged(ScriptedLog(70), partitions=partitions) as rig:
        asked, answer = threading.Event(), threading.Event()

        def held(*question: object) -> tuple[int, list[int]]:
            asked.set()
            answer.wait(DEADLINE_S)
            return 0, [70]

        rig.broker.on_offsets = held
        told = resolve_all(rig, partitions)
        assert asked.wait(DEADLINE_S)
        wait_until(lambda: not rig.delivery._finder.missing(), DEADLINE_S, "all to have a leader")
        answer.set()
        wait_until(lambda: len(told) == partitions, DEADLINE_S, "all starts")
        assert set(told.values()) == {70}
        assert rig.broker.requests[OFFSETS] <= 5, "500 a request, and the first one that was held"
        assert rig.broker.requests[METADATA] <= 2


@pytest.mark.parametrize("code", [-1, 3, 5, 6, 29])
def test_an_error_about_one_start_holds_up_no_other(code: int) -> None:
    with rigged(ScriptedLog(70), partitions=50) as rig:
        rig.broker.on_offsets = lambda _, partition, __: (code, []) if partition == 7 else (0, [70])
        told = resolve_all(rig, 50)
        wait_until(lambda: len(told) == 49, DEADLINE_S, "the others")
        assert 7 not in told
        rig.broker.on_offsets = rig.log.offsets
        wait_until(lambda: told.get(7) == 70, DEADLINE_S, "the one")


def test_a_connection_that_breaks_under_the_question_costs_no_partition_its_start() -> None:
    with rigged(ScriptedLog(70), partitions=50) as rig:
        broken = iter([False, True, True])
        rig.broker.on_request = lambda key: key == OFFSETS and next(broken, False)
        told = resolve_all(rig, 50)
        wait_until(lambda: len(told) == 50, DEADLINE_S, "all starts")


def test_several_positions_outside_of_their_logs_are_reset_except_without_a_range_from_the_broker() -> None:
    with rigged(ScriptedLog(200, start=100), fetch_wait_max_ms=10, auto_offset_reset="smallest") as rig:
        rig.broker.on_offsets = lambda topic, partition, time_ms: (
            (29, []) if partition == 2 and time_ms == -2 else rig.log.offsets(topic, partition, time_ms)
        )
        rig.broker.on_metadata = lambda topics: rig.broker.metadata({"t": dict.fromkeys(range(8), (0, 0))})
        for number in range(4):
            rig.delivery.start(("t", number), "thread-0", 5)
        first = {message.partition for message in take(rig.streams[0], 300)}
        assert first == {0, 1, 3}
        assert "TopicAuthorizationFailed" in str(rig.delivery.partition_status()[TopicPartition("t", 2)].last_error)


# -- load --------------------------------------------------------------------------------------------------------------


def test_an_idle_partition_is_polled_with_the_longest_wait() -> None:
    with rigged(ScriptedLog(0), fetch_wait_max_ms=30) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        wait_polls(rig, P0, 10)
        assert set(rig.broker.fetches) == {(1, 30)}


@pytest.mark.catalogue("F9")
def test_a_partition_with_a_full_queue_is_not_asked_for() -> None:
    with rigged(ScriptedLog(1000), streams=2, fetch_wait_max_ms=10) as rig:
        rig.delivery.start(P0, "thread-0", 0)  # nobody reads it
        rig.delivery.start(P1, "thread-1", 1000)  # nothing to read
        wait_until(lambda: rig.delivery.partition_status()[P0].queued_chunks == 3, DEADLINE_S, "a full queue")
        wait_polls(rig, P1, 1)
        before = fetches_of(rig, P0)
        wait_polls(rig, P1, 20)
        assert fetches_of(rig, P0) == before
        assert offsets(take(rig.streams[0], 200)) == list(range(200))


@pytest.mark.catalogue("F7")
def test_with_every_queue_full_no_request_is_sent_until_a_chunk_is_read() -> None:
    with rigged(ScriptedLog(100_000)) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        wait_until(lambda: rig.delivery.partition_status()[P0].queued_chunks == 3, DEADLINE_S, "a full queue")
        assert rig.broker.requests[FETCH] == 3
        take(rig.streams[0], 10)
        assert rig.broker.requests[FETCH] == 3
        next(rig.streams[0])
        wait_until(lambda: rig.broker.requests[FETCH] == 4, DEADLINE_S, "the next fetch")


def test_the_long_poll_gets_long_again_beside_a_queue_that_stays_full() -> None:
    with rigged(ScriptedLog(1000), streams=2) as rig:
        rig.delivery.start(P0, "thread-0", 0)  # nobody reads it
        rig.delivery.start(P1, "thread-1", 1000)  # nothing to read
        wait_until(lambda: rig.delivery.partition_status()[P0].queued_chunks == 3, DEADLINE_S, "a full queue")
        wait_until(lambda: rig.broker.fetches[-1] == (1, 100), DEADLINE_S, "a long poll again")


@pytest.mark.catalogue("F13")
def test_two_thousand_partitions_share_the_budget_and_all_get_on() -> None:
    partitions = 2000
    budget = 2 * 1024 * 1024
    log = ScriptedLog(30, value_bytes=1000)
    with rigged(log, partitions=partitions, queued_max_bytes=budget, fetch_message_max_bytes=1024 * 1024) as rig:
        for partition in range(partitions):
            rig.delivery.start(("t", partition), "thread-0", 0)
        most = 0
        seen: set[int | str] = set()
        for message in rig.streams[0]:
            seen.add(message.partition)
            most = max(most, rig.delivery.queued_bytes()) if message.offset == 0 else most
            if len(seen) == partitions:
                break
        assert most <= budget + 1024 * 1024
        assert max(asked for *_, asked in rig.broker.fetched) <= 1024 * 1024


def test_a_budget_eaten_up_by_one_stream_still_lets_the_other_have_a_chunk_at_a_time() -> None:
    log = ScriptedLog(100_000, value_bytes=1000)
    with rigged(log, streams=2, partitions=30, queued_max_bytes=64 * 1024) as rig:
        for partition in range(20):
            rig.delivery.start(("t", partition), "thread-0", 0)
        wait_until(lambda: rig.delivery.queued_bytes() > 20 * 1024, DEADLINE_S, "all that one stream may hold")
        rig.delivery.start(("t", 25), "thread-1", 0)
        assert offsets(take(rig.streams[1], 200)) == list(range(200))


def test_beside_unread_streams_another_does_not_wait_for_its_partitions_without_data() -> None:
    """Nine of its ten partitions have nothing, and a request for one of those is held back for five seconds."""
    log = ScriptedLog(2000, value_bytes=1000)
    settings = {"fetch_wait_max_ms": 5000, "queued_max_bytes": 1024 * 1024}
    with rigged(log, streams=4, partitions=100, **settings) as rig:
        for partition in range(90):
            rig.delivery.start(("t", partition), f"thread-{partition % 3}", 0)
        await_rest(rig)
        rig.delivery.start(("t", 90), "thread-3", 0)
        for partition in range(91, 100):
            rig.delivery.start(("t", partition), "thread-3", log.end)
        assert offsets(list(islice(in_time(rig.streams[3]), 2000))) == list(range(2000))
        assert rig.delivery.queued_bytes() <= 1024 * 1024


def test_what_was_left_out_for_want_of_room_is_not_held_up_by_the_long_poll_of_others() -> None:
    """The only stream that is read fills its share again and again, beside one without any data."""
    log = ScriptedLog(3000, value_bytes=1000)
    settings = {"fetch_wait_max_ms": 20_000, "queued_max_bytes": 128 * 1024, "queued_max_message_chunks": 10}
    with rigged(log, streams=2, partitions=20, **settings) as rig:
        for partition in range(10, 20):
            rig.delivery.start(("t", partition), "thread-1", 0)
        for partition in range(10):
            rig.delivery.start(("t", partition), "thread-0", log.end)
        messages = list(islice(in_time(rig.streams[1]), 10 * 3000))
        for partition in range(10, 20):
            assert offsets([one for one in messages if one.partition == partition]) == list(range(3000))


def test_messages_larger_than_its_share_come_one_by_one_beside_an_unread_stream() -> None:
    """Half of them lie in a partition of their own, half beside small ones that would fit into any room."""
    large, small = ScriptedLog(20, value_bytes=300_000, batch=1), ScriptedLog(3000, value_bytes=1000)
    budget = 512 * 1024
    settings = {"queued_max_bytes": budget, "fetch_message_max_bytes": 1024 * 1024, "fetch_wait_max_ms": 1000}
    with rigged(small, streams=2, partitions=30, **settings) as rig:
        is_large = {28, 29}
        rig.broker.on_fetch = lambda topic, partition, *rest: (large if partition in is_large else small).fetch(
            topic, partition, *rest
        )
        for partition in range(20):
            rig.delivery.start(("t", partition), "thread-0", 0)
        await_rest(rig)
        for partition in (27, 28, 29):
            rig.delivery.start(("t", partition), "thread-1", 0)
        seen: dict[int | str, list[int]] = {27: [], 28: [], 29: []}
        most = 0
        for message in in_time(rig.streams[1]):
            seen[message.partition].append(message.offset)
            most = max(most, rig.delivery.queued_bytes())
            if sum(map(len, seen.values())) == 3040:
                break
        assert seen == {27: list(range(3000)), 28: list(range(20)), 29: list(range(20))}
        assert most <= budget + 301_000
        in_vain = [row for row in rig.broker.fetched if row[1] in is_large and row[2] < 20 and row[3] < 300_000]
        assert len(in_vain) <= 6, "what did not fit once is asked for whole the next time"


def test_batches_continue_beside_a_stream_that_stops_in_the_middle_of_a_batch() -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'zkconsumer[columns]'")
    log = ScriptedLog(2000, value_bytes=1000)
    settings = {"fetch_wait_max_ms": 5000, "queued_max_bytes": 256 * 1024}
    with rigged(log, streams=2, partitions=40, **settings) as rig:
        for partition in range(30):
            rig.delivery.start(("t", partition), "thread-0", 0)
        next(rig.streams[0].batches(max_messages=3))
        await_rest(rig)
        rig.delivery.start(("t", 30), "thread-1", 0)
        for partition in range(31, 40):
            rig.delivery.start(("t", partition), "thread-1", log.end)
        at = 0
        for batch in in_time(rig.streams[1].batches()):
            assert batch.offset == at
            at = batch.next_offset
            if at == 2000:
                break


def test_a_paused_partition_holds_no_room() -> None:
    log = ScriptedLog(2000, value_bytes=1000)
    with rigged(log, streams=2, partitions=40, queued_max_bytes=256 * 1024) as rig:
        for partition in range(30):
            rig.delivery.start(("t", partition), "thread-0", 0)
        await_rest(rig)
        assert rig.delivery.queued_bytes() > 64 * 1024
        for partition in range(30):
            rig.delivery.pause(("t", partition))
        wait_until(lambda: rig.delivery.queued_bytes() == 0, DEADLINE_S, "the queues to be dropped")
        rig.delivery.start(("t", 30), "thread-0", 0)
        assert offsets(take(rig.streams[0], 2000)) == list(range(2000))


def test_a_partition_that_starts_beside_idle_ones_is_fetched_within_a_long_poll_or_two() -> None:
    log = ScriptedLog(1000)
    with rigged(log, fetch_wait_max_ms=50) as rig:
        rig.delivery.start(P0, "thread-0", 1000)
        wait_until(lambda: rig.broker.requests[FETCH] >= 2, DEADLINE_S, "the idle partition to be polled")
        polls = rig.broker.requests[FETCH]
        rig.delivery.start(P1, "thread-0", 0)
        assert next(rig.streams[0]).offset == 0
        assert rig.broker.requests[FETCH] - polls <= 6


def test_a_fetcher_without_partitions_ends_and_a_new_one_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zkconsumer.fetching.fetcher.IDLE_S", 0.05)
    with rigged(ScriptedLog(1000)) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        take(rig.streams[0], 1)
        (fetcher,) = [thread for thread in threading.enumerate() if thread.name.startswith("fetcher-group-0")]
        rig.delivery.abandon(P0)
        fetcher.join(DEADLINE_S)
        assert not fetcher.is_alive()
        rig.delivery.start(P0, "thread-0", 7)
        assert next(rig.streams[0]).offset == 7


def test_several_fetchers_share_the_partitions_of_a_broker() -> None:
    with rigged(ScriptedLog(1000), num_consumer_fetchers=2) as rig:
        for partition in range(4):
            rig.delivery.start(("t", partition), "thread-0", 0)
        seen: set[int | str] = set()
        while len(seen) < 4:
            seen.add(next(rig.streams[0]).partition)
        names = {thread.name for thread in threading.enumerate() if thread.name.startswith("fetcher-group-0")}
        assert names == {"fetcher-group-0-0", "fetcher-group-0-1"}


@pytest.mark.catalogue("F6")
def test_a_started_partition_costs_one_metadata_request_and_names_its_topic() -> None:
    with rigged(ScriptedLog(1000)) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        take(rig.streams[0], 100)
        assert rig.broker.requests[METADATA] == 1
        assert rig.broker.metadata_topics == [["t"]]


# -- real brokers ------------------------------------------------------------------------------------------------------


class RealRig:
    """A delivery over real brokers, with what the connector would read of ZooKeeper read by the test's client."""

    def __init__(self, cluster: KafkaCluster, addresses: dict[int, Broker], **settings: object) -> None:
        config = config_of(consumer_timeout_ms=int(DEADLINE_S * 1000), **settings)
        lease = type("Lease", (), {"until": float("inf")})()
        self.stream = KafkaStream(StreamParts("thread-0", config, lease, lease_clock))
        directory = BrokerDirectory(
            config.client_id,
            config.socket_timeout_ms / 1000,
            lambda: list(addresses.values()),
            lambda topics: {topic for topic in topics if cluster.client.exists(f"/brokers/topics/{topic}")},
            lambda names: {name: cluster.leader(name.topic, int(name.partition)) or 0 for name in names},
        )
        self.delivery = Delivery(config, {("", self.stream.thread_id): self.stream}, directory, lease_clock)

    def __enter__(self) -> RealRig:
        return self

    def __exit__(self, *_: object) -> None:
        self.delivery.stop(None, lease_clock())
        self.delivery.close(lease_clock() + DEADLINE_S)


def addresses_of(cluster: KafkaCluster) -> dict[int, Broker]:
    return {broker_id: Broker(broker_id, "127.0.0.1", cluster.port(broker_id)) for broker_id in (0, 1)}


def produce(cluster: KafkaCluster, topic: str, values: list[bytes], codec: str = "none") -> None:
    leader = cluster.leader(topic, 0)
    assert leader is not None
    messages = [Message(topic, 0, 0, 0, None, value) for value in values]
    with SimpleConsumer("127.0.0.1", cluster.port(leader)) as consumer:
        consumer.produce(topic, 0, messages, codec=codec)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_real_brokers_serve_what_was_produced(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], codec: str
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, 1)
    sent = [b"%d" % number for number in range(1000)]
    produce(kafka_0822, topic, sent, codec)
    with RealRig(kafka_0822, addresses_of(kafka_0822)) as rig:
        rig.delivery.start((topic, 0), "thread-0", 500)
        messages = take(rig.stream, 500)
        assert [message.value for message in messages] == sent[500:]
        produce(kafka_0822, topic, [b"later"], codec)
        assert next(rig.stream).value == b"later"


def test_a_real_leader_that_moves_is_followed(kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, 1, 2)
    leader = kafka_0822.wait_leaders(topic, [0])[0]
    with RealRig(kafka_0822, addresses_of(kafka_0822)) as rig:
        rig.delivery.start((topic, 0), "thread-0", 0)
        produce(kafka_0822, topic, [b"before"])
        assert next(rig.stream).value == b"before"
        kafka_0822.move_leader(topic, 0, 1 - leader)
        wait_until(lambda: kafka_0822.leader(topic, 0) == 1 - leader, DEADLINE_S, "the new leader")
        produce(kafka_0822, topic, [b"after"])
        assert next(rig.stream).value == b"after"
        assert rig.delivery.partition_status()[TopicPartition(topic, 0)].leader == addresses_of(kafka_0822)[1 - leader]


def test_a_real_message_larger_than_the_fetch_size_comes_through(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, 1)
    produce(kafka_0822, topic, [b"small", b"x" * 300_000, b"small again"])
    with RealRig(kafka_0822, addresses_of(kafka_0822), fetch_message_max_bytes=1000) as rig:
        rig.delivery.start((topic, 0), "thread-0", 0)
        assert [len(message.value) for message in take(rig.stream, 3)] == [5, 300_000, 11]


@pytest.mark.parametrize(("policy", "expected"), [("smallest", 0), ("largest", 5)])
def test_a_real_broker_is_asked_before_a_reset(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], policy: str, expected: int
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, 1)
    produce(kafka_0822, topic, [b"x"] * 5)
    with RealRig(kafka_0822, addresses_of(kafka_0822), auto_offset_reset=policy) as rig:
        rig.delivery.start((topic, 0), "thread-0", 1_000_000)
        name = TopicPartition(topic, 0)
        wait_until(lambda: rig.delivery.partition_status()[name].fetch_offset <= 5, DEADLINE_S, "the reset")
        produce(kafka_0822, topic, [b"y"])
        assert next(rig.stream).offset == expected


def test_a_link_that_stalls_is_given_up_and_made_again(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, 1)
    leader = kafka_0822.wait_leaders(topic, [0])[0]
    with TcpProxy(("127.0.0.1", kafka_0822.port(leader))) as proxy:
        host, _, port = proxy.address.rpartition(":")
        addresses = addresses_of(kafka_0822) | {leader: Broker(leader, host, int(port))}
        with RealRig(kafka_0822, addresses, socket_timeout_ms=500) as rig:
            rig.delivery.start((topic, 0), "thread-0", 0)
            produce(kafka_0822, topic, [b"one"])
            assert next(rig.stream).value == b"one"
            proxy.stall()
            produce(kafka_0822, topic, [b"two"])
            name = TopicPartition(topic, 0)
            wait_until(lambda: rig.delivery.partition_status()[name].last_error, DEADLINE_S, "the time-out")
            proxy.clear()
            assert next(rig.stream).value == b"two"
            proxy.drop()
            produce(kafka_0822, topic, [b"three"])
            assert next(rig.stream).value == b"three"
