"""Plans a batch on the driver: from the options and the state of the cluster to the ranges that its tasks read.

The reader of `spark.read.format("zkconsumer")`: it plans with `plan_batch`, and reads with `read_range`.

Spark refuses a reader that defines `pushFilters` unless `spark.sql.python.filterPushdown.enabled` is on, whether the
query has filters or not. The process that creates the reader does not see the settings of the session. But Spark passes
filters in a separate kind of process, which it starts only if that setting is on. In other processes there are none.

Source: pyspark.sql.datasource.DataSourceReader; pyspark.sql.worker.data_source_pushdown_filters and
plan_data_source_read (4.1 to 4.3).
"""

from __future__ import annotations

import difflib
import logging
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.sql.datasource import DataSourceReader, InputPartition

from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.spark.errors import RequirementMissing, TopicMissing
from zkconsumer.spark.options.offsets_json import are_byte_positions
from zkconsumer.spark.options.option_table import OffsetSpec
from zkconsumer.spark.options.options import SourceOptions
from zkconsumer.spark.reading.bounds import (
    LogEnds,
    PlannedRange,
    SplitLimits,
    check_named,
    check_times,
    plan_ranges,
    resolve_bounds,
    spec_at_times,
)
from zkconsumer.spark.reading.cluster_offsets import ClusterOffsets
from zkconsumer.spark.reading.entry_positions import at_entries, cut_at_entries
from zkconsumer.spark.reading.pushdown import NO_FILTERS, PushedFilters, push_filters
from zkconsumer.spark.settings_files import open_source
from zkconsumer.spark.streaming.stream_offsets import ALL_OFFSETS, Spans, common
from zkconsumer_error import first_few

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

log = logging.getLogger(__name__)


def plan_batch(options: SourceOptions, filters: PushedFilters = NO_FILTERS) -> list[PlannedRange]:
    """Return what the tasks of a batch read.

    Args:
        filters: The filters of the query; brokers are not asked about partitions that they exclude.

    Raises:
        SparkSourceError, ZkConsumerError, RebalanceError: Something is missing; the text says what, and where.
    """
    config = options.config
    with open_source(config) as source:
        cluster = ClusterOffsets(source, config, options.patience_ms / 1000)
        cluster.refuse_other_generations()
        names = chosen_partitions(cluster, options)
        if not names or options.ending is None:
            return []
        for spec in (options.starting, options.ending):
            check_named(spec, names)
        check_times(options.starting, options.ending, names)
        with_group = "group" in (options.starting.kind, options.ending.kind)
        stored = cluster.group_offsets(config.group_id, names) if with_group else {}
        read = [name for name in names if filters.accepts(name)]
        starting, ending, ends = ask_for_ends(
            cluster, _only(options.starting, read), _only(options.ending, read), read
        )  # fmt: skip
        bounds = resolve_bounds(starting, ending, ends, stored, options.fail_on_data_loss, filters.offsets)
        for loss in bounds.losses:
            log.warning("%s", loss)
        bounds = at_entries(options, bounds, starting, ending, ends)
        leaders = {name: log_ends.leader for name, log_ends in ends.items()}
        ranges = split_ranges(cluster, bounds.starts, bounds.ends, leaders, options, filters.offsets)
        range_starts = {(each.name, each.start) for each in ranges}
        return [
            replace(each, is_last=(each.name, each.end) not in range_starts, table_end=bounds.ends[each.name],
                    epoch=ends[each.name].epoch)
            for each in ranges
        ]  # fmt: skip


def ask_for_ends(
    cluster: ClusterOffsets, starting: OffsetSpec, ending: OffsetSpec, partitions: Sequence[TopicPartition]
) -> tuple[OffsetSpec, OffsetSpec, dict[TopicPartition, LogEnds]]:
    """Return both specs with offsets instead of times, and the ends of the logs.

    Raises:
        OptionRefused: Times by JSON omit a partition, name one that is not read, or end before they start.
        NoMessageAtTime: A partition has no message at or after its time, and that is an error.
        PlanningFailed: Not all leaders answered in time.
    """
    for spec in (starting, ending):
        check_named(spec, partitions)
    check_times(starting, ending, partitions)
    found = {
        spec.option: cluster.at_times(spec.times_ms(partitions), is_end=spec is ending)
        for spec in (starting, ending) if spec.kind == "time"
    }  # fmt: skip
    ends = cluster.log_ends(partitions)
    start, end = (
        spec_at_times(spec, found[spec.option], ends) if spec.option in found else spec for spec in (starting, ending)
    )
    return start, end, ends


