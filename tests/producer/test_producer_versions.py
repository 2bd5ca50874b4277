"""What a producer sends to real brokers of every version is read back by our consumer and by the version's own."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from simpleconsumer.consumer import SimpleConsumer
from tests.kafka_07 import cluster_07, needs_jar_07
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer.batching.outcome import SendFuture
from zkconsumer.producer.errors import MessageNotSent, OversizedMessage
from zkconsumer.producer.partitioners import partition_082
from zkconsumer.producer.producer import Producer
from zkconsumer.testing.java.runtime import find_java
from zkconsumer.testing.kafka import KafkaCluster, kafka_versions
from zkconsumer.testing.kafka.known_versions import kafka_jars
from zkconsumer.testing.kafka.settings import version_tuple
from zkconsumer.testing.members.java_member import LAST_VERSION, JavaMember
from zkconsumer.testing.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

VERSIONS = [version for version in kafka_versions(with_zookeeper=True) if version_tuple(version) >= (0, 8)]
PARTITIONS, WAIT_S = 3, 60.0
CODECS = ("none", "gzip", "snappy", "lz4")
READ_ALL = Path(__file__).with_name("ReadAll.java")

Row = tuple[int, bytes | None, bytes | None]
Pair = tuple[bytes | None, bytes | None]


class Sent(NamedTuple):
    """A message and the future of its outcome."""

    key: bytes | None
    value: bytes | None
    future: SendFuture


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with KafkaCluster(request.param, brokers=2) as made:
        yield made


def brokers(cluster: KafkaCluster) -> str:
    return ",".join(f"127.0.0.1:{cluster.port(broker)}" for broker in cluster.brokers)


def is_new(cluster: KafkaCluster, *since: int) -> bool:
    return version_tuple(cluster.version) >= since


def stored(cluster: KafkaCluster, topic: str, partition: int) -> list[Pair]:
    leader = cluster.leader(topic, partition)
    assert leader is not None
    found: list[Pair] = []
    with SimpleConsumer("127.0.0.1", cluster.port(leader)) as consumer:
        while messages := consumer.fetch(topic, partition, len(found), 4_000_000):
            found += [(each.key, each.value) for each in messages]
    return found


def send_every_kind(made: Producer, topic: str, tag: bytes, has_nulls: bool) -> list[Sent]:
    """Send messages with keys and without, empty and null, small and large, to given partitions and to any."""
    large = bytes(range(256)) * 1500
    kinds: list[tuple[bytes | None, bytes | None, int | None]] = [
        (None, b"plain", None), (b"key", b"by its key", None), (b"", b"an empty key", 0), (b"no value", b"", None),
        (b"\xff\x00", large, 1), (None, large, None), (None, b"given", 2),
    ]  # fmt: skip
    if has_nulls:
        kinds += [(b"deleted", None, None), (None, None, 1)]
    kinds += [(b"k%d" % n, b"v%d" % n * 5, None) for n in range(40)]
    return [
        Sent(key, None if value is None else tag + value,
             made.send(topic, None if value is None else tag + value, key, partition))
        for key, value, partition in kinds
    ]  # fmt: skip


def read_by_java(cluster: KafkaCluster, topic: str, count: int) -> Counter[Row]:
    """What Java's high-level consumer of the version delivers, as long as there is one."""
    with JavaMember(cluster, f"of-{topic}", topics={topic: 1}) as member:
        rows = member.wait_messages(count, WAIT_S)
    return Counter((int(each.partition), each.key, each.value) for each in rows)


def read_by_newer_java(cluster: KafkaCluster, topic: str, count: int) -> Counter[Row]:
    """What Java's newer consumer of the version reads."""
    arguments = [brokers(cluster), topic, str(count)]
    command = find_java().command(kafka_jars(cluster.version, None), str(READ_ALL), arguments, heap_mb=256)
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]

    def data(text: str) -> bytes | None:
        return None if text == "null" else bytes.fromhex(text[1:])

    rows = (line.split("\t") for line in ran.stdout.splitlines())
    return Counter((int(partition), data(key), data(value)) for partition, key, value in rows)


