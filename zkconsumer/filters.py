"""Topic filters: `Whitelist("clicks,logs.*")` and `Blacklist("test-.*")`. Pure.

The text is cleaned and matched as in Kafka: commas are alternatives, spaces and outer quotes are removed. The rest is a
Java regular expression that must match the whole name of a topic.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from rebalance.subscription import Subscription


@dataclass(frozen=True)
class TopicFilter(ABC):
    """The common part of `Whitelist` and `Blacklist`; use one of them.

    Attributes:
        text: The filter, cleaned as Kafka stores it.
    """

    text: str
    _subscription: Subscription = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        subscription = self.subscription(1)
        object.__setattr__(self, "text", subscription.entries[0][0])
        object.__setattr__(self, "_subscription", subscription)

    @abstractmethod
    def subscription(self, streams: int) -> Subscription:
        """Return the subscription of this filter with a number of streams.

        Raises:
            UnsupportedFilter: The text is not a regular expression of Java, or cannot be translated.
        """

    def allows(self, topic: str, exclude_internal_topics: bool = True) -> bool:
        """Return whether the filter allows the topic."""
        return self._subscription.matches(topic, exclude_internal_topics)


class Whitelist(TopicFilter):
    """Allows the topics whose whole name matches.

    Raises:
        UnsupportedFilter: The text is not a regular expression of Java, or cannot be translated.
    """

    def subscription(self, streams: int) -> Subscription:
        return Subscription.white_list(self.text, streams)


class Blacklist(TopicFilter):
    """Allows the topics whose whole name does not match.

    Raises:
        UnsupportedFilter: The text is not a regular expression of Java, or cannot be translated.
    """

    def subscription(self, streams: int) -> Subscription:
        return Subscription.black_list(self.text, streams)
