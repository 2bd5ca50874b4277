"""Every option of `df.write.format("zkconsumer")` and `writeStream`: its name, where it applies, what it means.

Pure. Names are found in any case. Settings of the producer have Kafka's names, those of 0.7 too, and may have the
prefix `kafka.`, as in Spark's own Kafka sink. So may the names of newer producers that mean the same.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from zkconsumer.config.tables.foreign_names import newer_name
from zkconsumer.config.tables.producer_keys import PRODUCER_KEYS, PRODUCER_SETTINGS
from zkconsumer.errors import UnknownSetting
from zkconsumer.spark.options.foreign_options import READING, WRITING, hint_of
from zkconsumer.spark.options.option_table import BOTH, STREAM, Option, find_option

__all__ = ["SINK_OPTIONS", "SINK_SETTING_NAMES", "find_sink_option", "sink_setting_options", "unknown_sink_option"]

_PREFIX: Final = "kafka."

_OWN: Final = (
    Option("topic", BOTH, "the column `topic`", "Topic of all rows; the column `topic` is then ignored."),
    Option("delivery.timeout.ms", BOTH, "120000",
           "How long a task waits for a partition, for room in its queue, or for an acknowledgement before it fails."),
    Option("config", BOTH, "",
           "Properties file of a producer or a consumer, read on the driver, for values that no plan should show: "
           "zookeeper.connect, metadata.broker.list and the settings below. A relative name may be that of a file of "
           "`spark.files`."),
    Option("profile", BOTH, "",
           "The properties file `~/.config/zkconsumer/NAME.properties` on the driver."),
    Option("includeHeaders", BOTH, "", "No effect, as in Spark's own sink: a column `headers` is always written."),
)
_OF_SPARK: Final = (
    Option("checkpointLocation", STREAM, "", "Spark's own, of `writeStream`."),
    Option("queryName", STREAM, "", "Spark's own, of `writeStream`."),
)
_SETTINGS: Final = (
    "zookeeper.connect", "metadata.broker.list", "request.required.acks", "compression.codec", "compressed.topics",
    "partitioner.class", "message.send.max.retries", "retry.backoff.ms", "unknown.topic.timeout.ms",
    "retry.unanswered.batches", "request.timeout.ms", "message.max.bytes", "batch.num.messages", "batch.max.bytes",
    "request.max.bytes", "enable.idempotence",
    "queue.buffering.max.messages", "queue.buffering.max.bytes", "client.id", "topic.metadata.refresh.interval.ms",
    "connect.timeout.ms", "send.buffer.bytes", "zookeeper.session.timeout.ms", "zookeeper.connection.timeout.ms",
    "kafka.generation",
)  # fmt: skip
SINK_SETTING_NAMES: Final = (
    *_SETTINGS, *(key.name for key in PRODUCER_KEYS if key.section in ("zookeeper", "security")),
)  # fmt: skip
"""The settings of the producer that are options, too."""

SINK_DEFAULTS: Final[Mapping[str, str]] = {
    "client.id": "zkconsumer-spark",
    "batch.num.messages": "10000",
    "queue.buffering.max.messages": "100000",
}
"""Settings whose defaults are others than those of the producer: a task sends all its rows at once."""

_OF_NEWER_PRODUCERS: Final[Mapping[str, str]] = {
    "bootstrap.servers": "metadata.broker.list",
    "acks": "request.required.acks",
    "retries": "message.send.max.retries",
    "compression.type": "compression.codec",
    "buffer.memory": "queue.buffering.max.bytes",
    "max.request.size": "message.max.bytes",
    "metadata.max.age.ms": "topic.metadata.refresh.interval.ms",
}
_BY_NAME: Final = {key.name: key for key in PRODUCER_KEYS}
_RETRIES: Final = "as many as delivery.timeout.ms takes"
SINK_OPTIONS: Final = (
    *_OWN, *_OF_SPARK,
    *(Option(name, BOTH, _RETRIES if name == "message.send.max.retries" else SINK_DEFAULTS.get(name) or
             _BY_NAME[name].default_text or f"{_BY_NAME[name].default}", _BY_NAME[name].meaning, True)
      for name in SINK_SETTING_NAMES),
)  # fmt: skip

_AMBIGUOUS: Final = ("batch.size", "socket.timeout.ms")
"""Names of Kafka 0.7 that mean something else to newer producers, or to consumers."""
_BY_LOWER_NAME: Final = {
    **{ours: option for option in SINK_OPTIONS if option.is_setting
       for ours in (_BY_NAME[option.name].name_07 or "").lower().split() if ours not in _AMBIGUOUS},
    **{newer: next(option for option in SINK_OPTIONS if option.name == ours)
       for newer, ours in _OF_NEWER_PRODUCERS.items()},
    **{alias: option for option in SINK_OPTIONS if option.is_setting for alias in _BY_NAME[option.name].aliases},
    **{option.name.lower(): option for option in SINK_OPTIONS},
}  # fmt: skip

def sink_setting_options(properties: Mapping[str, str]) -> dict[str, str]:
    """Return those settings of a file that are options, too, by their names in Kafka 0.8."""
    found = {}
    for name, value in properties.items():
        key = PRODUCER_SETTINGS.find(name)
        if key is not None and key.name in SINK_SETTING_NAMES and name.lower() not in _AMBIGUOUS:
            found[key.name] = value
    return found


def find_sink_option(name: str) -> Option | None:
    """Return the option of a name in any case, with or without the prefix `kafka.`; None if there is none.

    >>> find_sink_option("Kafka.Acks").name, find_sink_option("kafka.generation").name, find_sink_option("acsk")
    ('request.required.acks', 'kafka.generation', None)
    """
    lower = name.lower()
    found = _BY_LOWER_NAME.get(lower)
    if found is None and lower.startswith(_PREFIX):
        found = _BY_LOWER_NAME.get(lower.removeprefix(_PREFIX))
        if found is not None and not found.is_setting and found.name != "delivery.timeout.ms":
            return None
    return found


def unknown_sink_option(name: str) -> str:
    """Return the reason for refusing a name that `find_sink_option` does not know.

    >>> unknown_sink_option("request.requierd.acks")
    'no such option exists; did you mean request.required.acks?'
    """
    plain = name.lower().removeprefix(_PREFIX)
    if instead := hint_of(name, WRITING):
        return f"no such option of a sink exists; {instead}"
    if plain in _BY_LOWER_NAME:
        return f"no such option exists; it is called {_BY_LOWER_NAME[plain].name} here"
    if find_option(name) is not None or hint_of(name, READING):
        return "it is for reading, and has no effect on writing"
    if PRODUCER_SETTINGS.find(plain) is not None:
        return "this setting of the producer has no effect here"
    if instead := newer_name(plain, SINK_SETTING_NAMES):
        return f"no such option exists; {instead}"
    near = difflib.get_close_matches(plain, _BY_LOWER_NAME, n=1, cutoff=0.7)
    if near:
        return f"no such option exists; did you mean {_BY_LOWER_NAME[near[0]].name}?"
    unknown: UnknownSetting = PRODUCER_SETTINGS.unknown(plain)
    hint = f"; {unknown.hint}" if getattr(unknown, "hint", "") else ""
    return f"no such option exists{hint}; the options are {', '.join(option.name for option in _OWN)}, and settings"
