"""Compressed batches of other writers: what a real broker stores is read, whatever follows the end of its stream.

A broker decompresses what it is sent with Java's readers. So it is asked here which odd streams it stores, and those
are read as rows and as columns.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Iterator

import cramjam
import lz4.block
import lz4.frame
import pytest
import snappy

from simpleconsumer import KAFKA011, CorruptMessage, SimpleConsumer
from simpleconsumer.codecs import BATCH_CODECS, crc32c
from simpleconsumer.kafka011.record_encode import encode_record_batch
from simpleconsumer.kafka08.message_encode import encode_message
from simpleconsumer.types import Message, TopicPartition
from zkconsumer import read_topic
from zkconsumer.testing.errors import version_tuple
from zkconsumer.testing.kafka import KafkaCluster

pytestmark = pytest.mark.real

Clusters = Callable[[str, int], KafkaCluster]
SLOW = pytest.mark.slow
VERSIONS = ["4.3.1", *(pytest.param(each, marks=SLOW) for each in ("0.10.2.2", "0.11.0.3", "1.1.1", "2.8.2", "3.9.2"))]
VALUES = [b"value %d of a message" % number for number in range(40)]
XERIAL, LZ4_HEAD = b"\x82SNAPPY\0", bytes.fromhex("04224d18604082")
SKIPPED = struct.pack("<II", 0x184D2A50, 3) + b"xyz"
BROKEN_MEMBER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + b"\xff" * 40


def member(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def member_with_all_fields(data: bytes) -> bytes:
    head = b"\x1f\x8b\x08\x1e\0\0\0\0\0\xff" + struct.pack("<H", 3) + b"abc" + b"name\0" + b"comment\0"
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(data) + packer.flush()
    trailer = struct.pack("<II", zlib.crc32(data), len(data))
    return head + struct.pack("<H", zlib.crc32(head) & 0xFFFF) + packed + trailer


def stream(*blocks: bytes, versions: str = ">1 1") -> bytes:
    stated = struct.pack(versions[0] + "ii", *map(int, versions[1:].split()))
    packed = [snappy.compress(block) for block in blocks]
    return XERIAL + stated + b"".join(struct.pack(">I", len(block)) + block for block in packed)


def lz4_block(data: bytes) -> bytes:
    packed = lz4.block.compress(data, store_size=False)
    return struct.pack("<I", len(packed)) + packed


def lz4_stored(data: bytes) -> bytes:
    return struct.pack("<I", len(data) | 1 << 31) + data


def lz4_frame(data: bytes, **settings: object) -> bytes:
    frame: bytes = lz4.frame.compress(data, **{"block_linked": False, "store_size": False, **settings})
    return frame


def zstd(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data))


def in_pieces(data: bytes, count: int) -> Iterator[bytes]:
    for number in range(count):
        yield data[number * len(data) // count : (number + 1) * len(data) // count]


def streams_of(codec: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield streams that hold all of some data, for a reader that knows how; each with its name."""
    a, b = data[: len(data) // 2], data[len(data) // 2 :]
    if codec == "gzip":
        tails = {
            "a zero": b"\0", "18 bytes": b"\x1f\x8b\x08" + bytes(15), "zeros": bytes(40),
            "text": b"a tail that is no member", "another method": b"\x1f\x8b\x07" + bytes(40),
        }  # fmt: skip
        yield "one member", member(data)
        yield "a member with all fields", member_with_all_fields(data)
        yield "two members", member(a) + member(b)
        yield "empty members", member(b"") * 3 + member(a) + member(b"") + member(b) + member(b"")
        yield "2000 members", b"".join(map(member, in_pieces(data, 2000)))
        yield from ((f"behind it {name}", member(data) + tail) for name, tail in tails.items())
        yield "a member that is cut off", member(data) + member(data)[:30]
        yield "a member that is broken", member(data) + BROKEN_MEMBER
        yield "no trailer", member(data)[:-8]
    elif codec == "snappy":
        yield "one block", stream(data)
        yield "no stream", snappy.compress(data)
        yield "blocks", stream(b"", a, b"", b)
        for versions in ("<1 1", ">0 0", ">2 2", ">-1 -1", ">1 7"):
            yield f"versions {versions}", stream(data, versions=versions)
        yield "two streams", stream(a) + stream(b)
        yield "streams without blocks", stream() + stream(data) + stream()
        for tail in (b"\0", b"abc", b"\x82SNA" + bytes(12), b"\x82SNAPPY", bytes(4), b"text"):
            yield f"behind it {tail!r}", stream(data) + tail
    elif codec == "lz4":
        for settings in (
            {"block_linked": True}, {"block_checksum": True}, {"content_checksum": True}, {"store_size": True},
            {"block_size": 7},
        ):  # fmt: skip
            yield f"{settings}", lz4_frame(data, **settings)
        yield "blocks", LZ4_HEAD + lz4_block(a) + lz4_stored(b) + bytes(4)
        yield "blocks of a byte", LZ4_HEAD + b"".join(lz4_stored(bytes((byte,))) for byte in data) + bytes(4)
        yield "an empty block for an end mark", LZ4_HEAD + lz4_block(data) + lz4_stored(b"")
        yield "an empty block and an end mark", LZ4_HEAD + lz4_block(data) + lz4_stored(b"") + bytes(4)
        yield "a wrong checksum of the content", lz4_frame(data, content_checksum=True)[:-4] + b"none"
        yield "no checksum of the content", lz4_frame(data, content_checksum=True)[:-4]
        yield "a wrong checksum of the head", LZ4_HEAD[:-1] + b"\x55" + lz4_block(data) + bytes(4)
        for tail in (bytes(4), b"text", SKIPPED, lz4_frame(b"")):
            yield f"behind it {tail!r}", lz4_frame(data) + tail
        yield "no end mark", lz4_frame(data)[:-4]
    else:
        yield "one frame", zstd(data)
        yield "frames", SKIPPED + zstd(a) + zstd(b"") + SKIPPED + zstd(b) + SKIPPED
        for tail in (zstd(b"x" * 9)[:8], b"\x28\xb5", b"\0", bytes(8), b"text"):
            yield f"behind it {tail!r}", zstd(data) + tail


BREAK_THE_FORMAT = ("a member that is cut off", "a member that is broken")
"""Kafka 0.10 stores them now and then, as its reader does not look further where its buffer of 512 bytes ends."""
STORED_BY_ALL = {
    "gzip": ("two members", "behind it text", "behind it 18 bytes"),
    "snappy": ("versions <1 1", "versions >2 2", "two streams", "behind it b'abc'"),
    "lz4": ("an empty block for an end mark", "a wrong checksum of the content", "behind it b'text'"),
    "zstd": ("frames", "behind it b'(\\xb5'"),
}


def codecs_of(version: str) -> list[str]:
    return ["gzip", "snappy", "lz4", *(["zstd"] if version_tuple(version) >= (2, 1) else [])]


def batch_of(codec: str, name: str, version: str) -> bytes:
    """Return a batch whose records, or messages, are compressed to the stream of a name."""
    number = BATCH_CODECS[codec]
    if version_tuple(version) < (0, 11):
        inside = b"".join(encode_message(offset, None, value, 1, timestamp_ms=1) for offset, value in enumerate(VALUES))
        return encode_message(len(VALUES) - 1, None, dict(streams_of(codec, inside))[name], 1, number, timestamp_ms=1)
    plain = encode_record_batch([Message("t", 0, n, n + 1, None, value, 1) for n, value in enumerate(VALUES)])
    body = struct.pack(">h", number) + plain[23:61] + dict(streams_of(codec, plain[61:]))[name]
    return plain[:8] + struct.pack(">i", 9 + len(body)) + plain[12:17] + struct.pack(">I", crc32c(body)) + body


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_broker_stores_is_read(kafka_clusters: Clusters, fresh_topic: Callable[[], str], version: str) -> None:
    cluster = kafka_clusters(version, 1)
    with SimpleConsumer("127.0.0.1", cluster.port(0), dialect=KAFKA011) as broker:
        for codec in codecs_of(version):
            topic, stored = fresh_topic(), {}
            cluster.create_topic(topic)
            for name, _ in streams_of(codec, b"data"):
                data = batch_of(codec, name, version)
                [answer] = broker.produce_sets({TopicPartition(topic, 0): data}, version=2)
                if not answer.error_code:
                    stored[name] = answer.base_offset
            assert set(STORED_BY_ALL[codec]) <= set(stored)
            found = read_each(broker, topic, stored)
            broken = {name for name, (_, error) in found.items() if error is not None}
            assert broken <= set(BREAK_THE_FORMAT), found
            assert not broken or version_tuple(version) < (0, 11)
            assert {name: values for name, (values, _) in found.items()} == {
                name: [] if name in broken else VALUES for name in stored
            }
            bootstrap = {"bootstrap.servers": f"127.0.0.1:{cluster.port(0)}", "on.message.error": "skip"}
            with read_topic(None, topic, properties=bootstrap) as reader:
                assert [message.value for message in reader] == VALUES * (len(stored) - len(broken))


def read_each(broker: SimpleConsumer, topic: str, stored: dict[str, int]) -> dict[str, tuple[list[bytes], str | None]]:
    """Return, for each stream, its values, as rows and as columns alike, or what is wrong with it."""
    found: dict[str, tuple[list[bytes], str | None]] = {}
    for name, offset in stored.items():
        end = offset + len(VALUES)
        try:
            rows = [message.value for message in broker.fetch(topic, 0, offset) if message.offset < end]
            batches = broker.fetch_columns(topic, 0, offset, columns=["offset", "value"])
            columns = [row["value"] for batch in batches for row in batch.to_pylist() if row["offset"] < end]
        except CorruptMessage as error:
            found[name] = [], str(error)
            continue
        assert rows == columns
        found[name] = rows, None  # type: ignore[assignment]
    return found
