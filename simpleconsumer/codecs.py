"""Compression of message sets, and CRC-32C, the checksum of record batches. Pure.

Compression of message sets: gzip, snappy (xerial stream or one bare block), lz4 (with Kafka's two header checksums),
and zstd, which record batches alone have.

Each decompression takes `max_output_bytes` and raises an error before it allocates more, because a wrapper of a few
kilobytes can claim gigabytes. Its time grows with the bytes of input and output, also where the input has millions of
empty blocks. A stream that does not decompress completely is an error: a truncated stream is never returned as a
shorter one.

A broker stores what Java's readers take, so what these take is read here:

- gzip: any number of members; bytes after the last one that start no further member
- snappy: a stream whatever versions its header states (other writers have them in little endian), and further streams
  after it; up to 3 bytes after the last block
- lz4: bytes after the frame, whose checksum of the content is not compared; an empty block ends it as the end mark does
- zstd: several frames, and skippable ones; bytes after the last whole frame

Source: kafka.message.CompressionFactory, KafkaLZ4BlockInputStream, KafkaLZ4BlockOutputStream (0.8.2.2, 0.10.0.1);
Lz4BlockInputStream (4.3); java.util.zip.GZIPInputStream (OpenJDK 17); SnappyInputStream of snappy-java 1.0.4.1 to
1.1.10; ZstdInputStreamNoFinalizer of zstd-jni 1.5.6; RFC 1952; the LZ4 frame format 1.5; RFC 8878. What brokers store:
tests/interop/test_what_brokers_store.py.

CRC-32C (Castagnoli), the checksum of record batches: by the kernel, else by `crc32c`, else by `crcmod`.

`crcmod` computes the same, forty times as slowly, and it has no wheels: without a compiler it is slower still.
"""

from __future__ import annotations

from collections.abc import Callable
from mmap import mmap
from struct import Struct
from typing import Final, cast

import cramjam
import lz4.block
import lz4.frame
import snappy
from isal import isal_zlib

from simpleconsumer import kernel
from simpleconsumer.errors import DecodeError, LimitExceeded
from simpleconsumer.types import Buffer

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4
CODECS: Final = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4}
"""Codec number in the message attributes, by name."""
MOST_RATIO: Final = 1032
"""No codec but zstd yields more bytes for one; this is gzip's."""
BATCH_CODECS: Final = {**CODECS, "zstd": ZSTD}
"""The same of record batches, which have one more."""
_UINT32 = Struct(">I")
_UINT32_LE = Struct("<I")
# isal's stub declares its exception class as an instance.
_IsalError = cast(type[Exception], isal_zlib.error)
_GZIP_WINDOW = 31  # zlib's notation for: gzip header and trailer, 32 KiB window
_GZIP_MAGIC = b"\x1f\x8b\x08"
# Java looks for a further member if more bytes follow than these: a header and a trailer without anything between.
_GZIP_LEAST_MEMBER_BYTES = 18
# Java writes one member. Each one copies the rest of the piece of input in which it ends: so pieces are small at
# first, or an input that consists of small members would take time that grows with the square of its length.
_GZIP_FIRST_PIECE_BYTES = 512
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_HEAD = _UINT32.unpack_from(_XERIAL_MAGIC)[0]
"""The magic, read as the length of a block."""
_XERIAL_BLOCK_BYTES = 32 * 1024
_EMPTY_BLOCK = b"\x00"
# The highest ratio of a snappy block: a copy element of 3 bytes that yields 64.
_SNAPPY_BEST_RATIO = 22
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_BLOCK_BYTES = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_LZ4_STORED = 1 << 31
_LZ4_END_MARK = bytes(4)
_LZ4_BEST_RATIO = 256
# Flags of a frame: its version, that blocks are independent, and which checksums and sizes there are.
_LZ4_VERSION, _LZ4_INDEPENDENT, _LZ4_BLOCK_CHECKSUM = 0x40, 0x20, 0x10
_LZ4_CONTENT_SIZE, _LZ4_CONTENT_CHECKSUM, _LZ4_DICTIONARY = 8, 4, 1
_LZ4_HEADER_CHECKSUMS = {
    flags: bytes.fromhex(checksums)
    for flags, checksums in ((0x40, "c07796df"), (0x50, "c02b6881"), (0x60, "82fb5173"), (0x70, "ad843372"))
}
"""Of frames with these flags, for each size of blocks."""
# Version 1, independent blocks, no checksums, no content size; blocks of 64 KiB: all that Kafka's reader accepts.
_LZ4_DESCRIPTOR = b"\x60\x40"
_LZ4_CHECKSUM = b"\x82"
# Up to 0.9 Kafka hashes the magic too, when it writes and when it checks; 0.10 keeps that byte for magic 0 messages.
_LZ4_LEGACY_CHECKSUM = b"\x1a"
_ZSTD_MAGIC = bytes.fromhex("28b52ffd")
_ZSTD_SKIPPABLE = bytes.fromhex("2a4d18")
_ZSTD_RAW_OR_COMPRESSED = (0, 2)
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
        DecodeError: The input is corrupt or truncated, or the codec is unknown.
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
    size = position = 0
    while not position or _is_member(data, position):
        member = isal_zlib.decompressobj(_GZIP_WINDOW)
        piece_bytes = _GZIP_FIRST_PIECE_BYTES if position else len(data)  # one member is the rule
        while not member.eof:
            piece = data[position : position + piece_bytes]
            try:
                # One byte more than allowed distinguishes "just fits" from "too large"; 0 would mean no limit.
                part = member.decompress(piece, max_output_bytes - size + 1)
            except _IsalError as error:
                raise DecodeError(f"gzip: {error}") from error
            parts.append(part)
            size += len(part)
            if size > max_output_bytes:
                raise _refuse("gzip", max_output_bytes)
            if not piece and not member.eof:
                raise DecodeError(f"gzip: truncated after {size} bytes of output")
            position += len(piece) - len(member.unused_data)
            piece_bytes *= 2
    return b"".join(parts)


