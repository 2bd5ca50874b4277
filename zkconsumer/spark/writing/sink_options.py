"""The options of a sink, checked, as one value. An unknown option is refused by name, because a typing error must not
change what is written.

Pure.

Every option of `df.write.format("zkconsumer")` and `writeStream`: its name, where it applies, its meaning. Names are
found in any case. Settings of the producer have Kafka's names, those of 0.7 too, and may have the prefix `kafka.`, as
in Spark's own Kafka sink. So may the names of newer producers that mean the same.

The columns that a sink writes, and the check of the columns that a table has. Names and types are those of Spark's own
Kafka sink, and `timestamp` is that of the source. Spark's own sink ignores columns with other names; here they are
refused, because a column that is misspelt would be lost.

Source: Spark 4.3, org.apache.spark.sql.kafka010.KafkaWriter (validateQuery).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rebalance.subscription import check_topic
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.config.tables.foreign_names import newer_name
from zkconsumer.config.tables.kinds import INT32_MAX
from zkconsumer.config.tables.producer_keys import PRODUCER_KEYS, PRODUCER_SETTINGS
from zkconsumer.errors import ConfigError, UnknownSetting
from zkconsumer.spark.errors import ColumnsRefused, OptionRefused
from zkconsumer.spark.options.foreign_options import READING, WRITING, hint_of
from zkconsumer.spark.options.option_table import (
    BOTH,
    STREAM,
    Option,
    boolean,
    converted,
    count,
    find_option,
    option_value,
)
from zkconsumer.spark.schema import HEADERS_COLUMN

_PREFIX: Final = "kafka."
# fmt: off
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
# fmt: on
_OF_SPARK: Final = (
    Option("checkpointLocation", STREAM, "", "Spark's own, of `writeStream`."),
    Option("queryName", STREAM, "", "Spark's own, of `writeStream`."),
)
# fmt: off
_SETTINGS: Final = (
    "zookeeper.connect", "metadata.broker.list", "request.required.acks", "compression.codec", "compressed.topics",
    "partitioner.class", "message.send.max.retries", "retry.backoff.ms", "unknown.topic.timeout.ms",
    "retry.unanswered.batches", "request.timeout.ms", "message.max.bytes", "batch.num.messages", "batch.max.bytes",
    "request.max.bytes", "enable.idempotence",
    "queue.buffering.max.messages", "queue.buffering.max.bytes", "client.id", "topic.metadata.refresh.interval.ms",
    "connect.timeout.ms", "send.buffer.bytes", "zookeeper.session.timeout.ms", "zookeeper.connection.timeout.ms",
    "kafka.generation",
)
# fmt: on
SINK_SETTING_NAMES: Final = (
    *_SETTINGS,
    *(key.name for key in PRODUCER_KEYS if key.section in ("zookeeper", "security")),
)  # fmt: skip
"""The settings of the producer that are options, too."""
# fmt: off
SINK_DEFAULTS: Final[Mapping[str, str]] = {
    "client.id": "zkconsumer-spark",
    "batch.num.messages": "10000",
    "queue.buffering.max.messages": "100000",
}
# fmt: on
"""Settings whose defaults are others than those of the producer: a task sends all its rows at once."""
# fmt: off
_OF_NEWER_PRODUCERS: Final[Mapping[str, str]] = {
    "bootstrap.servers": "metadata.broker.list",
    "acks": "request.required.acks",
    "retries": "message.send.max.retries",
    "compression.type": "compression.codec",
    "buffer.memory": "queue.buffering.max.bytes",
    "max.request.size": "message.max.bytes",
    "metadata.max.age.ms": "topic.metadata.refresh.interval.ms",
}
# fmt: on
_BY_NAME: Final = {key.name: key for key in PRODUCER_KEYS}
_RETRIES_DEFAULT: Final = "as many as delivery.timeout.ms takes"
# fmt: off
SINK_OPTIONS: Final = (
    *_OWN, *_OF_SPARK,
    *(Option(name, BOTH, _RETRIES_DEFAULT if name == "message.send.max.retries" else SINK_DEFAULTS.get(name) or
             _BY_NAME[name].default_text or f"{_BY_NAME[name].default}", _BY_NAME[name].meaning, True)
      for name in SINK_SETTING_NAMES),
)
# fmt: on
_AMBIGUOUS: Final = ("batch.size", "socket.timeout.ms")
"""Names of Kafka 0.7 that mean something else to newer producers, or to consumers."""
# fmt: off
_BY_LOWER_NAME: Final = {
    **{ours: option for option in SINK_OPTIONS if option.is_setting
       for ours in (_BY_NAME[option.name].name_07 or "").lower().split() if ours not in _AMBIGUOUS},
    **{newer: next(option for option in SINK_OPTIONS if option.name == ours)
       for newer, ours in _OF_NEWER_PRODUCERS.items()},
    **{alias: option for option in SINK_OPTIONS if option.is_setting for alias in _BY_NAME[option.name].aliases},
    **{option.name.lower(): option for option in SINK_OPTIONS},
}
# fmt: on


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


_ACKS: Final = "request.required.acks"
_BATCH, _QUEUE = "batch.num.messages", "queue.buffering.max.messages"
_CLUSTER: Final = ("zookeeper.connect", "metadata.broker.list")
_RETRIES: Final = "message.send.max.retries"
_DELIVERY_TIMEOUT: Final = "delivery.timeout.ms"
_DELIVERY_TIMEOUT_MS: Final = 120_000
"""As of newer producers, and so of Spark's own sink."""


