"""Heartbeat: a member says that it is there, and learns whether its group rebalances.

Source: kafka.server.KafkaApis.handleHeartbeatRequest, HeartbeatRequest.json (0.9, 2.8, 4.3).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from simpleconsumer.messages import apis
from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.groups.codes import COORDINATOR_LOADING
from zkconsumer.testing.embedded.groups.values import Who
from zkconsumer.testing.embedded.kafka011.api import Asked, ServedApi
from zkconsumer.testing.embedded.kafka011.member_requests import (
    FIRST_WITH_INSTANCE,
    answer_of_code,
    read_who,
    refuse_all,
)
from zkconsumer.testing.embedded.messages import Refusal
from zkconsumer.testing.embedded.reading import Reader

__all__ = ["API"]


class Heartbeat(NamedTuple):
    """Group and member."""

    group: str
    who: Who


def _read(reader: Reader, version: int) -> Heartbeat:
    body = Heartbeat(*read_who(reader, has_instance=version >= FIRST_WITH_INSTANCE))
    reader.end()
    return body


def _answer(asked: Asked[Heartbeat]) -> list[Part]:
    try:
        refuse_all(asked)
        code = _beat(asked)
    except Refusal as refusal:
        code = refusal.code
    return answer_of_code(asked, apis.HEARTBEAT, code)


def _beat(asked: Asked[Heartbeat]) -> int:
    try:
        return asked.host.groups.heartbeat(*asked.body)
    except Refusal as refusal:
        if refusal.code == COORDINATOR_LOADING:
            return 0  # who is a member is not known yet, and nobody is to be sent away for that
        raise


API: Final = ServedApi(apis.HEARTBEAT, "heartbeat", range(5), _read, _answer)
