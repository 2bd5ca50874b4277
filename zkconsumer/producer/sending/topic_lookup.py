"""Looks up the partitions of topics and their leaders, in the metadata of the brokers.

Rules, and which failure each prevents:

- The broker with the fewest requests under way is asked first, and the next one if it does not answer (`AskingOrder`);
  when none of those that an answer has named does, the given ones are asked again.
- A metadata request names topics. Brokers create a topic that does not exist if `auto.create.topics.enable` is on, as
  for Java's producers.
- A given address is probed first, as brokers of 0.8, 0.9 and later speak differently; so is each that an answer names
  (`Spoken`).
- An answer that lists no broker of a partition's leader counts as no leader: 0.8.0 lists only some brokers.

Threads: one at a time; any for `brokers`.

Source: kafka.producer.BrokerPartitionInfo, kafka.client.ClientUtils (0.8.2.2).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011, dialect_of
from simpleconsumer.errors import AuthenticationFailed, BrokerError, ConnectionFailed, SimpleConsumerError
from simpleconsumer.probe import has_no_older_peers, probed_broker
from simpleconsumer.security.security import Security
from simpleconsumer.types import Broker, TopicMetadata
from simpleconsumer.under_way import Address
from zkconsumer.cluster.asking_order import AskingOrder
from zkconsumer.cluster.spoken import Spoken
from zkconsumer_error import ErrorCode

__all__ = ["FoundTopic", "TopicLookup"]

log = logging.getLogger(__name__)

_LONGEST_ANSWER_S: Final = 3.0
_USABLE_CODES: Final = (0, 9)  # 9: a replica is down; the leader serves all the same


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
        hint: What to do if a broker takes connections, and none has ever answered; a clause.
    """

    def __init__(
        self, addresses: Callable[[], Sequence[Address]], client_id: str, timeout_s: float,
        rng: random.Random | None = None, security: Security | None = None, hint: str = "",
    ) -> None:  # fmt: skip
        self._security = security
        self._hint = hint
        self._addresses = addresses
        self._client_id = client_id
        self._timeout_s = min(timeout_s, _LONGEST_ANSWER_S)
        self._order = AskingOrder(rng)
        self._spoken = Spoken(client_id, self._timeout_s, security)
        self._known: Mapping[int, Broker] = {}

    def know(self, brokers: Iterable[Broker]) -> None:
        """Take over what brokers speak, so that they are not probed."""
        self._spoken.know(brokers)

    def brokers(self) -> list[Broker]:
        """Return the brokers that the last answer named, and those at given addresses, in the order to ask them."""
        return [known or Broker(-1, *address, 2, KAFKA011.name, 2) for address, known in self._in_order()]

    def look_up(self, topics: Sequence[str]) -> dict[str, FoundTopic]:
        """Return what is known about each of the topics."""
        failures: list[SimpleConsumerError] = []
        for (host, port), known in self._in_order():
            try:
                found = known or probed_broker(host, port, self._timeout_s, self._client_id, security=self._security)
                with SimpleConsumer(
                    host, port, self._timeout_s, self._client_id, dialect=dialect_of(found), security=self._security
                ) as broker:
                    metadata = broker.topic_metadata(topics)
                    are_alike = has_no_older_peers(broker.served_versions())
            except AuthenticationFailed as error:
                return dict.fromkeys(topics, FoundTopic({}, str(error), is_final=True))
            except SimpleConsumerError as error:
                self._spoken.forget((host, port))  # another one may come back there
                if self._order.failed((host, port)):
                    log.warning("%s:%d does not answer a metadata request of a producer: %s", host, port, error)
                failures.append(error)
                continue
            self._order.answered((host, port))
            self.know([found])
            brokers = self._spoken.of(metadata.brokers, are_alike=are_alike)
            self._known = brokers or self._known
            return {topic: _found(metadata.topics[topic], brokers) for topic in topics}
        reason = f"no broker answers a request about it ({'; '.join(map(str, failures[:3]))})"
        if not self._known and any(isinstance(each, ConnectionFailed) and each.is_sent for each in failures):
            reason += self._hint and f"; {self._hint}"
        return dict.fromkeys(topics, FoundTopic({}, reason))

    def _in_order(self) -> list[tuple[Address, Broker | None]]:
        """Return the addresses to ask, with the broker where it is known what it speaks."""
        known = {(each.host, each.port): each for each in self._known.values()}
        given = [each for each in self._order.of(self._addresses()) if each not in known]
        in_order = [*self._order.of(known), *given]
        return [(each, known.get(each) or self._spoken.at(each)) for each in in_order]


def _found(topic: TopicMetadata, brokers: Mapping[int, Broker]) -> FoundTopic:
    if topic.error_code and not topic.partitions:
        error = BrokerError(topic.error_code, topic.topic, None)
        # A broker that has just started, knows no topic yet, and counts not even itself as alive says so, too.
        is_final = not error.retriable and topic.error_code != ErrorCode.INVALID_REPLICATION_FACTOR
        return FoundTopic({}, str(error), is_final, error.retriable)
    leaders: dict[int | str, Broker | None] = {}
    for each in sorted(topic.partitions, key=lambda each: each.partition):
        is_led = each.error_code in _USABLE_CODES and each.leader is not None
        leaders[each.partition] = brokers.get(each.leader or 0) if is_led else None
    return FoundTopic(leaders, "" if leaders else "it has no partitions", is_absent=not leaders)
