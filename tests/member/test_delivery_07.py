"""Positions of Kafka 0.7 against an embedded broker: logs that change, and positions at which no entry starts."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from kafka_07 import entry

from rebalance.lease import lease_clock
from simpleconsumer.dialect import KAFKA07
from simpleconsumer.types import Broker, Message, TopicPartition
from tests.fetching.feeding import Drained, HeldLease, config_of, offsets, take
from zkconsumer.cluster.leaders import BrokerDirectory
from zkconsumer.errors import ConsumerTimeout, PartitionStopped
from zkconsumer.fetching import entry_checks
from zkconsumer.member.delivery import Delivery
from zkconsumer.streams.batches import MessageBatch
from zkconsumer.streams.stream import KafkaStream, StreamParts
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.waiting import wait_until

DEADLINE_S = 15.0
PARTITION = TopicPartition("t", "0-0")
OLD = [b"old %02d" % number for number in range(10)]
NEW = [b"new %02d" % number for number in range(15)]
SIZE = len(entry(OLD[0]))


class Rig07:
    """What a connector wires, without ZooKeeper and without a group, on one broker."""

    def __init__(self, cluster: EmbeddedCluster, settings: dict[str, object]) -> None:
        config = config_of(
            **{
                "consumer_timeout_ms": int(DEADLINE_S * 1000),
                "refresh_leader_backoff_ms": 20,
                "fetcher_backoff_ms": 20,
                **settings,
            }
        )
        self.cluster = cluster
        broker = Broker(0, "127.0.0.1", cluster.port(0), generation="kafka07")
        parts = StreamParts("thread-0", config, HeldLease(), lease_clock)
        self.stream: KafkaStream = KafkaStream(parts)
        directory = BrokerDirectory(config.client_id, 5.0, lambda: [broker], set, lambda names: {})
        self.left: list[tuple[TopicPartition, range, int]] = []
        self.delivery = Delivery(
            config, {("t", "thread-0"): self.stream}, directory, lease_clock, lambda *found: self.left.append(found)
        )

    def replace_log(self, data: bytes) -> None:
        """Have the broker come back with another log."""
        self.cluster.stop(0)
        folder = self.cluster.brokers[0].folder / "t-0"
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / f"{0:020}.kafka").write_bytes(data)
        self.cluster.start(0)

    def errors(self) -> dict[str, int]:
        return self.delivery._counters.counts("errors")

    def drained(self) -> int:
        """The final position of the partition."""
        done = Drained()
        self.delivery.drain(PARTITION, done)
        wait_until(lambda: bool(done.positions), DEADLINE_S, "the drain")
        self.delivery.abandon(PARTITION)
        return done.positions[0]


@contextmanager
def rigged_07(values: list[bytes], data: bytes | None = None, **settings: object) -> Iterator[Rig07]:
    """A delivery on one broker, with a log of these values, or of this message set."""
    with EmbeddedCluster(generation="0.7", zookeeper=False, settings={"num.partitions": 1}) as cluster:
        cluster.create_topic("t")
        cluster.log("t", "0-0").append(data if data is not None else b"".join(map(entry, values)))
        rig = Rig07(cluster, settings)
        try:
            yield rig
        finally:
            rig.delivery.stop(None, lease_clock())
            rig.delivery.close(lease_clock() + DEADLINE_S)


# -- a broker that comes back with another log -------------------------------------------------------------------------


@pytest.mark.parametrize("new", [0, 3, 10, 15])
@pytest.mark.parametrize("read", [1, 4, 10])
def test_a_log_that_changed_while_a_message_was_in_hand_is_read_from_its_start(
    read: int, new: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The partition is released with its broker while the application works; the entries have the same sizes."""
    with rigged_07(OLD, auto_offset_reset="largest") as rig:
        rig.delivery.start(PARTITION, "thread-0", 0)
        take(rig.stream, read)
        done = Drained()
        rig.delivery.drain(PARTITION, done)  # the last message is in hand
        rig.stream._finish_hand(None)  # it is done now
        assert done.positions == [SIZE * read]
        rig.delivery.abandon(PARTITION)
        rig.replace_log(b"".join(map(entry, NEW[:new])))
        rig.delivery.start(PARTITION, "thread-0", SIZE * read)
        rig.cluster.produce("t", [b"more"], partition="0-0")
        assert [message.value for message in take(rig.stream, new + 1)] == [*NEW[:new], b"more"]
    assert f"the entry from {SIZE * (read - 1)} to {SIZE * read}, which was delivered" in caplog.text


