"""FindCoordinator: the broker that coordinates a group, or a transactional id. All have the same one of its kind.

Source: kafka.server.KafkaApis.handleFindCoordinatorRequest, FindCoordinatorResponse.json (2.8, 4.3).
"""

from __future__ import annotations

from struct import pack
from typing import Final, NamedTuple

from simpleconsumer.messages import apis
from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.internal_topics import TRANSACTIONS_TOPIC, coordinator_by
from zkconsumer.testing.embedded.kafka011.api import Asked, ServedApi
from zkconsumer.testing.embedded.kafka011.member_requests import throttled
from zkconsumer.testing.embedded.kafka011.transaction_coordinator import INVALID_REQUEST
from zkconsumer.testing.embedded.messages import COORDINATOR_NOT_AVAILABLE
from zkconsumer.testing.embedded.offsets import OFFSETS_TOPIC
from zkconsumer.testing.embedded.protocol import BrokerAddress
from zkconsumer.testing.embedded.reading import Reader

__all__ = ["API"]

_GROUP: Final = 0
_TOPICS: Final = {_GROUP: OFFSETS_TOPIC, 1: TRANSACTIONS_TOPIC}
_WORDS: Final = {0: "NONE", COORDINATOR_NOT_AVAILABLE: "The coordinator is not available."}
_FIRST_WITH_KIND: Final = 1
_FIRST_OF_SEVERAL: Final = 4


class FindCoordinator(NamedTuple):
    """Names and their kind: 0 groups, 1 transactional ids."""

    names: list[str]
    kind: int


def _read(reader: Reader, version: int) -> FindCoordinator:
    if version >= _FIRST_OF_SEVERAL:
        kind, names = reader.int8(), reader.nullable_array(reader.string) or []
    else:
        names, kind = [reader.string()], reader.int8() if version >= _FIRST_WITH_KIND else _GROUP
    reader.end()
    return FindCoordinator(names, kind)


def _answer(asked: Asked[FindCoordinator]) -> list[Part]:
    code = asked.errors.get(("", -1), 0)
    topic = _TOPICS.get(asked.body.kind)
    found = None if code or topic is None else coordinator_by(asked.host.cluster, topic)
    if found is None:
        code = code or (INVALID_REQUEST if topic is None else COORDINATOR_NOT_AVAILABLE)
        found = BrokerAddress(-1, "", -1)
    encoding = asked.encoding(apis.FIND_COORDINATOR)
    words = _WORDS.get(code, f"error {code}") if code or not asked.host.habits.is_before_2 else None
    place = pack(">i", found.broker_id) + encoding.string(found.host) + pack(">i", found.port)
    if asked.version >= _FIRST_OF_SEVERAL:
        # A name that is found has no words in these versions.
        words_of_one = encoding.string(words if code else "")
        rows = [encoding.string(name) + place + pack(">h", code) + words_of_one + encoding.end
                for name in asked.body.names]  # fmt: skip
        return [throttled(asked) + encoding.array(rows) + encoding.end]
    message = encoding.string(words) if asked.version >= _FIRST_WITH_KIND else b""
    return [throttled(asked) + pack(">h", code) + message + place + encoding.end]


API: Final = ServedApi(apis.FIND_COORDINATOR, "consumer_metadata", range(7), _read, _answer)
