"""Every option of `format("zkconsumer")`: its name, where it applies, its meaning. Spark passes option names in
lower case, so they are found in any case. Options that Spark's own Kafka source has, too, have its names; the
others have the names of the consumer's settings.

Pure.

Parses the values of options: counts, sizes, durations, booleans, words. Each parser raises ValueError with a clause
that names the value.

Where a query starts and ends according to its options: words, offsets as JSON, or times.

Of several options the first one counts, in the order of Spark's own Kafka source: a time for all partitions, times as
JSON, offsets. The others are checked, too, because a typing error in any of them should be reported.

Source: Spark 4.3, org.apache.spark.sql.kafka010.KafkaSourceProvider (getKafkaOffsetRangeLimit).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from rebalance.errors import RebalanceError
from simpleconsumer.types import MAX_INT64, TopicPartition
from zkconsumer.config.tables.foreign_names import newer_name
from zkconsumer.config.tables.keys import KEYS, find_key
from zkconsumer.spark.errors import OptionRefused
from zkconsumer.spark.options.foreign_options import READING, hint_of
from zkconsumer.spark.options.offsets_json import parse_offsets, parse_times

BOTH, BATCH, STREAM = "batch and stream", "batch", "stream"


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        where: `batch and stream`, `batch` or `stream`.
        default: In words, for the documentation.
        meaning: One sentence.
        is_setting: It is a setting of the consumer, and is checked as one.
    """

    name: str
    where: str
    default: str
    meaning: str
    is_setting: bool = False


