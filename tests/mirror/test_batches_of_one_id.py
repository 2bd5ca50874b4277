"""What brokers do with batches of one producer id: the rules on which lanes stand, on real and on embedded brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from lane_writing import SOURCE, Wire, source_batch

from simpleconsumer.dialect import BatchProducer, restamped
from simpleconsumer.errors import ConnectionFailed
from simpleconsumer.kafka011.record_encode import encode_record_batch
from simpleconsumer.types import ProducerId, TopicPartition
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.cluster import Cluster
from zkconsumer.testing.embedded.cluster import VERSIONS as EMBEDDED
from zkconsumer.testing.errors import version_tuple
from zkconsumer.testing.kafka import KafkaCluster

SLOW = pytest.mark.slow
REAL = [*(pytest.param(each, marks=[SLOW, pytest.mark.real]) for each in ("0.11.0.3", "1.1.1", "2.8.2", "4.3.1")),
        pytest.param("3.9.2", marks=pytest.mark.real)]  # fmt: skip
CORRUPT, OUT_OF_ORDER, OLD_EPOCH, UNKNOWN_PRODUCER, INVALID_RECORD = 2, 45, 47, 59, 87
FIRST_WITH_FIVE, FIRST_WITH_INVALID_RECORD, FIRST_THAT_TAKES_UNKNOWN = (1, 0), (2, 4), (2, 5)


@pytest.fixture(params=[*REAL, "0.11", "1.1", "2.8", "3.9", "4.3"])
def cluster(
    request: pytest.FixtureRequest, kafka_clusters: Callable[[str, int], KafkaCluster],
    embedded_clusters: Callable[[int, str], EmbeddedCluster],
) -> Cluster:  # fmt: skip
    """A real broker, or an embedded one of a generation."""
    return embedded_clusters(1, request.param) if request.param in EMBEDDED else kafka_clusters(request.param, 1)


@pytest.fixture
def version(cluster: Cluster) -> tuple[int, ...]:
    return version_tuple(EMBEDDED.get(cluster.version, cluster.version))


@pytest.fixture
def name(cluster: Cluster, fresh_topic: Callable[[], str]) -> TopicPartition:
    topic = fresh_topic()
    cluster.create_topic(topic)
    return TopicPartition(topic, 0)


@pytest.fixture
def wires(cluster: Cluster, name: TopicPartition) -> Iterator[tuple[Wire, Wire]]:
    """Two connections to the leader."""
    first, second = Wire(cluster, name), Wire(cluster, name)
    yield first, second
    first.close()
    second.close()


def test_on_two_connections_with_one_id_a_late_repeat_gets_the_old_offset_and_nothing_is_stored(
    wires: tuple[Wire, Wire], version: tuple[int, ...]
) -> None:
    first, second = wires
    producer = first.new_id()
    assert [first.put(producer, offset) for offset in range(0, 80, 10)] == [(0, offset) for offset in range(0, 80, 10)]
    assert second.put(producer, 70) == (0, 70)
    is_known = version >= FIRST_WITH_FIVE  # 0.11 remembers the last batch alone
    assert second.put(producer, 30) == ((0, 30) if is_known else (OUT_OF_ORDER, -1))
    assert first.end() == 80
    assert second.put(producer, 80) == (0, 80)
    assert first.put(producer, 80) == (0, 80)
    assert first.end() == 90


def test_other_lengths_a_jump_ahead_and_a_repeat_of_long_ago_are_refused_and_nothing_is_stored(
    wires: tuple[Wire, Wire],
) -> None:
    first, second = wires
    producer = first.new_id()
    for offset in range(0, 80, 10):
        first.put(producer, offset)
    refused = [second.put(producer, 70, 5), second.put(producer, 70, 15), second.put(producer, 500),
               second.put(producer, 81), second.put(producer, 20), second.put(producer, 0)]  # fmt: skip
    assert refused == [(OUT_OF_ORDER, -1)] * 6
    assert first.end() == 80
    assert first.put(producer, 80) == (0, 80)


def test_the_next_epoch_begins_at_0_and_the_former_one_is_refused(wires: tuple[Wire, Wire]) -> None:
    first, second = wires
    producer = first.new_id()
    next_epoch = ProducerId(producer.producer_id, producer.epoch + 1)
    assert first.put(producer, 0) == (0, 0)
    assert second.put(next_epoch, 10) == (OUT_OF_ORDER, -1)
    assert second.put(next_epoch, 10, sequence=0) == (0, 10)
    assert first.put(producer, 10) == (OLD_EPOCH, -1)
    assert first.put(producer, 0) == (OLD_EPOCH, -1)
    assert second.put(next_epoch, 20, sequence=10) == (0, 20)
    assert first.end() == 30


def test_what_comes_first_of_an_id_that_the_leader_does_not_know(
    wires: tuple[Wire, Wire], version: tuple[int, ...]
) -> None:
    """So a leader that has forgotten an id stores a late repeat again, from Kafka 2.5 on."""
    first, _ = wires
    producer = first.new_id()
    code = 0 if version >= FIRST_THAT_TAKES_UNKNOWN else UNKNOWN_PRODUCER if version >= (1, 0) else OUT_OF_ORDER
    assert first.put(producer, 0, sequence=70) == ((0, 0) if code == 0 else (code, -1))
    if code == 0:
        assert first.put(producer, 10, sequence=70) == (0, 0)
        assert first.put(producer, 10, sequence=500) == (OUT_OF_ORDER, -1)
        assert first.put(producer, 10, sequence=80) == (0, 10)
    else:
        assert first.put(producer, 0) == (0, 0)


def test_numbers_begin_at_0_again_after_the_last_one(wires: tuple[Wire, Wire], version: tuple[int, ...]) -> None:
    if version < FIRST_THAT_TAKES_UNKNOWN:
        pytest.skip("a broker that knows no number takes none but 0, and two thousand million records are too many")
    first, second = wires
    producer = first.new_id()
    assert first.put(producer, 0, sequence=2**31 - 6) == (0, 0)
    assert first.put(producer, 10, sequence=4) == (0, 10)
    assert [second.put(producer, 10, sequence=4), second.put(producer, 0, sequence=2**31 - 6)] == [(0, 10), (0, 0)]
    assert first.end() == 20


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_batch_with_holes_is_refused_but_by_0_11_which_numbers_it_again_without_a_word(
    wires: tuple[Wire, Wire], cluster: Cluster, version: tuple[int, ...], codec: str
) -> None:
    """An embedded broker of 0.11 refuses it, too: what real ones store then is of no use to anybody."""
    first, _ = wires
    holes = encode_record_batch([(b"k", b"a"), (b"k", b"b")], codec, offsets=[0, 2], timestamp_ms=1)
    stores = version < (1, 0) and isinstance(cluster, KafkaCluster)
    code = 0 if stores else INVALID_RECORD if version >= FIRST_WITH_INVALID_RECORD else CORRUPT
    assert first.put_as_is(holes).error_code == code
    assert first.end() == (2 if stores else 0)


def test_two_batches_in_one_request_are_refused(wires: tuple[Wire, Wire], version: tuple[int, ...]) -> None:
    first, second = wires
    producer = first.new_id()
    both = b"".join(
        restamped(source_batch(at, 3), SOURCE, BatchProducer(*producer, at), takes_zstd=True).data for at in (0, 3)
    )
    if version >= FIRST_WITH_INVALID_RECORD:
        assert first.put_as_is(both).error_code == INVALID_RECORD
    else:
        with pytest.raises(ConnectionFailed, match="closed by the broker"):
            first.put_as_is(both)
    assert second.end() == 0
