"""Reading a topic of Kafka 0.7 without a group: embedded brokers, and real ones where their jar is given."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
from kafka_07 import BOTH_07, Both, cluster_07, four_segments, produce_07, send_set

from simpleconsumer.dialect import KAFKA07
from simpleconsumer.types import Message, TopicPartition
from zkconsumer.errors import ReadFailed
from zkconsumer.testing.zookeeper import ZooKeeperServer
from zkconsumer.topic_reader.topic_reader import read_topic

pytestmark = pytest.mark.real

VALUES = [b"first", b"second", b"third"]
STARTS = [0, 15, 31]
END = 46


@pytest.fixture(scope="module", params=BOTH_07)
def cluster(request: pytest.FixtureRequest, zookeeper: ZooKeeperServer) -> Iterator[Both]:
    with cluster_07(request.param, zookeeper=zookeeper, chroot=f"/{uuid.uuid4().hex}") as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Both, fresh_topic: Callable[[], str]) -> str:
    name = fresh_topic()
    cluster.create_topic(name)
    assert produce_07(cluster.port(0), name, 1, VALUES) == END
    return name


def values(messages: Iterator[Message]) -> list[bytes | None]:
    return [message.value for message in messages]


def test_all_partitions_are_read_to_their_ends(cluster: Both, topic: str) -> None:
    produce_07(cluster.port(1), topic, 0, [b"elsewhere"])
    with read_topic(cluster.zookeeper_connect, topic) as reader:
        assert sorted(map(bytes, filter(None, values(reader)))) == sorted([*VALUES, b"elsewhere"])
        assert reader.positions() == {
            TopicPartition(topic, "0-0"): 0, TopicPartition(topic, "0-1"): END,
            TopicPartition(topic, "1-0"): 19, TopicPartition(topic, "1-1"): 0,
        }  # fmt: skip


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", VALUES), ("latest", []), (0, VALUES), (15, VALUES[1:]), (END, []), (-15, VALUES[2:]),
        (-1, VALUES[2:]), (-1000, VALUES), ({"0-1": 31}, VALUES[2:]), (20, VALUES[1:]),
        (datetime(2014, 1, 1, tzinfo=UTC), VALUES),
    ],
)  # fmt: skip
def test_starts(cluster: Both, topic: str, start: object, expected: list[bytes]) -> None:
    with read_topic(
        cluster.zookeeper_connect, topic, None if isinstance(start, dict) else ["0-1"], start=start
    ) as reader:  # type: ignore[arg-type]
        assert values(reader) == expected


@pytest.mark.parametrize("kind", BOTH_07)
def test_a_time_starts_at_a_segment_and_leaves_nothing_out(
    kind: str, zookeeper: ZooKeeperServer, fresh_topic: Callable[[], str]
) -> None:
    name = fresh_topic()
    with cluster_07(kind, 1, zookeeper=zookeeper, chroot=f"/{name}", settings={"log.file.size": 100}) as cluster:
        sent, base_s = four_segments(cluster, name)
        for time_s, first in ((900, 0), (2100, 2), (3500, 4), (4100, 6)):
            moment = datetime.fromtimestamp(base_s + time_s, UTC)
            with read_topic(cluster.zookeeper_connect, name, start=moment) as reader:
                assert values(reader) == sent[first:], time_s


def test_a_position_within_an_entry_is_named(cluster: Both, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), read_topic(cluster.zookeeper_connect, topic, ["0-1"], start=20) as reader:
        assert values(reader) == VALUES[1:]
    assert "position 20 is inside the entry from 15 to 31" in caplog.text


def test_a_number_of_bytes_before_the_end_starts_at_an_entry_without_a_warning(
    cluster: Both, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "zkconsumer"):
        for start, expected in ((-1, VALUES[2:]), (-16, VALUES[1:]), (-END, VALUES)):
            with read_topic(cluster.zookeeper_connect, topic, ["0-1"], start=start) as reader:
                assert values(reader) == expected
    assert not [each for each in caplog.records if each.name.startswith("zkconsumer")]


@pytest.mark.parametrize(
    ("partitions", "start", "reason"),
    [
        (["0-5"], "earliest", "has no partition 0-5"),
        ([0], "earliest", "has no partition 0"),
        (["0-1"], END + 1, f"offset {END + 1} is not in the log, which has 0 to {END}"),
    ],
)
def test_what_is_not_there_is_refused(
    cluster: Both, topic: str, partitions: list[int | str], start: object, reason: str
) -> None:
    with pytest.raises(ReadFailed, match=reason):
        read_topic(cluster.zookeeper_connect, topic, partitions, start=start)  # type: ignore[arg-type]


def test_a_count_may_end_within_an_entry_and_what_follows_is_a_start(cluster: Both, topic: str) -> None:
    data = bytes(KAFKA07.encode_messages([b"a", b"b", b"c"], "gzip", None, None))
    send_set(cluster, topic, "1-1", data)
    with read_topic(cluster.zookeeper_connect, topic, ["1-1"], count=2) as reader:
        assert values(reader) == [b"a", b"b"]
        assert reader.positions() == {TopicPartition(topic, "1-1"): 0}
    with read_topic(cluster.zookeeper_connect, topic, ["1-1"], start={"1-1": len(data)}) as reader:
        assert values(reader) == []


def test_without_an_end_it_goes_on(cluster: Both, topic: str) -> None:
    with read_topic(
        cluster.zookeeper_connect, topic, ["0-1"], until=None, properties={"fetcher.backoff.ms": 50}
    ) as reader:
        assert [next(reader).value for _ in VALUES] == VALUES
        produce_07(cluster.port(0), topic, 1, [b"fourth"])
        assert next(reader).value == b"fourth"