@pytest.mark.parametrize(
    ("start", "is_noticed"), [(4, True), (8, True), pytest.param(5, False, id="a position of another member")]
)
def test_another_log_is_noticed_from_the_last_commit_of_the_application(start: int, is_noticed: bool) -> None:
    """Without auto-commit a claim starts there, before the last entry that was delivered."""
    with rigged_07(OLD, auto_commit_enable=False) as rig:
        rig.delivery.start(PARTITION, "thread-0", 0)
        take(rig.stream, 4)
        rig.delivery.mark_committed({PARTITION: 4 * SIZE})
        take(rig.stream, 4)
        rig.stream._finish_hand(None)
        assert rig.delivery.abandon(PARTITION) == 8 * SIZE
        rig.replace_log(b"".join(map(entry, NEW)))
        rig.delivery.start(PARTITION, "thread-0", start * SIZE)
        assert take(rig.stream, 1)[0].value == (NEW[0] if is_noticed else NEW[start])
        assert rig.errors().get("log_changed", 0) == is_noticed


def test_from_the_last_commit_of_the_application_the_same_log_is_read_on() -> None:
    with rigged_07(OLD, auto_commit_enable=False) as rig:
        rig.delivery.start(PARTITION, "thread-0", 0)
        take(rig.stream, 4)
        rig.delivery.mark_committed({PARTITION: 4 * SIZE})
        take(rig.stream, 4)
        rig.delivery.abandon(PARTITION)
        rig.delivery.start(PARTITION, "thread-0", 4 * SIZE)
        assert [message.value for message in take(rig.stream, 6)] == OLD[4:]
        assert "log_changed" not in rig.errors()


def test_a_message_in_hand_that_is_not_waited_for_leaves_the_entry_before_it() -> None:
    with rigged_07(OLD) as rig:
        rig.delivery.start(PARTITION, "thread-0", 0)
        take(rig.stream, 4)
        rig.delivery.drain(PARTITION, Drained())
        assert rig.delivery.expire_drain(PARTITION) == 3 * SIZE
        rig.delivery.abandon(PARTITION)
        rig.replace_log(b"".join(map(entry, NEW)))
        rig.delivery.start(PARTITION, "thread-0", 3 * SIZE)
        assert [message.value for message in take(rig.stream, 15)] == NEW
        assert rig.errors()["log_changed"] == 1


@pytest.mark.parametrize("policy", ["smallest", "largest"])
@pytest.mark.parametrize("new", [0, 3, 10, 15])
def test_a_log_that_changed_behind_a_broken_connection_is_read_from_its_start(policy: str, new: int) -> None:
    """The partition stays owned: nothing in ZooKeeper has shown that its broker was away."""
    with rigged_07(OLD, auto_offset_reset=policy) as rig:
        rig.delivery.start(PARTITION, "thread-0", 0)
        take(rig.stream, 10)
        rig.replace_log(b"".join(map(entry, NEW[:new])))
        wait_until(lambda: rig.errors().get("log_changed") == 1, DEADLINE_S, "the other log", state=rig.errors)
        rig.cluster.produce("t", [b"more"], partition="0-0")
        assert [message.value for message in take(rig.stream, new + 1)] == [*NEW[:new], b"more"]
        assert "out_of_range" not in rig.errors()


def test_a_log_that_changed_behind_a_connection_that_was_made_anew_without_an_error_is_noticed() -> None:
    """The broker was away between two requests: the second one is sent again over a new connection."""
    with rigged_07(OLD, fetcher_backoff_ms=60_000) as rig:
        rig.delivery.start(PARTITION, "thread-0", 0)
        take(rig.stream, 10)
        time.sleep(1.0)  # the pauses behind empty answers have grown to half a second
        rig.replace_log(b"".join(map(entry, NEW)))
        assert [message.value for message in take(rig.stream, 15)] == NEW
        assert rig.errors()["log_changed"] == 1


def test_the_same_log_is_read_on(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), rigged_07(OLD) as rig:
        rig.delivery.start(PARTITION, "thread-0", 0)
        take(rig.stream, 4)
        rig.cluster.stop(0)
        rig.cluster.start(0)
        rig.cluster.produce("t", [b"more"], partition="0-0")
        assert [message.value for message in take(rig.stream, 7)] == [*OLD[4:], b"more"]
        assert "log_changed" not in rig.errors()


# -- positions at which no entry starts --------------------------------------------------------------------------------


def test_the_search_for_an_entry_ends_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_checks, "MOST_WALKED_BYTES", 5 * SIZE)
    with rigged_07(NEW, fetch_message_max_bytes=2 * SIZE) as rig:
        rig.delivery.start(PARTITION, "thread-0", 12 * SIZE + 1)
        with pytest.raises(PartitionStopped, match=rf"{5 * SIZE} bytes from 0 on were read without success"):
            next(rig.stream)
        assert rig.delivery.positions() == {PARTITION: 12 * SIZE + 1}, "the position stays"


