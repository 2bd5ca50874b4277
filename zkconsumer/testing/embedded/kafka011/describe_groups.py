"""DescribeGroups: groups have no members here; they are empty if they have offsets in Kafka, or else unknown ("Dead").

Source: kafka.server.KafkaApis.handleDescribeGroupRequest, GroupCoordinator.handleDescribeGroup (0.9, 2.8).
"""

from __future__ import annotations

from struct import pack
from typing import Final

from simpleconsumer.kafka011.apis import Api
from simpleconsumer.primitives import encode_array, encode_string
from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.kafka011.api import Asked, ServedApi
from zkconsumer.testing.embedded.messages import Refusal
from zkconsumer.testing.embedded.reading import Reader

__all__ = ["API", "DESCRIBE_GROUPS"]

DESCRIBE_GROUPS: Final = Api(15, "DescribeGroups", (0,), 5)
_DEAD: Final = "Dead"
_EMPTY: Final = "Empty"


def _read(reader: Reader, version: int) -> list[str]:
    return reader.nullable_array(reader.string) or []


def _answer(asked: Asked[list[str]]) -> list[Part]:
    return [encode_array([_group(asked, name) for name in asked.body])]


def _group(asked: Asked[list[str]], name: str) -> bytes:
    code, state = asked.errors.get(("", -1), 0), ""
    try:
        if not code:
            has_offsets = bool(asked.host.offset_storage.in_kafka().partitions(name))
            # Brokers of 0.9 forget a group with its last member.
            state = _EMPTY if has_offsets and asked.host.habits.log_magic else _DEAD
    except Refusal as refusal:
        code = refusal.code
    texts = (name, state, "", "")  # no kind of members, and no protocol
    return pack(">h", code) + b"".join(encode_string(text) for text in texts) + encode_array([])


API: Final = ServedApi(DESCRIBE_GROUPS, "describe_groups", range(1), _read, _answer)