@pytest.mark.parametrize("found_by", ["brokers", "zookeeper"])
@pytest.mark.parametrize("acks", [1, -1, 0])
def test_every_kind_of_message_is_read_back(cluster: KafkaCluster, acks: int, found_by: str) -> None:
    if found_by == "zookeeper" and acks != 1:
        pytest.skip("brokers are found in the same way")
    topic = f"kinds-{acks}-{found_by}".replace("--", "-all-")
    cluster.create_topic(topic, PARTITIONS, replication=2)
    has_nulls = is_new(cluster, 0, 8, 1)
    where: Any = {"metadata_broker_list": brokers(cluster)} if found_by == "brokers" else {
        "zookeeper_connect": cluster.zookeeper_connect}  # fmt: skip
    sent: list[Sent] = []
    for codec in CODECS if is_new(cluster, 0, 8, 2) else CODECS[:3]:
        config = ProducerConfig(
            **where, request_required_acks=acks, compression_codec=codec, producer_type="async",
            queue_buffering_max_ms=20, batch_num_messages=10, message_send_max_retries=20,
        )  # fmt: skip
        with Producer(config) as made:
            mine = send_every_kind(made, topic, codec.encode(), has_nulls)
            assert made.flush(WAIT_S)
            assert [each.future.exception(0) for each in mine] == [None] * len(mine)
            if not has_nulls:
                with pytest.raises(TypeError, match=r"Kafka 0\.8\.0"):
                    made.send(topic, None, b"deleted")
        sent += mine
    total = lambda: sum(len(stored(cluster, topic, number)) for number in range(PARTITIONS))  # noqa: E731
    wait_until(lambda: total() == len(sent), WAIT_S, "the messages", state=total)
    logs = {number: stored(cluster, topic, number) for number in range(PARTITIONS)}
    for key, value, future in sent:
        place = future.result(0)
        if key is not None and key.startswith(b"k"):
            assert place.partition == partition_082(key, PARTITIONS)
        names_offsets = acks == 1 or (acks == -1 and is_new(cluster, 0, 8, 2))  # older ones answer -1 with the end
        if names_offsets:
            assert place.offset is not None
            assert logs[int(place.partition)][place.offset] == (key, value)
    rows: Counter[Row] = Counter((number, *pair) for number, log in logs.items() for pair in log)
    assert Counter((int(each.future.result(0).partition), each.key, each.value) for each in sent) == rows
    read = read_by_java if version_tuple(cluster.version) <= LAST_VERSION else read_by_newer_java
    assert read(cluster, topic, len(sent)) == rows


def test_batches_of_a_version_without_a_codec_fail_with_a_remedy(cluster: KafkaCluster) -> None:
    if is_new(cluster, 0, 8, 2):
        pytest.skip("it has all codecs")
    cluster.create_topic("lz4", 1)
    config = ProducerConfig(metadata_broker_list=brokers(cluster), compression_codec="lz4", message_send_max_retries=1)
    with Producer(config) as made, pytest.raises(MessageNotSent, match="gzip or snappy"):
        made.send("lz4", b"v")


def test_too_few_replicas_are_named(cluster: KafkaCluster) -> None:
    if not is_new(cluster, 0, 8, 2):
        pytest.skip("it has no min.insync.replicas")
    cluster.create_topic("two-replicas", 1, assignment={0: [0, 1]}, config={"min.insync.replicas": 2})
    cluster.stop(1)
    in_sync = lambda: json.loads(cluster.client.get("/brokers/topics/two-replicas/partitions/0/state")[0])["isr"]  # noqa: E731
    wait_until(lambda: in_sync() == [0], WAIT_S, "the set of in-sync replicas to shrink", state=in_sync)
    config = ProducerConfig(
        metadata_broker_list=brokers(cluster), request_required_acks=-1, message_send_max_retries=2, retry_backoff_ms=20
    )
    with Producer(config) as made:
        with pytest.raises(MessageNotSent, match=r"in 3 attempts: .*NotEnoughReplicas") as caught:
            made.send("two-replicas", b"v")
        assert caught.value.may_be_stored or stored(cluster, "two-replicas", 0) == []
        cluster.start(1)
        wait_until(lambda: len(in_sync()) == 2, WAIT_S, "the set of in-sync replicas to grow", state=in_sync)
        made.send("two-replicas", b"w")
    assert stored(cluster, "two-replicas", 0)[-1] == (None, b"w")