@dataclass(frozen=True)
class SinkOptions:
    """All options of a sink.

    Attributes:
        config: The settings of the producer.
        topic: The topic of all rows; None for that of the column.
        delivery_timeout_ms: How long a task waits for brokers without any progress.
    """

    config: ProducerConfig
    topic: str | None
    delivery_timeout_ms: int

    @property
    def is_07(self) -> bool:
        """Whether the options say that the brokers are of Kafka 0.7."""
        return self.config.kafka_generation == "0.7"


def sink_settings(options: Mapping[str, str], is_stream: bool) -> dict[str, str]:
    """Return the options by the lower-case names of their table.

    Raises:
        OptionRefused: One is unknown, for a stream only, or given twice with different values.
    """
    given: dict[str, str] = {}
    spelled: dict[str, str] = {}
    for name, value in options.items():
        option = find_sink_option(name)
        if option is None:
            raise OptionRefused(name, unknown_sink_option(name))
        if option.where == STREAM and not is_stream:
            raise OptionRefused(option.name, "it is for a stream only")
        text = _acks(str(value)) if option.name == _ACKS else str(value)
        if given.setdefault(option.name.lower(), text) != text:
            raise OptionRefused(name, f"{spelled[option.name]} is also given, with another value")
        spelled.setdefault(option.name, name)
    return given


def sink_options(given: Mapping[str, str], of_files: Mapping[str, str]) -> SinkOptions:
    """Return the options of a sink.

    Args:
        given: The result of `sink_settings`.
        of_files: The settings of the files that `config` and `profile` name; given ones come first.

    Raises:
        OptionRefused: One is missing, wrong, or contradicts another.
    """
    option_value(given, "includeHeaders", boolean, False)
    if of_files.get(_ACKS, "").strip() == "0" and _ACKS not in given:
        raise OptionRefused(
            _ACKS, "the file of config or profile has 0, so messages could be lost without an error",
            f"set option {_ACKS} to 1 or -1; or to 0, if rows may be lost",
        )  # fmt: skip
    topic = given.get("topic")
    timeout_ms = option_value(given, _DELIVERY_TIMEOUT, count(INT32_MAX), _DELIVERY_TIMEOUT_MS)
    if any(name in given for name in _CLUSTER):
        of_files = {name: value for name, value in of_files.items() if name not in _CLUSTER}
    settings = {name: value for name, value in {**of_files, **given}.items() if PRODUCER_SETTINGS.find(name)}
    return SinkOptions(
        _config(settings, timeout_ms), None if topic is None else converted("topic", check_topic, topic), timeout_ms
    )


