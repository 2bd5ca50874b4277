"""`read_topic` on embedded brokers: where it starts and ends, and what it does when something is in the way."""

from __future__ import annotations

import gc
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from simpleconsumer.consumer import SimpleConsumer
from tests.interop.fetch_faults import FetchFaults, Piece, entry_starts
from zkconsumer import (
    ConfigError,
    ConsumerTimeout,
    Message,
    MessageError,
    PartitionStopped,
    ReadFailed,
    TopicPartition,
    ZooKeeperUnavailable,
    read_topic,
)
from zkconsumer.testing import EmbeddedCluster, load
from zkconsumer.testing.embedded.faults import Fault
from zkconsumer.testing.processes import free_port
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import wait_until
from zkconsumer.topic_reader.topic_reader import TopicReader

COUNT = 50
THREADS = ("fetcher-", "leader-finder-")


@pytest.fixture
def topic(embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]) -> str:
    """Two partitions with fifty messages each."""
    name = fresh_topic()
    embedded_cluster.create_topic(name, partitions=2)
    load(embedded_cluster, name, COUNT)
    return name


@pytest.fixture
def fresh_topic() -> Callable[[], str]:
    numbers = iter(range(1000))
    return lambda: f"read-{time.monotonic_ns()}-{next(numbers)}"


@pytest.fixture(autouse=True)
def nothing_is_left(embedded_cluster: EmbeddedCluster) -> Iterator[None]:
    """Every reader ends its threads, and its connections with them."""
    yield
    embedded_cluster.faults.reset()
    gc.collect()
    wait_until(lambda: not ours(), 10, "the threads of the readers to end", state=ours)


def ours() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(THREADS)]


def places(messages: list[Message]) -> dict[int | str, list[int]]:
    found: dict[int | str, list[int]] = {}
    for message in messages:
        assert message.value == b"%d:%d" % (message.partition, message.offset)
        found.setdefault(message.partition, []).append(message.offset)
    return found


def read(cluster: EmbeddedCluster, topic: str, *arguments: Any, **named: Any) -> dict[int | str, list[int]]:
    with read_topic(cluster.zookeeper_connect, topic, *arguments, **named) as reader:
        return places(list(reader))


def drained(reader: TopicReader) -> tuple[dict[int | str, list[int]], list[Exception]]:
    """What comes, and what is raised, until the end."""
    messages: list[Message] = []
    errors: list[Exception] = []
    while True:
        try:
            messages.append(next(reader))
        except StopIteration:
            return places(messages), errors
        except (MessageError, PartitionStopped) as error:
            errors.append(error)


# -- starts and ends ---------------------------------------------------------------------------------------------------


def test_it_reads_all_partitions_to_the_ends_that_they_had(embedded_cluster: EmbeddedCluster, topic: str) -> None:
    reader = read_topic(embedded_cluster.zookeeper_connect, topic)
    load(embedded_cluster, topic, 10, first=COUNT)  # it does not count any more
    assert places(list(reader)) == {0: [*range(COUNT)], 1: [*range(COUNT)]}
    assert list(reader) == []
    assert reader.positions() == {TopicPartition(topic, 0): COUNT, TopicPartition(topic, 1): COUNT}


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({"start": 48}, {0: [48, 49], 1: [48, 49]}),
        ({"start": -3}, {0: [47, 48, 49], 1: [47, 48, 49]}),
        ({"start": -1000, "partitions": [1]}, {1: [*range(COUNT)]}),
        ({"start": "latest"}, {}),
        ({"start": 50}, {}),
        ({"start": {1: 49}}, {1: [49]}),
        ({"start": {0: 50, 1: 48}, "partitions": [1, 0]}, {1: [48, 49]}),
        ({"partitions": [0, 0]}, {0: [*range(COUNT)]}),
    ],
)
def test_starts(embedded_cluster: EmbeddedCluster, topic: str, named: dict[str, Any], expected: object) -> None:
    assert read(embedded_cluster, topic, **named) == expected


@pytest.mark.parametrize("count", [1, 2, 49, 50, 51, 99, 100])
def test_a_count_is_exact(embedded_cluster: EmbeddedCluster, topic: str, count: int) -> None:
    with read_topic(embedded_cluster.zookeeper_connect, topic, until=None, count=count) as reader:
        found = places(list(reader))
        assert sum(map(len, found.values())) == count
        assert sum(reader.positions().values()) == count


