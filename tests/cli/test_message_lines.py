"""What a message looks like as a line."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simpleconsumer.types import EntryMessage, Message
from zkconsumer.cli.messages.message_lines import LineShape, line_formatter

BYTES = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode)


def line(
    shape: LineShape, key: bytes | None = b"k", value: bytes | None = b"v", timestamp_ms: int | None = None
) -> bytes:
    return line_formatter(shape)(Message("clicks", 3, 17, 18, key, value, timestamp_ms))


def test_a_value_stands_alone_by_default() -> None:
    assert line(LineShape()) == b"v\n"


def test_bytes_go_out_as_they_are() -> None:
    assert line(LineShape(), value=b"\xff\x00\r\t") == b"\xff\x00\r\t\n"


@pytest.mark.parametrize("shape", [LineShape(), LineShape(key=True)])
def test_null_is_printed_as_kafka_does(shape: LineShape) -> None:
    assert line(shape, key=None, value=None).split() == [b"null"] * (2 if shape.key else 1)


def test_fields_come_in_a_fixed_order() -> None:
    shape = LineShape(partition=True, offset=True, timestamp=True, key=True)
    assert line(shape, timestamp_ms=1000) == b"3\t17\t1000\tk\tv\n"


def test_a_message_before_kafka_010_has_no_time() -> None:
    assert line(LineShape(timestamp=True)) == b"null\tv\n"


def test_separator_and_terminator_can_be_chosen() -> None:
    assert line(LineShape(key=True, separator=b" => ", terminator=b"\0")) == b"k => v\0"


@given(key=BYTES, value=BYTES)
def test_json_gives_back_every_byte(key: bytes | None, value: bytes | None) -> None:
    text = line(LineShape(as_json=True), key, value)
    assert text.count(b"\n") == 1
    entry = json.loads(text)
    for name, data in (("key", key), ("value", value)):
        if f"{name}_encoding" in entry:
            assert entry[f"{name}_encoding"] == "base64"
            assert base64.b64decode(entry[name]) == data
        else:
            assert (None if entry[name] is None else entry[name].encode()) == data
    assert (entry["topic"], entry["partition"], entry["offset"]) == ("clicks", 3, 17)


def test_json_has_text_as_text_and_marks_other_bytes() -> None:
    entry = json.loads(line(LineShape(as_json=True), key=b"\xff", value="zürich".encode(), timestamp_ms=5))
    assert entry == {
        "topic": "clicks", "partition": 3, "offset": 17, "key": "/w==", "key_encoding": "base64", "value": "zürich",
        "timestamp_ms": 5,
    }  # fmt: skip


OF_07 = EntryMessage("clicks", "0-3", 17, 17, None, b"v", None, 2)


def test_a_message_of_07_has_the_name_of_its_partition() -> None:
    shape = LineShape(partition=True, offset=True)
    assert line_formatter(shape)(OF_07) == b"0-3\t17\tv\n"
    assert line_formatter(shape)(Message("clicks", "10-0", 17, 30, None, b"v")) == b"10-0\t17\tv\n"


def test_json_of_07_has_the_name_beside_a_null_number_and_the_place_in_the_entry() -> None:
    assert json.loads(line_formatter(LineShape(as_json=True))(OF_07)) == {
        "topic": "clicks", "partition": None, "partition_node": "0-3", "offset": 17, "entry_index": 2, "key": None,
        "value": "v", "timestamp_ms": None,
    }  # fmt: skip
