"""Kafka's primitive types: values, the next offset, and where they do not fit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simpleconsumer.errors import BufferUnderflow, DecodeError
from simpleconsumer.primitives import (
    encode_array,
    encode_bytes,
    encode_int16,
    encode_int32,
    encode_int64,
    encode_string,
    read_array,
    read_bytes,
    read_int8,
    read_int16,
    read_int32,
    read_int64,
    read_nullable_string,
    read_string,
    require_end,
)

Reader = Callable[[bytes | memoryview, int], tuple[int, int]]
INTEGERS = [(read_int8, 1), (read_int16, 2), (read_int32, 4), (read_int64, 8)]


@pytest.mark.parametrize(("read", "size"), INTEGERS)
def test_integers_are_big_endian_and_signed(read: Reader, size: int) -> None:
    data = b"pre" + (-2).to_bytes(size, signed=True) + b"post"
    assert read(data, 3) == (-2, 3 + size)
    assert read(memoryview(data), 3) == (-2, 3 + size)


@pytest.mark.parametrize(("read", "size"), INTEGERS)
def test_an_integer_that_ends_behind_the_buffer_says_where(read: Reader, size: int) -> None:
    with pytest.raises(BufferUnderflow, match=f"int{size * 8} at byte 1 needs {size} bytes, {size - 1} are left"):
        read(bytes(size), 1)
    with pytest.raises(BufferUnderflow):
        read(bytes(size), 99)


@given(st.text(max_size=100), st.binary(max_size=100), st.integers(-(2**31), 2**31 - 1))
def test_what_is_encoded_reads_as_itself(text: str, data: bytes, number: int) -> None:
    buffer = encode_string(text) + encode_bytes(data) + encode_int32(number) + encode_int64(number)
    read_text, offset = read_string(buffer, 0)
    read_data, offset = read_bytes(buffer, offset)
    assert (read_text, bytes(read_data)) == (text, data)
    assert read_int32(buffer, offset)[0] == read_int64(buffer, offset + 4)[0] == number
    require_end(buffer, offset + 12, "all of it")


def test_null_is_a_string_only_where_it_may_be_one() -> None:
    assert read_nullable_string(b"\xff\xff", 0) == (None, 2)
    assert read_nullable_string(b"\0\1a", 0) == ("a", 3)
    for data in (b"\xff\xff", b"\xff\xfe", b"\x80\x00"):
        with pytest.raises(DecodeError, match="string at byte 0 has length -"):
            read_string(data, 0)


def test_strings_must_be_whole_and_utf_8() -> None:
    with pytest.raises(BufferUnderflow, match="string at byte 2 needs 3 bytes, 2 are left"):
        read_string(b"\0\3ab", 0)
    with pytest.raises(DecodeError, match="string at byte 0 is not UTF-8"):
        read_string(b"\0\2\xff\xff", 0)
    longest = "x" * 32767
    assert read_string(encode_string(longest), 0) == (longest, 32769)
    with pytest.raises(ValueError, match=r"^string of 32768 bytes; the limit is 32767: 'a{4}x{36}'[.]{3}$"):
        encode_string("aaaa" + "x" * 32764)


def test_bytes_are_a_view_and_must_be_whole() -> None:
    buffer = bytearray(b"\0\0\0\2ab")
    view, _ = read_bytes(buffer, 0)
    buffer[4:6] = b"cd"
    assert bytes(view) == b"cd"
    with pytest.raises(BufferUnderflow, match="bytes at byte 4 needs 3 bytes, 2 are left"):
        read_bytes(b"\0\0\0\3ab", 0)
    with pytest.raises(DecodeError, match="bytes at byte 0 have length -1"):
        read_bytes(encode_bytes(None), 0)


@pytest.mark.parametrize("count", [-1, -(2**31), 4, 2**31 - 1])
def test_a_count_that_cannot_be_is_refused_before_the_first_item(count: int) -> None:
    with pytest.raises(DecodeError, match=f"array at byte 0 says {count} items, but 6 bytes are left"):
        read_array(encode_int32(count) + bytes(6), 0, read_int16, 2)


def test_arrays_read_item_by_item() -> None:
    assert read_array(encode_array([encode_int16(5), encode_int16(-6)]) + b"x", 0, read_int16, 2) == ([5, -6], 8)
    assert read_array(encode_array([]), 0, read_int16, 2) == ([], 4)


def test_bytes_behind_the_end_are_counted() -> None:
    with pytest.raises(DecodeError, match="some answer: 2 bytes after its end at byte 3"):
        require_end(b"12345", 3, "some answer")