def test_a_count_above_what_there_is_ends_at_the_ends(embedded_cluster: EmbeddedCluster, topic: str) -> None:
    assert sum(map(len, read(embedded_cluster, topic, count=1000).values())) == 2 * COUNT


@pytest.mark.parametrize("most", [1, 7, 1000])
def test_messages_at_once_are_the_same_messages(embedded_cluster: EmbeddedCluster, topic: str, most: int) -> None:
    with read_topic(embedded_cluster.zookeeper_connect, topic, count=93) as reader:
        messages: list[Message] = []
        while batch := reader.next_messages(most):
            assert 1 <= len(batch) <= most
            assert len({message.partition for message in batch}) == 1
            messages += batch
    found = places(messages)
    assert sum(map(len, found.values())) == 93
    assert all(offsets == [*range(len(offsets))] for offsets in found.values())


def test_without_an_end_it_waits_for_new_messages(embedded_cluster: EmbeddedCluster, topic: str) -> None:
    with read_topic(embedded_cluster.zookeeper_connect, topic, start="latest", until=None) as reader:
        threading.Timer(0.3, load, [embedded_cluster, topic, 2], {"first": COUNT, "partitions": [1]}).start()
        assert [next(reader).offset, next(reader).offset] == [50, 51]
        assert reader.positions() == {TopicPartition(topic, 0): 50, TopicPartition(topic, 1): 52}


def test_positions_are_the_start_of_the_next_reading(embedded_cluster: EmbeddedCluster, topic: str) -> None:
    with read_topic(embedded_cluster.zookeeper_connect, topic, count=63) as reader:
        before = places(list(reader))
        start = {int(name.partition): offset for name, offset in reader.positions().items()}
    after = read(embedded_cluster, topic, start=start)
    for partition in (0, 1):
        assert before.get(partition, []) + after.get(partition, []) == [*range(COUNT)]


def test_compressed_messages_start_and_end_inside_a_wrapper(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    name = fresh_topic()
    embedded_cluster.create_topic(name)
    load(embedded_cluster, name, 40, codec="gzip")
    assert read(embedded_cluster, name, start=17) == {0: [*range(17, 40)]}


def test_offsets_that_have_no_messages_are_no_obstacle(embedded_cluster: EmbeddedCluster, topic: str) -> None:
    """Compaction may take the messages up to the end that the log had, and later ones are not read."""
    held = embedded_cluster.faults.add(Fault.delay(30.0, "fetch"), times=None)
    with read_topic(embedded_cluster.zookeeper_connect, topic) as reader:
        load(embedded_cluster, topic, 5, first=COUNT)
        embedded_cluster.log(topic, 0).remove([0, 1, 20, *range(45, 52)])
        embedded_cluster.log(topic, 1).remove([49])
        wait_until(lambda: embedded_cluster.faults.used(held) > 0, 10, "the first fetch")
        embedded_cluster.faults.clear()
        found = places(list(reader))
        assert reader.positions() == {TopicPartition(topic, 0): COUNT, TopicPartition(topic, 1): COUNT}
    assert found == {0: [offset for offset in range(2, 45) if offset != 20], 1: [*range(49)]}


def test_an_end_for_which_nothing_comes_is_an_end(fresh_topic: Callable[[], str]) -> None:
    """A log may end in offsets without messages; the broker answers with empty sets for ever."""
    faults, name = FetchFaults(), fresh_topic()

    def without_the_last(piece: Piece) -> Piece:
        starts = entry_starts(piece.message_set)
        return replace(piece, message_set=piece.message_set[: starts[45]]) if 45 in starts else piece

    faults.in_pieces("zkconsumer-read", without_the_last)
    cluster = EmbeddedCluster(brokers=1)
    with TcpProxy(("127.0.0.1", cluster.port(0)), rewrite=faults) as proxy:
        cluster.advertise(0, proxy.port)
        with cluster:
            cluster.create_topic(name, partitions=2)
            load(cluster, name, COUNT)
            started_at = time.monotonic()
            assert read(cluster, name) == {0: [*range(45)], 1: [*range(45)]}
            assert faults.struck >= 10
            assert time.monotonic() - started_at < 10


def test_an_empty_topic_ends_at_once(embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]) -> None:
    name = fresh_topic()
    embedded_cluster.create_topic(name, partitions=3)
    assert read(embedded_cluster, name) == {}


