"""Pauses, against a broker on a real socket: nothing of a paused partition comes, nothing is lost or repeated."""

from __future__ import annotations

import random
import threading

import pytest

from simpleconsumer.types import Message, TopicPartition
from tests.fetching.feeding import FETCH, Drained, ScriptedLog, offsets, take
from tests.member.delivering import DEADLINE_S, P0, P1, Rig, rigged
from zkconsumer.errors import ConsumerTimeout, PartitionStopped
from zkconsumer.testing.waiting import Deadline, wait_until


def resume(rig: Rig, *partitions: TopicPartition) -> None:
    """What the coordinator does, on this thread."""
    for partition in partitions:
        rig.delivery.resume(partition, lambda queue, at, name=partition: rig.delivery.go_on(name, queue, at))  # type: ignore[misc]


def of(messages: list[Message], partition: TopicPartition) -> list[int]:
    return offsets([each for each in messages if each.partition == partition.partition])


def test_from_the_next_call_on_no_message_of_a_paused_partition_comes_not_even_out_of_an_open_chunk() -> None:
    with rigged(ScriptedLog(1000), consumer_timeout_ms=200) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        take(rig.streams[0], 3)
        rig.delivery.pause(P0)
        with pytest.raises(ConsumerTimeout):
            next(rig.streams[0])
        assert rig.delivery.paused() == {P0}
        assert rig.delivery.queued_bytes() == 0


def test_the_other_partitions_of_the_stream_go_on() -> None:
    with rigged(ScriptedLog(1000)) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        rig.delivery.start(P1, "thread-0", 0)
        before = take(rig.streams[0], 50)
        rig.delivery.pause(P0)
        after = take(rig.streams[0], 200)
        assert {each.partition for each in after} == {1}
        assert of(before + after, P1) == list(range(len(of(before + after, P1))))


def test_a_resumed_partition_goes_on_at_the_very_next_message() -> None:
    with rigged(ScriptedLog(1000)) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        taken = take(rig.streams[0], 7)
        for _ in range(5):
            rig.delivery.pause(P0)
            resume(rig, P0)
            taken += take(rig.streams[0], 13)
        assert offsets(taken) == list(range(7 + 5 * 13))


def test_the_message_in_hand_stays_undone_and_counts_when_it_is_put_down_paused_or_not() -> None:
    with rigged(ScriptedLog(1000), consumer_timeout_ms=100) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        take(rig.streams[0], 3)
        rig.delivery.pause(P0)
        assert rig.delivery.positions() == {P0: 2}
        with pytest.raises(ConsumerTimeout):
            next(rig.streams[0])
        assert rig.delivery.positions() == {P0: 3}


def test_a_partition_that_is_resumed_while_its_message_is_in_hand_is_counted_all_the_time() -> None:
    with rigged(ScriptedLog(1000)) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        take(rig.streams[0], 3)
        rig.delivery.pause(P0)
        waiting: list[tuple[object, int]] = []
        rig.delivery.resume(P0, lambda queue, at: waiting.append((queue, at)))
        assert waiting == []
        reader = threading.Thread(target=lambda: take(rig.streams[0], 1), daemon=True)
        reader.start()
        wait_until(lambda: waiting, DEADLINE_S, "the message to be put down")
        assert rig.delivery.positions() == {P0: 3}  # what was done just now can be committed at once
        rig.delivery.go_on(P0, *waiting[0])
        reader.join(DEADLINE_S)
        assert rig.delivery.positions() == {P0: 3}


def test_a_pause_between_resuming_and_going_on_holds() -> None:
    with rigged(ScriptedLog(1000), consumer_timeout_ms=100) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        take(rig.streams[0], 3)
        rig.delivery.pause(P0)
        resume(rig, P0)  # waits for the message in hand
        rig.delivery.pause(P0)
        with pytest.raises(ConsumerTimeout):
            next(rig.streams[0])
        assert rig.delivery.positions() == {P0: 3}
        resume(rig, P0)
        assert offsets(take(rig.streams[0], 2)) == [3, 4]


def test_a_paused_partition_is_not_fetched_and_nobody_is_busy_about_it() -> None:
    with rigged(ScriptedLog(1000), consumer_timeout_ms=300) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        take(rig.streams[0], 3)
        rig.delivery.pause(P0)
        fetchers = rig.delivery._pool.fetchers()
        wait_until(lambda: not any(each.tasks() for each in fetchers), DEADLINE_S, "the fetch under way to end")
        asked = rig.broker.requests[FETCH]
        for _ in range(2):
            with pytest.raises(ConsumerTimeout):
                next(rig.streams[0])
        assert rig.broker.requests[FETCH] == asked


