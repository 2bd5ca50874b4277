"""Every option of `format("zkconsumer")`: its name, where it holds, what it means.

Pure. Spark hands option names over in lower case, so they are found without regard to case. Names are those of Spark's
own Kafka source where it has such an option, and those of the consumer's settings for the rest.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Final

from zkconsumer.config.keys import KEYS, find_key

__all__ = ["OPTIONS", "SETTING_NAMES", "Option", "find_option", "unknown_option"]

BOTH, BATCH, STREAM = "batch and stream", "batch", "stream"


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        where: `batch and stream`, `batch` or `stream`.
        default: In words, for the documentation.
        meaning: One sentence.
        is_setting: It is a setting of the consumer, and checked as such.
    """

    name: str
    where: str
    default: str
    meaning: str
    is_setting: bool = False


_OWN = (
    Option("subscribe", BOTH, "", "Topics, with commas between."),
    Option("subscribePattern", BOTH, "", "A white list as the consumer's: commas mean 'or', the whole name counts."),
    Option("blacklist", BOTH, "", "All topics but those that match; beside subscribePattern, what to leave out of it."),
    Option("assign", BOTH, "", 'Partitions, as `{"clicks": [0, 1]}`.'),
    Option("startingOffsets", BOTH, "earliest in a batch, latest in a stream",
           'Where to begin: `earliest`, `latest`, `group` (the offsets of group.id in ZooKeeper), or JSON as '
           '`{"clicks": {"0": 42, "1": -2}}`, where -2 is earliest and -1 latest.'),
    Option("endingOffsets", BATCH, "latest", "Where to end, the offset itself not read: `latest`, `group`, or JSON."),
    Option("startingTimestamp", BOTH, "",
           "A time to begin at in all partitions, in milliseconds since 1970; comes before the next one, and that "
           "before startingOffsets."),
    Option("startingOffsetsByTimestamp", BOTH, "",
           'A time for each partition, as `{"clicks": {"0": 1393632000000, "1": 1393635600000}}`.'),
    Option("startingOffsetsByTimestampStrategy", BOTH, "error",
           "Where no message is that young: `error`, or `latest`, to begin at the end of the log."),
    Option("endingTimestamp", BATCH, "",
           "A time to end at in all partitions: the first message that is as young, and what follows it, is not read; "
           "comes before the next one, and that before endingOffsets."),
    Option("endingOffsetsByTimestamp", BATCH, "",
           "A time for each partition; where no message is that young, all is read."),
    Option("minPartitions", BOTH, "one task for each partition", "Least number of tasks; large partitions are split."),
    Option("maxRecordsPerPartition", BOTH, "no limit", "Most offsets of one task; larger partitions are split."),
    Option("maxBytesPerPartition", BOTH, "512m in a batch, no limit in a stream",
           "About how many bytes one task may read, by a sample of the log; larger partitions are split; or `off`."),
    Option("failOnDataLoss", BOTH, "true",
           "Fail when wanted offsets are not in the log; `false` leaves them out and logs how many."),
    Option("onMessageError", BOTH, "raise",
           "A message that cannot be read: `raise`, `skip` (logged), or `row`: a row with place and column `error`."),
    Option("filterPushdown", BATCH, "false",
           "Read only what the filters on topic, partition and offset let through; for one query of each `load()`, and "
           "with `spark.sql.python.filterPushdown.enabled`."),
    Option("includeHeaders", BOTH, "false", "Only `false`, for what is written for Spark's own source."),
    Option("maxMessageBytes", BOTH, "128m", "Largest fetch; a larger message is an error of that message."),
    Option("kafkaConsumer.pollTimeoutMs", BOTH, "120000",
           "How long leaders and brokers may be away before the query fails."),
    Option("maxOffsetsPerTrigger", STREAM, "no limit", "Most offsets of one micro-batch."),
    Option("minOffsetsPerTrigger", STREAM, "1",
           "Least offsets of one micro-batch: fewer wait for more; not with `Trigger.AvailableNow` or `Once`."),
    Option("maxTriggerDelay", STREAM, "15m", "How long they wait at most, as 90s, 15m, 1h or milliseconds."),
    Option("commitOffsets", STREAM, "true where group.id is given",
           "Store the end of each finished batch in ZooKeeper, as the offsets of group.id."),
    Option("commitToLiveGroup", STREAM, "false", "Store them although the group has members, who commit there, too."),
    Option("logLevel", STREAM, "warning",
           "What the stream logs on the driver, on stderr: `info` has the lag of each micro-batch; or `debug`."),
)
_SETTINGS: Final = (
    ("zookeeper.connect", "group.id", "client.id", "zookeeper.session.timeout.ms", "zookeeper.connection.timeout.ms",
     "fetch.message.max.bytes", "fetch.wait.max.ms", "socket.timeout.ms", "socket.receive.buffer.bytes",
     "refresh.leader.backoff.ms", "exclude.internal.topics", "decoded.max.bytes")
)  # fmt: skip
SETTING_NAMES: Final = (*_SETTINGS, *(key.name for key in KEYS if key.section == "zookeeper"))
"""The settings of the consumer that are options, too."""

_BY_KEY = {key.name: key for key in KEYS}
OPTIONS: Final = (
    *_OWN,
    *(Option(name, BOTH, _BY_KEY[name].default_text or f"{_BY_KEY[name].default}", _BY_KEY[name].meaning, True)
      for name in SETTING_NAMES),
)  # fmt: skip

_BY_LOWER_NAME = {option.name.lower(): option for option in OPTIONS}
_OF_TABLES: Final = "option."
"""What Spark puts before the names of options when a table is created, and only then."""
_INSTEAD: Final = {
    "kafka.bootstrap.servers": "brokers are found in ZooKeeper: give zookeeper.connect",
    "zk.connect": "it is called zookeeper.connect here",
    "kafka.group.id": "it is called group.id here",
    "groupidprefix": "give group.id",
    "path": "give the topic with option subscribe, and load() without an argument",
    "whitelist": "it is called subscribePattern here",
    "topic": "it is called subscribe here",
    "topics": "it is called subscribe here",
    "auto.offset.reset": "give startingOffsets, and failOnDataLoss",
}


def find_option(name: str) -> Option | None:
    """Return the option of a name in any case; None if there is none."""
    return _BY_LOWER_NAME.get(name.lower())


def unknown_option(name: str) -> str:
    """Return what to say about a name that nobody knows: the one that was meant, or where to look.

    >>> unknown_option("statingoffsets")
    'there is no such option; did you mean startingOffsets?'
    """
    if name.lower().startswith(_OF_TABLES):
        return "Spark hands the options of `create table` to no Python source; use `create temporary view`"
    setting = find_key(name.lower())
    instead = _INSTEAD.get(name.lower()) or (setting and _INSTEAD.get(setting.name))
    if instead:
        return f"there is no such option; {instead}"
    if setting is not None:
        known = _BY_LOWER_NAME.get(setting.name)
        return f"it is called {known.name} here" if known else "this setting of the consumer has no meaning here"
    near = difflib.get_close_matches(name.lower(), _BY_LOWER_NAME, n=1, cutoff=0.5)
    if near:
        return f"there is no such option; did you mean {_BY_LOWER_NAME[near[0]].name}?"
    return f"there is no such option; there are {', '.join(option.name for option in _OWN)}, and settings"