def test_a_log_that_is_damaged_before_the_position_stops_the_partition() -> None:
    data = b"".join(map(entry, NEW[:5])) + b"\xff" * 40 + b"".join(map(entry, NEW[5:]))
    with rigged_07([]) as rig:
        rig.replace_log(data)
        assert rig.cluster.log("t", "0-0").end == len(data), "behind a clean stop nothing is cut off"
        rig.delivery.start(PARTITION, "thread-0", 9 * SIZE + 5)
        with pytest.raises(PartitionStopped, match="is not the start of an entry"):
            next(rig.stream)


@pytest.mark.parametrize("fetch_bytes", [1, SIZE, 1024])
def test_a_position_within_an_entry_is_found_with_requests_of_any_size(fetch_bytes: int) -> None:
    compressed = bytes(KAFKA07.encode_messages(NEW, "gzip", None, None))
    data = b"".join(map(entry, OLD)) + compressed
    with rigged_07([], data, fetch_message_max_bytes=fetch_bytes) as rig:
        rig.delivery.start(PARTITION, "thread-0", len(data) - 3)
        assert offsets(take(rig.stream, len(NEW))) == [len(data) - len(compressed)] * len(NEW)
        assert rig.errors()["within_entry"] == 1


@pytest.mark.parametrize("fetch_bytes", [1, 1024])
@pytest.mark.parametrize("inner", [0, 3])
def test_a_whole_entry_within_another_one_is_not_taken_for_one_of_the_log_if_garbage_follows(
    inner: int, fetch_bytes: int
) -> None:
    """Snappy stores what does not repeat as it is: there are whole entries in a compressed one."""
    values = [bytes(range(20 * number, 20 * number + 7 + number)) for number in range(6)]  # of six sizes
    compressed = bytes(KAFKA07.encode_messages([*values, *values], "snappy", None, None))
    start = len(OLD) * SIZE
    position = start + compressed.index(entry(values[inner]))
    data = b"".join(map(entry, OLD)) + compressed + b"".join(map(entry, NEW))
    with rigged_07([], data, fetch_message_max_bytes=fetch_bytes) as rig:
        rig.delivery.start(PARTITION, "thread-0", position)
        taken = take(rig.stream, 1)
        while taken[-1].value != NEW[-1]:
            taken += take(rig.stream, 1)
        again = next(number for number, message in enumerate(taken) if message.offset == start)
        assert (taken[0].offset, taken[0].value) == (position, values[inner])
        assert [message.value for message in taken[again:]] == [*values, *values, *NEW]
        assert rig.errors()["within_entry"] == 1
        assert rig.left == [(PARTITION, range(start + 1, taken[again - 1].next_offset + 1), start)]


def test_damage_is_reported_where_it_is_although_the_entries_before_it_are_looked_at() -> None:
    data = b"".join(map(entry, OLD)) + b"\xff" * 60
    with rigged_07([]) as rig:
        rig.replace_log(data)
        rig.delivery.start(PARTITION, "thread-0", 2 * SIZE)
        assert [message.value for message in take(rig.stream, 8)] == OLD[2:]
        with pytest.raises(PartitionStopped, match=rf"{len(OLD) * SIZE}"):
            next(rig.stream)
        assert "within_entry" not in rig.errors()
        assert rig.left == []


def test_the_start_of_the_entry_around_a_position_may_be_stored_before_a_message_of_it_is_read() -> None:
    """A Java member that takes over reads nothing from within an entry."""
    compressed = bytes(KAFKA07.encode_messages(NEW, "gzip", None, None))
    start = len(OLD) * SIZE
    position = start + len(compressed) - 3
    with rigged_07([], b"".join(map(entry, OLD)) + compressed) as rig:
        rig.delivery.start(PARTITION, "thread-0", position)
        wait_until(lambda: rig.delivery._queue(PARTITION).chunks, DEADLINE_S, "the entry around the position")
        assert rig.left == [(PARTITION, range(start + 1, position + 1), start)]
        assert rig.drained() == start


def test_entries_of_which_a_part_is_done_are_counted_when_nobody_waits_for_the_rest() -> None:
    data = bytes(KAFKA07.encode_messages(NEW, "gzip", None, None))
    with rigged_07([], data) as rig:
        rig.delivery.start(PARTITION, "thread-0", 0)
        take(rig.stream, 5)
        done = Drained()
        rig.delivery.drain(PARTITION, done)
        assert rig.delivery.expire_drain(PARTITION) == 0
        assert rig.errors()["unfinished_entry"] == 1
        assert done.positions == []


# -- commits -----------------------------------------------------------------------------------------------------------


