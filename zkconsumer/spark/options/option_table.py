"""Every option of `format("zkconsumer")`: its name, where it applies, what it means.

Pure. Spark passes option names in lower case, so they are found in any case. Options that Spark's own Kafka source has,
too, have its names; the others have the names of the consumer's settings.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from zkconsumer.config.tables.foreign_names import newer_name
from zkconsumer.config.tables.keys import KEYS, find_key
from zkconsumer.spark.options.foreign_options import READING, hint_of

__all__ = ["OPTIONS", "SETTING_NAMES", "Option", "find_option", "own_name", "setting_options", "unknown_option"]

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


_OWN = (
    Option("subscribe", BOTH, "", "Topics, separated by commas."),
    Option("subscribePattern", BOTH, "",
           "A white list like the consumer's: a comma means 'or', and the whole name has to match."),
    Option("blacklist", BOTH, "",
           "All topics except those that match; together with subscribePattern, the topics to exclude from it."),
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
           "What the stream logs on the driver, to stderr: with `info` the lag of each micro-batch; or `debug`."),
)
_SETTINGS: Final = (
    ("zookeeper.connect", "bootstrap.servers", "group.id", "client.id", "zookeeper.session.timeout.ms",
     "zookeeper.connection.timeout.ms",
     "fetch.message.max.bytes", "fetch.wait.max.ms", "socket.timeout.ms", "socket.receive.buffer.bytes",
     "refresh.leader.backoff.ms", "exclude.internal.topics", "decoded.max.bytes", "isolation.level",
     "kafka.generation")
)  # fmt: skip
SETTING_NAMES: Final = (*_SETTINGS, *(key.name for key in KEYS if key.section in ("zookeeper", "security")))
"""The settings of the consumer that are options, too."""

_BY_KEY = {key.name: key for key in KEYS}
OPTIONS: Final = (
    *_OWN,
    *(Option(name, BOTH, _BY_KEY[name].default_text or f"{_BY_KEY[name].default}", _BY_KEY[name].meaning, True)
      for name in SETTING_NAMES),
)  # fmt: skip

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
