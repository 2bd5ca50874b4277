"""The driver's side of a stream: where it begins, where each micro-batch ends, what of it is stored for the group.

Lives in one process for as long as the query runs, and starts anew from the checkpoint in the next.

Rules, and what each prevents:
- The first batch is empty: Spark writes down the end of a batch and not its start, so only the end of an empty one
  keeps a start. A restart before it is there asks for the start anew, and nothing was read yet (`latest` would skip).
- Where Spark says that the next batch starts, all before is durable: that is what is stored for the group, never more.
- An end is looked at again before it is believed to be lower than the position: a leader that was just chosen names an
  end that it has not caught up with.

Threads: one at a time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from rebalance import znodes
from simpleconsumer.types import TopicPartition
from zkconsumer.cluster.zookeeper_connection import configured_connection
from zkconsumer.spark.admission import TriggerDelay, admit
from zkconsumer.spark.batch_planning import ask_for_ends, chosen_partitions, split_ranges
from zkconsumer.spark.bounds import resolve_bounds
from zkconsumer.spark.cluster_offsets import ClusterOffsets
from zkconsumer.spark.errors import SparkSourceError
from zkconsumer.spark.group_offsets import GroupOffsets
from zkconsumer.spark.lag import lag_of
from zkconsumer.spark.log_changes import Logs, Loss, Step, needing_log_start, next_step, remaining_ranges, shrunk
from zkconsumer.spark.offset_spec import OffsetSpec
from zkconsumer.spark.options import SourceOptions, TopicChoice
from zkconsumer.spark.planning import PlannedRange
from zkconsumer.spark.stream_logs import ENDS_S, StreamLogs
from zkconsumer.spark.stream_offsets import StreamOffsets

__all__ = ["AnotherCluster", "MessagesLost", "StreamDriver"]

log = logging.getLogger(__name__)

_RETRY_S: Final = 5.0
"""Between two tries to store the same offsets."""
_SHOWN: Final = 5


class MessagesLost(SparkSourceError):  # noqa: N818 - it says what happened
    """Messages that the stream should have read are gone, and `failOnDataLoss` is true.

    Attributes:
        losses: what and why.
    """

    def __init__(self, losses: Sequence[Loss]) -> None:
        super().__init__(losses)
        self.losses = list(losses)

    remedy = "with failOnDataLoss=false the stream continues after them"

    def _sentence(self) -> str:
        shown = "; ".join(map(str, self.losses[:_SHOWN]))
        more = f"; and {len(self.losses) - _SHOWN} more" if len(self.losses) > _SHOWN else ""
        return f"messages are lost: {shown}{more}"


class AnotherCluster(SparkSourceError):  # noqa: N818
    """The checkpoint is of a cluster that is not the one the options name."""

    def __init__(self, connect: str, then_ms: int | None, now_ms: int | None) -> None:
        super().__init__(connect, then_ms, now_ms)
        self.connect = connect
        self.then_ms = then_ms
        self.now_ms = now_ms

    remedy = "a query on this one needs a checkpoint of its own, and startingOffsets"

    def _sentence(self) -> str:
        then, now = [f"{datetime.fromtimestamp((at or 0) / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
                     for at in (self.then_ms, self.now_ms)]  # fmt: skip
        return (f"the checkpoint is of another cluster: its {znodes.TOPICS} in ZooKeeper came up at {then}, that of "
                f"{self.connect} at {now}")


class StreamDriver:
    """What the methods of Spark's stream reader do.

    Args:
        options: of a stream.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._logs = StreamLogs(options)
        self._stack = ExitStack()
        self._cluster: ClusterOffsets | None = None
        self._group: GroupOffsets | None = None
        self._initial: StreamOffsets | None = None
        self._is_pinning = self._is_checked = False
        self._target: dict[TopicPartition, int] | None = None
        self._told: set[Loss] = set()
        self._skipped = 0
        self._logged: StreamOffsets | None = None
        self._stored: StreamOffsets | None = None
        self._refused: StreamOffsets | None = None
        self._retry_at = 0.0
        self._idle: StreamOffsets | None = None
        self._idle_until = 0.0
        self._delay = TriggerDelay(options.min_offsets_per_trigger, options.max_trigger_delay_ms / 1000)

    def open(self) -> ClusterOffsets:
        """Connect, unless that is done; all other calls do it first.

        Raises:
            GroupHasMembers: the offsets of a group with members were to be written.
            ZkConsumerError, RebalanceError: ZooKeeper cannot be reached, or the cluster is of another generation.
        """
        if self._cluster is not None:
            return self._cluster
        config = self._options.config
        with ExitStack() as opening:
            port = opening.enter_context(configured_connection(config, self._logs.session_changed))
            cluster = ClusterOffsets(port, config, self._options.patience_ms / 1000)
            cluster.refuse_other_generations()
            if self._options.commit_offsets:
                self._group = GroupOffsets(port, config.group_id, self._options.commit_to_live_group)
                self._group.refuse_members()
            self._logs.use(port)
            self._stack = opening.pop_all()
        self._cluster = cluster
        return cluster

    def close(self) -> None:
        """Disconnect. Spark does not call it: it ends the process."""
        self._logs.close()
        self._stack.close()

    # -- what Spark asks -----------------------------------------------------------------------------------------------

    def fix_target(self) -> None:
        """Read no further than the logs reach now.

        Raises:
            PlanningFailed: not all leaders answered in time.
        """
        cluster = self.open()
        self._target = cluster.latest(self._logs.read(new_topics=True).partitions)

    def initial_offsets(self) -> StreamOffsets:
        """Where a query without a checkpoint begins; the same in each call.

        Raises:
            TopicMissing: a topic or partition that is named is not there.
            DataLoss: an offset that was asked for is not in the log.
        NoMessageAtTime: a time was asked for, and no message is that young.
            PlanningFailed: not all leaders answered in time.
        """
        cluster = self.open()
        if self._initial is None:
            self._initial = self._resolve_start(cluster)
        self._is_pinning = True
        return self._initial

    def next_offsets(
        self, start: StreamOffsets, max_offsets: int | None, *, may_wait: bool = False
    ) -> StreamOffsets:
        """Where the batch that begins at `start` ends: there if there is nothing to read.

        Args:
            may_wait: for `minOffsetsPerTrigger`; not up to a target.

        Raises:
            AnotherCluster: `start` is not of this one.
            TopicMissing: what is named now, and was not when the checkpoint was written, is not there.
            MessagesLost: unless `failOnDataLoss` is false.
            ZooKeeperSilent: ZooKeeper did not answer, and never has.
        """
        cluster = self.open()
        if self._is_pinning:
            return start
        if not self._is_checked:
            self._refuse_another_cluster(self._logs.read(), start)  # before anything is stored there
            self._refuse_missing(cluster, start)
            self._is_checked = True
        self.store(start)
        if start == self._idle and time.monotonic() < self._idle_until:
            return start
        step, created_zxids, cluster_ms = self._step(start)
        self._account_for(step.losses)
        for name in step.new_partitions:
            log.info("%s-%s is new and is read from offset %d on", *name, step.positions[name])
        news = sum(step.ends.values()) - sum(step.positions.values())
        is_held = may_wait and self._target is None and self._delay.must_wait(news, time.monotonic())
        ends = step.positions if is_held else admit(step.positions, step.ends, max_offsets)
        end = StreamOffsets(ends, created_zxids, cluster_ms)
        if end == start:
            self._idle, self._idle_until = start, time.monotonic() + ENDS_S
        return end

    def newest_offsets(self) -> StreamOffsets:
        """Where the logs end, as last seen: for the lag in the progress."""
        self.open()
        logs = self._logs.read()
        return StreamOffsets(self._logs.last_ends(), logs.created_zxids, logs.cluster_ms)

    def plan(self, start: StreamOffsets, end: StreamOffsets) -> list[PlannedRange]:
        """What the tasks of a batch read: the same for the same offsets, however often it is asked.

        Raises:
            AnotherCluster: the batch is not of this one.
            MessagesLost: some of it is gone, unless `failOnDataLoss` is false.
        """
        cluster = self.open()
        self._is_pinning = False
        wanted = [name for name, until in end.offsets.items() if start.offsets.get(name, until) < until]
        if not wanted:
            return []
        logs = self._settled(end)
        self._log_lag(end)
        log_starts = self._logs.log_starts([name for name in wanted if self._logs.selects(name)])
        ranges, losses = remaining_ranges(start, end, logs, log_starts, self._logs.selects)
        self._account_for(losses)
        starts = {name: first for name, (first, _) in ranges.items()}
        ends = {name: last for name, (_, last) in ranges.items()}
        return split_ranges(cluster, starts, ends, self._logs.leaders, self._options)

    def store(self, offsets: StreamOffsets) -> None:
        """Store offsets for the group, if there is one to store them for; what goes wrong is logged and tried again."""
        if self._group is None or offsets == self._stored:
            return
        if offsets == self._refused and time.monotonic() < self._retry_at:
            return
        try:
            if not self._logs.is_connected:
                raise SparkSourceError("ZooKeeper is not connected")
            self._group.commit(offsets.offsets, offsets.created_zxids)
        except Exception as error:  # noqa: BLE001 - an error here would end the query, and the checkpoint has them
            if offsets != self._refused:
                log.warning("offsets are kept in the checkpoint and not stored for the group yet: %s", error)
            self._refused, self._retry_at = offsets, time.monotonic() + _RETRY_S
        else:
            self._stored = offsets

    # -- how -----------------------------------------------------------------------------------------------------------

    def _resolve_start(self, cluster: ClusterOffsets) -> StreamOffsets:
        options = self._options
        logs = self._logs.read(new_topics=True)
        # A topic that came up in between is new, and is read from its beginning.
        names = [name for name in chosen_partitions(cluster, options) if name in logs.partitions]
        starting, everything, ends = ask_for_ends(
            cluster, options.starting, OffsetSpec("latest", "endingOffsets"), names
        )
        is_group = starting.kind == "group"
        stored = cluster.group_offsets(options.config.group_id, ends) if is_group else {}
        bounds = resolve_bounds(starting, everything, ends, stored, options.fail_on_data_loss)
        for loss in bounds.losses:
            log.warning("left out: %s", loss)
        return StreamOffsets(bounds.starts, logs.created_zxids, logs.cluster_ms)

    def _refuse_missing(self, cluster: ClusterOffsets, start: StreamOffsets) -> None:
        """Raise for a name that is new in the options and stands for nothing: it may be a typing error."""
        choice, is_strict = self._options.choice, self._options.fail_on_data_loss
        known = {name.topic for name in start.offsets}
        topics = tuple(topic for topic in choice.topics if topic not in known)
        # A topic that was created anew with fewer partitions is a loss, and those are allowed.
        partitions = tuple(name for name in choice.partitions
                           if name not in start.offsets and (is_strict or name.topic not in known))
        if topics or partitions:
            chosen_partitions(cluster, replace(self._options, choice=TopicChoice(topics, partitions)))

    def _refuse_another_cluster(self, logs: Logs, offsets: StreamOffsets) -> None:
        if logs.is_of_another_cluster(offsets):
            raise AnotherCluster(self._options.config.zookeeper_connect, offsets.cluster_ms, logs.cluster_ms)

    def _step(self, start: StreamOffsets) -> tuple[Step, dict[str, int], int | None]:
        """What may be read next, and what tells the topics and the cluster from others."""
        logs = self._logs.read()
        self._refuse_another_cluster(logs, start)
        asked = needing_log_start(start, logs)
        log_starts: dict[TopicPartition, int] = {}
        if asked or shrunk(start, logs):
            logs = self._settled(start)
            log_starts = self._logs.log_starts(needing_log_start(start, logs))
        step = next_step(start, logs, log_starts, self._target, self._logs.selects)
        created_zxids = {**start.created_zxids, **logs.created_zxids}
        named = {topic: created_zxids[topic] for topic in {name.topic for name in step.ends} if topic in created_zxids}
        return step, named, logs.cluster_ms or start.cluster_ms

    def _settled(self, offsets: StreamOffsets) -> Logs:
        """What is there, when no log seems to be cut, or it has seemed so for long."""
        logs = self._logs.read_settled(offsets)
        self._refuse_another_cluster(logs, offsets)
        return logs

    def _log_lag(self, end: StreamOffsets) -> None:
        """Log how far the stream is behind when this batch is done, once for a batch."""
        if end == self._logged or not log.isEnabledFor(logging.INFO):
            return
        self._logged = end
        lag = lag_of(end.offsets, self._logs.last_ends())
        if lag is not None:
            figures = " ".join(f"{name}={value}" for name, value in lag.figures().items())
            topics = sorted({name.topic for name in end.offsets})
            more = f" and {len(topics) - _SHOWN} more" if len(topics) > _SHOWN else ""
            log.info("lag after this batch: %s, over %d partitions of %s%s", figures, lag.partitions,
                     ", ".join(topics[:_SHOWN]), more)  # fmt: skip

    def _account_for(self, losses: Sequence[Loss]) -> None:
        """Refuse what is lost, or count it and say so, once.

        Raises:
            MessagesLost: `failOnDataLoss` is true.
        """
        if losses and self._options.fail_on_data_loss:
            raise MessagesLost(losses)
        for loss in losses:
            if loss not in self._told:
                self._told.add(loss)
                self._skipped += loss.messages
                log.warning("left out, as failOnDataLoss is false: %s; %d offsets in this run so far", loss,
                            self._skipped)
