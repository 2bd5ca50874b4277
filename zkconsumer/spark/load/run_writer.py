"""Writes the rows of a run into its staging folder, counts them, and returns the manifest to publish.

Counts the rows of a run in each partition, by reading its files back with Spark.

Source: docs/SPARK_LOADING.md, "Each message once".
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from operator import or_, xor
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.load.audit import (
    LIGHT_MASK,
    EntrySums,
    OffsetSpan,
    OffsetSums,
    PartitionCounts,
    audit,
    incomplete,
)
from zkconsumer.spark.load.failures import LoadOvertaken
from zkconsumer.spark.load.history import History, staging_folder
from zkconsumer.spark.load.incarnations import refuse_recreated_topics, unchanged_epochs
from zkconsumer.spark.load.manifest import LastMessage, Manifest
from zkconsumer.spark.load.planning import ClusterState, RunPlan
from zkconsumer.spark.load.session import Tell, watched_jobs
from zkconsumer.spark.load.settings import LoadSettings
from zkconsumer.spark.load.storage import Storage
from zkconsumer.spark.load.writing import (
    DATA_FOLDER,
    TEXT_MARK,
    UNDECODED_FOLDER,
    Shape,
    is_surely_text,
    read_back,
    settings_of_writing,
    write_bad,
    write_rows,
    write_text_mark,
)
from zkconsumer.spark.options.offsets_json import column_value, nested_offsets, partition_of_column
from zkconsumer.spark.options.option_table import TIME_OPTIONS
from zkconsumer.spark.reading.cluster_offsets import ClusterOffsets
from zkconsumer.spark.schema import NEXT_OFFSET, schema_text
from zkconsumer.spark.settings_files import open_source
from zkconsumer.spark.streaming.log_changes import Loss
from zkconsumer.spark.streaming.stream_offsets import StreamOffsets

_LOW_HALF: Final = 0xFFFFFFFF


def count_rows(
    spark: Any,
    url: str,
    shape: Shape,
    asked: Mapping[TopicPartition, OffsetSpan],
    starts: Mapping[TopicPartition, int] = MappingProxyType({}),
) -> dict[TopicPartition, PartitionCounts]:
    """The content of the files below `url` for each partition.

    Count, ends, sum and exclusive or of the offsets show whether each offset is there once. Only where they do not, the
    different offsets are counted, which needs a shuffle of all rows. On Kafka 0.7 the sums of `EntrySums` show it.

    Args:
        starts: only on Kafka 0.7: offsets of these partitions before theirs are not counted.
    """
    with settings_of_writing(spark):
        rows = read_back(spark, url, shape)
        if rows is None:
            return {}
        if shape.has_places:
            return _counted_entries(rows, starts)
        counted = {place: _Counts.of(some) for place, some in _counted(rows).items()}
        doubtful = [place for place, counts in counted.items()
                    if place not in asked or counts.sums != OffsetSums.of(asked[place])]  # fmt: skip
        distinct = _count_distinct(rows, {place.topic for place in doubtful})
    return {
        place: PartitionCounts(
            sums.rows, distinct.get(place, sums.rows), sums.first, sums.last, messages, size_bytes, last
        )
        for place, (sums, messages, size_bytes, last) in counted.items()
    }


class _Counts(NamedTuple):
    """The counts of one partition. Only the sums include the side output."""

    sums: OffsetSums
    messages: int
    bytes: int
    last_message: LastMessage | None

    @classmethod
    def of(cls, kinds: list[Any]) -> _Counts:
        """From the rows of `_counted`, one for each kind of file that the partition has."""
        wide = any(row["low"] is None or row["high"] is None for row in kinds)  # -1 equals no expected total
        total = -1 if wide else sum((row["high"] << 32) + row["low"] for row in kinds)
        sums = OffsetSums(
            sum(row["rows"] for row in kinds), min(row["first"] for row in kinds), max(row["last"] for row in kinds),
            total, reduce(xor, (row["xor"] for row in kinds)),
        )  # fmt: skip
        for row in kinds:
            if f"kind={row['kind']}" == DATA_FOLDER:
                return cls(sums, row["rows"], row["bytes"], LastMessage(row["last"], row["key_crc"], row["value_crc"]))
        return cls(sums, 0, 0, None)


def _counted_entries(rows: Any, starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, PartitionCounts]:
    """Figures of each partition of Kafka 0.7, from which `EntrySums.fault` finds out what is missing."""
    from pyspark.sql import functions as f

    for name, first in starts.items():
        is_there = (f.col("topic") == name.topic) & (f.col("partition") == column_value(name.partition))
        rows = rows.where(~is_there | (f.col("offset") >= first))
    index, is_last = f.col("entry_index").cast("bigint"), f.col("next_offset") > f.col("offset")
    start, end = (f.crc32(f.col(name).cast("string").cast("binary")) for name in ("offset", "next_offset"))
    count, light = index + 1, start.bitwiseAND(LIGHT_MASK)
    squares = f.expr("cast(entry_index as bigint) * (entry_index + 1) * (2 * entry_index + 1) div 6")
    is_data = f.col("kind") == DATA_FOLDER.partition("=")[2]
    # The first message of the last entry: that is the one which can be fetched again by its offset.
    place = f.when(is_data, f.struct("offset", -index))
    length = f.coalesce(f.octet_length("key"), f.lit(0)) + f.coalesce(f.octet_length("value"), f.lit(0))

    def of_entries(amount: Any) -> Any:
        return f.coalesce(f.sum(f.when(is_last, amount)), f.lit(0))

    grouped = rows.groupBy("topic", "partition").agg(
        f.count(f.lit(1)).alias("rows"), f.min("offset").alias("first"), f.max("offset").alias("last"),
        f.count_if(is_data).alias("messages"), f.coalesce(f.sum(f.when(is_data, length)), f.lit(0)).alias("bytes"),
        of_entries(f.col("next_offset") - f.col("offset")).alias("covered"),
        of_entries(start).alias("starts"), of_entries(end).alias("ends"), of_entries(count).alias("expected"),
        f.sum(start).alias("weighed"), of_entries(start * count).alias("expected_weight"),
        f.try_sum(light * index).alias("indexes"),
        f.try_sum(f.when(is_last, light * f.shiftright(index * count, 1))).alias("expected_indexes"),
        f.try_sum(index * index).alias("squares"),
        f.try_sum(f.when(is_last, squares)).alias("expected_squares"),
        f.max(place).alias("place"),
        f.max_by(f.crc32("key"), place).alias("key_crc"), f.max_by(f.crc32("value"), place).alias("value_crc"),
    )  # fmt: skip
    found: dict[TopicPartition, PartitionCounts] = {}
    for row in grouped.collect():
        name = TopicPartition(row["topic"], partition_of_column(row["partition"]))
        last = None if row["place"] is None else LastMessage(row["place"]["offset"], row["key_crc"], row["value_crc"])
        sums = EntrySums(*(row[each] for each in EntrySums._fields))
        found[name] = PartitionCounts(row["rows"], 0, row["first"], row["last"], row["messages"], row["bytes"], last,
                                      sums)  # fmt: skip
    return found


def _counted(rows: Any) -> dict[TopicPartition, list[Any]]:
    """Figures of each partition, in a row for each kind of file."""
    from pyspark.sql import functions as f

    length = f.coalesce(f.octet_length("key"), f.lit(0)) + f.coalesce(f.octet_length("value"), f.lit(0))
    grouped = rows.groupBy("topic", "partition", "kind").agg(
        f.count(f.lit(1)).alias("rows"),
        f.min("offset").alias("first"),
        f.max("offset").alias("last"),
        # In two halves, because a sum of decimals takes four times as long; null if even the halves overflow.
        f.try_sum(f.col("offset").bitwiseAND(_LOW_HALF)).alias("low"),
        f.try_sum(f.shiftright("offset", 32)).alias("high"),
        f.bit_xor("offset").alias("xor"),
        f.sum(length).alias("bytes"),
        f.max_by(f.crc32("key"), "offset").alias("key_crc"),
        f.max_by(f.crc32("value"), "offset").alias("value_crc"),
    )
    found: dict[TopicPartition, list[Any]] = {}
    for row in grouped.collect():
        found.setdefault(TopicPartition(row["topic"], row["partition"]), []).append(row)
    return found


def count_from(spark: Any, url: str, shape: Shape, starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """How many different offsets, from `starts` on, the files below `url` contain of each partition."""
    from pyspark.sql import functions as f

    if not starts:
        return {}
    with settings_of_writing(spark):
        rows = read_back(spark, url, shape)
        if rows is None:
            return {}
        places = [f.lit(False)]
        places += [(f.col("topic") == name.topic) & (f.col("partition") == int(name.partition))
                   & (f.col("offset") >= start) for name, start in starts.items()]  # fmt: skip
        counted = rows.where(reduce(or_, places)).groupBy("topic", "partition")
        found = counted.agg(f.count_distinct("offset").alias("distinct")).collect()
    return {TopicPartition(row["topic"], row["partition"]): row["distinct"] for row in found}


def _count_distinct(rows: Any, topics: Iterable[str]) -> dict[TopicPartition, int]:
    from pyspark.sql import functions as f

    wanted = sorted(topics)
    if not wanted:
        return {}
    some = rows.where(f.col("topic").isin(wanted)).groupBy("topic", "partition")
    found = some.agg(f.count_distinct("offset").alias("distinct")).collect()
    return {TopicPartition(row["topic"], row["partition"]): row["distinct"] for row in found}


@dataclass(frozen=True)
class RunWriter:
    """Writes runs into the staging folders of a load."""

    spark: Any
    settings: LoadSettings
    storage: Storage
    history: History
    tell: Tell

    def write(self, empty: Manifest, cluster: ClusterState, plan: RunPlan) -> Manifest:
        """Write a run, and return its manifest once the counts agree with the plan.

        Args:
            empty: the manifest of the run, with nothing in it.

        Raises:
            AuditFailed: the written files differ from the plan; the staging folder is removed.
            LoadOvertaken: another load has published this run meanwhile.
        """
        folder = staging_folder(empty.run, empty.run_id)
        try:
            # A run without anything to read still records the start of partitions that it sees for the first time.
            counted = self._write_and_count(folder, empty, plan) if plan.asked else {}
            deleted: dict[TopicPartition, int] = {}
            if self.settings.allow_loss:
                deleted = self._deleted(folder, plan, incomplete(plan.asked, counted, cluster.compacted))
            partitions = audit(plan.asked, counted, cluster.compacted, deleted)
            offsets = self._of_the_same_logs(cluster, plan)
            last = {name: each.last_message for name, each in counted.items() if each.last_message is not None}
            files = self.history.staged_files(empty.run, empty.run_id, self.settings.shape.is_table)
            files = tuple(sorted(files, key=lambda file: not file.final.startswith(TEXT_MARK)))  # moved first
            self.storage.sync([file.staged for file in files])  # the manifest will say that they are there
            state = replace(plan.state, offsets=offsets, last_messages={**plan.state.last_messages, **last})
            lost = (*plan.lost, *_losses(plan, deleted))
            return replace(empty, state=state, partitions=partitions, lost=lost, files=files)
        except BaseException as error:
            with suppress(Exception):  # the first error is the one to report; a later run removes the rest
                self.storage.delete(folder)
            if isinstance(error, Exception):
                self._refuse_overtaken(empty.run)
            raise

    def _write_and_count(self, folder: str, empty: Manifest, plan: RunPlan) -> Mapping[TopicPartition, PartitionCounts]:
        url, shape, started = self.storage.url(folder), self.settings.shape, datetime.fromisoformat(empty.began_at)
        with watched_jobs(self.spark, "loading", self.tell):
            write_rows(self.spark, self._rows(plan), url, shape, started)
            topics = {name.topic for name in plan.state.offsets.offsets}
            if not shape.is_table and not all(map(is_surely_text, topics)) and not self.storage.exists(TEXT_MARK):
                write_text_mark(self.spark, url, shape, started)
            if self.storage.exists(f"{folder}/{UNDECODED_FOLDER}"):
                write_bad(self.spark, url, shape)
        with watched_jobs(self.spark, "counting", self.tell):
            return count_rows(self.spark, url, shape, plan.asked)

    def _of_the_same_logs(self, cluster: ClusterState, plan: RunPlan) -> StreamOffsets:
        """The ends of the run, once it is known that what was read is of the logs of the plan."""
        created_zxids, offsets = cluster.logs.created_zxids, plan.state.offsets
        if not plan.asked or not (created_zxids or offsets.epochs):  # on Kafka 0.7 there is neither
            return offsets
        options = self.settings.options()
        with open_source(options.config) as source:
            refuse_recreated_topics(source, created_zxids, {name.topic for name in plan.asked})
            return replace(offsets, epochs=unchanged_epochs(source, options, offsets, plan.asked.keys()))

    def _rows(self, plan: RunPlan) -> Any:
        """The messages that were planned, also ones that cannot be decoded."""
        from zkconsumer.spark.source import ZkConsumerSource

        # Spark finds the source by itself only if it was installed by pip: not if it is in an archive.
        self.spark.dataSource.register(ZkConsumerSource)
        decided = ("subscribe", "subscribepattern", "blacklist", "startingoffsets", *map(str.lower, TIME_OPTIONS))
        options = {name: value for name, value in self.settings.source.items() if name.lower() not in decided}
        numbers: dict[str, list[int | str]] = {}
        for topic, number in sorted(plan.asked):
            numbers.setdefault(topic, []).append(number)
        options |= {
            "assign": json.dumps(numbers),
            "startingOffsets": json.dumps(nested_offsets({name: span.start for name, span in plan.asked.items()})),
            "endingOffsets": json.dumps(nested_offsets({name: span.end for name, span in plan.asked.items()})),
            "onMessageError": "row",
            "failOnDataLoss": str(not self.settings.allow_loss).lower(),
        }
        if self.settings.shape.file_bytes is not None:  # each task writes its own files
            options["maxBytesPerPartition"] = str(self.settings.shape.file_bytes)
        reader = self.spark.read.format("zkconsumer").options(**options)
        if self.settings.shape.has_places:
            reader = reader.schema(f"{schema_text(True, True)}, {NEXT_OFFSET.name} {NEXT_OFFSET.type}")
        return reader.load()

    def _deleted(self, folder: str, plan: RunPlan, short: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The new start of logs whose messages were deleted while they were read, if all others were written."""
        if not short:
            return {}
        options = self.settings.options()
        with open_source(options.config) as source:
            logs = ClusterOffsets(source, options.config, options.patience_ms / 1000).log_ends(short)
        starts = {name: ends.earliest for name, ends in logs.items() if ends.earliest > plan.asked[name].start}
        if self.settings.shape.has_places:
            return self._deleted_before(folder, plan, starts)
        counted = count_from(self.spark, self.storage.url(folder), self.settings.shape, starts)
        return {name: start for name, start in starts.items()
                if counted.get(name, 0) == max(0, plan.asked[name].end - start)}  # fmt: skip

    def _deleted_before(
        self, folder: str, plan: RunPlan, starts: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """The same on Kafka 0.7: the entries from the new start on must be there, each once."""
        spans = {name: OffsetSpan(start, plan.asked[name].end) for name, start in starts.items()
                 if start < plan.asked[name].end}  # fmt: skip
        counted = count_rows(self.spark, self.storage.url(folder), self.settings.shape, spans, starts)
        short = incomplete(spans, counted, ())
        return {name: start for name, start in starts.items() if name not in short}

    def _refuse_overtaken(self, run: int) -> None:
        """Raise if another load has published this run meanwhile: it has removed what this one wrote."""
        last = None
        with suppress(Exception):
            last = self.history.last()
        if last is not None and last.run >= run:
            raise LoadOvertaken(
                f"another load has published run {last.run} in {self.storage.folder} in the "
                "meantime; nothing of this load was published; start it again"
            )


def _losses(plan: RunPlan, deleted: Mapping[TopicPartition, int]) -> list[Loss]:
    return [
        Loss(name, plan.asked[name].start, min(start, plan.asked[name].end), "deleted while it was read, in part")
        for name, start in deleted.items()
    ]