def test_a_time_is_found_by_segment_and_never_too_late(
    embedded_cluster: EmbeddedCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    now = datetime.now(UTC)
    assert read(embedded_cluster, topic, start=now - timedelta(days=1)) == {0: [*range(COUNT)], 1: [*range(COUNT)]}
    assert "searched by segments" in caplog.text
    assert read(embedded_cluster, topic, start=now + timedelta(days=1)) == {}


# -- what cannot be read -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "named", "said"),
    [
        ((["x"],), {}, "partitions is ['x']"), (([],), {}, "partitions is []"), (([-1],), {}, "partitions is [-1]"),
        ((), {"count": 0}, "count is 0"), ((), {"until": "now"}, "until is 'now'"),
        ((), {"start": "first"}, "start is 'first'"), ((), {"stall_timeout_s": 0}, "stall_timeout_s is 0"),
        ((), {"stall_timeout_s": float("nan")}, "stall_timeout_s is nan"), ((), {"count": 2.5}, "count is 2.5"),
        ((), {"stall_timeout_s": float("inf")}, "stall_timeout_s is inf"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(
    embedded_cluster: EmbeddedCluster, topic: str, arguments: tuple[Any, ...], named: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=r"^(partitions|count|until|start|stall)") as caught:
        read_topic(embedded_cluster.zookeeper_connect, topic, *arguments, **named)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"partitions": [0, 2, 7]}, "has no partition 2, 7; it has partitions 0 to 1"),
        ({"start": {4: 0}}, "has no partition 4; it has partitions 0 to 1"),
        ({"start": {}}, "start names no partition"),
        ({"start": {0: 1}, "partitions": [1]}, "the partitions are [1], and the start names offsets of [0]"),
        ({"start": 51}, "/0: offset 51 is not in the log, which has 0 to 50; start at earliest"),
    ],
)
def test_what_is_not_there_is_named(
    embedded_cluster: EmbeddedCluster, topic: str, named: dict[str, Any], said: str
) -> None:
    with pytest.raises(ReadFailed) as caught:
        read_topic(embedded_cluster.zookeeper_connect, topic, **named)
    assert said in str(caught.value)
    assert caught.value.remedy


def test_a_missing_topic_is_named_with_the_nearest_one_and_is_not_created(
    embedded_cluster: EmbeddedCluster, topic: str
) -> None:
    with pytest.raises(ReadFailed, match=f"topic '{topic}x' does not exist in ZooKeeper at .*; did you mean '{topic}'"):
        read_topic(embedded_cluster.zookeeper_connect, f"{topic}x")
    assert embedded_cluster.client.exists(f"/brokers/topics/{topic}x") is None


def test_a_wrong_setting_and_a_missing_zookeeper_are_named(embedded_cluster: EmbeddedCluster, topic: str) -> None:
    with pytest.raises(ConfigError, match=r"fetch\.message\.max\.bytes is 'much'"):
        read_topic(embedded_cluster.zookeeper_connect, topic, properties={"fetch.message.max.bytes": "much"})
    with pytest.raises(ZooKeeperUnavailable):
        read_topic(f"127.0.0.1:{free_port()}", topic, properties={"zookeeper.connection.timeout.ms": "300"})


def test_a_bad_message_is_raised_once_and_reading_goes_on(embedded_cluster: EmbeddedCluster, topic: str) -> None:
    for offset in (0, 20, 49):
        embedded_cluster.log(topic, 0).corrupt(offset)
    with read_topic(embedded_cluster.zookeeper_connect, topic) as reader:
        found, errors = drained(reader)
        assert [(type(error).__name__, error.offset) for error in errors if isinstance(error, MessageError)] == [
            ("CrcMismatch", 0), ("CrcMismatch", 20), ("CrcMismatch", 49)
        ]  # fmt: skip
        assert len(errors) == reader.failed == 3
        assert found == {0: [offset for offset in range(COUNT) if offset not in (0, 20, 49)], 1: [*range(COUNT)]}
        assert reader.positions()[TopicPartition(topic, 0)] == COUNT


