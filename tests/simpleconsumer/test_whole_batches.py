"""Record batches that are copied whole: a new head, the same records; and what is refused, by name and place."""

from __future__ import annotations

import pytest

from simpleconsumer import codecs
from simpleconsumer.dialect import BatchNotWhole, BatchProducer, Obstacle, head_with, restamped
from simpleconsumer.kafka011.batch_head import HEAD_BYTES, has_batch_checksum, read_head
from simpleconsumer.kafka011.record_batch import decode_messages
from simpleconsumer.kafka011.record_encode import encode_record_batch
from simpleconsumer.kafka08.message_encode import encode_message_set
from simpleconsumer.types import Message, TopicPartition

SOURCE = TopicPartition("source", 3)
PRODUCER = BatchProducer(7, 2, 40)
ROWS = [(b"key", b"value"), (None, b"b" * 100), (b"key", None)]


def source_batch(codec: str = "none", **more: object) -> bytes:
    """A batch as a broker stores it, at offset 1200."""
    written_by = BatchProducer(4711, 9, 99, is_transactional=True)
    how = {"first_offset": 1200, "timestamp_ms": 1000, "producer": written_by, "leader_epoch": 5, **more}
    return encode_record_batch(ROWS, codec, **how)  # type: ignore[arg-type]


def with_records(data: bytes, records: int) -> bytes:
    """The batch with another number of records and as many offsets, and the checksum that belongs to them."""
    changed = bytearray(data)
    changed[23:27] = (records - 1).to_bytes(4, "big", signed=True)
    changed[57:61] = records.to_bytes(4, "big", signed=True)
    changed[17:21] = codecs.crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


def refused(data: bytes, takes_zstd: bool = True) -> BatchNotWhole:
    with pytest.raises(BatchNotWhole) as caught:
        restamped(data, SOURCE, PRODUCER, takes_zstd=takes_zstd)
    return caught.value


def with_attributes(data: bytes, attributes: int) -> bytes:
    """The batch with other attributes, and the checksum that belongs to them."""
    changed = bytearray(data)
    changed[21:23] = attributes.to_bytes(2, "big")
    changed[17:21] = codecs.crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


@pytest.mark.parametrize("codec", codecs.BATCH_CODECS)
def test_the_head_is_that_of_the_producer_and_the_records_are_as_they_were(codec: str) -> None:
    data = source_batch(codec)
    whole = restamped(data, SOURCE, PRODUCER, takes_zstd=True)
    head, before = read_head(whole.data, 0), read_head(data, 0)
    assert whole.data[HEAD_BYTES:] == data[HEAD_BYTES:]
    assert has_batch_checksum(whole.data, 0, len(whole.data))
    assert head == before._replace(
        base_offset=0, leader_epoch=-1, crc=head.crc, attributes=codecs.BATCH_CODECS[codec], producer_id=7,
        producer_epoch=2, base_sequence=40,
    )  # fmt: skip
    assert (whole.records, whole.newest_ms) == (3, 1000)


def test_the_transactional_bit_is_set_when_it_is_asked_for() -> None:
    whole = restamped(source_batch(), SOURCE, PRODUCER._replace(is_transactional=True), takes_zstd=True)
    assert read_head(whole.data, 0).attributes == 16


def test_times_that_a_broker_had_set_go_and_those_of_the_producer_come_back() -> None:
    whole = restamped(source_batch(log_append_time_ms=9000), SOURCE, PRODUCER, takes_zstd=True)
    times = [message.timestamp_ms for message in decode_messages(whole.data, "t", 0, 0) if isinstance(message, Message)]
    assert times == [1000] * 3
    assert whole.newest_ms == 1000, "brokers forget producers by these"


def test_the_time_at_which_compaction_may_remove_tombstones_goes_and_times_stay() -> None:
    data = with_attributes(source_batch(), 16 | 64)
    whole = restamped(data, SOURCE, PRODUCER, takes_zstd=True)
    assert read_head(whole.data, 0).attributes == 0
    assert [each.timestamp_ms for each in decode_messages(whole.data, "t", 0, 0)] == [1000] * 3
    both = restamped(with_attributes(source_batch(), 8 | 64), SOURCE, PRODUCER, takes_zstd=True)
    assert both.newest_ms == -1, "neither time of the head is one of a record"


def test_every_obstacle_has_its_name_and_the_place() -> None:
    data = source_batch()
    old = encode_message_set([(b"k", b"v")] * 2, "none", 1, timestamp_ms=1)
    rows = [
        (data[:40], Obstacle.TRUNCATED, "40 bytes, and its head alone has 61"),
        (data[:-1], Obstacle.TRUNCATED, f"{len(data) - 1} of {len(data)} bytes"),
        (data + b"x", Obstacle.SEVERAL, f"it has {len(data)} bytes, and {len(data) + 1} are given"),
        (old, Obstacle.MAGIC, "magic 1, not 2"),
        (data[:-1] + bytes([data[-1] ^ 1]), Obstacle.DAMAGED, "stated checksum 0x"),
        (data[:8] + bytes(4) + data[12:], Obstacle.DAMAGED, "its size is 0, at least 49 is possible"),
        (source_batch(is_control=True), Obstacle.CONTROL, "attributes 0x30"),
        (encode_record_batch([], first_offset=1200, last_offset=1202), Obstacle.EMPTY, "offsets up to 1202"),
        (with_records(data, -1), Obstacle.EMPTY, "-1 records, offsets up to 1198"),
        (source_batch(offsets=[1200, 1201, 1203]), Obstacle.HOLES, "3 records on 4 offsets"),
        (source_batch(last_offset=1204), Obstacle.HOLES, "3 records on 5 offsets"),
        (with_attributes(data, 5), Obstacle.CODEC, "codec 5"),
    ]
    for given, obstacle, detail in rows:
        error = refused(given)
        assert (error.obstacle, error.topic, error.partition) == (obstacle, "source", 3)
        assert detail in str(error)
        assert error.offset == (0 if given is old else 1200)
    assert str(refused(data[:-1])).startswith("source/3 at 1200: the batch cannot be copied whole: it is cut off (")
    assert refused(data[:7]).offset is None


def test_zstd_needs_a_broker_that_takes_it() -> None:
    data = source_batch("zstd")
    assert refused(data, takes_zstd=False).obstacle is Obstacle.ZSTD
    assert restamped(data, SOURCE, PRODUCER, takes_zstd=True).records == 3


def test_every_byte_that_the_checksum_covers_is_seen_when_it_is_damaged_and_every_cut_too() -> None:
    data = source_batch("gzip")
    for position in range(17, len(data)):
        changed = bytearray(data)
        changed[position] ^= 0x10
        assert refused(bytes(changed)).obstacle is Obstacle.DAMAGED
    for end in range(len(data)):
        assert refused(data[:end]).obstacle is Obstacle.TRUNCATED


def test_the_batch_with_an_offset_is_found_among_others_and_behind_older_entries() -> None:
    old = encode_message_set([(b"k", b"v")], "none", 1, timestamp_ms=1)
    later = encode_record_batch(ROWS, first_offset=1203)
    data = old + source_batch() + later + later[:30]
    found = {offset: head_with(data, offset) for offset in (0, 1199, 1200, 1202, 1203, 1205, 1206)}
    bases = {offset: head and head.base_offset for offset, head in found.items()}
    assert bases == {0: None, 1199: None, 1200: 1200, 1202: 1200, 1203: 1203, 1205: 1203, 1206: None}