def _is_member(data: Buffer, position: int) -> bool:
    """Return whether a further member starts at a position; if not, the rest is ignored."""
    return len(data) - position > _GZIP_LEAST_MEMBER_BYTES and bytes(data[position : position + 3]) == _GZIP_MAGIC


def _unsnappy(data: Buffer, max_output_bytes: int) -> bytes:
    if bytes(data[:8]) != _XERIAL_MAGIC or len(data) < len(_XERIAL_HEADER):
        return _snappy_block(data, 0, max_output_bytes)
    parts: list[bytes] = []
    size = 0
    position, end = len(_XERIAL_HEADER), len(data)
    while position + 4 <= end:
        start = position + 4
        block_bytes = _UINT32.unpack_from(data, position)[0]
        if block_bytes == _XERIAL_HEAD:
            position = _behind_xerial_header(data, position)
            continue
        position = start + block_bytes
        if position > end:
            raise DecodeError(f"snappy: the block at byte {start} ends {position - end} bytes after the end")
        block = data[start:position]
        if block == _EMPTY_BLOCK:
            continue
        part = _snappy_block(block, size, max_output_bytes)
        size += len(part)
        parts.append(part)
    return b"".join(parts)


def _behind_xerial_header(data: Buffer, position: int) -> int:
    """Return where the blocks of a further stream start, whose header is at a position; the end if it is no header."""
    end = position + len(_XERIAL_HEADER)
    if end > len(data):
        raise DecodeError(f"snappy: the header of a further stream at byte {position} is cut off")
    return end if bytes(data[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC else len(data)


def _snappy_block(block: Buffer, size_before: int, max_output_bytes: int) -> bytes:
    size = _snappy_size(block)
    if size_before + size > max_output_bytes:
        raise _refuse("snappy", max_output_bytes)
    if size > len(block) * _SNAPPY_BEST_RATIO:
        raise DecodeError(f"snappy: {len(block)} bytes cannot hold the {size} they claim")
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise DecodeError(f"snappy: corrupt block of {len(block)} bytes") from error


def _snappy_size(block: Buffer) -> int:
    """Return the inflated size that a snappy block claims: its leading varint of at most 5 bytes."""
    if len(block) and block[0] < 0x80:
        return block[0]
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
    header, start, end = _lz4_bounds(data)
    frame = lz4.frame.LZ4FrameDecompressor()
    most_bytes = min(max_output_bytes, len(data) * _LZ4_BEST_RATIO)
    try:
        output: bytes = frame.decompress(b"".join((header, data[start:end], _LZ4_END_MARK)), most_bytes + 1)
    except RuntimeError as error:
        raise DecodeError(f"lz4: a block is corrupt ({str(error).rpartition('ERROR_')[2]})") from error
    if len(output) > max_output_bytes:
        raise _refuse("lz4", max_output_bytes)
    return output


def _lz4_bounds(data: Buffer) -> tuple[bytes, int, int]:
    """Return a header that marks a frame but says nothing about its content, and where its blocks start and end.

    The checksum of the header is not compared, as it is wrong in Kafka 0.8 and 0.9, nor is that of the content, which
    Java does not compare. The CRC of the message covers every byte.
    """
    if bytes(data[:4]) != _LZ4_MAGIC or len(data) < 7:
        raise DecodeError(f"lz4: no frame header in {bytes(data[:7]).hex() or 'nothing'}")
    flags, block_code = data[4], data[5] >> 4 & 7
    if flags >> 6 != 1 or flags & _LZ4_DICTIONARY or block_code not in _LZ4_BLOCK_BYTES:
        raise DecodeError(f"lz4: frame flags {flags:#04x}, block size code {block_code} are not supported")
    start = 15 if flags & _LZ4_CONTENT_SIZE else 7
    end = _lz4_end(data, start, _LZ4_BLOCK_BYTES[block_code], 4 if flags & _LZ4_BLOCK_CHECKSUM else 0)
    frame_end = end + len(_LZ4_END_MARK) + (4 if flags & _LZ4_CONTENT_CHECKSUM else 0)
    if frame_end > len(data):
        raise DecodeError(f"lz4: the frame ends at byte {frame_end} of {len(data)}")
    flags &= _LZ4_VERSION | _LZ4_INDEPENDENT | _LZ4_BLOCK_CHECKSUM
    checksum = _LZ4_HEADER_CHECKSUMS[flags][block_code - min(_LZ4_BLOCK_BYTES)]
    return _LZ4_MAGIC + bytes((flags, block_code << 4, checksum)), start, end


def _lz4_end(data: Buffer, position: int, most_block_bytes: int, checksum_bytes: int) -> int:
    """Return where the end mark of a frame is, or an empty block, which Java takes for one."""
    field_at, length = _UINT32_LE.unpack_from, len(data)
    while position + 4 <= length:
        size = field_at(data, position)[0] & ~_LZ4_STORED
        if not size:
            return position
        start = position + 4
        position = start + size + checksum_bytes
        if size > most_block_bytes or position > length:
            raise DecodeError(f"lz4: block of {size} bytes at byte {start}, {length - start} are left")
    raise DecodeError(f"lz4: truncated at byte {position}, before the end mark")


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
    try:
        return _unzstd_frames(data, max_output_bytes)
    except DecodeError:
        end = _zstd_end(data)
        if not 0 < end < len(data):
            raise
        return _unzstd_frames(data[:end], max_output_bytes)


def _unzstd_frames(data: Buffer, max_output_bytes: int) -> bytes:
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


def _zstd_end(data: Buffer) -> int:
    """Return where the last whole frame ends; where there is no frame, 0."""
    end = 0
    while True:
        try:
            end = _zstd_frame_end(data, end)
        except IndexError:
            return end


def _zstd_frame_end(data: Buffer, position: int) -> int:
    """Return where the frame at a position ends, by the lengths in it; IndexError if no whole one is there."""
    if bytes(data[position + 1 : position + 4]) == _ZSTD_SKIPPABLE:
        end = position + 8 + int.from_bytes(data[position + 4 : position + 8], "little")
    elif bytes(data[position : position + 4]) == _ZSTD_MAGIC:
        descriptor = data[position + 4]
        size_code, is_single, has_checksum, dictionary = (
            descriptor >> 6, descriptor >> 5 & 1, descriptor >> 2 & 1, descriptor & 3
        )  # fmt: skip
        size_bytes = (is_single, 2, 4, 8)[size_code]
        end = position + 5 + (1 - is_single) + (0, 1, 2, 4)[dictionary] + size_bytes
        is_last = 0
        while not is_last:
            field = data[end] | data[end + 1] << 8 | data[end + 2] << 16
            is_last = field & 1
            end += 3 + (field >> 3 if field >> 1 & 3 in _ZSTD_RAW_OR_COMPRESSED else 1)
        end += 4 * has_checksum
    else:
        raise IndexError
    if end > len(data):
        raise IndexError
    return end


def _by_crcmod() -> Callable[[Buffer], int]:
    import crcmod.predefined

    checksum: Callable[[Buffer], int] = crcmod.predefined.mkPredefinedCrcFun("crc-32c")
    return checksum


def _fastest() -> Callable[[Buffer], int]:
    if kernel.compiled is not None:
        compiled: Callable[[Buffer], int] = kernel.compiled.crc32c
        return compiled
    try:
        from crc32c import crc32c as by_instruction
    except ImportError:
        return _by_crcmod()
    checksum: Callable[[Buffer], int] = by_instruction
    return checksum


crc32c: Final = _fastest()
"""Returns the checksum of a buffer."""
