"""What tests of Spark on Kafka 0.7 share: entries, and what a table holds without a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka_07 import Both

from simpleconsumer.dialect import KAFKA07
from zkconsumer.spark.options.options import SourceOptions, batch_options
from zkconsumer.spark.reading.batch_planning import plan_batch
from zkconsumer.spark.reading.bounds import PlannedRange
from zkconsumer.spark.reading.record_batches import read_range

COLUMNS = ("value", "topic", "partition", "offset", "broker", "entry_index")


def compressed(values: Sequence[bytes], codec: str = "gzip") -> bytes:
    """One compressed entry."""
    return bytes(KAFKA07.encode_messages(values, codec, None, None))


def options_of(cluster: Both, topic: str, **given: object) -> SourceOptions:
    named = {name.replace("_", "."): str(value) for name, value in given.items()}
    return batch_options({
        "zookeeper.connect": cluster.zookeeper_connect, "kafka.generation": "0.7", "subscribe": topic, **named
    })  # fmt: skip


def planned(cluster: Both, topic: str, **given: object) -> list[PlannedRange]:
    return plan_batch(options_of(cluster, topic, **given))


def rows_of(cluster: Both, topic: str, **given: object) -> list[dict[str, Any]]:
    """The rows of a table, as its tasks yield them."""
    options = options_of(cluster, topic, **given)
    columns = (*COLUMNS, "error") if options.on_message_error == "row" else COLUMNS
    return [row for each in plan_batch(options) for batch in read_range(each, columns, options)
            for row in batch.to_pylist()]  # fmt: skip
