"""The options of a query, checked, as one value. An unknown option is refused by name, because a typing error must not
change what is read. Options that contradict each other are refused, too.

Pure.

The topics or partitions that the options of a query select.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from rebalance.subscription import check_topic
from simpleconsumer.primitives import MAX_FRAME_BYTES
from simpleconsumer.types import MAX_INT64, TopicPartition
from zkconsumer.config import ConsumerConfig
from zkconsumer.config.tables.keys import find_key
from zkconsumer.errors import ConfigError
from zkconsumer.filters import Blacklist, TopicFilter, Whitelist
from zkconsumer.spark.errors import OptionRefused
from zkconsumer.spark.options.offsets_json import EARLIEST_OFFSET, LATEST_OFFSET, parse_assignment
from zkconsumer.spark.options.option_table import (
    BATCH,
    SETTING_NAMES,
    STREAM,
    OffsetSpec,
    boolean,
    bytes_or_off,
    converted,
    count,
    ending_spec,
    find_option,
    milliseconds,
    one_of,
    option_value,
    parse_bytes,
    starting_spec,
    unknown_option,
)

__all__ = [
    "OffsetSpec", "SourceOptions", "TopicChoice", "batch_options", "check_names", "check_secrets", "choose_topics",
    "is_of_07", "stream_options",
]  # fmt: skip

_ALSO_INTERNAL = ("__transaction_state", "__share_group_state")
"""Topics that brokers of Kafka 0.11 and 4 keep for themselves, apart from the one that the filters of groups leave out.

Source: org.apache.kafka.common.internals.Topic.INTERNAL_TOPICS (4.3).
"""


@dataclass(frozen=True)
class TopicChoice:
    """The choice of topics: named topics, or named partitions, or the topics that pass filters.

    Attributes:
        filters: A topic has to pass all of them.
    """

    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    filters: tuple[TopicFilter, ...] = ()

    @property
    def is_filter(self) -> bool:
        """True if the topics are selected among the existing ones."""
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
        raise OptionRefused(
            "subscribe", f"it is not set, and neither is any other of {', '.join(names)}; set one of them"
        )
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


DEFAULT_MAX_BYTES: Final = 512 * 1024 * 1024
"""About how many bytes one task of a batch reads by default."""
DEFAULT_MAX_MESSAGE_BYTES: Final = 128 * 1024 * 1024
DEFAULT_SOCKET_TIMEOUT_MS: Final = 30_000
_LEAST_SOCKET_TIMEOUT_MS: Final = 1000
_FETCH_BYTES: Final = 4 * 1024 * 1024
"""Four times the consumer's default: a task reads one partition, and a broker's time for a fetch hardly grows."""
_LEAST_FETCH_BYTES: Final = 1024 * 1024
_PREFIX: Final = "kafka."
"""Names of settings may have it where rows are written."""
_GROUP: Final = "zkconsumer-spark"
"""The name of the group if none is set; nothing is ever stored for it."""
_GENERATION: Final = "kafka.generation"
_INT32_MAX: Final = 2**31 - 1
_LARGEST_FETCH: Final = MAX_FRAME_BYTES - 1024 * 1024


@dataclass(frozen=True)
class SourceOptions:
    """All options of a query.

    Attributes:
        config: The settings of the consumer that are among the options.
        has_group: `group.id` is set; otherwise `config.group_id` is a name without meaning.
        ending: None for a stream.
        on_message_error: `raise`, `skip` or `row`.
        max_message_bytes: Largest fetch.
        patience_ms: How long a query may make no progress before it fails.
        filter_pushdown: Of a batch only: plan by the filters of the query.
        include_headers: There is a column `headers`.
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
    include_headers: bool = False

    @property
    def counts_bytes(self) -> bool:
        """Whether offsets are byte positions: the query is one on Kafka 0.7."""
        return self.config.kafka_generation == "0.7"


def check_names(options: Mapping[str, str]) -> None:
    """Refuse unknown names.

    Raises:
        OptionRefused: The first of them.
    """
    for name in options:
        if find_option(name) is None:
            raise OptionRefused(name, unknown_option(name))


def check_secrets(options: Mapping[str, str]) -> None:
    """Refuse credentials among the options of a query, which Spark shows.

    Raises:
        OptionRefused: The first of them; its text does not hold the value.
    """
    for name, value in options.items():
        key = find_key(name.lower()) or find_key(name.lower().removeprefix(_PREFIX))
        if key is not None and key.secret and value:
            raise OptionRefused(
                key.name,
                "it holds a secret, and Spark shows the options of a query to others (SQL pages of the UI, event log)",
                "put it into a properties file for option config or profile (docs/SPARK.md); if an SQL statement "
                "contained a secret, replace the secret, because Spark may have shown it already",
            )


def is_of_07(given: Mapping[str, str]) -> bool:
    """Return whether the options are those of a query on Kafka 0.7.

    Args:
        given: Options by their lower-case names, with those of settings files.
    """
    return str(given.get(_GENERATION, "")).strip() == "0.7"


def batch_options(options: Mapping[str, str]) -> SourceOptions:
    """Return the options of a batch.

    Raises:
        OptionRefused: One is unknown, missing, wrong, or contradicts another.
    """
    given = _given(options, STREAM)
    starting = starting_spec(given, "earliest")
    ending = ending_spec(given, "latest")
    if starting.kind == "latest":
        raise OptionRefused("startingOffsets", "a batch that starts at latest would be empty")
    if ending.kind == "earliest":
        raise OptionRefused("endingOffsets", "a batch that ends at earliest would be empty")
    _refuse_value(starting, LATEST_OFFSET, "-1 (latest), so nothing of it would be read")
    _refuse_value(ending, EARLIEST_OFFSET, "-2 (earliest), so nothing of it would be read")
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
        own_name = name.lower() if option is None else option.name.lower()
        if given.setdefault(own_name, str(value)) != str(value):
            raise OptionRefused(name, f"{own_name} is also given, with another value")
    return given


