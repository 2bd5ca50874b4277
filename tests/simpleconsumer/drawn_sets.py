"""Message sets of every format, drawn by seed: sound ones, and damaged ones whose checksums are right or wrong."""

from __future__ import annotations

import struct
import zlib
from random import Random

from simpleconsumer.codecs import crc32c
from simpleconsumer.kafka011.record_encode import BatchProducer, encode_record_batch
from simpleconsumer.kafka07 import requests as entries_07
from simpleconsumer.kafka08.message_encode import encode_message_set
from simpleconsumer.types import HeaderMessage, Headers, Message

FORMATS = ("0.7", "magic 0", "magic 1", "record batches", "mixed")
_CODECS = ("none", "none", "none", "gzip", "snappy", "lz4", "zstd")
_SIZES = (0, 1, 5, 63, 64, 65, 100, 100, 200, 8191, 8192, 17_000)


def drawn_set(random: Random, kind: str) -> bytes:
    """Return a sound message set of a format."""
    if kind == "0.7":
        return b"".join(_entries_07(random) for _ in range(random.randint(0, 4)))
    data = b""
    offset = random.choice((0, 0, 1, 5, 2**31, 2**40))
    for _ in range(random.randint(0, 5)):
        messages = _messages(random, offset)
        magic = {"magic 0": 0, "magic 1": 1, "record batches": 2}.get(kind, random.randint(0, 2))
        data += _encoded(random, messages, magic)
        offset = messages[-1].next_offset + random.choice((0, 0, 0, 3))
    return data


def damaged(random: Random, data: bytes, kind: str) -> bytes:
    """Return a set with some bytes changed, cut or doubled; half of the time its checksums are made right again."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 3))):
        if not changed:
            break
        at = random.randrange(len(changed))
        how = random.randrange(5)
        if how == 0:
            changed[at] ^= 1 << random.randrange(8)
        elif how == 1:
            changed[at] = random.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
        elif how == 2:
            del changed[at:]
        elif how == 3:
            del changed[at : at + random.randint(1, 12)]
        else:
            changed[at:at] = changed[at : at + random.randint(1, 30)]
    return bytes(changed) if random.randrange(2) or kind == "0.7" else with_right_checksums(bytes(changed))


def with_right_checksums(data: bytes) -> bytes:
    """Return a set whose entries of magic 0, 1 and 2 have right checksums, as far as their sizes lead."""
    changed, at = bytearray(data), 0
    while at + 18 <= len(changed):
        (size,) = struct.unpack_from(">i", changed, at + 8)
        end = at + 12 + size
        if size < 14 or end > len(changed):
            break
        if changed[at + 16] == 2 and size >= 49:
            struct.pack_into(">I", changed, at + 17, crc32c(changed[at + 21 : end]))
        else:
            struct.pack_into(">I", changed, at + 12, zlib.crc32(changed[at + 16 : end]))
        at = end
    return bytes(changed)


def with_epochs(random: Random, data: bytes) -> bytes:
    """Return a set whose batches, as far as their sizes lead, have leader epochs, which no checksum covers."""
    changed, at, epoch = bytearray(data), 0, random.choice((-1, 0, 7))
    while at + 18 <= len(changed):
        (size,) = struct.unpack_from(">i", changed, at + 8)
        if changed[at + 16] == 2:
            epoch += random.choice((0, 0, 1))
            struct.pack_into(">i", changed, at + 12, epoch)
        if size <= 0:
            break
        at += 12 + size
    return bytes(changed)


def _field(random: Random, largest: int) -> bytes | None:
    size = random.choice([None, *_SIZES])
    return None if size is None else random.randbytes(min(size, largest))


def _messages(random: Random, offset: int) -> list[Message]:
    """Return one message or many, which look alike or not, perhaps with holes between them."""
    count = random.choice((1, 1, 2, 3, 20, 20, 70, 150))
    are_alike, has_holes, has_headers = random.randrange(3) > 0, random.randrange(4) == 0, random.randrange(4) == 0
    key, value = _field(random, 100), _field(random, 300 if count > 20 else 20_000)
    time = random.choice((None, 0, 10**12, 2**62))
    found: list[Message] = []
    for number in range(count):
        if not are_alike:
            key, value = _field(random, 100), _field(random, 300)
        stamp = None if time is None else time + random.choice((0, number, 70 * number))
        fields = ("t", 0, offset, offset + 1, key, value, stamp)
        headers = _headers(random) if has_headers else ()
        found.append(HeaderMessage(*fields, headers) if headers else Message(*fields))
        offset += random.choice((1, 2, 9)) if has_holes else 1
    return found


def _headers(random: Random) -> Headers:
    count = random.choice((0, 1, 1, 2, 3, 70))
    return tuple((random.choice(("", "h", "käse", "key" * 30)), _field(random, 70)) for _ in range(count))


def _encoded(random: Random, messages: list[Message], magic: int) -> bytes:
    codec = random.choice(_CODECS)
    offsets = [message.offset for message in messages]
    if magic == 2:
        append = random.choice((None, None, None, -1, 10**12))
        producer = random.choice((None, None, BatchProducer(7, 2, 30), BatchProducer(7, 2, 30, is_transactional=True)))
        more = {} if producer is None else {"producer": producer}
        return encode_record_batch(messages, codec, offsets=offsets, log_append_time_ms=append, **more)
    if codec == "zstd":
        codec = "none"
    plain = [Message("t", 0, m.offset, m.next_offset, m.key, m.value, m.timestamp_ms) for m in messages]
    return encode_message_set(plain, codec, magic, offsets=offsets)


def _entries_07(random: Random) -> bytes:
    sizes = random.choices(_SIZES, k=random.choice((1, 2, 20, 70)))
    if random.randrange(2):
        sizes = sizes[:1] * len(sizes)
    payloads = [random.randbytes(min(size, 20_000 if len(sizes) < 3 else 300)) for size in sizes]
    plain = b"".join(entries_07.encode_entry(each, random.choice((1, 1, 0))) for each in payloads)
    if random.randrange(2):
        return plain
    inside = plain + (entries_07.encode_wrapper(plain[: len(plain) // 2], "gzip") if random.randrange(3) == 0 else b"")
    return entries_07.encode_wrapper(inside, random.choice(("gzip", "snappy")))
