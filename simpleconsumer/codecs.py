"""Compression of message sets: gzip, snappy (xerial stream or one bare block), lz4 (with Kafka's two header checksums),
and zstd, which record batches alone have.

Each decompression takes `max_output_bytes` and raises an error before it allocates more (lz4: at most one block of
4 MiB later), because a wrapper of a few kilobytes can claim gigabytes. A stream that does not decompress completely is
an error: a truncated stream is never returned as a shorter one.

Source: kafka.message.CompressionFactory, KafkaLZ4BlockInputStream, KafkaLZ4BlockOutputStream (0.8.2.2, 0.10.0.1);
snappy-java 1.0.4.1 to 1.1.1.7; RFC 1952; the LZ4 frame format 1.5; RFC 8878.
"""

from __future__ import annotations

from mmap import mmap
from struct import Struct
from typing import Final, cast

import cramjam
import lz4.block
import snappy
from isal import isal_zlib

from simpleconsumer.errors import DecodeError, LimitExceeded
from simpleconsumer.types import Buffer

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4
CODECS: Final = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4}
"""Codec number in the message attributes, by name."""
BATCH_CODECS: Final = {**CODECS, "zstd": ZSTD}
"""The same of record batches, which have one more."""

_UINT32 = Struct(">I")
_UINT32_LE = Struct("<I")

# isal's stub declares its exception class as an instance.
_IsalError = cast(type[Exception], isal_zlib.error)
_GZIP_WINDOW = 31  # zlib's notation for: gzip header and trailer, 32 KiB window
# Java writes one member. More are legal, but each costs a copy of the rest of the input: an input that consists of
# empty members would take time that grows with the square of its length.
_MAX_GZIP_MEMBERS = 1024

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024
# The highest ratio of a snappy block: a copy element of 3 bytes that yields 64.
_SNAPPY_BEST_RATIO = 22

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_BLOCK_BYTES = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_LZ4_STORED = 1 << 31
_LZ4_WINDOW_BYTES = 1 << 16
# Version 1, independent blocks, no checksums, no content size; blocks of 64 KiB: all that Kafka's reader accepts.
_LZ4_DESCRIPTOR = b"\x60\x40"
_LZ4_CHECKSUM = b"\x82"
# Up to 0.9 Kafka hashes the magic too, when it writes and when it checks; 0.10 keeps that byte for magic 0 messages.
_LZ4_LEGACY_CHECKSUM = b"\x1a"

# How much more room is tried when the output does not fit.
_ZSTD_RATIO = 32
_ZSTD_LEAST_ROOM = 1 << 16


def decompress(codec: int, data: Buffer, max_output_bytes: int) -> bytes:
    """Return the decompressed value of a wrapper.

    Args:
        codec: GZIP, SNAPPY, LZ4 or ZSTD.
        max_output_bytes: Most bytes of output.

    Raises:
        LimitExceeded: The output is larger.
        DecodeError: The input is corrupt or truncated, or bytes follow behind its end; or the codec is unknown.
    """
    if codec == GZIP:
        return _gunzip(data, max_output_bytes)
    if codec == SNAPPY:
        return _unsnappy(data, max_output_bytes)
    if codec == LZ4:
        return _unlz4(data, max_output_bytes)
    if codec == ZSTD:
        return _unzstd(data, max_output_bytes)
    raise DecodeError(f"codec {codec} is not defined")


def compress(codec: int, data: bytes, *, legacy_lz4_checksum: bool = False) -> bytes:
    """Return the compressed bytes as Kafka's Java producer frames them.

    Args:
        codec: GZIP, SNAPPY (as a xerial stream), LZ4 or ZSTD.
        legacy_lz4_checksum: Write the header checksum of Kafka 0.8.2 and 0.9, which magic 0 messages need.
    """
    if codec == GZIP:
        return isal_zlib.compress(data, isal_zlib.ISAL_DEFAULT_COMPRESSION, _GZIP_WINDOW)
    if codec == SNAPPY:
        return _xerial(data)
    if codec == LZ4:
        return _lz4_frame(data, _LZ4_LEGACY_CHECKSUM if legacy_lz4_checksum else _LZ4_CHECKSUM)
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data))
    raise ValueError(f"codec {codec} does not compress")


def _refuse(codec: str, max_output_bytes: int) -> LimitExceeded:
    return LimitExceeded(f"{codec}: inflates to more than {max_output_bytes} bytes")


