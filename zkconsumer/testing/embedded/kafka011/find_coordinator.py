"""FindCoordinator: the broker that coordinates a group, or a transactional id. All have the same one of its kind.

Source: kafka.server.KafkaApis.handleFindCoordinatorRequest (2.8).
"""

from __future__ import annotations

from struct import pack
from typing import Final, NamedTuple

from simpleconsumer.kafka011 import apis
from simpleconsumer.primitives import encode_nullable_string, encode_string
from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.internal_topics import TRANSACTIONS_TOPIC, coordinator_by
from zkconsumer.testing.embedded.kafka011.api import Asked, ServedApi
from zkconsumer.testing.embedded.kafka011.transaction_coordinator import INVALID_REQUEST
from zkconsumer.testing.embedded.messages import COORDINATOR_NOT_AVAILABLE
from zkconsumer.testing.embedded.offsets import OFFSETS_TOPIC
from zkconsumer.testing.embedded.protocol import BrokerAddress
from zkconsumer.testing.embedded.reading import Reader

__all__ = ["API"]

_GROUP: Final = 0
_TOPICS: Final = {_GROUP: OFFSETS_TOPIC, 1: TRANSACTIONS_TOPIC}
_WORDS: Final = {0: "NONE", COORDINATOR_NOT_AVAILABLE: "The coordinator is not available."}


class FindCoordinator(NamedTuple):
    """Name and kind: 0 a group, 1 a transactional id."""

    name: str
    kind: int


def _read(reader: Reader, version: int) -> FindCoordinator:
    return FindCoordinator(reader.string(), reader.int8() if version >= 1 else _GROUP)


def _answer(asked: Asked[FindCoordinator]) -> list[Part]:
    code = asked.errors.get(("", -1), 0)
    topic = _TOPICS.get(asked.body.kind)
    found = None if code or topic is None else coordinator_by(asked.host.cluster, topic)
    if found is None:
        code = code or (INVALID_REQUEST if topic is None else COORDINATOR_NOT_AVAILABLE)
        found = BrokerAddress(-1, "", -1)
    answer = pack(">h", code)
    if asked.version >= 1:
        words = _WORDS.get(code, f"error {code}") if code or not asked.host.habits.is_before_2 else None
        answer = pack(">i", 0) + answer + encode_nullable_string(words)
    return [answer + pack(">i", found.broker_id) + encode_string(found.host) + pack(">i", found.port)]


API: Final = ServedApi(apis.FIND_COORDINATOR, "consumer_metadata", range(3), _read, _answer)