def test_positions_within_entries_that_are_known_are_no_positions_to_commit() -> None:
    compressed = bytes(KAFKA07.encode_messages(NEW, "gzip", None, None))
    data = b"".join(map(entry, OLD)) + compressed + b"".join(map(entry, OLD))
    behind = 10 * SIZE + len(compressed)
    starts = {*range(0, 11 * SIZE, SIZE), *range(behind, len(data) + 1, SIZE)}
    with rigged_07([], data) as rig:
        rig.delivery.start(PARTITION, "thread-0", 0)
        take(rig.stream, 12)  # the second message of the compressed entry is in hand
        for position in range(len(data) + 1):
            reason = rig.delivery.why_no_start(PARTITION, position)
            assert (reason is None) == (position in starts), (position, reason)
        reason = rig.delivery.why_no_start(PARTITION, 10 * SIZE + 1)
        assert f"is inside the entry from {10 * SIZE} to {behind}; commit" in str(reason)
        take(rig.stream, len(NEW) - 2 + 10)
        rig.stream._timeout_ms = 100
        with pytest.raises(ConsumerTimeout):
            next(rig.stream)
        assert rig.delivery.why_no_start(PARTITION, len(data) - 1) is not None, "the last entry is known"
        assert rig.delivery.why_no_start(PARTITION, len(data)) is None
        assert rig.delivery.why_no_start(TopicPartition("t", "0-1"), 1) is None


# -- what the status and batches say -----------------------------------------------------------------------------------


def test_fetched_messages_are_counted_by_entries_and_not_by_bytes() -> None:
    data = b"".join(map(entry, OLD)) + bytes(KAFKA07.encode_messages(NEW, "gzip", None, None))
    with rigged_07([], data) as rig:
        rig.delivery.start(PARTITION, "thread-0", 0)
        take(rig.stream, 25)
        status = rig.delivery.partition_status()[PARTITION]
        assert (status.fetched_messages, status.fetched_bytes) == (11, len(data))


def test_batches_have_the_numbers_of_messages_in_their_entries() -> None:
    data = b"".join(map(entry, OLD[:1])) + bytes(KAFKA07.encode_messages(NEW[:2], "gzip", None, None))
    with rigged_07([], data) as rig:
        rig.stream._use_dialect(KAFKA07)
        rig.delivery.start(PARTITION, "thread-0", 0)
        found = next(rig.stream.batches()).record_batch
        assert found.schema.names == list(KAFKA07.columns)
        assert found.select(["offset", "entry_index", "next_offset"]).to_pydict() == {
            "offset": [0, SIZE, SIZE], "entry_index": [0, 0, 1], "next_offset": [SIZE, SIZE, len(data)],
        }  # fmt: skip
        with pytest.raises(ValueError, match="partition"):
            rig.stream.batches(columns=["value", "partition"])


# -- the end -----------------------------------------------------------------------------------------------------------


def messages_of(found: Message | MessageBatch) -> list[bytes]:
    return [found.value] if isinstance(found, Message) else found.record_batch.column("value").to_pylist()


@pytest.mark.parametrize("first", ["messages", "batches"])
@pytest.mark.parametrize("then", ["messages", "batches"])
def test_a_reader_that_changes_its_form_within_an_entry_finishes_it_at_the_end(first: str, then: str) -> None:
    """The chunk is opened again for the other form, and the stream has ended already."""
    data = bytes(KAFKA07.encode_messages(NEW, "gzip", None, None))
    with rigged_07([], data + b"".join(map(entry, OLD))) as rig:
        form: dict[str, Callable[[], Iterator[Message | MessageBatch]]] = {
            "messages": lambda: rig.stream, "batches": lambda: rig.stream.batches(max_messages=2),
        }  # fmt: skip
        rig.delivery.start(PARTITION, "thread-0", 0)
        got: list[bytes] = []
        began = threading.Event()

        def read() -> None:
            reader = form[first]()
            while len(got) < 4:
                got.extend(messages_of(next(reader)))
            began.set()
            wait_until(lambda: rig.stream._is_ended, DEADLINE_S, "the end")
            for found in form[then]():
                got.extend(messages_of(found))

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        assert began.wait(DEADLINE_S)
        assert rig.delivery.stop(None, lease_clock() + DEADLINE_S) == {PARTITION: len(data)}
        thread.join(DEADLINE_S)
        assert got == NEW
        assert rig.errors() == {}


def test_between_two_messages_of_an_entry_the_end_waits() -> None:
    data = bytes(KAFKA07.encode_messages(NEW, "gzip", None, None))
    with rigged_07([], data) as rig:
        rig.delivery.start(PARTITION, "thread-0", 0)
        began, goes_on = threading.Event(), threading.Event()

        def read() -> None:
            take(rig.stream, 4)
            rig.stream._finish_hand(None)  # where `next` is, before it has the next message
            began.set()
            assert goes_on.wait(DEADLINE_S)
            assert len(list(rig.stream)) == len(NEW) - 4

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        assert began.wait(DEADLINE_S)
        threading.Timer(0.3, goes_on.set).start()
        assert rig.delivery.stop(None, lease_clock() + DEADLINE_S) == {PARTITION: len(data)}
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
