"""What the requests of members of groups have in common: how members name themselves, and what may befall them."""

from __future__ import annotations

from struct import pack
from typing import Any, Final

from simpleconsumer.messages.api import Api
from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.groups.values import Who
from zkconsumer.testing.embedded.kafka011.api import Asked
from zkconsumer.testing.embedded.messages import Refusal
from zkconsumer.testing.embedded.reading import Reader

__all__ = ["FIRST_WITH_INSTANCE", "answer_of_code", "read_who", "refuse_all", "throttled"]

FIRST_WITH_INSTANCE: Final = 3
"""Heartbeat, SyncGroup and LeaveGroup name static members from this version on."""


def read_who(reader: Reader, *, has_instance: bool) -> tuple[str, Who]:
    """Return the group, and the member of a generation as it names itself."""
    group, generation, member_id = reader.string(), reader.int32(), reader.string()
    return group, Who(generation, member_id, reader.nullable_string() if has_instance else None)


def refuse_all(asked: Asked[Any]) -> None:
    """Raise Refusal if a fault wants it."""
    code = asked.errors.get(("", -1), 0)
    if code:
        raise Refusal(code, "on purpose")


def throttled(asked: Asked[Any], first: int = 1) -> bytes:
    """The time for which clients are slowed down, which versions from a first one on have."""
    return pack(">i", 0) if asked.version >= first else b""


def answer_of_code(asked: Asked[Any], api: Api, code: int) -> list[Part]:
    """An answer that has an error code and nothing else."""
    return [throttled(asked) + pack(">h", code) + asked.encoding(api).end]
