"""The options of a sink, checked, as one value.

Pure. An unknown option is refused by name, because a typing error must not change what is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rebalance.subscription import check_topic
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.config.tables.kinds import INT32_MAX
from zkconsumer.config.tables.producer_keys import PRODUCER_SETTINGS
from zkconsumer.errors import ConfigError
from zkconsumer.spark.errors import OptionRefused
from zkconsumer.spark.options.offset_spec import converted
from zkconsumer.spark.options.option_table import STREAM
from zkconsumer.spark.options.option_values import boolean, count, option_value
from zkconsumer.spark.writing.sink_option_table import SINK_DEFAULTS, find_sink_option, unknown_sink_option

__all__ = ["SinkOptions", "sink_options", "sink_settings"]

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
        given: What `sink_settings` returns.
        of_files: The settings of the files that `config` and `profile` name; those that are given come first.

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
