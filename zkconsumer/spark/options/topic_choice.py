"""The topics or partitions that the options of a query select. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rebalance.subscription import check_topic
from simpleconsumer.types import TopicPartition
from zkconsumer.filters import Blacklist, TopicFilter, Whitelist
from zkconsumer.spark.errors import OptionRefused
from zkconsumer.spark.options.offset_spec import converted
from zkconsumer.spark.options.offsets_json import parse_assignment
from zkconsumer.spark.options.option_values import option_value

__all__ = ["TopicChoice", "choose_topics"]

_ALSO_INTERNAL = ("__transaction_state", "__share_group_state")
"""Topics that brokers of Kafka 0.11 and 4 keep for themselves, beside the one that the filters of groups leave out.

Source: org.apache.kafka.common.internals.Topic.INTERNAL_TOPICS (4.3).
"""


@dataclass(frozen=True)
class TopicChoice:
    """What to read: named topics, or named partitions, or the topics that pass filters.

    Attributes:
        filters: A topic has to pass all of them.
    """

    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    filters: tuple[TopicFilter, ...] = ()

    @property
    def is_filter(self) -> bool:
        """True if the topics are selected among those that exist."""
        return bool(self.filters)

    def topics_of(self, known: list[str], exclude_internal_topics: bool) -> list[str]:
        """Return the topics to read, sorted: the named ones, also missing ones, or those of `known` that pass."""
        if self.filters:
            left_out = _ALSO_INTERNAL if exclude_internal_topics else ()
            return sorted(
                name for name in known
                if name not in left_out and all(each.allows(name, exclude_internal_topics) for each in self.filters)
            )  # fmt: skip
        return sorted({*self.topics, *(name for name, _ in self.partitions)})


def choose_topics(given: Mapping[str, str]) -> TopicChoice:
    """Return what the options select.

    Args:
        given: Options by their lower-case names.

    Raises:
        OptionRefused: They select nothing, or in more than one way.
    """
    names = ("subscribe", "subscribePattern", "blacklist", "assign")
    chosen = [name for name in names if name.lower() in given]
    if not chosen:
        raise OptionRefused("subscribe",
                            f"it is not set, and neither is any other of {', '.join(names)}; set one of them")
    if len(chosen) > 1 and chosen != ["subscribePattern", "blacklist"]:
        raise OptionRefused(chosen[1], f"{chosen[0]} is also set; choose topics in one way")
    if chosen == ["subscribe"]:
        return TopicChoice(topics=option_value(given, "subscribe", _topics, ()))
    if chosen == ["assign"]:
        return TopicChoice(partitions=option_value(given, "assign", parse_assignment, ()))
    kinds: dict[str, Callable[[str], TopicFilter]] = {"subscribePattern": Whitelist, "blacklist": Blacklist}
    return TopicChoice(filters=tuple(converted(name, kinds[name], given[name.lower()]) for name in chosen))


def _topics(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(check_topic(name.strip()) for name in text.split(",")))
