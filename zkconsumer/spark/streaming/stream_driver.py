"""Plans a stream on the driver: where it starts, where each micro-batch ends, and which offsets the group stores.

It lives in one process for as long as the query runs. The next process continues from the checkpoint.

Rules, and what each prevents:
- The first batch is empty: Spark stores the end of a batch and not its start, so only the end of an empty batch stores
  the start. If a restart comes before that, the start is resolved again, and no message was read yet (otherwise
  `latest` would skip messages).
- Everything before the start that Spark names for the next batch is durable. That is stored for the group, never more.
- An end that is lower than the position is read again before it counts: a leader that was just elected may report an
  old end.

Threads: one at a time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from simpleconsumer.types import TopicPartition
from zkconsumer.cluster.metadata_reader import MetadataReader
from zkconsumer.spark.errors import AnotherCluster, MessagesLost, PlanningFailed
from zkconsumer.spark.options.offsets_json import are_byte_positions
from zkconsumer.spark.options.option_table import OffsetSpec
from zkconsumer.spark.options.options import SourceOptions, TopicChoice
from zkconsumer.spark.reading.batch_planning import ask_for_ends, chosen_partitions, split_ranges
from zkconsumer.spark.reading.bounds import PlannedRange, resolve_bounds
from zkconsumer.spark.reading.cluster_offsets import ClusterOffsets
from zkconsumer.spark.reading.entry_positions import at_entries, entry_positions
from zkconsumer.spark.settings_files import open_source
from zkconsumer.spark.streaming.group_offsets import GroupOffsets, StreamGroup
from zkconsumer.spark.streaming.log_changes import (
    Logs,
    Loss,
    Step,
    needing_log_start,
    next_step,
    remaining_ranges,
    shrunk,
)
from zkconsumer.spark.streaming.metrics import lag_of
from zkconsumer.spark.streaming.stream_entries import StreamEntries
from zkconsumer.spark.streaming.stream_logs import ENDS_S, StreamLogs
from zkconsumer.spark.streaming.stream_offsets import StreamOffsets, TriggerDelay, admit, is_id
from zkconsumer_error import first_few

log = logging.getLogger(__name__)


class StreamDriver:
    """Plans the micro-batches of one stream.

    Args:
        options: of the stream.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._logs = StreamLogs(options)
        self._stack = ExitStack()
        self._cluster: ClusterOffsets | None = None
        self._group: StreamGroup | None = None
        self._initial: StreamOffsets | None = None
        self._is_first_batch = self._is_checked = False
        self._target: dict[TopicPartition, int] | None = None
        self._logged_losses: set[Loss] = set()
        self._skipped = 0
        self._logged: StreamOffsets | None = None
        self._idle: StreamOffsets | None = None
        self._idle_until = 0.0
        self._entries = StreamEntries(entry_positions(options)) if options.counts_bytes else None
        self._delay = TriggerDelay(options.min_offsets_per_trigger, options.max_trigger_delay_ms / 1000)

    def open(self) -> ClusterOffsets:
        """Connect, unless connected; all other calls do it first.

        Raises:
            GroupHasMembers: the offsets of a group should be stored, and it has members.
            ZkConsumerError, RebalanceError: ZooKeeper cannot be reached, or the brokers are not supported.
        """
        if self._cluster is not None:
            return self._cluster
        config = self._options.config
        with ExitStack() as opening:
            source = opening.enter_context(open_source(config, self._logs.session_changed))
            cluster = ClusterOffsets(source, config, self._options.patience_ms / 1000)
            cluster.refuse_other_generations()
            if self._options.commit_offsets and not isinstance(source, MetadataReader):
                group = GroupOffsets(source, config.group_id, self._options.commit_to_live_group)
                group.refuse_members()
                self._group = StreamGroup(group)
            self._logs.use(source)
            self._stack = opening.pop_all()
        self._cluster = cluster
        return cluster

    def close(self) -> None:
        """Disconnect. Spark does not call this; it ends the process."""
        self._logs.close()
        self._stack.close()

    # -- called by Spark -----------------------------------------------------------------------------------------------

    def fix_target(self) -> None:
        """Read no further than the present ends of the logs.

        Raises:
            PlanningFailed: not all leaders answered in time.
        """
        cluster = self.open()
        self._target = cluster.latest(self._logs.read(new_topics=True).partitions)

    def initial_offsets(self) -> StreamOffsets:
        """Where a query without a checkpoint starts; the same in each call.

        Raises:
            TopicMissing: a topic or partition that is named does not exist.
            DataLoss: an offset that was set is not in the log.
            NoMessageAtTime: a time was set, and no message is that recent.
            PlanningFailed: not all leaders answered in time.
        """
        cluster = self.open()
        if self._initial is None:
            self._initial = self._resolve_start(cluster)
        self._is_first_batch = True
        return self._initial

    def next_offsets(self, start: StreamOffsets, max_offsets: int | None, *, may_wait: bool = False) -> StreamOffsets:
        """Where the batch that starts at `start` ends: at `start` if there is nothing to read.

        Args:
            may_wait: for `minOffsetsPerTrigger`; without effect if the run has a target.

        Raises:
            AnotherCluster: `start` is of another cluster.
            TopicMissing: a topic or partition that the options name, and that is not in the checkpoint, does not exist.
            MessagesLost: unless `failOnDataLoss` is false.
            ZooKeeperSilent: ZooKeeper did not answer, and never has.
        """
        cluster = self.open()
        if self._is_first_batch:
            return start
        if not self._is_checked:
            self._refuse_another_cluster(self._logs.read(), start)  # before anything is stored there
            self._refuse_missing(cluster, start)
            self._is_checked = True
        self.store(start)
        if start == self._idle and time.monotonic() < self._idle_until:
            return start
        logs, step = self._step(start)
        created_zxids, cluster_ms = _identities(start, logs, step)
        self._report_losses(step.losses)
        for name in step.new_partitions:
            log.info("%s-%s is new and is read from offset %d on", *name, step.positions[name])
        news = sum(step.ends.values()) - sum(step.positions.values())
        is_held = may_wait and self._target is None and self._delay.must_wait(news, time.monotonic())
        ends = step.positions if is_held else self._admitted(step, max_offsets)
        end = StreamOffsets(ends, created_zxids, cluster_ms, self._epochs(start, ends, logs))
        if end == start:
            self._idle, self._idle_until = start, time.monotonic() + ENDS_S
        return end

    def newest_offsets(self) -> StreamOffsets:
        """The last known ends of the logs, for the lag in the progress."""
        self.open()
        logs = self._logs.read()
        return StreamOffsets(self._logs.last_ends(), logs.created_zxids, logs.cluster_ms)

    def plan(self, start: StreamOffsets, end: StreamOffsets) -> list[PlannedRange]:
        """The ranges that the tasks of a batch read: the same for the same offsets, however often it is planned.

        Raises:
            AnotherCluster: the batch is of another cluster.
            MessagesLost: some of its messages are gone, unless `failOnDataLoss` is false.
        """
        cluster = self.open()
        self._is_first_batch = False
        wanted = [name for name, until in end.offsets.items() if start.offsets.get(name, until) < until]
        if not wanted:
            return []
        logs = self._settled(end)
        self._log_lag(end)
        log_starts = self._logs.log_starts([name for name in wanted if self._logs.selects(name)])
        ranges, losses = remaining_ranges(start, end, logs, log_starts, self._logs.selects)
        self._report_losses(losses)
        starts = {name: first for name, (first, _) in ranges.items()}
        ends = {name: last for name, (_, last) in ranges.items()}
        planned = split_ranges(cluster, starts, ends, self._logs.leaders, self._options)
        return [replace(each, epoch=end.epochs.get(each.name, -1)) for each in planned]

    def store(self, offsets: StreamOffsets) -> None:
        """Store offsets for the group, if there is one; an error is logged, and the next call tries again."""
        if self._group is not None:
            self._group.store(offsets, self._logs.is_connected)

    # -- planning ------------------------------------------------------------------------------------------------------

    def _admitted(self, step: Step, max_offsets: int | None) -> dict[TopicPartition, int]:
        """Where the next batch ends, on Kafka 0.7 after whole entries."""
        ends = admit(step.positions, step.ends, max_offsets)
        if self._entries is None:
            return ends
        found = self._entries.batch_ends(
            step.positions, ends, step.ends, self._logs.leaders, may_stay=self._target is None
        )
        self._entries.remember(step.positions, found, self._logs.leaders)
        return found

    def _resolve_start(self, cluster: ClusterOffsets) -> StreamOffsets:
        options = self._options
        logs = self._logs.read(new_topics=True)
        # A topic that was created in between is new, and is read from its start.
        names = [name for name in chosen_partitions(cluster, options) if name in logs.partitions]
        starting, everything, ends = ask_for_ends(
            cluster, options.starting, OffsetSpec("latest", "endingOffsets"), names
        )
        is_group = starting.kind == "group"
        stored = cluster.group_offsets(options.config.group_id, ends) if is_group else {}
        bounds = resolve_bounds(starting, everything, ends, stored, options.fail_on_data_loss)
        for loss in bounds.losses:
            log.warning("omitted: %s", loss)
        bounds = at_entries(options, bounds, starting, everything, ends)
        epochs = {name: ends[name].epoch for name in bounds.starts if ends[name].epoch >= 0}
        return StreamOffsets(bounds.starts, logs.created_zxids, logs.cluster_ms, epochs)

    def _refuse_missing(self, cluster: ClusterOffsets, start: StreamOffsets) -> None:
        """Raise for a name that is new in the options and does not exist: it may be a typing error."""
        choice, is_strict = self._options.choice, self._options.fail_on_data_loss
        known = {name.topic for name in start.offsets}
        topics = tuple(topic for topic in choice.topics if topic not in known)
        # A topic that was created anew with fewer partitions is a loss; without failOnDataLoss that is allowed.
        partitions = tuple(
            name for name in choice.partitions if name not in start.offsets and (is_strict or name.topic not in known)
        )
        if topics or partitions:
            chosen_partitions(cluster, replace(self._options, choice=TopicChoice(topics, partitions)))

    def _refuse_another_cluster(self, logs: Logs, offsets: StreamOffsets) -> None:
        if offsets.offsets and are_byte_positions(offsets.offsets) != self._options.counts_bytes:
            topic, partition = min(offsets.offsets)
            raise PlanningFailed(
                f"the checkpoint has partition {partition} of topic {topic!r}, and kafka.generation is "
                f"{self._options.config.kafka_generation}: that is another generation of Kafka",
                remedy="use another checkpoint for a query on this cluster, with startingOffsets",
            )
        by_brokers = self._options.config.zookeeper_connect is None
        if any(is_id(mark) != by_brokers for mark in offsets.marks):
            known, given = ("ZooKeeper", "bootstrap.servers") if by_brokers else ("topic ids", "zookeeper.connect")
            raise PlanningFailed(
                f"the checkpoint identifies topics by {known}, but {given} is given",
                remedy="continue with the option with which the checkpoint was created, or use another checkpoint",
            )
        if logs.is_of_another_cluster(offsets):
            raise AnotherCluster(self._options.config.where, offsets.cluster_ms, logs.cluster_ms)

    def _step(self, start: StreamOffsets) -> tuple[Logs, Step]:
        """The state of the logs, and what may be read next."""
        logs = self._logs.compared(start, self._logs.read())
        self._refuse_another_cluster(logs, start)
        asked = needing_log_start(start, logs)
        log_starts: dict[TopicPartition, int] = {}
        if asked or shrunk(start, logs):
            logs = self._settled(start)
            log_starts = self._logs.log_starts(needing_log_start(start, logs))
            if self._entries is not None:
                logs = self._entries.replaced(start.offsets, logs, self._logs.leaders)
        return logs, next_step(start, logs, log_starts, self._target, self._logs.selects)

    def _epochs(
        self, start: StreamOffsets, ends: Mapping[TopicPartition, int], logs: Logs
    ) -> dict[TopicPartition, int]:
        """The epochs of leaders whose logs reached the ends of a batch.

        A position that stays keeps its epoch: otherwise each change of a leader would make a batch without messages.
        """
        found: dict[TopicPartition, int] = {}
        for name, end in ends.items():
            known = start.epochs if start.offsets.get(name) == end else logs.epochs
            if name in known and (known is start.epochs or end <= logs.ends.get(name, -1)):
                found[name] = known[name]
        return found

    def _settled(self, offsets: StreamOffsets) -> Logs:
        """The state of the logs, once no log seems truncated, or one has for some seconds."""
        logs = self._logs.compared(offsets, self._logs.read_settled(offsets))
        self._refuse_another_cluster(logs, offsets)
        return logs

    def _log_lag(self, end: StreamOffsets) -> None:
        """Log the lag that the stream will have when this batch is done, once for a batch."""
        if end == self._logged or not log.isEnabledFor(logging.INFO):
            return
        self._logged = end
        lag = lag_of(end.offsets, self._logs.last_ends())
        if lag is not None:
            figures = " ".join(f"{name}={value}" for name, value in lag.figures().items())
            topics = sorted({name.topic for name in end.offsets})
            log.info("lag after this batch: %s, over %d partitions of %s", figures, lag.partitions, first_few(*topics))

    def _report_losses(self, losses: Sequence[Loss]) -> None:
        """Raise for losses, or count and log each of them once.

        Raises:
            MessagesLost: `failOnDataLoss` is true.
        """
        if losses and self._options.fail_on_data_loss:
            raise MessagesLost(losses)
        for loss in losses:
            if loss not in self._logged_losses:
                self._logged_losses.add(loss)
                self._skipped += loss.messages
                log.warning(
                    "omitted, because failOnDataLoss is false: %s; %d %s in this run so far",
                    loss,
                    self._skipped,
                    "bytes" if self._options.counts_bytes else "offsets",
                )


def _identities(start: StreamOffsets, logs: Logs, step: Step) -> tuple[dict[str, int], int | None]:
    """The identities of the topics that have a position, and of the cluster."""
    created_zxids = {**start.created_zxids, **logs.created_zxids}
    named = {topic: created_zxids[topic] for topic in {name.topic for name in step.ends} if topic in created_zxids}
    return named, logs.cluster_ms or start.cluster_ms