# fmt: off
_OWN = (
    Option("subscribe", BOTH, "", "Topics, separated by commas."),
    Option("subscribePattern", BOTH, "",
           "A white list like the consumer's: a comma means 'or', and the whole name has to match."),
    Option("blacklist", BOTH, "",
           "All topics that do not match; together with subscribePattern, the topics to exclude from it."),
    Option("assign", BOTH, "", 'Partitions, such as `{"clicks": [0, 1]}`.'),
    Option("startingOffsets", BOTH, "earliest in a batch, latest in a stream",
           'Where to start: `earliest`, `latest`, `group` (the offsets of group.id in ZooKeeper), or JSON such as '
           '`{"clicks": {"0": 42, "1": -2}}`, where -2 is earliest and -1 latest.'),
    Option("endingOffsets", BATCH, "latest",
           "Where to end, without the offset itself: `latest`, `group`, or JSON."),
    Option("startingTimestamp", BOTH, "",
           "The time at which all partitions start, in milliseconds since 1970. Takes precedence over "
           "startingOffsetsByTimestamp, which takes precedence over startingOffsets."),
    Option("startingOffsetsByTimestamp", BOTH, "",
           'A time for each partition, such as `{"clicks": {"0": 1393632000000, "1": 1393635600000}}`.'),
    Option("startingOffsetsByTimestampStrategy", BOTH, "error",
           "If no message is that recent: `error`, or `latest`, to start at the end of the log."),
    Option("endingTimestamp", BATCH, "",
           "The time at which all partitions end: the first message at or after it, and the following ones, are not "
           "read. Takes precedence over endingOffsetsByTimestamp, which takes precedence over endingOffsets."),
    Option("endingOffsetsByTimestamp", BATCH, "",
           "A time for each partition; if no message is that recent, the log is read to its end."),
    Option("minPartitions", BOTH, "one task for each partition", "Least number of tasks; large partitions are split."),
    Option("maxRecordsPerPartition", BOTH, "no limit",
           "Most offsets of one task; larger partitions are split. Not on Kafka 0.7."),
    Option("maxBytesPerPartition", BOTH, "512m in a batch, no limit in a stream",
           "About how many bytes one task may read, estimated from a sample of the log; larger partitions are split; "
           "or `off`."),
    Option("failOnDataLoss", BOTH, "true",
           "Fail if requested offsets are not in the log; `false` omits them and logs how many."),
    Option("onMessageError", BOTH, "raise",
           "If a message cannot be read: `raise`; `skip` and log it; or `row`: return a row with its offset and the "
           "column `error`."),
    Option("config", BOTH, "",
           "Properties file of the consumer, read on the driver, for values that no plan should show: "
           "zookeeper.connect and the settings below, except group.id. A relative name may be that of a file of "
           "`spark.files`."),
    Option("profile", BOTH, "",
           "The properties file `~/.config/zkconsumer/NAME.properties` on the driver."),
    Option("filterPushdown", BATCH, "false",
           "Read only what the filters on topic, partition and offset accept; for one query of each `load()`, and "
           "with `spark.sql.python.filterPushdown.enabled`."),
    Option("includeHeaders", BOTH, "false",
           "A column `headers`, which messages of Kafka 0.11 and later may have; not on Kafka 0.7."),
    Option("maxMessageBytes", BOTH, "128m", "Largest fetch; a larger message counts as one that cannot be read."),
    Option("kafkaConsumer.pollTimeoutMs", BOTH, "120000",
           "How long leaders and brokers may be down before the query fails."),
    Option("maxOffsetsPerTrigger", STREAM, "no limit",
           "Most offsets of one micro-batch; on Kafka 0.7 bytes of the logs, and at least one entry."),
    Option("minOffsetsPerTrigger", STREAM, "1",
           "Least offsets of one micro-batch (on Kafka 0.7: bytes): fewer wait for more; not with "
           "`Trigger.AvailableNow` or `Once`."),
    Option("maxTriggerDelay", STREAM, "15m", "Longest wait of such offsets, such as 90s, 15m, 1h or milliseconds."),
    Option("commitOffsets", STREAM, "true if group.id is set",
           "Store the end of each finished batch in ZooKeeper, as the offsets of group.id."),
    Option("commitToLiveGroup", STREAM, "false",
           "Store them even while the group has members, which also commit there."),
    Option("logLevel", STREAM, "warning",
           "Log level of the stream on the driver, to stderr: with `info` the lag of each micro-batch; or `debug`."),
)
# fmt: on
# fmt: off
_SETTINGS: Final = (
    ("zookeeper.connect", "bootstrap.servers", "group.id", "client.id", "zookeeper.session.timeout.ms",
     "zookeeper.connection.timeout.ms",
     "fetch.message.max.bytes", "fetch.wait.max.ms", "socket.timeout.ms", "socket.receive.buffer.bytes",
     "refresh.leader.backoff.ms", "exclude.internal.topics", "decoded.max.bytes", "isolation.level",
     "kafka.generation")
)
# fmt: on
SETTING_NAMES: Final = (*_SETTINGS, *(key.name for key in KEYS if key.section in ("zookeeper", "security")))
"""The settings of the consumer that are options, too."""
_BY_KEY = {key.name: key for key in KEYS}
# fmt: off
OPTIONS: Final = (
    *_OWN,
    *(Option(name, BOTH, _BY_KEY[name].default_text or f"{_BY_KEY[name].default}", _BY_KEY[name].meaning, True)
      for name in SETTING_NAMES),
)
# fmt: on
_BY_LOWER_NAME = {option.name.lower(): option for option in OPTIONS}
_SECURITY_KEYS = tuple(key for key in KEYS if key.section == "security")
_BY_LOWER_NAME |= {alias: _BY_LOWER_NAME[key.name] for key in _SECURITY_KEYS for alias in key.aliases}
_PREFIX: Final = "kafka."
"""Settings may have it, as in Spark's own source."""
_OF_TABLES: Final = "option."
"""The prefix of option names when a table is created, and only then."""


def setting_options(properties: Mapping[str, str]) -> dict[str, str]:
    """Return those settings of a consumer's file, by their names in Kafka 0.8, that are options, too.

    `group.id` is left out: a group in a file is that of a consumer, and a query that has it stores its offsets there.
    """
    return {name: value for name, value in properties.items() if name in SETTING_NAMES and name != "group.id"}


