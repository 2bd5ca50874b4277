"""Format strings of `zkconsumer consume -f`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simpleconsumer.types import HeaderMessage, Message
from zkconsumer.cli.messages.message_lines import message_format

BYTES = st.none() | st.binary(max_size=20)


def line(text: str, key: bytes | None = b"k", value: bytes | None = b"va", time_ms: int | None = 1000) -> bytes:
    return message_format(text)(Message("clicks", 3, 17, 18, key, value, time_ms))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"%t %p %o %k %v\n", b"clicks 3 17 k va\n"), ("%s", b"va"), ("%S,%K", b"2,1"), ("%T", b"1000"),
        (r"%R", b"\0\0\0\2"), ("100%%", b"100%"), (r"a\tb\r\n\\\0\x41\xff\x7", b"a\tb\r\n\\\0A\xff\x07"),
        (r"\x4142", b"A42"), ("", b""), ("no field", b"no field"), ("é%k", "ék".encode()), ("%t%%t", b"clicks%t"),
    ],
)  # fmt: skip
def test_fields_and_escapes(text: str, expected: bytes) -> None:
    assert line(text) == expected


def test_null_is_told_from_empty() -> None:
    assert line("%k|%v|%K|%S|%R|%T", None, None, None) == b"||-1|-1|\xff\xff\xff\xff|-1"
    assert line("%k|%v|%K|%S|%T", b"", b"", 0) == b"||0|0|0"
    assert message_format("%k %v %T", b"NULL%d")(Message("t", 0, 0, 1, None, None, None)) == b"NULL%d NULL%d -1"


def test_headers_stand_in_their_order() -> None:
    headers = (("trace", b"1"), ("trace", None), ("größe", b""))
    message = HeaderMessage("t", 0, 0, 1, b"k", b"v", None, headers)
    assert message_format("%k %h|")(message) == "k trace=1,trace=NULL,größe=|".encode()
    assert line("<%h>") == b"<>"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ab%q", "'%q' at character 3 is not a field; known: %t topic"), ("%", "'%' at character 1 is not a field"),
        ("%é", "is not a field"), (r"\q", r"'\q' at character 1 is not an "
                                       r"escape"), ("\\", "at character 1 is not an escape"),
        (r"\xg", r"'\x' at character 1 is not an escape"), ("%k %H", "'%H' at character 4 is not a field"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"at character \d") as caught:
        message_format(text)
    assert said in str(caught.value)


@given(
    pieces=st.lists(st.sampled_from(["%t", "%p", "%o", "%k", "%v", "%s", "%T", "%K", "%S", "%%", "x"]), max_size=9),
    key=BYTES, value=BYTES, time_ms=st.none() | st.integers(0, 2**40),
)  # fmt: skip
def test_a_line_is_its_pieces(pieces: list[str], key: bytes | None, value: bytes | None, time_ms: int | None) -> None:
    """Formatting with one template gives what formatting piece by piece gives, whatever is null."""
    whole = message_format("".join(pieces))
    message = Message("clicks", 3, 17, 18, key, value, time_ms)
    expected = b"".join(message_format(piece)(message) for piece in pieces)
    assert whole(Message("clicks", 3, 17, 18, b"other", b"other", 5)) is not None
    assert whole(message) == expected


def test_each_topic_has_its_name() -> None:
    form = message_format("%t %o")
    assert [form(Message(topic, 0, 1, 2, None, b"")) for topic in ("a", "b", "a")] == [b"a 1", b"b 1", b"a 1"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%p", b"0-3"), (r"%t-%p:%o %k|%v\n", b"clicks-0-3:17 |va\n"), ("%p %S %R", b"0-3 2 \0\0\0\2"),
        ("%p%%d", b"0-3%d"),
    ],
)  # fmt: skip
def test_a_partition_of_07_is_a_name(text: str, expected: bytes) -> None:
    assert message_format(text)(Message("clicks", "0-3", 17, 30, None, b"va", None)) == expected


def test_one_format_serves_topics_of_both_generations() -> None:
    form = message_format("%t/%p ")
    places = [("new", 3), ("old", "0-3"), ("new", 4)]
    assert b"".join(form(Message(*place, 0, 9, None, b"")) for place in places) == b"new/3 old/0-3 new/4 "
