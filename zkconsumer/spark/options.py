"""The options of a query, checked, as one value.

Pure. An unknown option is refused by name, as a typing error must not change what is read; so are options that
contradict each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from rebalance.subscription import check_topic
from simpleconsumer.framing import MAX_FRAME_BYTES
from simpleconsumer.types import MAX_INT64, TopicPartition
from zkconsumer.config import ConsumerConfig
from zkconsumer.config.keys import find_key
from zkconsumer.errors import ConfigError
from zkconsumer.filters import Blacklist, TopicFilter, Whitelist
from zkconsumer.spark.errors import OptionRefused
from zkconsumer.spark.offset_spec import OffsetSpec, converted, ending_spec, starting_spec
from zkconsumer.spark.offsets_json import EARLIEST_OFFSET, LATEST_OFFSET, parse_assignment
from zkconsumer.spark.option_table import BATCH, SETTING_NAMES, STREAM, find_option, unknown_option

__all__ = [
    "OffsetSpec", "SourceOptions", "TopicChoice", "batch_options", "check_names", "parse_bytes", "stream_options",
]  # fmt: skip

DEFAULT_MAX_BYTES: Final = 512 * 1024 * 1024
"""About what one task of a batch reads, when nothing is said."""
DEFAULT_MAX_MESSAGE_BYTES: Final = 128 * 1024 * 1024
DEFAULT_SOCKET_TIMEOUT_MS: Final = 30_000
_LEAST_SOCKET_TIMEOUT_MS: Final = 1000
_RECEIVE_BUFFER_BYTES: Final = 1024 * 1024
"""The consumer's own 64 KiB cost a third of the time of receiving."""
_FETCH_BYTES: Final = 4 * 1024 * 1024
"""Four times the consumer's: a task reads one partition, and what a broker takes for a fetch hardly grows with it."""
_LEAST_FETCH_BYTES: Final = 1024 * 1024
_GROUP: Final = "zkconsumer-spark"
"""Stands for a group where none is named; nothing is ever stored under it."""
_UNITS: Final = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_BYTES = re.compile(r"([0-9]{1,15})([bkmg]?)b?", re.IGNORECASE)
_DURATION: Final = re.compile(r"([0-9]{1,12}) *(ms|s|m|min|h|d|)", re.IGNORECASE)
_DURATIONS_MS: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_INT32_MAX: Final = 2**31 - 1
_LARGEST_FETCH: Final = MAX_FRAME_BYTES - 1024 * 1024
T = TypeVar("T")


@dataclass(frozen=True)
class TopicChoice:
    """What to read: named topics, or named partitions, or whatever the filters let through.

    Attributes:
        filters: All of them have to let a topic through.
    """

    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    filters: tuple[TopicFilter, ...] = ()

    @property
    def is_filter(self) -> bool:
        """True when which topics are read depends on which there are."""
        return bool(self.filters)

    def topics_of(self, known: list[str], exclude_internal_topics: bool) -> list[str]:
        """Return the topics to read, sorted: the named ones, there or not, or those of `known` that pass."""
        if self.filters:
            return sorted(
                name for name in known if all(each.allows(name, exclude_internal_topics) for each in self.filters)
            )
        return sorted({*self.topics, *(name for name, _ in self.partitions)})


@dataclass(frozen=True)
class SourceOptions:
    """All options of a query.

    Attributes:
        config: The settings of the consumer that are among the options.
        has_group: `group.id` was given; without it `config.group_id` is a name that stands for none.
        ending: None for a stream.
        on_message_error: `raise`, `skip` or `row`.
        max_message_bytes: Largest fetch.
        patience_ms: How long nothing may come forward before the query fails.
        filter_pushdown: Of a batch only: plan by the filters of the query.
        max_offsets_per_trigger, min_offsets_per_trigger, max_trigger_delay_ms, commit_offsets, commit_to_live_group,
            log_level: Of a stream only.
    """

    config: ConsumerConfig
    has_group: bool
    choice: TopicChoice
    starting: OffsetSpec
    ending: OffsetSpec | None
    min_partitions: int | None
    max_records_per_partition: int | None
    max_bytes_per_partition: int | None
    fail_on_data_loss: bool
    on_message_error: str
    max_message_bytes: int
    patience_ms: int
    max_offsets_per_trigger: int | None
    commit_offsets: bool
    commit_to_live_group: bool
    min_offsets_per_trigger: int = 1
    max_trigger_delay_ms: int = 900_000
    log_level: str = "warning"
    filter_pushdown: bool = False


def check_names(options: Mapping[str, str]) -> None:
    """Refuse names that nobody knows.

    Raises:
        OptionRefused: The first of them.
    """
    for name in options:
        if find_option(name) is None:
            raise OptionRefused(name, unknown_option(name))