def test_a_bad_message_between_messages_at_once_costs_none_of_them(
    embedded_cluster: EmbeddedCluster, topic: str
) -> None:
    embedded_cluster.log(topic, 0).corrupt(20)
    offsets: list[int] = []
    with read_topic(embedded_cluster.zookeeper_connect, topic, [0], count=45) as reader:
        offsets += [message.offset for message in reader.next_messages()]
        assert offsets == [*range(20)]
        with pytest.raises(MessageError) as caught:
            reader.next_messages()
        assert caught.value.offset == 20
        while batch := reader.next_messages():
            offsets += [message.offset for message in batch]
    assert offsets == [offset for offset in range(46) if offset != 20]


@pytest.mark.parametrize(("choice", "said"), [("skip", "message skipped"), ("stop", "does not match")])
def test_bad_messages_are_skipped_or_stop_their_partition_as_it_is_set(
    embedded_cluster: EmbeddedCluster, topic: str, choice: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    embedded_cluster.log(topic, 0).corrupt(20)
    with read_topic(embedded_cluster.zookeeper_connect, topic, properties={"on.message.error": choice}) as reader:
        found, errors = drained(reader)
    assert found[1] == [*range(COUNT)]
    if choice == "skip":
        assert (found[0], errors) == ([*range(20), *range(21, COUNT)], [])
        assert said in caplog.text
    else:
        [error] = errors
        assert isinstance(error, PartitionStopped)
        assert (found[0], error.partition, error.offset) == ([*range(20)], 0, 20)


def test_a_message_that_is_too_large_is_named_and_skipped(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    name = fresh_topic()
    embedded_cluster.create_topic(name)
    with SimpleConsumer("127.0.0.1", embedded_cluster.port(0)) as producer:
        for value in (b"0:0", b"x" * 50_000, b"0:2", b"x" * 50_000):
            producer.produce(name, 0, [value])
    small = {"fetch.message.max.bytes": 1000, "queued.max.bytes": 5000}
    with read_topic(embedded_cluster.zookeeper_connect, name, properties=small) as reader:
        found, errors = drained(reader)
    assert found == {0: [0, 2]}
    assert [error.offset for error in errors if isinstance(error, MessageError)] == [1, 3]


def test_a_position_that_retention_has_deleted_stops_its_partition_with_the_offsets(
    embedded_cluster: EmbeddedCluster, topic: str
) -> None:
    log = embedded_cluster.log(topic, 0)
    one_by_one = {"fetch.message.max.bytes": 60, "queued.max.message.chunks": 1}
    with read_topic(embedded_cluster.zookeeper_connect, topic, [0], start=0, properties=one_by_one) as reader:
        first = next(reader).offset
        log.roll()
        load(embedded_cluster, topic, 5, first=COUNT, partitions=[0])
        assert log.delete_head(COUNT) > 0
        found, [error] = drained(reader)
        assert isinstance(error, PartitionStopped)
        assert error.offset == (found[0][-1] if found else first) + 1
        assert f"offsets {error.offset} to 49 were deleted before they were read" in str(error)
        assert error.remedy == "start again at an offset from 50 to 55"
        assert list(reader) == []


def test_earliest_follows_the_start_of_the_log(embedded_cluster: EmbeddedCluster, topic: str) -> None:
    """Between the question for the start of the log and the first fetch, retention may delete it."""
    log = embedded_cluster.log(topic, 0)
    log.roll()
    load(embedded_cluster, topic, 5, first=COUNT, partitions=[0])
    held = embedded_cluster.faults.add(Fault.delay(30.0, "fetch"), times=None)
    with read_topic(embedded_cluster.zookeeper_connect, topic, [0]) as reader:
        wait_until(lambda: embedded_cluster.faults.used(held) > 0, 10, "the first fetch")
        log.delete_head(COUNT)
        embedded_cluster.faults.clear()
        assert places(list(reader)) == {0: [*range(50, 55)]}


def test_a_log_that_was_cut_off_stops_its_partition(
    embedded_cluster: EmbeddedCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zkconsumer.fetching.fetch_state.DOUBT_S", 0.5)
    with read_topic(embedded_cluster.zookeeper_connect, topic, [0], start="latest", until=None) as reader:
        embedded_cluster.log(topic, 0).truncate(30)
        with pytest.raises(PartitionStopped, match="the log was truncated at 30, and its later messages"):
            next(reader)
        assert list(reader) == []


# -- brokers, leaders, topics that go ----------------------------------------------------------------------------------


@pytest.mark.embedded_cluster(brokers=2)
def test_leaders_that_move_cost_no_message(embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]) -> None:
    name = fresh_topic()
    embedded_cluster.create_topic(name, partitions=2, replication=2)
    load(embedded_cluster, name, 3000)
    small = {"fetch.message.max.bytes": 2000}
    found: list[Message] = []
    with read_topic(embedded_cluster.zookeeper_connect, name, properties=small) as reader:
        for number, message in enumerate(reader):
            found.append(message)
            if number in (500, 2500, 4500):
                for partition in (0, 1):
                    leader = embedded_cluster.leader(name, partition)
                    embedded_cluster.move_leader(name, partition, 1 - (leader or 0))
    assert places(found) == {0: [*range(3000)], 1: [*range(3000)]}


@pytest.mark.embedded_cluster(brokers=2)
def test_a_broker_that_dies_costs_time_and_no_message(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    name = fresh_topic()
    embedded_cluster.create_topic(name, partitions=2, replication=2)
    load(embedded_cluster, name, 3000)
    found: list[Message] = []
    with read_topic(embedded_cluster.zookeeper_connect, name, properties={"fetch.message.max.bytes": 2000}) as reader:
        for number, message in enumerate(reader):
            found.append(message)
            if number == 500:
                embedded_cluster.kill(0, expire=True)
    embedded_cluster.start(0)
    assert places(found) == {0: [*range(3000)], 1: [*range(3000)]}


@pytest.mark.embedded_cluster(brokers=2)
def test_a_partition_without_leader_stops_at_the_deadline_and_the_others_are_read(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    name = fresh_topic()
    embedded_cluster.create_topic(name, partitions=2, replication=1)
    load(embedded_cluster, name, 2000)
    victim = embedded_cluster.leader(name, 0)
    assert victim is not None
    with read_topic(
        embedded_cluster.zookeeper_connect, name, stall_timeout_s=2.0, properties={"fetch.message.max.bytes": 2000}
    ) as reader:
        messages = [next(reader)]
        embedded_cluster.kill(victim, expire=True)
        started_at = time.monotonic()
        found, [error] = drained(reader)
        assert 1.5 < time.monotonic() - started_at < 15
    embedded_cluster.start(victim)
    assert isinstance(error, PartitionStopped)
    assert (error.partition, error.offset) == (0, len(found.get(0, [])) + (messages[0].partition == 0))
    assert "no message for 2 s" in str(error)
    assert error.remedy
    assert len(found[1]) + (messages[0].partition == 1) == 2000


@pytest.mark.embedded_cluster(brokers=2)
def test_a_partition_that_has_no_leader_at_the_start_is_named(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    name = fresh_topic()
    embedded_cluster.create_topic(name, partitions=2, replication=1)
    victim = embedded_cluster.leader(name, 1)
    assert victim is not None
    embedded_cluster.kill(victim, expire=True)
    try:
        with pytest.raises(ReadFailed, match=f"did not report the ends of the logs within 1 s .*{name}/1: ") as caught:
            read_topic(embedded_cluster.zookeeper_connect, name, stall_timeout_s=1.0)
        assert "zkconsumer topics --check" in caught.value.remedy
        assert "the leaders of partition 0 answered: you can read only these" in caught.value.remedy
        assert len(read(embedded_cluster, name, [0])) == 0
    finally:
        embedded_cluster.start(victim)


def test_a_topic_that_is_deleted_ends_the_reading_with_a_reason(embedded_cluster: EmbeddedCluster, topic: str) -> None:
    with read_topic(embedded_cluster.zookeeper_connect, topic, until=None) as reader:
        for _ in range(2 * COUNT):
            next(reader)
        threading.Timer(0.3, embedded_cluster.delete_topic, [topic]).start()
        found, errors = drained(reader)
    assert found == {}
    assert sorted((error.partition, error.reason) for error in errors if isinstance(error, PartitionStopped)) == [
        (0, f"topic '{topic}' was deleted"), (1, f"topic '{topic}' was deleted")
    ]  # fmt: skip


def test_a_topic_that_is_created_again_is_not_read_on(embedded_cluster: EmbeddedCluster, topic: str) -> None:
    with read_topic(embedded_cluster.zookeeper_connect, topic, [0], until=None) as reader:
        for _ in range(COUNT):
            next(reader)
        embedded_cluster.delete_topic(topic)
        embedded_cluster.create_topic(topic, partitions=2)
        with pytest.raises(PartitionStopped, match="was deleted"):
            next(reader)
        load(embedded_cluster, topic, 2 * COUNT)
        assert list(reader) == []


def test_garbage_and_closed_connections_cost_no_message(embedded_cluster: EmbeddedCluster, topic: str) -> None:
    embedded_cluster.faults.add(Fault.close("fetch", after_bytes=20), times=2)
    embedded_cluster.faults.add(Fault.garbage(b"\0\0\0\x08garbage!", "fetch"))
    embedded_cluster.faults.add(Fault.error(6, "fetch"), times=2)
    embedded_cluster.faults.add(Fault.error(1, "fetch"), times=2)
    assert read(embedded_cluster, topic) == {0: [*range(COUNT)], 1: [*range(COUNT)]}


# -- the end -----------------------------------------------------------------------------------------------------------


def test_a_reader_that_is_dropped_half_way_leaves_no_thread(embedded_cluster: EmbeddedCluster, topic: str) -> None:
    reader = read_topic(embedded_cluster.zookeeper_connect, topic, until=None)
    next(reader)
    assert ours()
    del reader
    wait_until(lambda: not ours(), 5, "the threads to end")


def test_a_loop_that_is_left_leaves_no_thread(embedded_cluster: EmbeddedCluster, topic: str) -> None:
    for message in read_topic(embedded_cluster.zookeeper_connect, topic):
        assert message.offset == 0
        break
    wait_until(lambda: not ours(), 5, "the threads to end")


def test_close_ends_a_waiting_reader(embedded_cluster: EmbeddedCluster, topic: str) -> None:
    reader = read_topic(embedded_cluster.zookeeper_connect, topic, start="latest", until=None)
    threading.Timer(0.3, reader.close).start()
    started_at = time.monotonic()
    assert list(reader) == []
    assert time.monotonic() - started_at < 5
    reader.close()


def test_a_time_out_can_be_followed_by_messages(embedded_cluster: EmbeddedCluster, topic: str) -> None:
    quick = {"consumer.timeout.ms": 200}
    with read_topic(embedded_cluster.zookeeper_connect, topic, [0], start="latest", until=None, properties=quick) as r:
        with pytest.raises(ConsumerTimeout):
            next(r)
        load(embedded_cluster, topic, 1, first=COUNT, partitions=[0])
        assert next(r).offset == COUNT


def test_an_interrupt_between_two_messages_costs_none(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    """A signal handler that raises, as that of Ctrl-C does, may strike anywhere in `next()`."""

    class Struck(Exception):  # noqa: N818
        pass

    def strike(number: int, frame: object) -> None:
        raise Struck

    name = fresh_topic()
    embedded_cluster.create_topic(name)
    load(embedded_cluster, name, 20_000)
    before = signal.signal(signal.SIGALRM, strike)
    offsets: list[int] = []
    struck = 0
    chance = random.Random(7)
    try:
        small = {"fetch.message.max.bytes": 20_000}
        with read_topic(embedded_cluster.zookeeper_connect, name, properties=small) as reader:
            while len(offsets) < 20_000:
                try:
                    signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.001, 0.02) if struck < 200 else 0)
                    message = next(reader)
                    offsets.append(message.offset)
                    for message in reader:
                        offsets.append(message.offset)
                except Struck:
                    struck += 1
                except StopIteration:
                    break
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert struck
    # An interrupt between the return of `next()` and the append loses that message to this test, not to the reader.
    assert offsets == sorted(set(offsets))
    assert len(offsets) >= 20_000 - struck
