"""`cluster.produce`, `load` and the loads at a steady rate on Kafka 0.7, embedded and real."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence

import pytest
from kafka_07 import BOTH_07, cluster_07, entry, send_set

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA07
from zkconsumer.testing import Cluster, EmbeddedCluster, LastingLoad, NotSupported, SteadyLoad, load
from zkconsumer.testing.errors import KitError
from zkconsumer.testing.kafka.topics_07 import broker_of
from zkconsumer.testing.producing import BATCH_MESSAGES
from zkconsumer.testing.writer import PositionFinder07

pytestmark = pytest.mark.real
NAMES = ["0-0", "0-1", "1-0", "1-1"]


@pytest.fixture(scope="module", params=BOTH_07)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with cluster_07(request.param) as made:
        yield made


def stored(cluster: Cluster, topic: str, partition: str) -> list[tuple[int, int, bytes]]:
    """Position, number in the entry, and value of each message of a partition."""
    found: list[tuple[int, int, bytes]] = []
    at = 0
    with SimpleConsumer("127.0.0.1", cluster.port(broker_of(partition)), dialect=KAFKA07) as consumer:
        while messages := consumer.fetch(topic, partition, at):
            found += [(each.offset, each.index, each.value) for each in messages]
            at = messages[-1].next_offset
    return found


def test_messages_go_round_the_partitions_and_are_where_it_says(
    cluster: Cluster, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    values = [f"value {n}" for n in range(9)]
    went = cluster.produce(topic, values)
    assert [place.partition for place in went] == [*NAMES, *NAMES, "0-0"]
    for name in NAMES:
        wanted = [(place.offset, 0, text.encode()) for place, text in zip(went, values, strict=True)
                  if place.partition == name]  # fmt: skip
        assert stored(cluster, topic, name) == wanted
    [more] = cluster.produce(topic, [b"more"], partition="0-0")
    assert more == ("0-0", 3 * (10 + len("value 0")))


@pytest.mark.parametrize("codec", ["gzip", "snappy"])
def test_messages_of_a_compressed_entry_share_its_position(
    cluster: Cluster, fresh_topic: Callable[[], str], codec: str
) -> None:
    topic = fresh_topic()
    values = [b"%d" % n for n in range(BATCH_MESSAGES + 5)]
    cluster.create_topic(topic)
    went = cluster.produce(topic, values, partition="1-1", codec=codec)
    found = stored(cluster, topic, "1-1")
    assert [(offset, value) for offset, _, value in found] == [
        (place.offset, value) for place, value in zip(went, values, strict=True)
    ]
    assert [index for _, index, _ in found] == [*range(BATCH_MESSAGES), *range(5)]
    assert len({place.offset for place in went}) == 2


@pytest.mark.parametrize("level", [0, 1, 9])
def test_a_compressed_entry_is_found_by_its_messages_also_where_its_bytes_are_others(
    cluster: Cluster, fresh_topic: Callable[[], str], level: int
) -> None:
    """The same messages do not always compress to the same bytes: 64 and 61 were seen of one pair, in one process."""
    topic, wanted = fresh_topic(), [(None, b"first"), (None, b"second")]
    cluster.create_topic(topic)
    data = KAFKA07.encode_messages(wanted, "gzip", None, None)
    finder = PositionFinder07(cluster.port(0), topic, 0, 10.0)
    finder.prepare()
    before = send_set(cluster, topic, "0-0", gzip_entry([b"third", b"fourth"], level))
    send_set(cluster, topic, "0-0", gzip_entry([b"first", b"second"], level))
    assert finder.places(data, True, 2) == [(before, 0), (before, 1)]
    finder.close()
    late = PositionFinder07(cluster.port(0), topic, 0, 0.5)
    late.prepare()
    send_set(cluster, topic, "0-0", gzip_entry([b"first", b"third"], level))
    with pytest.raises(KitError, match=r"are not seen 0\.5 s after"):
        late.places(data, True, 2)
    late.close()


def gzip_entry(values: Sequence[bytes], level: int) -> bytes:
    """One compressed entry, as some producer writes it."""
    payload = gzip.compress(b"".join(map(entry, values)), level)
    message = struct.pack(">bbI", 1, 1, zlib.crc32(payload)) + payload
    return struct.pack(">i", len(message)) + message


def test_what_0_7_does_not_have_is_refused(cluster: Cluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic)
    with pytest.raises(NotSupported, match=r"a message with a key needs Kafka 0\.8"):
        cluster.produce(topic, [("key", "value")])
    with pytest.raises(NotSupported, match=r"a message without a value needs Kafka 0\.8\.1"):
        cluster.produce(topic, [None])
    with pytest.raises(NotSupported, match="codec lz4"):
        cluster.produce(topic, ["value"], codec="lz4")
    with pytest.raises(TypeError, match="the name of one is needed, such as '0-3'"):
        cluster.produce(topic, ["value"], partition=0)
    with pytest.raises(KitError, match="there is no 5-0"):
        cluster.produce(topic, ["value"], partition="5-0")
    with pytest.raises(KitError, match="has 4 partitions, not 3"):
        cluster.produce(topic, ["value"], partitions=3)
    assert [place.partition for place in cluster.produce(topic, ["value"], partitions=2)] == ["0-0"]
    with pytest.raises(NotSupported, match="moving a leader"):
        cluster.move_leader(topic, 0, 1)
    with pytest.raises(NotSupported, match="deleting a topic"):
        cluster.delete_topic(topic)
    with pytest.raises(NotSupported, match="adding partitions"):
        cluster.add_partitions(topic, 3)


def test_a_message_that_the_broker_drops_is_missed(cluster: Cluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic)
    with pytest.raises(KitError, match=r"are not seen 1 s after .* drops a message above max\.message\.size"):
        cluster.produce(topic, [bytes(1_000_001)], partition="0-0", timeout_s=1.0)
    cluster.produce(topic, [b"x" * 900_000], partition="0-0")
    assert [len(value) for _, _, value in stored(cluster, topic, "0-0")] == [900_000]


def test_two_producers_find_their_own_messages(cluster: Cluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic)
    padded = LastingLoad(cluster, [topic], 2, 300.0, padding_bytes=9)
    with LastingLoad(cluster, [topic], 2, 300.0) as first, padded as second:
        first.grow(100)
        second.grow(100)
    first.stop()
    second.stop()
    assert first.unsure == second.unsure == 0
    everything = {(name, offset): value.decode() for name in NAMES for offset, _, value in stored(cluster, topic, name)}
    events = [*first.acked, *second.acked]
    assert {(event.partition, event.offset): event.id for event in events} == everything
    assert len(events) == len(everything)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_load_says_where_each_message_is(cluster: Cluster, fresh_topic: Callable[[], str], codec: str) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic)
    events = load(cluster, topic, 20, codec=codec, batch=7)
    for name in NAMES:
        assert [(event.offset, event.id.encode()) for event in events if event.partition == name] == [
            (offset + index, value) for offset, index, value in stored(cluster, topic, name)
        ]
    assert {event.id for event in events} == {f"{name}:{n}" for name in NAMES for n in range(20)}


def test_a_steady_load_covers_the_partitions_of_each_broker(cluster: Cluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic)
    with SteadyLoad(cluster, [topic], 1, rate_per_s=200) as steady:
        steady.grow(20)
        steady.stop()
    assert {event.partition for event in steady.acked} == {"0-0", "1-0"}


def test_a_lasting_load_outlives_a_killed_broker(fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    with EmbeddedCluster(2, generation="0.7", settings={"log.flush.interval": 3}) as cluster:
        cluster.create_topic(topic)
        with LastingLoad(cluster, [topic], 2, 300.0) as steady:
            steady.grow(50)
            cluster.kill(1, expire=True)
            steady.grow(50)
            cluster.start(1)
            before = len([event for event in steady.acked if event.partition in ("1-0", "1-1")])
            steady.grow(100)
            steady.stop()
        assert len([event for event in steady.acked if event.partition in ("1-0", "1-1")]) > before
        there = {(name, offset): value.decode() for name in NAMES for offset, _, value in stored(cluster, topic, name)}
        assert {(event.partition, event.offset): event.id for event in steady.acked}.items() <= there.items()
