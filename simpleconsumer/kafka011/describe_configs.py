"""DescribeConfigs: settings of topics as they are in force, those included that come from the broker's own settings.

Source: DescribeConfigsRequest.json, DescribeConfigsResponse.json (4.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simpleconsumer.errors import DecodeError
from simpleconsumer.primitives import (
    encode_array,
    encode_string,
    read_array,
    read_int8,
    read_int16,
    read_int32,
    read_nullable_string,
    read_string,
    require_end,
)
from simpleconsumer.types import Buffer

__all__ = ["decode_describe_configs", "encode_describe_configs"]

_TOPIC = 2
_SMALLEST_RESULT = 11  # error code, null for the error in words, type, name, count of settings
_SMALLEST_SETTING = 7  # name, null, three flags
_SMALLEST_SYNONYM = 5  # name, null, source

Settings = Mapping[str, str | None]


def encode_describe_configs(topics: Sequence[str], names: Sequence[str], version: int) -> bytes:
    """Return a request for some settings of topics.

    Args:
        names: Of the settings.
    """
    wanted = encode_array([encode_string(name) for name in names])
    rows = [bytes([_TOPIC]) + encode_string(topic) + wanted for topic in topics]
    without_synonyms = b"\0" if version >= 1 else b""
    return encode_array(rows) + without_synonyms


def decode_describe_configs(answer: Buffer, topics: Sequence[str], version: int) -> list[tuple[int, Settings]]:
    """Return error code and settings of each topic, in the order asked."""
    _, offset = read_int32(answer, 0)  # throttle time
    rows, offset = read_array(answer, offset, lambda buffer, at: _read_result(buffer, at, version), _SMALLEST_RESULT)
    require_end(answer, offset, "describe configs response")
    found = {topic: (code, settings) for code, kind, topic, settings in rows if kind == _TOPIC}
    if len(rows) != len(topics) or found.keys() != set(topics):
        raise DecodeError(f"describe configs response: {len(rows)} results for {len(topics)} topics, or other ones")
    return [found[topic] for topic in topics]


def _read_result(buffer: Buffer, offset: int, version: int) -> tuple[tuple[int, int, str, Settings], int]:
    code, offset = read_int16(buffer, offset)
    _, offset = read_nullable_string(buffer, offset)  # the error in words
    kind, offset = read_int8(buffer, offset)
    name, offset = read_string(buffer, offset)
    rows, offset = read_array(buffer, offset, lambda data, at: _read_setting(data, at, version), _SMALLEST_SETTING)
    return (code, kind, name, dict(rows)), offset


def _read_setting(buffer: Buffer, offset: int, version: int) -> tuple[tuple[str, str | None], int]:
    name, offset = read_string(buffer, offset)
    value, offset = read_nullable_string(buffer, offset)
    for _ in range(3):  # read-only; whether it is a default, from version 1 on where it comes from; sensitive
        _, offset = read_int8(buffer, offset)
    if version >= 1:
        _, offset = read_array(buffer, offset, _read_synonym, _SMALLEST_SYNONYM)
    return (name, value), offset


def _read_synonym(buffer: Buffer, offset: int) -> tuple[str, int]:
    name, offset = read_string(buffer, offset)
    _, offset = read_nullable_string(buffer, offset)
    _, offset = read_int8(buffer, offset)
    return name, offset
