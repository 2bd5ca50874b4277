"""Where a query starts and ends according to its options: words, offsets as JSON, or times. Pure.

Of several options the first one counts, in the order of Spark's own Kafka source: a time for all partitions, times as
JSON, offsets. The others are checked, too, because a typing error in any of them should be reported.

Source: Spark 4.3, org.apache.spark.sql.kafka010.KafkaSourceProvider (getKafkaOffsetRangeLimit).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from rebalance.errors import RebalanceError
from simpleconsumer.types import MAX_INT64, TopicPartition
from zkconsumer.spark.errors import OptionRefused
from zkconsumer.spark.options.offsets_json import parse_offsets, parse_times

__all__ = ["TIME_OPTIONS", "OffsetSpec", "converted", "ending_spec", "starting_spec"]

ERROR, LATEST = "error", "latest"
_STRATEGY: Final = "startingOffsetsByTimestampStrategy"
TIME_OPTIONS: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "endingTimestamp", "endingOffsetsByTimestamp")
"""The options with times, as in Spark's own Kafka source."""
T = TypeVar("T")


@dataclass(frozen=True)
class OffsetSpec:
    """Where to start, or to end.

    Attributes:
        kind: `earliest`, `latest`, `group`, `each`, or `time`; `found` is a `time` that was resolved to offsets.
        each: For `each` and `found`: offset of every partition; -2 earliest, -1 latest. For `time`: milliseconds since
            1970 of every partition, where `time_ms` is None.
        option: Name of the option, for errors.
        time_ms: For `time`: the same for all partitions.
        on_no_match: If no message is that recent: `latest`, to start or end at the end of the log, or `error`.
    """

    kind: str
    option: str
    each: Mapping[TopicPartition, int] = field(default_factory=dict)
    time_ms: int | None = None
    on_no_match: str = LATEST

    def times_ms(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the time of each partition, for `time`; all of them have one (`bounds.check_named`)."""
        return {name: self.each[name] if self.time_ms is None else self.time_ms for name in partitions}


def starting_spec(given: Mapping[str, str], default: str) -> OffsetSpec:
    """Return where to start.

    Args:
        given: Options by their lower-case names.
        default: For `startingOffsets`.

    Raises:
        OptionRefused: One of the options has a value that is not allowed.
    """
    strategy = converted(_STRATEGY, _strategy, given.get(_STRATEGY.lower(), ERROR))
    return _spec(given, "starting", strategy, default)


def ending_spec(given: Mapping[str, str], default: str) -> OffsetSpec:
    """Return where to end; as `starting_spec`, but a time after the last message means the end of the log."""
    return _spec(given, "ending", LATEST, default)


def converted(name: str, convert: Callable[[str], T], text: str) -> T:
    """Return the value of an option.

    Raises:
        OptionRefused: `convert` raises ValueError.
    """
    try:
        return convert(text)
    except (ValueError, RebalanceError) as error:
        raise OptionRefused(name, str(error)) from None


def _spec(given: Mapping[str, str], side: str, on_no_match: str, default: str) -> OffsetSpec:
    for_all, by_json, by_offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    found: list[OffsetSpec] = []
    if for_all.lower() in given:
        time_ms = converted(for_all, _milliseconds, given[for_all.lower()])
        found.append(OffsetSpec("time", for_all, time_ms=time_ms, on_no_match=on_no_match))
    if by_json.lower() in given:
        times = converted(by_json, parse_times, given[by_json.lower()])
        found.append(OffsetSpec("time", by_json, times, on_no_match=on_no_match))
    found.append(_by_offsets(by_offsets, given.get(by_offsets.lower(), default).strip()))
    return found[0]


def _by_offsets(option: str, text: str) -> OffsetSpec:
    if text.lower() in ("earliest", "latest", "group"):
        return OffsetSpec(text.lower(), option)
    if not text.startswith("{"):
        raise OptionRefused(option, f"{text!r} is not earliest, latest, group, or JSON of offsets")
    return OffsetSpec("each", option, converted(option, parse_offsets, text))


def _milliseconds(text: str) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > MAX_INT64:
        raise ValueError(f"{text[:40]!r} is not a time; it must be milliseconds since 1970, from 0")
    return int(text)


def _strategy(text: str) -> str:
    if text.strip().lower() not in (ERROR, LATEST):
        raise ValueError(f"{text[:40]!r} is not {ERROR} or {LATEST}")
    return text.strip().lower()