def test_a_partition_paused_before_it_starts_begins_paused() -> None:
    with rigged(ScriptedLog(1000), consumer_timeout_ms=200) as rig:
        rig.delivery.pause(P0)
        rig.delivery.start(P0, "thread-0", 500)
        with pytest.raises(ConsumerTimeout):
            next(rig.streams[0])
        assert rig.delivery.positions() == {P0: 500}
        assert rig.broker.requests[FETCH] == 0
        resume(rig, P0)
        assert offsets(take(rig.streams[0], 2)) == [500, 501]


def test_a_pause_does_not_hold_up_the_look_for_a_start() -> None:
    with rigged(ScriptedLog(900, start=30)) as rig:
        done = Drained()
        rig.delivery.resolve(P0, "largest", done)
        rig.delivery.pause(P0)
        assert done.was_called.wait(DEADLINE_S)


@pytest.mark.parametrize("how", ["drain", "expire", "abandon"])
def test_the_end_of_an_ownership_ends_its_pause(how: str) -> None:
    with rigged(ScriptedLog(1000)) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        take(rig.streams[0], 3)
        rig.delivery.pause(P0)
        drained = Drained()
        if how == "abandon":
            assert rig.delivery.abandon(P0) == 2
        else:
            rig.delivery.drain(P0, drained)
            assert drained.positions == []  # the message in hand
            assert rig.delivery.expire_drain(P0) == 2
        assert rig.delivery.paused() == frozenset()
        rig.delivery.start(P0, "thread-0", 2)
        assert offsets(take(rig.streams[0], 2)) == [2, 3]


def test_a_partition_that_went_away_while_it_was_to_be_resumed_stays_away() -> None:
    with rigged(ScriptedLog(1000), consumer_timeout_ms=200) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        take(rig.streams[0], 3)
        rig.delivery.pause(P0)
        waiting: list[tuple[object, int]] = []
        rig.delivery.resume(P0, lambda queue, at: waiting.append((queue, at)))
        drained = Drained()
        rig.delivery.drain(P0, drained)
        with pytest.raises(ConsumerTimeout):
            next(rig.streams[0])
        assert drained.positions == [3]
        for queue, at in waiting:
            rig.delivery.go_on(P0, queue, at)
        with pytest.raises(ConsumerTimeout):
            next(rig.streams[0])
        rig.delivery.start(P0, "thread-0", 3)
        assert offsets(take(rig.streams[0], 1)) == [3]


def test_a_refused_partition_stays_refused() -> None:
    with rigged(ScriptedLog(1000), consumer_timeout_ms=200) as rig:
        rig.delivery.pause(P0)
        rig.delivery.refuse(P0, "thread-0", 500, "no such offset")
        with pytest.raises(ConsumerTimeout):
            next(rig.streams[0])
        resume(rig, P0)
        with pytest.raises(PartitionStopped, match="no such offset"):
            next(rig.streams[0])
        rig.delivery.pause(P0)
        resume(rig, P0)
        with pytest.raises(ConsumerTimeout):
            next(rig.streams[0])


def test_stopping_counts_what_was_done_of_paused_partitions() -> None:
    with rigged(ScriptedLog(1000)) as rig:
        rig.delivery.start(P0, "thread-0", 0)
        take(rig.streams[0], 3)
        rig.delivery.pause(P0)
        assert rig.delivery.stop(threading.get_ident(), 0.0) == {P0: 3}


@pytest.mark.parametrize("seed", range(3))
def test_pauses_at_any_moment_lose_and_repeat_nothing(seed: int) -> None:
    rng = random.Random(seed)
    end = 3000
    with rigged(ScriptedLog(end), partitions=2, consumer_timeout_ms=50) as rig:
        for partition in (P0, P1):
            rig.delivery.start(partition, "thread-0", 0)
        came: dict[int | str, list[int]] = {0: [], 1: []}
        is_over = threading.Event()

        def read() -> None:
            while min(map(len, came.values())) < end and not is_over.is_set():
                try:
                    message = next(rig.streams[0])
                except ConsumerTimeout:
                    continue
                came[message.partition].append(message.offset)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        deadline = Deadline(2 * DEADLINE_S)
        while reader.is_alive() and min(map(len, came.values())) < end - 100 and not deadline.expired:
            chosen = rng.choice([P0, P1])
            rig.delivery.pause(chosen)
            reader.join(rng.choice([0, 0, 0.001, 0.005]))
            resume(rig, chosen)
            reader.join(rng.choice([0, 0, 0.001, 0.02]))
        reader.join(DEADLINE_S)
        is_over.set()
        assert came == {0: list(range(end)), 1: list(range(end))}
