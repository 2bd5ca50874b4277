"""DeleteGroups: deletes groups without members, and their offsets.

Source: kafka.server.KafkaApis.handleDeleteGroupsRequest (1.1, 2.8), DeleteGroupsResponse.json (4.3).
"""

from __future__ import annotations

from struct import pack
from typing import Final

from simpleconsumer.messages import apis
from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.kafka011.api import Asked, ServedApi
from zkconsumer.testing.embedded.kafka011.member_requests import refuse_all, throttled
from zkconsumer.testing.embedded.messages import Refusal
from zkconsumer.testing.embedded.reading import Reader

__all__ = ["API"]


def _read(reader: Reader, version: int) -> list[str]:
    groups = reader.nullable_array(reader.string) or []
    reader.end()
    return groups


def _answer(asked: Asked[list[str]]) -> list[Part]:
    encoding = asked.encoding(apis.DELETE_GROUPS)
    rows = [
        encoding.string(name) + pack(">h", _deleted(asked, name)) + encoding.end for name in dict.fromkeys(asked.body)
    ]
    return [throttled(asked, 0) + encoding.array(rows) + encoding.end]


def _deleted(asked: Asked[list[str]], name: str) -> int:
    try:
        refuse_all(asked)
        return asked.host.groups.delete(name)
    except Refusal as refusal:
        return refusal.code


API: Final = ServedApi(apis.DELETE_GROUPS, "delete_groups", range(3), _read, _answer)
