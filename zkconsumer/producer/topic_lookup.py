"""Looks up the partitions of topics and their leaders, in the metadata of the brokers.

Rules, and which failure each prevents:

- Brokers are asked in random order, those that did not answer last: one dead broker of the list delays nothing twice.
- A metadata request names topics. Brokers create a topic that does not exist if `auto.create.topics.enable` is on, as
  for Java's producers.
- A broker of which only the address is known is probed first: those of 0.8, 0.9 and later speak differently.
- An answer that lists no broker of a partition's leader counts as no leader: 0.8.0 lists only some brokers.

Threads: one at a time.

Source: kafka.producer.BrokerPartitionInfo, kafka.client.ClientUtils (0.8.2.2).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import dialect_of
from simpleconsumer.errors import AuthenticationFailed, BrokerError, SimpleConsumerError
from simpleconsumer.probe import probed_broker
from simpleconsumer.security.security import Security
from simpleconsumer.types import Broker, TopicMetadata

__all__ = ["FoundTopic", "TopicLookup"]

_LONGEST_ANSWER_S: Final = 3.0
_TOO_FEW_BROKERS: Final = 38
"""Also the answer of a broker that has just started, knows no topic yet, and counts not even itself as alive."""
_USABLE_CODES: Final = (0, 9)  # 9: a replica is down; the leader serves all the same

Address = tuple[str, int]


class FoundTopic(NamedTuple):
    """What a look-up found about a topic.

    Attributes:
        leaders: Partition -> broker that leads it, or None; in order; empty if the topic is not there.
        reason: Why it is not there; empty if it is.
        is_final: Another look-up would find the same.
        is_absent: A broker answered that there is no such topic: not yet, or not any more.
    """

    leaders: Mapping[int | str, Broker | None]
    reason: str = ""
    is_final: bool = False
    is_absent: bool = False


class TopicLookup:
    """Asks brokers about topics.

    Args:
        addresses: Returns the brokers to start from; those that were found later are asked, too.
        client_id: The name under which brokers log and count the requests.
        timeout_s: Longest wait for one broker, in seconds; three seconds are the most that is used.
        rng: Chooses the order in which brokers are asked.
        security: TLS and SASL of connections to brokers; None for neither.
    """

    def __init__(
        self, addresses: Callable[[], Sequence[Address]], client_id: str, timeout_s: float,
        rng: random.Random | None = None, security: Security | None = None,
    ) -> None:  # fmt: skip
        self._security = security
        self._addresses = addresses
        self._client_id = client_id
        self._timeout_s = min(timeout_s, _LONGEST_ANSWER_S)
        self._rng = rng or random.Random()
        self._known: set[Address] = set()
        self._silent: set[Address] = set()
        self._spoken: dict[Address, Broker] = {}

    def know(self, brokers: Iterable[Broker]) -> None:
        """Take over what brokers speak, so that they are not probed."""
        self._spoken.update({(broker.host, broker.port): broker for broker in brokers})

    def look_up(self, topics: Sequence[str]) -> dict[str, FoundTopic]:
        """Return what is known about each of the topics."""
        failures: list[str] = []
        for host, port in self._in_order():
            try:
                found = self._spoken.get((host, port)) or probed_broker(
                    host, port, self._timeout_s, self._client_id, security=self._security
                )
                with SimpleConsumer(
                    host, port, self._timeout_s, self._client_id, dialect=dialect_of(found), security=self._security
                ) as broker:
                    metadata = broker.topic_metadata(topics)
            except AuthenticationFailed as error:
                return dict.fromkeys(topics, FoundTopic({}, str(error), is_final=True))
            except SimpleConsumerError as error:
                self._spoken.pop((host, port), None)  # another one may come back there
                self._silent.add((host, port))
                failures.append(str(error))
                continue
            self._silent.discard((host, port))
            self.know([*metadata.brokers.values(), found])
            self._known |= {(each.host, each.port) for each in metadata.brokers.values()}
            return {topic: _found(metadata.topics[topic], metadata.brokers) for topic in topics}
        reason = f"no broker answers about it ({'; '.join(failures[:3])})"
        return dict.fromkeys(topics, FoundTopic({}, reason))

    def _in_order(self) -> list[Address]:
        addresses = sorted({*self._addresses(), *self._known})
        self._rng.shuffle(addresses)
        return sorted(addresses, key=lambda each: each in self._silent)


def _found(topic: TopicMetadata, brokers: Mapping[int, Broker]) -> FoundTopic:
    if topic.error_code and not topic.partitions:
        error = BrokerError(topic.error_code, topic.topic, None)
        is_final = not error.retriable and topic.error_code != _TOO_FEW_BROKERS
        return FoundTopic({}, str(error), is_final, error.retriable)
    leaders: dict[int | str, Broker | None] = {}
    for each in sorted(topic.partitions, key=lambda each: each.partition):
        is_led = each.error_code in _USABLE_CODES and each.leader is not None
        leaders[each.partition] = brokers.get(each.leader or 0) if is_led else None
    return FoundTopic(leaders, "" if leaders else "it has no partitions", is_absent=not leaders)
