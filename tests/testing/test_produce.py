"""`cluster.produce`: keys, tombstones, codecs and bulk, on real and on embedded brokers; what a version refuses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from simpleconsumer.errors import BrokerError
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.producer.partitioners import partition_of_key
from zkconsumer.testing import EmbeddedCluster, Fault, Produced
from zkconsumer.testing.cluster import Cluster
from zkconsumer.testing.errors import KitError, NotSupported
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.members.java_member import JavaMember
from zkconsumer.testing.members.member_process import MemberProcess
from zkconsumer.testing.members.recorded_member import Delivered, MemberKind
from zkconsumer.testing.processes import free_ports
from zkconsumer.testing.producing import BATCH_BYTES, batches
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real
VERSIONS = ["0.8.0", "0.8.1.1", "0.8.2.2", "0.9.0.1", "0.10.2.2", "0.11.0.3", "1.1.1", "2.8.2", "3.9.2"]
NOT_LEADER = 6
PATIENCE_S = 30.0
BULK_S = 20.0  # 2 to 3 s on an idle machine


@pytest.fixture(scope="module", params=["real", "embedded"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.param == "real":
        yield request.getfixturevalue("kafka_0822")
    else:
        with EmbeddedCluster(2) as embedded:
            yield embedded


def consumed(cluster: Cluster, topic: str, count: int) -> dict[Produced, tuple[bytes | None, bytes | None]]:
    config = ConsumerConfig(
        cluster.zookeeper_connect, f"of-{topic}", auto_offset_reset="smallest", consumer_timeout_ms=15_000
    )
    with ConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        found = [next(stream) for _ in range(count)]
    return {Produced(int(each.partition), each.offset): (each.key, each.value) for each in found}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_keys_tombstones_and_text_arrive_where_it_says(
    cluster: Cluster, fresh_topic: Callable[[], str], codec: str
) -> None:
    topic = fresh_topic()
    sent: list[Any] = [b"one", ("ann", "two"), ("bob", None), (None, b"\xff\x00"), "drei \u00e4", None, (b"ann", b"")]
    went = cluster.produce(topic, sent, partitions=3, codec=codec)
    assert cluster.partitions(topic) == [0, 1, 2]
    pairs = [(None, b"one"), (b"ann", b"two"), (b"bob", None), (None, b"\xff\x00"), (None, "drei \u00e4".encode()),
             (None, None), (b"ann", b"")]  # fmt: skip
    assert consumed(cluster, topic, len(sent)) == dict(zip(went, pairs, strict=True))
    keyed = [(went[n].partition, partition_of_key(key, [0, 1, 2])) for n, (key, _) in enumerate(pairs) if key]
    assert all(partition == expected for partition, expected in keyed)
    assert [went[n].partition for n, (key, _) in enumerate(pairs) if key is None] == [0, 1, 2, 0]


def test_a_partition_or_a_key_for_all_and_messages_of_another_topic(
    cluster: Cluster, fresh_topic: Callable[[], str]
) -> None:
    first, second = fresh_topic(), fresh_topic()
    cluster.create_topic(first, 2)
    assert cluster.produce(first, [b"a", b"b"], partition=1) == [Produced(1, 0), Produced(1, 1)]
    [place] = cluster.produce(first, [b"c"], key="ann")
    assert place.partition == partition_of_key(b"ann", [0, 1])
    config = ConsumerConfig(cluster.zookeeper_connect, f"of-{first}", auto_offset_reset="smallest")
    with ConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({first: 1})[first]
        messages = [next(stream) for _ in range(3)]
    assert cluster.produce(second, messages) == [Produced(0, 0), Produced(0, 1), Produced(0, 2)]
    copied = consumed(cluster, second, 3)
    assert sorted(copied.values(), key=str) == sorted([(each.key, each.value) for each in messages], key=str)
    assert cluster.produce(second, []) == []


def test_slips_are_refused_before_anything_is_sent(cluster: Cluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    with pytest.raises(TypeError, match=r"messages is b'one': a list is needed, for one message \[b'one'\]"):
        cluster.produce(topic, b"one")
    with pytest.raises(TypeError, match="messages is a mapping: a list of pairs"):
        cluster.produce(topic, {"key": "value"})
    with pytest.raises(TypeError, match=r"message 1 has a int \(7\): bytes, text, None or pairs"):
        cluster.produce(topic, [b"one", 7])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="message 0 is a tuple of 3"):
        cluster.produce(topic, [(b"a", b"b", b"c")])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="codec 'zstd': known are none, gzip, snappy, lz4"):
        cluster.produce(topic, [b"one"], codec="zstd")
    with pytest.raises(KitError, match="does not exist"):
        cluster.partitions(topic)
    with pytest.raises(KitError, match=r"topic name 'a b!': at most 255 of a-z A-Z 0-9"):
        cluster.produce("a b!", [b"one"])
    cluster.create_topic(topic, 2)
    with pytest.raises(KitError, match=f"topic {topic} has the partitions 0, 1; there is no 2"):
        cluster.produce(topic, [b"one"], partition=2)
    with pytest.raises(KitError, match=f"topic {topic} exists and has 2 partitions, not 4"):
        cluster.produce(topic, [b"one"], partitions=4)
    assert cluster.produce(topic, [b"one", b"two"], partitions=2) == [Produced(0, 0), Produced(1, 0)]


def test_a_pair_or_a_message_without_its_list_is_refused(cluster: Cluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    pair = r"messages is \('ann', 'two'\): a list is needed, for one message \[\('ann', 'two'\)\]"
    with pytest.raises(TypeError, match=pair):
        cluster.produce(topic, ("ann", "two"))
    for one in (None, Delivered(0, topic, 0, 0, 0, value=b"one")):
        with pytest.raises(TypeError, match=r"messages is (None|Delivered\(.*): a list is needed, for one message \["):
            cluster.produce(topic, one)  # type: ignore[arg-type]
    with pytest.raises(KitError, match="does not exist"):
        cluster.partitions(topic)


def test_a_number_of_a_partition_is_checked_before_the_topic_is_created(
    cluster: Cluster, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    for name in ("partition", "partitions"):
        for wrong in ("0", 1.0, True):
            with pytest.raises(TypeError, match=f"^{name} is {wrong!r}: an int is needed$"):
                cluster.produce(topic, [b"one"], **{name: wrong})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="partitions is '2': an int is needed"):
        cluster.create_topic(topic, "2")  # type: ignore[arg-type]
    for number, partitions in ((3, None), (4, 4), (-1, 2)):
        said = f"{topic} would be created with {partitions or 1} partitions, without the partition {number}; give"
        with pytest.raises(KitError, match=said):
            cluster.produce(topic, [b"one"], partition=number, partitions=partitions)
    with pytest.raises(ValueError, match="0 partitions: at least 1 is needed"):
        cluster.produce(topic, [b"one"], partitions=0)
    with pytest.raises(KitError, match="does not exist"):
        cluster.partitions(topic)
    assert cluster.produce(topic, [b"one"], partition=3, partitions=4) == [Produced(3, 0)]


def test_a_message_above_the_brokers_limit_is_their_refusal(cluster: Cluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    with pytest.raises(BrokerError, match=f"{topic}/0: MessageSizeTooLarge"):
        cluster.produce(topic, [b"x" * 2_000_000])
    assert cluster.produce(topic, [b"x" * 500_000] * 5, codec="gzip") == [Produced(0, n) for n in range(5)]


def test_a_hundred_thousand_messages_take_a_few_seconds(cluster: Cluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    start = time.monotonic()
    went = cluster.produce(topic, [b"%0100d" % number for number in range(100_000)], partitions=4)
    took_s = time.monotonic() - start
    assert set(went) == {Produced(partition, offset) for partition in range(4) for offset in range(25_000)}
    assert took_s < BULK_S, took_s


def test_a_leader_that_moves_meanwhile_is_followed(fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    with EmbeddedCluster(2) as cluster:
        cluster.produce(topic, [b"one"])
        refused = cluster.faults.add(Fault.error(NOT_LEADER, api="produce", topic=topic), times=2)
        assert cluster.produce(topic, [b"two"]) == [Produced(0, 1)]
        assert cluster.faults.used(refused) == 2
        cluster.move_leader(topic, 0, 1)
        assert cluster.produce(topic, [b"three"]) == [Produced(0, 2)]


def producer_threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name.startswith("zkconsumer-producer-")}


def test_one_connection_serves_call_after_call_and_ends_with_the_cluster(fresh_topic: Callable[[], str]) -> None:
    first, second = fresh_topic(), fresh_topic()
    others = producer_threads()
    with EmbeddedCluster(1) as cluster:
        cluster.produce(first, [b"0"], partitions=2)
        ours = producer_threads() - others
        assert cluster.produce(first, [b"1"], partition=0) == [Produced(0, 1)]
        assert cluster.produce(second, [b"2"]) == [Produced(0, 0)]
        assert producer_threads() - others == ours
        cluster.produce(first, [b"3"], partition=1)  # a partition of which the writer knows nothing
        cluster.produce(first, [b"4"], codec="gzip")
        wait_until(lambda: len(producer_threads() - others) == len(ours), PATIENCE_S, "the writers before to end")
    wait_until(lambda: producer_threads() <= others, PATIENCE_S, "the last writer to end", state=producer_threads)


def test_brokers_that_were_killed_or_moved_are_reached_by_the_next_call(fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    with EmbeddedCluster(2) as cluster:
        cluster.create_topic(topic, assignment={0: [0]})
        for offset in range(6):
            assert cluster.produce(topic, [b"one"]) == [Produced(0, offset)]
            if offset % 2 == 0:
                cluster.kill(0, expire=True)
                cluster.start(0, port=free_ports(1)[0] if offset == 2 else None)
                cluster.wait_leaders(topic, [0])
        with pytest.raises(BrokerError, match="MessageSizeTooLarge"):
            cluster.produce(topic, [b"x" * 2_000_000])
        assert cluster.produce(topic, [b"one"]) == [Produced(0, 6)]


def test_several_threads_write_at_a_time(fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    with EmbeddedCluster(2) as cluster, ThreadPoolExecutor(4) as pool:
        cluster.create_topic(topic, 2)
        calls = [pool.submit(cluster.produce, topic, [b"%d" % n], partition=n % 2) for n in range(200)]
        went = [call.result(PATIENCE_S) for call in calls]
        places = sorted(place for each in went for place in each)
        assert places == [Produced(partition, offset) for partition in (0, 1) for offset in range(100)]


def test_batches_keep_the_order_and_the_limit() -> None:
    pairs = [(None, bytes(number)) for number in (1, BATCH_BYTES + 1, 2, 3, BATCH_BYTES, 1)]
    made = list(batches(pairs))
    assert [pair for batch in made for pair in batch] == pairs
    assert [len(batch) for batch in made] == [1, 1, 2, 1, 1]
    assert [len(batch) for batch in batches([(None, b"")] * 2500)] == [1000, 1000, 500]


def test_what_the_version_does_not_know_is_refused(fresh_topic: Callable[[], str]) -> None:
    cluster = KafkaCluster("0.8.0")  # not started: nothing is asked of it
    try:
        with pytest.raises(NotSupported, match=r"codec lz4 needs Kafka 0\.8\.2 or newer, this is 0\.8\.0"):
            cluster.produce("t", [b"one"], codec="lz4")
        with pytest.raises(NotSupported, match=r"without a value needs Kafka 0\.8\.1 or newer, this is 0\.8\.0"):
            cluster.produce("t", [b"one", None])
    finally:
        cluster.close()
    older = KafkaCluster("0.7.2")
    try:
        with pytest.raises(NotSupported, match=r"a message with a key needs Kafka 0\.8 or newer, this is 0\.7\.2"):
            older.produce("t", [("key", b"one")])
    finally:
        older.close()


@pytest.mark.parametrize("kind", [JavaMember, MemberProcess])
def test_members_of_both_kinds_report_keys_and_tombstones(
    kind: MemberKind, kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    topic = fresh_topic()
    kafka_0822.produce(topic, [("ann", "one"), ("ann", None), (None, b"\xff two")], partition=0)
    with kind(kafka_0822, fresh_group, topics={topic: 1}) as member:
        assert [(each.key, each.value) for each in member.wait_messages(3)] == [
            (b"ann", b"one"), (b"ann", None), (None, b"\xff two"),
        ]  # fmt: skip
        assert [event.id for event in member.events("deliver")] == ["one", "", "\\xff two"]
        member.stop()


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_stores_what_it_knows(version: str) -> None:
    with KafkaCluster(version) as cluster:
        for codec in ("none", "gzip", "snappy", "lz4"):
            values = [("k", b"%s %d" % (codec.encode(), number)) for number in range(2000)]
            if version in ("0.8.0", "0.8.1.1") and codec == "lz4":
                with pytest.raises(NotSupported, match="codec lz4"):
                    cluster.produce(codec, values, codec=codec)
                continue
            if version != "0.8.0":
                values.append(("k", None))
            went = cluster.produce(codec, values, codec=codec)
            assert went == [Produced(0, offset) for offset in range(len(values))]
            found = consumed(cluster, codec, len(values))
            assert [found[place] for place in went] == [
                (b"k", value if value is None else bytes(value)) for _, value in values
            ]
        cluster.kill(0, expire=True)
        cluster.start(0)
        cluster.wait_leaders("none", [0])
        [first], [second] = cluster.produce("none", [b"after"]), cluster.produce("none", [b"it"])
        assert second == Produced(0, first.offset + 1)