def batch_options(options: Mapping[str, str]) -> SourceOptions:
    """Return the options of a batch.

    Raises:
        OptionRefused: One is unknown, missing, wrong, or contradicts another.
    """
    given = _given(options, STREAM)
    starting = starting_spec(given, "earliest")
    ending = ending_spec(given, "latest")
    if starting.kind == "latest":
        raise OptionRefused("startingOffsets", "a batch that begins at latest would be empty")
    if ending.kind == "earliest":
        raise OptionRefused("endingOffsets", "a batch that ends at earliest would be empty")
    _refuse_value(starting, LATEST_OFFSET, "-1 (latest): nothing would be read of it")
    _refuse_value(ending, EARLIEST_OFFSET, "-2 (earliest): nothing would be read of it")
    if starting.time_ms is not None and ending.time_ms is not None and starting.time_ms > ending.time_ms:
        raise OptionRefused(ending.option, f"{ending.time_ms} is before {starting.option}, which is {starting.time_ms}")
    return _options(given, starting, ending, DEFAULT_MAX_BYTES)


def stream_options(options: Mapping[str, str]) -> SourceOptions:
    """Return the options of a stream.

    Raises:
        OptionRefused: One is unknown, missing, wrong, or contradicts another.
    """
    given = _given(options, BATCH)
    return _options(given, starting_spec(given, "latest"), None, None)


def _given(options: Mapping[str, str], not_where: str) -> dict[str, str]:
    """Return the options by their lower-case names, without those of the other kind of query."""
    check_names(options)
    given: dict[str, str] = {}
    for name, value in options.items():
        option = find_option(name)
        if option is not None and option.where == not_where:
            raise OptionRefused(option.name, f"it is for a {not_where} only")
        given[name.lower()] = str(value)
    return given


def _options(
    given: Mapping[str, str], starting: OffsetSpec, ending: OffsetSpec | None, max_bytes: int | None
) -> SourceOptions:
    choice = _choice(given)
    has_group = "group.id" in given
    for spec in (starting, ending):
        if spec is None:
            continue
        if spec.kind == "group" and not has_group:
            raise OptionRefused(spec.option, "`group` needs option group.id")
        for name in spec.each:
            if choice.partitions and name not in choice.partitions:
                raise OptionRefused(spec.option, f"{name.topic}/{name.partition} is not among the assigned partitions")
            if choice.topics and name.topic not in choice.topics:
                raise OptionRefused(spec.option, f"topic {name.topic!r} is not subscribed to")
    if _get(given, "includeHeaders", _boolean, False):
        raise OptionRefused("includeHeaders", "messages of this age have no headers")
    patience_ms = _get(given, "kafkaConsumer.pollTimeoutMs", _count(_INT32_MAX), 120_000)
    largest = _get(given, "maxMessageBytes", parse_bytes, DEFAULT_MAX_MESSAGE_BYTES)
    config = _config(given, patience_ms, largest)
    if largest > _LARGEST_FETCH:
        raise OptionRefused("maxMessageBytes", f"{largest} is more than {_LARGEST_FETCH}, the largest answer taken")
    if config.fetch_message_max_bytes > largest and "fetch.message.max.bytes" not in given:
        reason = f"{largest} is less than {_LEAST_FETCH_BYTES}, the size of a fetch: give fetch.message.max.bytes, too"
        raise OptionRefused("maxMessageBytes", reason)
    if config.fetch_message_max_bytes > largest:
        reason = f"{config.fetch_message_max_bytes} is more than maxMessageBytes, {largest}"
        raise OptionRefused("fetch.message.max.bytes", reason)
    return SourceOptions(
        config=config,
        has_group=has_group,
        choice=choice,
        starting=starting,
        ending=ending,
        min_partitions=_get(given, "minPartitions", _count(_INT32_MAX), None),
        max_records_per_partition=_get(given, "maxRecordsPerPartition", _count(MAX_INT64), None),
        max_bytes_per_partition=_get(given, "maxBytesPerPartition", _bytes_or_off, max_bytes),
        fail_on_data_loss=_get(given, "failOnDataLoss", _boolean, True),
        on_message_error=_get(given, "onMessageError", _one_of("raise", "skip", "row"), "raise"),
        max_message_bytes=largest,
        patience_ms=patience_ms,
        max_offsets_per_trigger=_get(given, "maxOffsetsPerTrigger", _count(MAX_INT64), None),
        commit_to_live_group=_get(given, "commitToLiveGroup", _boolean, False),
        commit_offsets=ending is None and _commits_offsets(given, has_group),
        min_offsets_per_trigger=_least_offsets(given),
        max_trigger_delay_ms=_get(given, "maxTriggerDelay", _milliseconds, 900_000),
        log_level=_get(given, "logLevel", _one_of("warning", "info", "debug"), "warning"),
        filter_pushdown=_get(given, "filterPushdown", _boolean, False),
    )