def chosen_partitions(cluster: ClusterOffsets, options: SourceOptions) -> list[TopicPartition]:
    """Return the partitions to read that exist now, sorted; none if no topic passes the filters.

    Raises:
        TopicMissing: A topic or partition that the options name does not exist; on Kafka 0.7, or its brokers are away.
        ZooKeeperSilent: No answer in time.
    """
    choice = options.choice
    known = cluster.topics()
    topics = choice.topics_of(known, options.config.exclude_internal_topics)
    partitions = cluster.partitions(topics)
    where = options.config.where
    for topic in topics:
        if topic not in partitions and not choice.is_filter:
            raise TopicMissing(f"topic {topic!r} does not exist {where}", remedy=_nearest(topic, known))
        if options.counts_bytes and not partitions[topic] and not choice.is_filter:
            raise TopicMissing(f"no broker that is registered {where} has topic {topic!r}",
                               remedy="its partitions are known when their brokers run")  # fmt: skip
    for topic, number in choice.partitions:
        if number not in partitions[topic]:
            raise TopicMissing(
                f"partition {number} of topic {topic!r} does not exist {where}: the topic has "
                f"{_described(partitions[topic])}"
            )
    if choice.partitions:
        return list(choice.partitions)
    return sorted(TopicPartition(topic, number) for topic, numbers in partitions.items() for number in numbers)


def split_ranges(
    cluster: ClusterOffsets,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    leaders: Mapping[TopicPartition, Broker],
    options: SourceOptions,
    offsets: Spans = ALL_OFFSETS,
) -> list[PlannedRange]:
    """Return the ranges between starts and ends, split as the options say.

    Args:
        offsets: Which of them the query reads.

    Raises:
        OptionRefused: There would be too many tasks.
    """
    limits = SplitLimits(options.min_partitions, options.max_records_per_partition, options.max_bytes_per_partition)
    sizes: dict[TopicPartition, float] = {}
    if limits.max_bytes is not None:
        read = {name: common(((starts[name], end),), offsets) for name, end in ends.items()}
        hulls = {name: (spans[0][0], spans[-1][1]) for name, spans in read.items() if spans}
        middles = {name: (start + end) // 2 for name, (start, end) in hulls.items() if end - start > 1}
        sizes = cluster.message_bytes(middles, leaders)
    ranges = plan_ranges(starts, ends, leaders, limits, sizes, offsets)
    return cut_at_entries(options, ranges) if are_byte_positions(ends) else ranges


def _only(spec: OffsetSpec, names: Collection[TopicPartition]) -> OffsetSpec:
    return replace(spec, each={name: offset for name, offset in spec.each.items() if name in names})


def _described(partitions: Sequence[int | str]) -> str:
    if not are_byte_positions(TopicPartition("", each) for each in partitions):
        return f"{len(partitions)}"
    return f"{first_few(*partitions, most=10, rest=', ...')} on the brokers that are registered now"


def _nearest(topic: str, known: list[str]) -> str:
    near = difflib.get_close_matches(topic, known, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    if not known:
        return "no topic exists"
    return f"existing topics: {first_few(*known, most=10, rest=', ...')}"


_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class ZkBatchReader(DataSourceReader):
    """Plans on the driver, reads on the executors.

    The plan is sent in the partitions, because Spark pickles this object before it calls `partitions`.
    """

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Return what each task reads."""

        return [InputPartition(each) for each in plan_batch(self._options)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        # If there is nothing to read, Spark passes a partition without a value, and Spark 4.0 passes None.
        if partition is None or partition.value is None:
            return
        from zkconsumer.spark.reading.record_batches import read_range

        yield from read_range(partition.value, self._columns, self._options)


def choose_reader(options: SourceOptions, columns: tuple[str, ...]) -> ZkBatchReader:
    """Return the reader that is allowed in this process.

    Raises:
        RequirementMissing: The option needs filters, and this Spark does not pass them.
    """
    if not options.filter_pushdown:
        return ZkBatchReader(options, columns)
    if not hasattr(DataSourceReader, "pushFilters"):
        raise RequirementMissing(f"option filterPushdown needs pyspark 4.1 or newer, not {pyspark.__version__}")
    return ZkFilteredReader(options, columns) if _is_where_filters_come() else ZkBatchReader(options, columns)


class ZkFilteredReader(ZkBatchReader):
    """Plans only the partitions and offsets that the filters accept."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        super().__init__(options, columns)
        self._filters = NO_FILTERS

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        """Keep the filters that can be planned, and return the filters that Spark has to evaluate."""
        # The error row of a wrapper has the offset of its last message, which may be after the range.
        exact = self._options.on_message_error != "row"
        self._filters, rest = push_filters(filters, offsets_are_exact=exact)
        return rest

    def partitions(self) -> list[InputPartition]:
        """Return what each task reads."""

        return [InputPartition(each) for each in plan_batch(self._options, self._filters)]


def _is_where_filters_come() -> bool:
    # Without Spark's daemon process the module is the main module.
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _WORKER in sys.modules or getattr(main, "name", None) == _WORKER
