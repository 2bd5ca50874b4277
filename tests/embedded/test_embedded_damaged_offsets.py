"""Logs in which the offset field of one entry is damaged: it costs that entry, once, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simpleconsumer import DamagedOffset, MessageError
from zkconsumer import ConsumerConfig, ConsumerConnector, KafkaStream
from zkconsumer.testing import EmbeddedCluster, load
from zkconsumer.testing.waiting import wait_until

COUNT, BAD = 400, 200

# A flipped sign; the last number there is; beyond the log; at its end; ahead in it; the next one; back in it.
FOUND = [BAD - 2**63, -1, 2**63 - 1, 2**62 + BAD, COUNT + 50, COUNT, BAD + 64, BAD + 1, BAD - 1, BAD - 64, 0]


Read = Callable[[KafkaStream, int], tuple[list[int], list[MessageError]]]


def config(cluster: EmbeddedCluster, group: str, **settings: object) -> ConsumerConfig:
    return ConsumerConfig(
        cluster.zookeeper_connect, group, auto_offset_reset="smallest", consumer_timeout_ms=20_000, **settings
    )


@pytest.fixture
def topic(embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]) -> str:
    name = fresh_topic()
    embedded_cluster.create_topic(name)
    load(embedded_cluster, name, COUNT)
    return name


def read_messages(stream: KafkaStream, count: int) -> tuple[list[int], list[MessageError]]:
    """Return the offsets of the next messages, and what is raised between them; both together are `count`."""
    offsets: list[int] = []
    errors: list[MessageError] = []
    while len(offsets) + len(errors) < count:
        try:
            message = next(stream)
            assert message.value == b"0:%d" % message.offset
            offsets.append(message.offset)
        except MessageError as error:
            errors.append(error)
    return offsets, errors


def read_batches(stream: KafkaStream, count: int) -> tuple[list[int], list[MessageError]]:
    """The same by batches."""
    offsets: list[int] = []
    errors: list[MessageError] = []
    batches = stream.batches()
    while len(offsets) + len(errors) < count:
        try:
            offsets += next(batches).record_batch.column("offset").to_pylist()
        except MessageError as error:
            errors.append(error)
    return offsets, errors


@pytest.mark.catalogue("G2a")
@pytest.mark.parametrize("read", [read_messages, read_batches])
@pytest.mark.parametrize("fetch_bytes", [1024 * 1024, 3000], ids=["one fetch", "many fetches"])
@pytest.mark.parametrize("found", FOUND)
def test_a_damaged_offset_in_the_log_costs_its_entry_once(
    embedded_cluster: EmbeddedCluster,
    topic: str,
    fresh_group: str,
    found: int,
    fetch_bytes: int,
    read: Read,
) -> None:
    log = embedded_cluster.log(topic, 0)
    log.damage_offset(BAD, found)
    settings = config(embedded_cluster, fresh_group, fetch_message_max_bytes=fetch_bytes)
    with ConsumerConnector(settings) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        offsets, errors = read(stream, COUNT)
        assert offsets == [offset for offset in range(COUNT) if offset != BAD]
        [error] = errors
        assert isinstance(error, DamagedOffset)
        assert (error.topic, error.partition, error.offset, error.next_offset) == (topic, 0, BAD, BAD + 1)
        connector.commit_offsets()
        [owned] = connector.status().owned
        assert owned.position == COUNT
        load(embedded_cluster, topic, 3, first=COUNT)  # a broker may find the damaged entry for later offsets, too
        assert read(stream, 3) == ([COUNT, COUNT + 1, COUNT + 2], [])
    load(embedded_cluster, topic, 2, first=COUNT + 3)
    with ConsumerConnector(settings) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        assert read(stream, 2) == ([COUNT + 3, COUNT + 4], [])


@pytest.mark.parametrize("read", [read_messages, read_batches])
def test_a_log_that_ends_with_the_largest_offset_is_one_error_and_then_waits(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str, read: Read
) -> None:
    """The broker finds that entry for every offset behind it."""
    log = embedded_cluster.log(topic, 0)
    log.damage_offset(COUNT - 1, 2**63 - 1)
    log._end_offset = 2**63 - 1
    with ConsumerConnector(config(embedded_cluster, fresh_group)) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        offsets, [error] = read(stream, COUNT)
        assert (offsets, error.offset) == (list(range(COUNT - 1)), COUNT - 1)

        why = "no entry can follow"
        wait_until(lambda: why in (connector.status().owned[0].error or ""), 20, "the partition to wait")
        [owned] = connector.status().owned
        assert owned.fetched_bytes < 2 * log.size_bytes


@pytest.mark.parametrize("found", [BAD - 2**63, 2**63 - 1])
def test_a_commit_beside_a_damaged_offset_stores_where_to_go_on(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str, found: int
) -> None:
    embedded_cluster.log(topic, 0).damage_offset(BAD, found)
    with ConsumerConnector(config(embedded_cluster, fresh_group)) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        for _ in range(BAD):
            next(stream)
        with pytest.raises(DamagedOffset):
            next(stream)
        connector.commit_offsets()
        assert next(stream).offset == BAD + 1
    with ConsumerConnector(config(embedded_cluster, fresh_group)) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        assert next(stream).offset == BAD + 2  # the block had ended with its message done


@pytest.mark.catalogue("G2a")
@pytest.mark.parametrize("read", [read_messages, read_batches])
@pytest.mark.parametrize("bit", [2, 5, 12, 20, 40])
@pytest.mark.parametrize("fetch_bytes", [100, 120, 300, 1024 * 1024])
def test_a_flipped_bit_in_the_offset_of_a_wrapper_costs_no_message_of_others(
    embedded_cluster: EmbeddedCluster,
    fresh_topic: Callable[[], str],
    fresh_group: str,
    fetch_bytes: int,
    bit: int,
    read: Read,
) -> None:
    """The messages inside say where they belong; the fetch must not go on where the wrapper says."""
    topic = fresh_topic()
    embedded_cluster.create_topic(topic)
    load(embedded_cluster, topic, COUNT, codec="gzip", batch=10)
    embedded_cluster.log(topic, 0).damage_offset(BAD + 9, (BAD + 9) ^ 1 << bit)
    with ConsumerConnector(config(embedded_cluster, fresh_group, fetch_message_max_bytes=fetch_bytes)) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        found: set[int] = set()
        expected = set(range(COUNT)) - set(range(BAD, BAD + 10))
        while not expected <= found:
            offsets, _ = read(stream, 1)
            assert not found & set(offsets)
            found.update(offsets)
        assert connector.status().owned[0].error is None


def test_a_compacted_log_is_read_to_its_end_whatever_the_size_of_fetches(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    kept = [offset for offset in range(COUNT) if offset % 7 in (0, 3) or offset == COUNT - 1]
    embedded_cluster.log(topic, 0).remove(set(range(COUNT)) - set(kept))
    for fetch_bytes in (100, 3000):
        settings = config(embedded_cluster, f"{fresh_group}-{fetch_bytes}", fetch_message_max_bytes=fetch_bytes)
        with ConsumerConnector(settings) as connector:
            [stream] = connector.create_message_streams({topic: 1})[topic]
            assert read_messages(stream, len(kept)) == (kept, [])
