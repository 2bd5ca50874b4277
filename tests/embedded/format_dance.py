"""Produce and Fetch in every version, with messages of every magic, in an order that shows what a broker converts.

`format_dance` can be sent to any broker: what it returns depends on the times of the messages alone, so two brokers can
be compared by it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

from broker_wire import Wire, one, request

from simpleconsumer import codecs
from simpleconsumer.kafka011.batch_head import CODEC_MASK
from simpleconsumer.kafka011.record_encode import BatchProducer, encode_record_batch
from simpleconsumer.types import HeaderMessage

PRODUCE, FETCH = 0, 1
NOBODY = BatchProducer()
ROWS = ((None, b"one"), (b"key", b"two"), (b"gone", None))


def message(magic: int, offset: int, key: bytes | None, value: bytes | None, stamp: int, codec: int = 0) -> bytes:
    """One entry of magic 0 or 1."""
    body = struct.pack(">bb", magic, codec) + (struct.pack(">q", stamp) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def old_set(magic: int, codec: str, stamp: int) -> bytes:
    """A message set as a producer sends it."""
    plain = b"".join(message(magic, n, *row, stamp + n) for n, row in enumerate(ROWS))
    if codec == "none":
        return plain
    number = codecs.CODECS[codec]
    value = codecs.compress(number, plain, legacy_lz4_checksum=magic == 0)
    return message(magic, len(ROWS) - 1, None, value, stamp + len(ROWS) - 1, number)


def batch(codec: str, stamp: int, *headers: tuple[str, bytes], producer: BatchProducer = NOBODY) -> bytes:
    """A record batch."""
    rows = [HeaderMessage("", 0, n, n + 1, *row, stamp + n, headers) for n, row in enumerate(ROWS)]
    return encode_record_batch(rows, codec, producer=producer)


def produce(wire: Wire, topic: str, version: int, data: bytes) -> str:
    """The answer."""
    head = (b"\xff\xff" if version >= 3 else b"") + struct.pack(">hi", 1, 5000)
    body = head + one(topic, 0, struct.pack(">i", len(data)) + data)
    return wire.ask(request(PRODUCE, body, version=version))[8:].hex()


def fetch(wire: Wire, topic: str, version: int, offset: int, max_bytes: int, partition: int = 0) -> tuple[bytes, bytes]:
    """The head of the answer and its entries."""
    body = struct.pack(">iii", -1, 100, 1)
    if version >= 3:
        body += struct.pack(">i", 1 << 20)
    if version >= 4:
        body += b"\0"
    where = struct.pack(">q", offset) + (struct.pack(">q", -1) if version >= 5 else b"")
    body += one(topic, partition, where + struct.pack(">i", max_bytes))
    answer = wire.ask(request(FETCH, body, version=version))[8:]
    at = (4 if version >= 1 else 0) + 4 + 2 + len(topic) + 4 + 4 + 2 + 8 + (12 if version >= 4 else 0) + 4
    at += 8 if version >= 5 else 0
    assert max(struct.unpack_from(">i", answer, at - 4)[0], 0) == len(answer) - at
    return answer[:at], answer[at:]


def format_dance(wire: Wire, topic: str, versions: dict[int, range], codec: str, stamp: int) -> dict[str, object]:
    """What was answered, by what was asked; the topic must be new.

    Args:
        versions: those that are served of Produce and Fetch.
        codec: none, gzip, snappy, lz4 or zstd.
    """
    seen: dict[str, object] = {}
    for version in versions[PRODUCE]:
        for magic in (0, 1):
            if codec != "zstd" and magic <= version // 2 and version < 3:
                seen[f"produced {magic} with {version}"] = produce(wire, topic, version, old_set(magic, codec, stamp))
    if codec == "none" and 2 in versions[PRODUCE]:
        mixed = message(0, 0, None, b"old", 0) + message(1, 1, None, b"newer", stamp)
        seen["produced both with 2"] = produce(wire, topic, 2, mixed)
    for version in (3, 7) if codec == "zstd" else (3,):
        if version in versions[PRODUCE]:
            seen[f"produced batches with {version}"] = produce(wire, topic, version, batch(codec, stamp))
    if 3 in versions[PRODUCE] and codec == "none":
        numbered = batch(codec, stamp - 5000, producer=BatchProducer(4711, 0, 0))
        seen["produced twice"] = [produce(wire, topic, 3, numbered) for _ in range(2)]
    seen |= _fetched(wire, topic, versions[FETCH], codec)
    if 3 in versions[PRODUCE] and codec != "zstd":
        seen["produced headers"] = produce(wire, topic, 3, batch(codec, stamp, ("h", b"v")))
        seen |= {f"headers {name}": answer for name, answer in _fetched(wire, topic, versions[FETCH], codec).items()}
    return seen


def _fetched(wire: Wire, topic: str, versions: range, codec: str) -> dict[str, object]:
    seen: dict[str, object] = {}
    for version in versions[: 6 - versions.start]:
        for offset, max_bytes in ((0, 1 << 20), (1, 1 << 20), (7, 1 << 20), (0, 30), (0, 100), (10_000, 100)):
            head, data = fetch(wire, topic, version, offset, max_bytes)
            name = f"fetched with {version} from {offset}, {max_bytes} bytes"
            if codec == "none":
                seen[name] = (head.hex(), data.hex())
            elif max_bytes > 100:  # of what is compressed the size depends on the library
                seen[name] = (head[: -4 if data else None].hex(), [each for each in entries(data) if each[0] < 12])
        head, _ = fetch(wire, topic, version, 0, 100, partition=7)
        seen[f"fetched with {version} where nothing is"] = head.hex()
    return seen


def entries(data: bytes) -> Iterator[tuple[Any, ...]]:
    """Offset, magic and attributes of each whole entry, and what is in it without compression."""
    at = 0
    while at + 12 <= len(data):
        offset, size = struct.unpack_from(">qi", data, at)
        entry = data[at : at + 12 + size]
        at += 12 + size
        if offset < 0 or at > len(data):
            return
        magic = entry[16]
        if magic == 2:
            attributes = struct.unpack_from(">h", entry, 21)[0]
            inside, head = entry[61:], entry[23:57]
        else:
            attributes, head = entry[17], entry[18:26] if magic else b""
            inside = entry[26 + 8 * magic :]  # behind a null key and the length of the value
        if attributes & CODEC_MASK:
            inside = codecs.decompress(attributes & CODEC_MASK, inside, 1 << 20)
        yield offset, magic, attributes, head.hex(), inside.hex()
