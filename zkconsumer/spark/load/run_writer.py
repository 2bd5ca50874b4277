"""Writes the rows of a run into its staging folder, counts them, and returns the manifest to publish."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.load.audit import OffsetSpan, PartitionCounts, audit, incomplete
from zkconsumer.spark.load.errors import LoadOvertaken
from zkconsumer.spark.load.history import History, staging_folder
from zkconsumer.spark.load.incarnations import refuse_recreated_topics, unchanged_epochs
from zkconsumer.spark.load.job_progress import Tell, watched_jobs
from zkconsumer.spark.load.manifest import Manifest
from zkconsumer.spark.load.planning import ClusterState, RunPlan
from zkconsumer.spark.load.row_counts import count_from, count_rows
from zkconsumer.spark.load.settings import LoadSettings
from zkconsumer.spark.load.storage import Storage
from zkconsumer.spark.load.writing import (
    TEXT_MARK,
    UNDECODED_FOLDER,
    is_surely_text,
    write_bad,
    write_rows,
    write_text_mark,
)
from zkconsumer.spark.options.offset_spec import TIME_OPTIONS
from zkconsumer.spark.options.offsets_json import nested_offsets
from zkconsumer.spark.reading.cluster_offsets import ClusterOffsets
from zkconsumer.spark.schema import NEXT_OFFSET, schema_text
from zkconsumer.spark.settings_files import open_source
from zkconsumer.spark.streaming.log_changes import Loss
from zkconsumer.spark.streaming.stream_offsets import StreamOffsets

__all__ = ["RunWriter"]


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
            AuditFailed: what was written is not what was planned; the staging folder is removed.
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

    def _write_and_count(
        self, folder: str, empty: Manifest, plan: RunPlan
    ) -> Mapping[TopicPartition, PartitionCounts]:
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
        """The messages that were planned, those that cannot be decoded among them."""
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

    def _deleted(
        self, folder: str, plan: RunPlan, short: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
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
            raise LoadOvertaken(f"another load has published run {last.run} in {self.storage.folder} in the "
                                "meantime; nothing of this load was published; start it again")


def _losses(plan: RunPlan, deleted: Mapping[TopicPartition, int]) -> list[Loss]:
    return [Loss(name, plan.asked[name].start, min(start, plan.asked[name].end), "deleted while it was read, in part")
            for name, start in deleted.items()]
