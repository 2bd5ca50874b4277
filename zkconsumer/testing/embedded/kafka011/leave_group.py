"""LeaveGroup: members leave their group, from version 3 on several at a time.

Source: kafka.server.KafkaApis.handleLeaveGroupRequest, LeaveGroupRequest.json, LeaveGroupResponse.json (0.9, 2.8, 4.3).
"""

from __future__ import annotations

from struct import pack
from typing import Final, NamedTuple

from simpleconsumer.messages import apis
from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.kafka011.api import Asked, ServedApi
from zkconsumer.testing.embedded.kafka011.group_coordinator import Leaving
from zkconsumer.testing.embedded.kafka011.member_requests import (
    FIRST_WITH_INSTANCE,
    answer_of_code,
    refuse_all,
    throttled,
)
from zkconsumer.testing.embedded.messages import Refusal
from zkconsumer.testing.embedded.reading import Reader

__all__ = ["API"]

_FIRST_WITH_REASON: Final = 5


class LeaveGroup(NamedTuple):
    """Group, and who leaves it."""

    group: str
    members: list[Leaving]


def _read(reader: Reader, version: int) -> LeaveGroup:
    def member() -> Leaving:
        found = Leaving(reader.string(), reader.nullable_string())
        if version >= _FIRST_WITH_REASON:
            reader.nullable_string()
        reader.end()
        return found

    group = reader.string()
    if version < FIRST_WITH_INSTANCE:
        return LeaveGroup(group, [Leaving(reader.string())])
    members = reader.nullable_array(member) or []
    reader.end()
    return LeaveGroup(group, members)


def _answer(asked: Asked[LeaveGroup]) -> list[Part]:
    group, members = asked.body
    code, codes = 0, []
    try:
        refuse_all(asked)
        codes = asked.host.groups.leave(group, members)
    except Refusal as refusal:
        code = refusal.code
    if asked.version < FIRST_WITH_INSTANCE:
        return answer_of_code(asked, apis.LEAVE_GROUP, code or codes[0])
    encoding = asked.encoding(apis.LEAVE_GROUP)
    rows = [
        encoding.string(each.member_id) + encoding.string(each.instance_id) + pack(">h", of_member) + encoding.end
        for each, of_member in zip(members, codes, strict=False)  # none, if all is refused
    ]
    return [throttled(asked) + pack(">h", code) + encoding.array(rows) + encoding.end]


API: Final = ServedApi(apis.LEAVE_GROUP, "leave_group", range(6), _read, _answer)