def test_what_a_topic_finds_too_large_fails_alone(cluster: KafkaCluster) -> None:
    config: dict[str, object] = {"max.message.bytes": 2000, "segment.bytes": 1_000_000}
    if not is_new(cluster, 0, 8, 1):
        pytest.skip("settings of topics have another place in 0.8.0")
    cluster.create_topic("small", 1, config=config)
    wait_until(lambda: _is_refused(cluster), WAIT_S, "the setting of the topic to hold")
    before = len(stored(cluster, "small", 0))
    values = [b"%d" % n if n != 37 else b"x" * 3000 for n in range(100)]
    settings = ProducerConfig(
        metadata_broker_list=brokers(cluster), producer_type="async", queue_buffering_max_ms=100,
        compression_codec="none",
    )  # fmt: skip
    with Producer(settings) as made:
        futures = [made.send("small", value) for value in values]
        assert made.flush(WAIT_S)
        assert [number for number, each in enumerate(futures) if each.exception(0) is not None] == [37]
    assert [value for _, value in stored(cluster, "small", 0)][before:] == [each for each in values if len(each) < 9]


def _is_refused(cluster: KafkaCluster) -> bool:
    with Producer(ProducerConfig(metadata_broker_list=brokers(cluster), message_send_max_retries=5)) as made:
        try:
            made.send("small", b"x" * 3000)
        except OversizedMessage:
            return True
        return False


@needs_jar_07
@pytest.mark.parametrize("acks", [1, 0])
@pytest.mark.parametrize("found_by", ["brokers", "zookeeper"])
def test_every_kind_of_message_is_read_back_on_kafka_07(acks: int, found_by: str) -> None:
    with cluster_07("real", 2) as made_cluster:
        assert isinstance(made_cluster, KafkaCluster)
        topic = "kinds"
        made_cluster.create_topic(topic)
        ids = ",".join(f"{broker}:127.0.0.1:{made_cluster.port(broker)}" for broker in made_cluster.brokers)
        where: Any = {"metadata_broker_list": ids} if found_by == "brokers" else {
            "zookeeper_connect": made_cluster.zookeeper_connect}  # fmt: skip
        sent: list[bytes] = []
        for codec in CODECS[:3]:
            config = ProducerConfig(
                **where, request_required_acks=acks, compression_codec=codec, producer_type="async",
                queue_buffering_max_ms=20, batch_num_messages=10,
            )  # fmt: skip
            with Producer(config) as made:
                values = [b"%s %d" % (codec.encode(), n) for n in range(100)] + [codec.encode() * 50_000]
                futures = [made.send(topic, value, b"k%d" % (n % 7)) for n, value in enumerate(values)]
                assert made.flush(WAIT_S)
                assert [each.exception(0) for each in futures] == [None] * len(values)
                with pytest.raises(TypeError, match="stores no null"):
                    made.send(topic, None)
            sent += values
        with JavaMember(made_cluster, "readers", topics={topic: 1}) as member:
            found = member.wait_messages(len(sent), WAIT_S)
        assert sorted(each.value or b"" for each in found) == sorted(sent)
        if found_by == "zookeeper":
            by_key: dict[int, set[int | str]] = {}
            for each in found:
                number = int((each.value or b"").split()[-1]) if b" " in (each.value or b"") else 100
                by_key.setdefault(number % 7, set()).add(each.partition)
            assert all(len(places) == 1 for places in by_key.values())