def _options(
    given: Mapping[str, str], starting: OffsetSpec, ending: OffsetSpec | None, max_bytes: int | None
) -> SourceOptions:
    choice = choose_topics(given)
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
    if "bootstrap.servers" in given and "zookeeper.connect" in given:
        raise OptionRefused("bootstrap.servers", "zookeeper.connect is also given; leave one of them out")
    if "bootstrap.servers" in given and has_group:
        raise OptionRefused("group.id", "groups have their offsets in ZooKeeper: give zookeeper.connect instead of "
                                        "bootstrap.servers")  # fmt: skip
    if is_of_07(given):
        _refuse_for_07(given, choice)
    patience_ms = option_value(given, "kafkaConsumer.pollTimeoutMs", count(_INT32_MAX), 120_000)
    largest = option_value(given, "maxMessageBytes", parse_bytes, DEFAULT_MAX_MESSAGE_BYTES)
    config = _config(given, patience_ms, largest)
    if largest > _LARGEST_FETCH:
        raise OptionRefused("maxMessageBytes", f"{largest} is more than {_LARGEST_FETCH}, the largest answer allowed")
    if config.fetch_message_max_bytes > largest and "fetch.message.max.bytes" not in given:
        reason = f"{largest} is less than {_LEAST_FETCH_BYTES}, the size of a fetch: also set fetch.message.max.bytes"
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
        min_partitions=option_value(given, "minPartitions", count(_INT32_MAX), None),
        max_records_per_partition=option_value(given, "maxRecordsPerPartition", count(MAX_INT64), None),
        max_bytes_per_partition=option_value(given, "maxBytesPerPartition", bytes_or_off, max_bytes),
        fail_on_data_loss=option_value(given, "failOnDataLoss", boolean, True),
        on_message_error=option_value(given, "onMessageError", one_of("raise", "skip", "row"), "raise"),
        max_message_bytes=largest,
        patience_ms=patience_ms,
        max_offsets_per_trigger=option_value(given, "maxOffsetsPerTrigger", count(MAX_INT64), None),
        commit_to_live_group=option_value(given, "commitToLiveGroup", boolean, False),
        commit_offsets=ending is None and _commits_offsets(given, has_group),
        min_offsets_per_trigger=_least_offsets(given),
        max_trigger_delay_ms=option_value(given, "maxTriggerDelay", milliseconds, 900_000),
        log_level=option_value(given, "logLevel", one_of("warning", "info", "debug"), "warning"),
        filter_pushdown=option_value(given, "filterPushdown", boolean, False),
        include_headers=option_value(given, "includeHeaders", boolean, False),
    )


def _refuse_for_07(given: Mapping[str, str], choice: TopicChoice) -> None:
    """Refuse what Kafka 0.7 has not, where offsets count bytes."""
    if "maxrecordsperpartition" in given:
        raise OptionRefused(
            "maxRecordsPerPartition",
            "offsets of Kafka 0.7 count bytes, so the number of messages of a task is not known: set "
            "maxBytesPerPartition",
        )
    if option_value(given, "includeHeaders", boolean, False):
        raise OptionRefused("includeHeaders", "messages of Kafka 0.7 have no headers")
    if option_value(given, "filterPushdown", boolean, False):
        raise OptionRefused(
            "filterPushdown",
            "offsets of Kafka 0.7 are byte positions, so a filter on them may cut inside an entry: use assign, "
            "startingOffsets and endingOffsets",
        )
    for topic, partition in choice.partitions:
        if isinstance(partition, int):
            raise OptionRefused(
                "assign",
                f"partition {partition} of {topic!r}: partitions of Kafka 0.7 are named "
                'broker-partition: "0-3" is number 3 on broker 0',
            )


def _least_offsets(given: Mapping[str, str]) -> int:
    least = option_value(given, "minOffsetsPerTrigger", count(MAX_INT64), 1)
    most = option_value(given, "maxOffsetsPerTrigger", count(MAX_INT64), None)
    if most is not None and least > most:
        raise OptionRefused("minOffsetsPerTrigger", f"{least} is more than maxOffsetsPerTrigger, which is {most}")
    return least


def _commits_offsets(given: Mapping[str, str], has_group: bool) -> bool:
    commits = option_value(given, "commitOffsets", boolean, has_group)
    if commits and not has_group:
        raise OptionRefused("commitOffsets", "it needs option group.id")
    return commits


def _refuse_value(spec: OffsetSpec, value: int, reason: str) -> None:
    for name, offset in spec.each.items():
        if offset == value:
            raise OptionRefused(spec.option, f"{name.topic}/{name.partition} is {reason}")


def _config(given: Mapping[str, str], patience_ms: int, max_message_bytes: int) -> ConsumerConfig:
    settings: dict[str, object] = {name: given[name] for name in SETTING_NAMES if name in given}
    settings.setdefault("fetch.message.max.bytes", min(_FETCH_BYTES, max(max_message_bytes, _LEAST_FETCH_BYTES)))
    settings.setdefault("group.id", _GROUP)
    if patience_ms < DEFAULT_SOCKET_TIMEOUT_MS:  # one broker that does not answer must not use all of the time
        settings.setdefault("socket.timeout.ms", max(patience_ms, _LEAST_SOCKET_TIMEOUT_MS))
    try:
        return ConsumerConfig.from_properties(settings)
    except ConfigError as error:
        key = find_key(error.key)
        raise OptionRefused(error.key if key is None else key.name, str(error).partition(" ")[2]) from None
