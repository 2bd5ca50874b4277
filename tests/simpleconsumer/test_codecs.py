"""The codecs: Kafka's framing byte for byte, the output limit, and input that does not inflate."""

from __future__ import annotations

import gzip
import random
import struct
import time
import zlib
from collections.abc import Callable

import cramjam
import lz4.block
import lz4.frame
import pytest
import snappy
from decoding import MEBIBYTE, memory_growth_below
from hypothesis import given
from hypothesis import strategies as st

from simpleconsumer.codecs import GZIP, LZ4, SNAPPY, ZSTD, compress, decompress
from simpleconsumer.errors import DecodeError, LimitExceeded

ALL = (GZIP, SNAPPY, LZ4, ZSTD)
XERIAL_HELLO = bytes.fromhex("82534e4150505900 00000001 00000001 00000007 05 10 68656c6c6f")
TEXT = b"".join(b"line %d of a text that compresses\n" % number for number in range(10_000))


@pytest.mark.parametrize("codec", ALL)
@given(data=st.binary(max_size=200_000) | st.integers(0, 300_000).map(lambda size: TEXT[:size]))
def test_what_is_compressed_inflates_to_itself_within_exactly_its_size(codec: int, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    if data:
        with pytest.raises(LimitExceeded, match=f"inflates to more than {len(data) - 1} bytes"):
            decompress(codec, packed, len(data) - 1)


@pytest.mark.parametrize("codec", ALL)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_input_may_be_any_buffer(codec: int, kind: type) -> None:
    assert decompress(codec, kind(compress(codec, TEXT)), len(TEXT)) == TEXT


@pytest.mark.parametrize("codec", ALL)
def test_an_input_cut_anywhere_is_an_error(codec: int) -> None:
    data = bytes(range(256)) * 3
    packed = compress(codec, data)
    for length in range(len(packed)):
        # A stream of the snappy format has no end mark: behind its header and behind each block it is a whole one, and
        # Java takes a length that is cut off for the end.
        if codec == SNAPPY and 16 <= length < 20:
            continue
        with pytest.raises(DecodeError):
            decompress(codec, packed[:length], MEBIBYTE)


IGNORED = {
    GZIP: (b"\0", bytes(18), b"a text of more than 18 bytes", b"\x1f\x8b\x08" + bytes(15), b"\x1f\x8b\x07" + bytes(40)),
    SNAPPY: (b"\0", b"abc", b"\x82SNA" + bytes(12)),
    LZ4: (b"\0", b"tail", bytes(100), bytes.fromhex("04224d18604082")),
    ZSTD: (
        b"\0",
        b"tail",
        b"\x28",
        b"\x28\xb5\x2f\xfd",
        b"\x28\xb5\x2f\xfd\x20\x05\x29\0\0abc",
        b"\x50\x2a\x4d\x18\3\0\0\0xyz",
    ),
}
"""What Java does not look at when it stands behind the end."""
REFUSED = {
    GZIP: (b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + b"\xff" * 40, gzip.compress(TEXT)[:30]),
    SNAPPY: (bytes(4), b"tail", b"\xff" * 4, XERIAL_HELLO[:15]),
    LZ4: (),
    ZSTD: (),
}
"""What it takes for a further part, which is wrong."""


@pytest.mark.parametrize("codec", ALL)
def test_bytes_behind_the_end_are_ignored_where_java_ignores_them_and_else_an_error(codec: int) -> None:
    """Brokers store what Java reads; `test_what_brokers_store` of the interop tests asks them."""
    packed = compress(codec, TEXT)
    for tail in IGNORED[codec]:
        assert decompress(codec, packed + tail, len(TEXT)) == TEXT, tail
    for tail in REFUSED[codec]:
        with pytest.raises(DecodeError):
            decompress(codec, packed + tail, MEBIBYTE)


@pytest.mark.parametrize("codec", ALL)
@given(data=st.binary(max_size=2000))
def test_any_bytes_inflate_or_raise_a_decode_error(codec: int, data: bytes) -> None:
    header = {GZIP: b"\x1f\x8b\x08\0\0\0\0\0\0\xff", SNAPPY: XERIAL_HELLO[:16], LZ4: bytes.fromhex("04224d18604082")}
    header[ZSTD] = b"\x28\xb5\x2f\xfd\x00\x58"
    for attempt in (data, header[codec] + data):
        try:
            assert len(decompress(codec, attempt, 100_000)) <= 100_000
        except DecodeError as error:
            assert str(error)  # noqa: PT017 - one of two legal outcomes


@pytest.mark.parametrize("codec", ALL)
def test_a_flipped_byte_gives_some_bytes_or_a_decode_error(codec: int) -> None:
    packed = compress(codec, TEXT[:3000])
    with memory_growth_below(64 * MEBIBYTE):
        for position in range(len(packed)):
            for mask in (0xFF, 0x01, 0x80):
                damaged = bytearray(packed)
                damaged[position] ^= mask
                try:
                    assert len(decompress(codec, damaged, MEBIBYTE)) <= MEBIBYTE
                except DecodeError as error:
                    assert str(error)  # noqa: PT017 - one of two legal outcomes


def test_unknown_codecs_are_refused() -> None:
    with pytest.raises(DecodeError, match="codec 5 is not defined"):
        decompress(5, b"", 10)
    with pytest.raises(ValueError, match="codec 0 does not compress"):
        compress(0, b"")


# gzip


def test_gzip_is_what_any_gzip_reads_and_writes() -> None:
    assert gzip.decompress(compress(GZIP, TEXT)) == TEXT
    assert decompress(GZIP, gzip.compress(TEXT, 9), len(TEXT)) == TEXT


def test_gzip_members_are_joined() -> None:
    packed = gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(b"two")
    assert decompress(GZIP, packed, 7) == b"one two"
    assert decompress(GZIP, gzip.compress(b"one ") + gzip.compress(b"two"), 7) == b"one two"
    with pytest.raises(LimitExceeded):
        decompress(GZIP, packed, 6)


@given(pieces=st.lists(st.binary(max_size=3000), min_size=1, max_size=20), tail=st.sampled_from([b"", b"\0" * 25]))
def test_gzip_members_of_any_size_are_joined(pieces: list[bytes], tail: bytes) -> None:
    """Behind the first one they are read piece by piece: headers and trailers are split anywhere."""
    packed = b"".join(gzip.compress(piece, mtime=0) for piece in pieces) + tail
    assert decompress(GZIP, packed, MEBIBYTE) == b"".join(pieces)


def test_gzip_members_share_the_limit() -> None:
    first = gzip.compress(bytes(24 * MEBIBYTE), 1)
    with memory_growth_below(64 * MEBIBYTE), pytest.raises(LimitExceeded):
        decompress(GZIP, first + _gzip_zeros(), 28 * MEBIBYTE)


def test_gzip_that_is_cut_off_says_how_much_came() -> None:
    with pytest.raises(DecodeError, match="gzip: truncated after 7 bytes of output"):
        decompress(GZIP, gzip.compress(b"one two")[:-1], MEBIBYTE)


@pytest.mark.parametrize("position", [-8, -4], ids=["crc", "length"])
def test_gzip_checks_its_trailer(position: int) -> None:
    packed = bytearray(gzip.compress(TEXT))
    packed[position] ^= 1
    with pytest.raises(DecodeError, match="gzip: "):
        decompress(GZIP, packed, MEBIBYTE)


def test_gzip_without_its_header_is_refused() -> None:
    with pytest.raises(DecodeError, match="gzip: "):
        decompress(GZIP, zlib.compress(TEXT), MEBIBYTE)


# snappy


def test_snappy_writes_the_stream_of_snappy_java() -> None:
    assert compress(SNAPPY, b"hello") == XERIAL_HELLO
    packed = compress(SNAPPY, bytes(32 * 1024 + 1))
    (first,) = struct.unpack_from(">I", packed, 16)
    assert snappy.decompress(packed[20 : 20 + first]) == bytes(32 * 1024)
    assert snappy.decompress(packed[24 + first :]) == b"\0"


def test_snappy_reads_the_stream_and_one_bare_block() -> None:
    assert decompress(SNAPPY, XERIAL_HELLO, 5) == b"hello"
    assert decompress(SNAPPY, XERIAL_HELLO[20:], 5) == b"hello"
    assert decompress(SNAPPY, snappy.compress(TEXT), len(TEXT)) == TEXT


@pytest.mark.parametrize("versions", ["<1 1", ">0 0", ">2 2", ">1 7", ">4294967295 4294967295"])
def test_snappy_reads_streams_whatever_versions_their_header_states(versions: str) -> None:
    """Redpanda writes them in little endian; Java does not compare them."""
    stated = struct.pack(versions[0] + "II", *map(int, versions[1:].split()))
    assert decompress(SNAPPY, XERIAL_HELLO[:8] + stated + XERIAL_HELLO[16:], 5) == b"hello"


def test_snappy_streams_are_joined() -> None:
    little = XERIAL_HELLO[:8] + struct.pack("<II", 1, 1) + XERIAL_HELLO[16:]
    empty = XERIAL_HELLO[:16]
    assert decompress(SNAPPY, empty + XERIAL_HELLO + empty + little + empty, 10) == b"hellohello"
    with pytest.raises(LimitExceeded):
        decompress(SNAPPY, XERIAL_HELLO + XERIAL_HELLO, 9)


def test_snappy_errors_say_where_it_breaks_off() -> None:
    for cut, error in (
        (26, "the block at byte 20 ends 1 bytes after the end"),
        (42, "the header .* at byte 27 is cut off"),
    ):
        with pytest.raises(DecodeError, match=f"snappy: {error}"):
            decompress(SNAPPY, (XERIAL_HELLO + XERIAL_HELLO)[:cut], MEBIBYTE)
    with pytest.raises(DecodeError, match="snappy: corrupt block of 3 bytes"):
        decompress(SNAPPY, b"\5\xff\xff", MEBIBYTE)


def test_snappy_limits_the_sum_of_its_blocks() -> None:
    block = snappy.compress(bytes(1000))
    stream = XERIAL_HELLO[:16] + (struct.pack(">I", len(block)) + block) * 10
    assert decompress(SNAPPY, stream, 10_000) == bytes(10_000)
    with pytest.raises(LimitExceeded):
        decompress(SNAPPY, stream, 9_999)


@pytest.mark.parametrize("claim", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f", b"\x80\x80\x80\x80\x08"])
def test_snappy_that_claims_gigabytes_is_refused_before_any_memory_is_taken(claim: bytes) -> None:
    with memory_growth_below(16 * MEBIBYTE):
        for stream in (claim + b"\0" * 20, XERIAL_HELLO[:16] + b"\0\0\0\x19" + claim + b"\0" * 20):
            with pytest.raises(LimitExceeded):
                decompress(SNAPPY, stream, 64 * MEBIBYTE)
            with pytest.raises(DecodeError, match="25 bytes cannot hold"):
                decompress(SNAPPY, stream, 2**40)


def test_snappy_without_a_length_is_refused() -> None:
    for data in (b"", b"\xff", b"\xff" * 5, b"\xff" * 5 + b"\1"):
        with pytest.raises(DecodeError, match=r"^snappy: the block does not start with its length$"):
            decompress(SNAPPY, data, 10)
    with pytest.raises(DecodeError, match=r"^snappy: the block does not start with its length$"):
        decompress(SNAPPY, XERIAL_HELLO + bytes(4), 10)  # a block of no bytes


def test_the_best_that_snappy_can_do_is_within_the_ratio_that_is_believed() -> None:
    data = bytes(1 << 20)
    assert len(data) < len(snappy.compress(data)) * 22


# lz4


@pytest.mark.parametrize(("legacy", "checksum"), [(True, "1a"), (False, "82")])
def test_lz4_writes_the_header_of_kafka_with_either_checksum(legacy: bool, checksum: str) -> None:
    packed = compress(LZ4, TEXT, legacy_lz4_checksum=legacy)
    assert packed[:7].hex() == "04224d186040" + checksum
    assert packed[-4:] == b"\0\0\0\0"
    assert decompress(LZ4, packed, len(TEXT)) == TEXT


def test_lz4_with_the_right_checksum_is_what_any_lz4_reads() -> None:
    assert lz4.frame.decompress(compress(LZ4, TEXT)) == TEXT
    with pytest.raises(RuntimeError, match="Checksum"):
        lz4.frame.decompress(compress(LZ4, TEXT, legacy_lz4_checksum=True))


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("size", [True, False])
@pytest.mark.parametrize("block", [4, 5, 6, 7])
def test_lz4_reads_what_other_writers_make(linked: bool, checksums: bool, size: bool, block: int) -> None:
    packed = lz4.frame.compress(
        TEXT,
        block_linked=linked,
        content_checksum=checksums,
        block_checksum=checksums,
        store_size=size,
        block_size=block,
    )
    assert decompress(LZ4, packed, len(TEXT)) == TEXT


def test_lz4_stores_what_does_not_shrink() -> None:
    noise = random.Random(7).randbytes(500)
    packed = compress(LZ4, noise)
    assert packed[7:] == struct.pack("<I", 500 | 1 << 31) + noise + bytes(4)
    assert decompress(LZ4, packed, 500) == noise
    same = b"abcdeabcdfghijklm"
    assert len(lz4.block.compress(same, store_size=False)) == len(same)
    assert compress(LZ4, same)[7:] == struct.pack("<I", 17 | 1 << 31) + same + bytes(4)


def test_lz4_refuses_dictionaries_old_versions_and_blocks_above_the_announced_size() -> None:
    header = bytes.fromhex("04224d18604082")
    for position, value in ((0, 0x05), (4, 0x61), (4, 0x20), (5, 0x30)):
        damaged = bytearray(compress(LZ4, TEXT))
        damaged[position] = value
        with pytest.raises(DecodeError, match="lz4: "):
            decompress(LZ4, damaged, MEBIBYTE)
    too_large = header + struct.pack("<I", 65537 | 1 << 31) + bytes(65537) + b"\0" * 4
    with pytest.raises(DecodeError, match="block of 65537 bytes at byte 11, 65541 are left"):
        decompress(LZ4, too_large, MEBIBYTE)


def test_lz4_reads_a_stored_block_of_exactly_the_announced_size() -> None:
    noise = random.Random(7).randbytes(65536)
    packed = compress(LZ4, noise)
    assert packed[7:11] == struct.pack("<I", 65536 | 1 << 31)
    assert decompress(LZ4, packed, 65536) == noise


def test_lz4_blocks_refer_to_what_is_before_them_only_where_the_frame_says_so() -> None:
    stored = struct.pack("<I", 4 | 1 << 31) + b"abcd"
    referring = struct.pack("<I", 9) + bytes.fromhex("00 0400 50") + b"abcde"  # 4 bytes from 4 before, 5 as they are
    blocks = stored + referring + bytes(4)
    assert decompress(LZ4, bytes.fromhex("04224d18404082") + blocks, 13) == b"abcdabcdabcde"
    for alone in (blocks, referring + bytes(4)):
        with pytest.raises(DecodeError, match="lz4: a block is corrupt"):
            decompress(LZ4, bytes.fromhex("04224d18604082") + alone, MEBIBYTE)


def test_lz4_errors_say_where_it_breaks_off() -> None:
    packed = lz4.frame.compress(bytes(100), block_checksum=True, content_checksum=True, store_size=False)
    size = len(packed)
    for cut, error in (
        (size - 12, "block of [0-9]+ bytes at byte 11, "),  # within the checksum of the block
        (size - 7, f"truncated at byte {size - 8}, before the end mark"),
        (size - 8, f"truncated at byte {size - 8}, before the end mark"),
        (size - 1, f"the frame ends at byte {size} of {size - 1}"),
        (7, "truncated at byte 7, before the end mark"),
        (6, "no frame header in 04224d18...."),
        (0, "no frame header in nothing"),
    ):
        with pytest.raises(DecodeError, match=f"lz4: {error}"):
            decompress(LZ4, packed[:cut], MEBIBYTE)
    with pytest.raises(DecodeError, match=r"no frame header in 05224d18604082$"):
        decompress(LZ4, bytes.fromhex("05224d18604082ff"), MEBIBYTE)


@pytest.mark.parametrize("tail", [b"", bytes(4), struct.pack("<I", 5) + b"\x50after", b"\xff" * 40])
def test_an_empty_block_ends_an_lz4_frame_as_it_does_in_java(tail: bytes) -> None:
    stored, empty = struct.pack("<I", 5 | 1 << 31) + b"hello", struct.pack("<I", 1 << 31)
    assert decompress(LZ4, bytes.fromhex("04224d18604082") + stored + empty + tail, 5) == b"hello"


@pytest.mark.parametrize("header", ["70 73", "60 51", "50 fb", "40 00"], ids=["4 MiB", "1 MiB", "256 KiB", "64 KiB"])
@pytest.mark.parametrize("flags", [0x40, 0x60])
def test_lz4_checks_the_checksums_of_blocks_and_no_others(header: str, flags: int) -> None:
    size_code, checksum = bytes.fromhex(header)
    packed = lz4.frame.compress(TEXT, block_size=size_code >> 4, block_linked=not flags & 0x20, block_checksum=True,
                                content_checksum=True, store_size=True)  # fmt: skip
    damaged = bytearray(packed)
    damaged[14] = checksum  # that of the header
    damaged[-4:] = b"none"  # that of the content
    assert decompress(LZ4, damaged, len(TEXT)) == TEXT
    damaged[-12] ^= 1  # that of the last block
    with pytest.raises(DecodeError, match="lz4: a block is corrupt"):
        decompress(LZ4, damaged, len(TEXT))


# bombs


_ONE_BYTE_AN_LZ4_BLOCK = struct.pack("<I", 2) + b"\x10x"
_SMALL_PARTS: dict[str, tuple[int, bytes, bytes, bytes]] = {
    "gzip members": (GZIP, b"", gzip.compress(b"", mtime=0), b""),
    "gzip members of a byte": (GZIP, b"", gzip.compress(b"x", mtime=0), b""),
    "snappy blocks": (SNAPPY, XERIAL_HELLO[:16], struct.pack(">I", 1) + b"\0", b""),
    "snappy blocks of a byte": (SNAPPY, XERIAL_HELLO[:16], struct.pack(">I", 3) + b"\1\0x", b""),
    "snappy streams": (SNAPPY, XERIAL_HELLO[:16], XERIAL_HELLO[:16], b""),
    "lz4 blocks of a byte": (LZ4, bytes.fromhex("04224d18607073"), _ONE_BYTE_AN_LZ4_BLOCK, bytes(4)),
    "lz4 blocks that refer to each other": (LZ4, bytes.fromhex("04224d184070df"), _ONE_BYTE_AN_LZ4_BLOCK, bytes(4)),
    "zstd frames": (ZSTD, b"", compress(ZSTD, b""), b""),
    "zstd frames, the last one cut off": (ZSTD, b"", compress(ZSTD, b""), b"\x28"),
    "zstd frames that are skipped": (ZSTD, b"", b"\x50\x2a\x4d\x18" + bytes(4), compress(ZSTD, b"")),
}


@pytest.mark.parametrize("kind", _SMALL_PARTS)
def test_time_grows_with_the_bytes_and_not_with_their_square(kind: str) -> None:
    codec, head, part, end = _SMALL_PARTS[kind]
    packed = head + part * (MEBIBYTE // len(part)) + end
    started = time.process_time()
    with memory_growth_below(64 * MEBIBYTE):
        assert len(decompress(codec, packed, MEBIBYTE)) <= MEBIBYTE
    assert time.process_time() - started < 2


@pytest.mark.parametrize("codec", ALL)
def test_a_bomb_is_refused_before_it_has_gone_off(codec: int) -> None:
    bomb = _BOMBS[codec]()
    with memory_growth_below(24 * MEBIBYTE), pytest.raises(LimitExceeded):
        decompress(codec, bomb, 8 * MEBIBYTE)


def _gzip_zeros() -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return b"".join([*(packer.compress(bytes(MEBIBYTE)) for _ in range(256)), packer.flush()])


def _length_prefixed(block: bytes) -> bytes:
    return struct.pack(">I", len(block)) + block


def _lz4_zeros() -> bytes:
    block: bytes = lz4.block.compress(bytes(65536), store_size=False)
    return struct.pack("<I", len(block)) + block


_BOMBS: dict[int, Callable[[], bytes]] = {
    GZIP: _gzip_zeros,
    SNAPPY: lambda: XERIAL_HELLO[:16] + _length_prefixed(snappy.compress(bytes(65536))) * 4096,
    LZ4: lambda: bytes.fromhex("04224d18604082") + _lz4_zeros() * 4096 + bytes(4),
    ZSTD: lambda: compress(ZSTD, bytes(MEBIBYTE)) * 256,
}


# zstd


def test_zstd_of_several_frames_and_of_frames_that_say_no_size_inflates() -> None:
    streamed = cramjam.zstd.Compressor()
    streamed.compress(TEXT)
    frames = bytes(streamed.finish()) + compress(ZSTD, TEXT)
    assert decompress(ZSTD, frames, 2 * len(TEXT)) == 2 * TEXT


def test_a_zstd_frame_that_claims_a_window_of_gigabytes_is_refused() -> None:
    largest_window = b"\x28\xb5\x2f\xfd\x00\xf8" + b"\x01\x00\x00"
    with memory_growth_below(8 * MEBIBYTE), pytest.raises(DecodeError, match="zstd: "):
        decompress(ZSTD, largest_window, 1 << 40)