def find_option(name: str) -> Option | None:
    """Return the option of a name in any case, settings with or without the prefix `kafka.`; None if there is none.

    >>> find_option("kafka.bootstrap.servers").name, find_option("Kafka.Fetch.Wait.Max.Ms").name
    ('bootstrap.servers', 'fetch.wait.max.ms')
    >>> find_option("kafka.generation").name, find_option("kafka.subscribe")
    ('kafka.generation', None)
    """
    lower = name.lower()
    found = _BY_LOWER_NAME.get(lower)
    if found is None and lower.startswith(_PREFIX):
        found = _BY_LOWER_NAME.get(lower.removeprefix(_PREFIX))
        # `kafka.group.id` of Spark's own source names what reads; here the offsets of a group would be stored.
        if found is not None and (not found.is_setting or found.name == "group.id"):
            return None
    return found


def own_name(name: str) -> str:
    """Return the name of an option in lower case, of the other ways to write it, too."""
    found = find_option(name)
    return name.lower() if found is None else found.name.lower()


def unknown_option(name: str) -> str:
    """Return the reason for refusing an unknown name, with the most similar option or where to look.

    >>> unknown_option("statingoffsets")
    'no such option exists; did you mean startingOffsets?'
    """
    if name.lower().startswith(_OF_TABLES):
        return "Spark does not pass the options of `create table` to Python sources; use `create temporary view`"
    plain = name.lower().removeprefix(_PREFIX)  # the names of Spark's own source, which are those of newer consumers
    setting = find_key(name.lower())
    known = _BY_LOWER_NAME.get(plain if setting is None else setting.name)
    of_setting = setting is not None and known is None and hint_of(setting.name, READING)
    instead = hint_of(name, READING) or of_setting or newer_name(plain, _BY_LOWER_NAME)
    if instead:
        return f"no such option exists; {instead}"
    if known is not None:
        return f"it is called {known.name} here"
    if setting is not None:
        return "this setting of the consumer has no effect here"
    near = difflib.get_close_matches(plain, _BY_LOWER_NAME, n=1, cutoff=0.7)
    if near:
        return f"no such option exists; did you mean {_BY_LOWER_NAME[near[0]].name}?"
    return f"no such option exists; the options are {', '.join(option.name for option in _OWN)}, and settings"


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


_UNITS: Final = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_BYTES = re.compile(r"([0-9]{1,15})([bkmg]?)b?", re.IGNORECASE)
_DURATION: Final = re.compile(r"([0-9]{1,12}) *(ms|s|m|min|h|d|)", re.IGNORECASE)
_DURATIONS_MS: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def option_value(given: Mapping[str, str], name: str, convert: Callable[[str], T], default: T) -> T:
    text = given.get(name.lower())
    return default if text is None else converted(name, convert, text)


def count(largest: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        text = text.strip()
        if not (text.isascii() and text.isdigit()) or len(text) > 19 or not 1 <= int(text) <= largest:
            raise ValueError(f"{text[:40]!r} is not a whole number from 1 to {largest}")
        return int(text)

    return convert


def parse_bytes(text: str) -> int:
    """Return a number of bytes, with or without a unit: `1048576`, `512m`, `128MB`.

    Raises:
        ValueError: The text is no such number.
    """
    found = _BYTES.fullmatch(text.strip())
    if found is None or not int(found[1]):
        raise ValueError(f"{text[:40]!r} is not a number of bytes such as 1048576 or 512m")
    return int(found[1]) * _UNITS[found[2].lower()]


def milliseconds(text: str) -> int:
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text[:40]!r} is neither a time such as 90s, 15m or 1h nor a number of milliseconds")
    return int(found[1]) * _DURATIONS_MS[found[2].lower()]


def bytes_or_off(text: str) -> int | None:
    return None if text.strip().lower() == "off" else parse_bytes(text)


def boolean(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError(f"{text[:40]!r} is neither true nor false")
    return text.strip().lower() == "true"


def one_of(*words: str) -> Callable[[str], str]:
    def convert(text: str) -> str:
        if text.strip().lower() not in words:
            raise ValueError(f"{text[:40]!r} is not one of {', '.join(words)}")
        return text.strip().lower()

    return convert