def _least_offsets(given: Mapping[str, str]) -> int:
    least = _get(given, "minOffsetsPerTrigger", _count(MAX_INT64), 1)
    most = _get(given, "maxOffsetsPerTrigger", _count(MAX_INT64), None)
    if most is not None and least > most:
        raise OptionRefused("minOffsetsPerTrigger", f"{least} is more than maxOffsetsPerTrigger, which is {most}")
    return least


def _commits_offsets(given: Mapping[str, str], has_group: bool) -> bool:
    commits = _get(given, "commitOffsets", _boolean, has_group)
    if commits and not has_group:
        raise OptionRefused("commitOffsets", "it needs option group.id")
    return commits


def _choice(given: Mapping[str, str]) -> TopicChoice:
    names = ("subscribe", "subscribePattern", "blacklist", "assign")
    chosen = [name for name in names if name.lower() in given]
    if not chosen:
        raise OptionRefused("subscribe", f"it is not set, nor is any other of {', '.join(names)}: what is to be read?")
    if len(chosen) > 1 and chosen != ["subscribePattern", "blacklist"]:
        raise OptionRefused(chosen[1], f"{chosen[0]} is set, too: choose topics in one way")
    if chosen == ["subscribe"]:
        return TopicChoice(topics=_get(given, "subscribe", _topics, ()))
    if chosen == ["assign"]:
        return TopicChoice(partitions=_get(given, "assign", parse_assignment, ()))
    kinds: dict[str, Callable[[str], TopicFilter]] = {"subscribePattern": Whitelist, "blacklist": Blacklist}
    return TopicChoice(filters=tuple(converted(name, kinds[name], given[name.lower()]) for name in chosen))


def _refuse_value(spec: OffsetSpec, value: int, reason: str) -> None:
    for name, offset in spec.each.items():
        if offset == value:
            raise OptionRefused(spec.option, f"{name.topic}/{name.partition} is {reason}")


def _config(given: Mapping[str, str], patience_ms: int, max_message_bytes: int) -> ConsumerConfig:
    settings: dict[str, object] = {name: given[name] for name in SETTING_NAMES if name in given}
    settings.setdefault("fetch.message.max.bytes", min(_FETCH_BYTES, max(max_message_bytes, _LEAST_FETCH_BYTES)))
    settings.setdefault("group.id", _GROUP)
    settings.setdefault("socket.receive.buffer.bytes", _RECEIVE_BUFFER_BYTES)
    if patience_ms < DEFAULT_SOCKET_TIMEOUT_MS:  # a broker that says nothing must not use up more than all patience
        settings.setdefault("socket.timeout.ms", max(patience_ms, _LEAST_SOCKET_TIMEOUT_MS))
    try:
        return ConsumerConfig.from_properties(settings)
    except ConfigError as error:
        key = find_key(error.key)
        raise OptionRefused(error.key if key is None else key.name, str(error).partition(" ")[2]) from None


def _get(given: Mapping[str, str], name: str, convert: Callable[[str], T], default: T) -> T:
    text = given.get(name.lower())
    return default if text is None else converted(name, convert, text)


def _topics(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(check_topic(name.strip()) for name in text.split(",")))


def _count(largest: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        text = text.strip()
        if not (text.isascii() and text.isdigit()) or len(text) > 19 or not 1 <= int(text) <= largest:
            raise ValueError(f"{text[:40]!r} is not a whole number from 1 to {largest}")
        return int(text)

    return convert


def parse_bytes(text: str) -> int:
    """A number of bytes, with or without a unit: `1048576`, `512m`, `128MB`.

    Raises:
        ValueError: It is none.
    """
    found = _BYTES.fullmatch(text.strip())
    if found is None or not int(found[1]):
        raise ValueError(f"{text[:40]!r} is not a number of bytes like 1048576 or 512m")
    return int(found[1]) * _UNITS[found[2].lower()]


def _milliseconds(text: str) -> int:
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text[:40]!r} is not a time like 90s, 15m or 1h, nor a number of milliseconds")
    return int(found[1]) * _DURATIONS_MS[found[2].lower()]


def _bytes_or_off(text: str) -> int | None:
    return None if text.strip().lower() == "off" else parse_bytes(text)


def _boolean(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError(f"{text[:40]!r} is neither true nor false")
    return text.strip().lower() == "true"


def _one_of(*words: str) -> Callable[[str], str]:
    def convert(text: str) -> str:
        if text.strip().lower() not in words:
            raise ValueError(f"{text[:40]!r} is none of {', '.join(words)}")
        return text.strip().lower()

    return convert