def _gunzip(data: Buffer, max_output_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    rest: Buffer = data
    for _ in range(_MAX_GZIP_MEMBERS):
        member = isal_zlib.decompressobj(_GZIP_WINDOW)
        try:
            # One byte more than allowed distinguishes "just fits" from "too large"; 0 would mean no limit.
            part = member.decompress(rest, max_output_bytes - size + 1)
        except _IsalError as error:
            raise DecodeError(f"gzip: {error}") from error
        parts.append(part)
        size += len(part)
        if size > max_output_bytes:
            raise _refuse("gzip", max_output_bytes)
        if not member.eof:
            raise DecodeError(f"gzip: truncated after {size} bytes of output")
        rest = member.unused_data
        if not rest:
            return b"".join(parts)
    raise DecodeError(f"gzip: more than {_MAX_GZIP_MEMBERS} members")


def _unsnappy(data: Buffer, max_output_bytes: int) -> bytes:
    if bytes(data[:8]) != _XERIAL_MAGIC or len(data) < len(_XERIAL_HEADER):
        return _snappy_block(data, 0, max_output_bytes)
    compatible = _UINT32.unpack_from(data, 12)[0]
    if compatible > 1:
        raise DecodeError(f"snappy: the stream needs a reader of version {compatible}")
    parts: list[bytes] = []
    size = 0
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if position + 4 > len(data):
            raise DecodeError(f"snappy: truncated in the block length at byte {position}")
        start = position + 4
        position = start + _UINT32.unpack_from(data, position)[0]
        if position > len(data):
            raise DecodeError(f"snappy: the block at byte {start} ends {position - len(data)} bytes behind the end")
        part = _snappy_block(data[start:position], size, max_output_bytes)
        size += len(part)
        parts.append(part)
    return b"".join(parts)


def _snappy_block(block: Buffer, size_before: int, max_output_bytes: int) -> bytes:
    size = _snappy_size(block)
    if size_before + size > max_output_bytes:
        raise _refuse("snappy", max_output_bytes)
    if size > len(block) * _SNAPPY_BEST_RATIO:
        raise DecodeError(f"snappy: {len(block)} bytes cannot hold the {size} they claim")
    try:
        part: bytes = snappy.decompress(block)
    except snappy.UncompressError as error:
        raise DecodeError(f"snappy: corrupt block of {len(block)} bytes") from error
    return part


def _snappy_size(block: Buffer) -> int:
    """Return the inflated size that a snappy block claims: its leading varint of at most 5 bytes."""
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size
    raise DecodeError("snappy: the block does not start with its length")


def _xerial(data: bytes) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = snappy.compress(data[start : start + _XERIAL_BLOCK_BYTES])
        parts += (_UINT32.pack(len(block)), block)
    return b"".join(parts)


def _unlz4(data: Buffer, max_output_bytes: int) -> bytes:
    position, block_bytes, linked, block_tail, frame_tail = _lz4_header(data)
    output = bytearray()
    while True:
        if position + 4 > len(data):
            raise DecodeError(f"lz4: truncated at byte {position}, before the end mark")
        field = _UINT32_LE.unpack_from(data, position)[0]
        position += 4
        if field == 0:
            break
        size = field & ~_LZ4_STORED
        end = position + size
        if size > block_bytes or end + block_tail > len(data):
            raise DecodeError(f"lz4: block of {size} bytes at byte {position}, {len(data) - position} are left")
        block = data[position:end]
        output += block if field & _LZ4_STORED else _lz4_block(block, block_bytes, output if linked else b"")
        if len(output) > max_output_bytes:
            raise _refuse("lz4", max_output_bytes)
        position = end + block_tail
    if position + frame_tail != len(data):
        raise DecodeError(f"lz4: the frame ends at byte {position + frame_tail} of {len(data)}")
    return bytes(output)


def _lz4_header(data: Buffer) -> tuple[int, int, bool, int, int]:
    """Return where the blocks start, their largest size, whether they depend on each other, and the sizes of the
    checksums behind a block and behind the frame.

    The checksums are not compared: that of the header is wrong in Kafka 0.8 and 0.9, and the CRC of the message covers
    every byte.
    """
    if bytes(data[:4]) != _LZ4_MAGIC or len(data) < 7:
        raise DecodeError(f"lz4: no frame header in {bytes(data[:7]).hex() or 'nothing'}")
    flags, block_code = data[4], data[5] >> 4 & 7
    if flags >> 6 != 1 or flags & 1 or block_code not in _LZ4_BLOCK_BYTES:
        raise DecodeError(f"lz4: frame flags {flags:#04x}, block size code {block_code} are not supported")
    position = 15 if flags & 8 else 7
    return (
        position,
        _LZ4_BLOCK_BYTES[block_code],
        not flags & 0x20,
        4 if flags & 0x10 else 0,
        4 if flags & 4 else 0,
    )


def _lz4_block(block: Buffer, block_bytes: int, before: Buffer) -> bytes:
    try:
        part: bytes = lz4.block.decompress(block, block_bytes, dict=bytes(before[-_LZ4_WINDOW_BYTES:]))
    except lz4.block.LZ4BlockError as error:
        raise DecodeError(f"lz4: corrupt block of {len(block)} bytes") from error
    return part


def _lz4_frame(data: bytes, header_checksum: bytes) -> bytes:
    parts = [_LZ4_MAGIC, _LZ4_DESCRIPTOR, header_checksum]
    for start in range(0, len(data), _LZ4_BLOCK_BYTES[4]):
        plain = data[start : start + _LZ4_BLOCK_BYTES[4]]
        packed = lz4.block.compress(plain, store_size=False)
        if len(packed) < len(plain):
            parts += (_UINT32_LE.pack(len(packed)), packed)
        else:
            parts += (_UINT32_LE.pack(len(plain) | _LZ4_STORED), plain)
    parts.append(b"\x00\x00\x00\x00")
    return b"".join(parts)


def _unzstd(data: Buffer, max_output_bytes: int) -> bytes:
    """Inflate zstd frames into a mapping, of which only the pages that are written take memory.

    Java writes the size of the output into no frame. So the mapping is larger than most outputs, and grows if it was
    not; at the limit it ends.
    """
    room_bytes = min(max_output_bytes, len(data) * _ZSTD_RATIO + _ZSTD_LEAST_ROOM)
    while True:
        with mmap(-1, room_bytes + 1) as room:
            try:
                size = cramjam.zstd.decompress_into(data, room)
            except (cramjam.DecompressionError, OSError) as error:
                # Of the output, this one alone: all others are about the input.
                if "write whole buffer" not in str(error):
                    raise DecodeError(f"zstd: {error}") from error
                size = room_bytes + 1
            if size <= room_bytes:
                return room[:size]
        if room_bytes >= max_output_bytes:
            raise _refuse("zstd", max_output_bytes)
        room_bytes = min(max_output_bytes, room_bytes * _ZSTD_RATIO)