def _config(settings: Mapping[str, str], timeout_ms: int) -> ProducerConfig:
    entries: dict[str, object] = {**SINK_DEFAULTS, **settings}
    if _QUEUE in settings and _BATCH not in settings:  # a batch has to fit into the queue
        entries[_BATCH] = min(entries[_BATCH], settings[_QUEUE], key=_number)
    if _BATCH in settings and _QUEUE not in settings:
        entries[_QUEUE] = max(entries[_QUEUE], settings[_BATCH], key=_number)
    try:
        if _RETRIES not in settings:
            backoff_ms = ProducerConfig.from_properties(entries).retry_backoff_ms
            entries[_RETRIES] = min(timeout_ms // max(backoff_ms, 1) + 1, INT32_MAX)
        return ProducerConfig.from_properties(entries)
    except ConfigError as error:
        raise OptionRefused(error.key, str(error).partition(" ")[2]) from None


def _acks(text: str) -> str:
    return "-1" if text.strip().lower() == "all" else text.strip()


def _number(text: object) -> int:
    """Return a number; 0 for what is none, which `ProducerConfig` refuses."""
    return int(str(text)) if str(text).strip().isdigit() else 0


BINARY, STRING, INT, TIMESTAMP = "binary", "string", "int", "timestamp"
_HEADERS: Final = HEADERS_COLUMN.name
_TYPES: Final = {
    "key": (BINARY, STRING), "value": (BINARY, STRING), "topic": (STRING,), "partition": (INT, STRING),
    _HEADERS: (HEADERS_COLUMN.type,), TIMESTAMP: (TIMESTAMP,),
}  # fmt: skip
_OF_SOURCE: Final = ("offset", "timestampType", "broker", "entry_index", "next_offset", "error")
_SELECT: Final = 'name the columns to write, for example with select("key", "value", "topic")'


@dataclass(frozen=True)
class SinkColumns:
    """The columns of a table that is written.

    Attributes:
        names: All of them, in the order of the table.
        key: The type of the key, `binary` or `string`; None for no such column.
        value: The type of the value.
        has_topic: The topics are in a column, which is used.
        partition: The type of the partition, `int` or `string`; None for no such column.
        has_headers: There is a column of headers.
        has_times: There is a column `timestamp`.
    """

    names: tuple[str, ...]
    key: str | None
    value: str
    has_topic: bool
    partition: str | None
    has_headers: bool = False
    has_times: bool = False


def sink_columns(fields: Sequence[tuple[str, str]], topic: str | None, is_07: bool = False) -> SinkColumns:
    """Return the columns to write.

    Args:
        fields: Name, and type as `DataType.simpleString()` gives it.
        topic: The topic of all rows; None for that of the column.
        is_07: The options say that the brokers are of Kafka 0.7.

    Raises:
        ColumnsRefused: A column is missing, unknown, there twice, or of another type.
    """
    types: dict[str, str] = {}
    for name, kind in fields:
        if name in types:
            raise ColumnsRefused(f"column {name!r} appears twice", remedy=_SELECT)
        types[name] = _checked_type(name, kind)
    if "value" not in types:
        raise ColumnsRefused("column 'value', the bytes or text to write, is missing",
                             remedy='create it: selectExpr("to_json(struct(*)) as value")')  # fmt: skip
    if topic is None and "topic" not in types:
        raise ColumnsRefused("no topic is named", remedy="set option topic, or add a column 'topic'")
    if _HEADERS in types and is_07:
        raise ColumnsRefused("column 'headers' cannot be written: messages of Kafka 0.7 have no headers",
                             remedy="drop('headers'), or put them into the value")  # fmt: skip
    if TIMESTAMP in types and is_07:
        raise ColumnsRefused("column 'timestamp' cannot be written: messages of Kafka 0.7 have no times",
                             remedy="drop('timestamp'), or put it into the value")  # fmt: skip
    return SinkColumns(
        tuple(types), types.get("key"), types["value"], topic is None, types.get("partition"), _HEADERS in types,
        TIMESTAMP in types,
    )  # fmt: skip


def _checked_type(name: str, kind: str) -> str:
    if name in _OF_SOURCE:
        raise ColumnsRefused(f"column {name!r} cannot be written: brokers set it", remedy=_SELECT)
    if name not in _TYPES:
        raise ColumnsRefused(f"a sink has no column {name!r} ({_hint(name)})", remedy=_SELECT)
    # Text with a collation is "string collate UNICODE", and char and varchar come as text.
    plain = STRING if kind.split(" ")[0].split("(")[0] in (STRING, "varchar", "char") else kind
    if plain not in _TYPES[name]:
        wanted = " or ".join(_TYPES[name])
        raise ColumnsRefused(f"column {name!r} is {kind}, not {wanted}", remedy=f"cast it: {_cast(name)}")
    return plain


def _cast(name: str) -> str:
    return f'selectExpr("cast({name} as {_TYPES[name][-1] if name != "partition" else INT}) as {name}", ...)'


def _hint(name: str) -> str:
    same = [each for each in _TYPES if each == name.lower()]
    near = same or difflib.get_close_matches(name, _TYPES, n=1)
    return f"did you mean {near[0]!r}?" if near else f"existing columns: {', '.join(_TYPES)}"
