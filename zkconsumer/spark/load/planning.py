"""Plans a run: its ranges, from the end of the last run to the present ends of the logs. Pure.

The rules for logs that have changed are those of streams, see `zkconsumer.spark.streaming.log_changes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.load.audit import OffsetSpan
from zkconsumer.spark.load.failures import OffsetsLost
from zkconsumer.spark.load.manifest import LastMessage, LoadState
from zkconsumer.spark.streaming.log_changes import Logs, Loss, next_step
from zkconsumer.spark.streaming.stream_offsets import StreamOffsets, admit
from zkconsumer_error import first_few


@dataclass(frozen=True)
class ClusterState:
    """The state of the cluster before a run plans.

    Attributes:
        logs: the logs of the partitions to load; logs without a leader have no end.
        log_starts: the starts of the logs that `next_step` needs.
        starts: where to start partitions that were never loaded; others start at their log start.
        kept_ends: of logs that were truncated since the last run: the offset up to which they are unchanged.
        last_messages: last messages of the logs that were truncated and end where the last run did, or before that.
        topics_seen: see `LoadState`.
        compacted: topics whose logs have gaps, or may have gaps.
        silent: why partitions have no end, a clause for each.
        by_brokers: see `LoadState`.
    """

    logs: Logs
    log_starts: Mapping[TopicPartition, int]
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    kept_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    last_messages: Mapping[TopicPartition, LastMessage] = field(default_factory=dict)
    topics_seen: int | None = None
    compacted: frozenset[str] = frozenset()
    silent: Mapping[TopicPartition, str] = field(default_factory=dict)
    by_brokers: bool = False


class RunPlan(NamedTuple):
    """The plan of a run.

    Attributes:
        asked: the offsets to read of each partition, without the partitions that have nothing new.
        state: the state after this run, without the last messages that it will have read.
        lost: the offsets that are skipped.
        left: how many offsets are left to the next run.
    """

    asked: dict[TopicPartition, OffsetSpan]
    state: LoadState
    lost: tuple[Loss, ...]
    left: int = 0


def plan_run(
    before: LoadState,
    cluster: ClusterState,
    *,
    allow_loss: bool,
    selects: Callable[[TopicPartition], bool] = lambda name: True,
    most: int | None = None,
) -> RunPlan:
    """The next run.

    Args:
        before: where the last one ended.
        allow_loss: skip messages that are not in the logs any more, instead of raising.
        selects: whether a partition would be loaded if it existed. Others keep their positions.
        most: how many offsets to read at most, shared as `maxOffsetsPerTrigger` is.

    Raises:
        OffsetsLost: messages that were not loaded yet are gone; names each partition.
    """
    start, logs = before.offsets, cluster.logs
    step = next_step(start, logs, cluster.log_starts, None, selects, cluster.kept_ends)
    # A partition without a leader could not be read yet: messages that its log lost meanwhile are no loss of this load.
    lost = tuple(loss for loss in step.losses if loss.partition not in before.waiting)
    lost += tuple(_never_reached(before, logs, selects))
    if lost and not allow_loss:
        shown = first_few(*lost, between="; ", rest="; and {} more")
        raise OffsetsLost(f"messages are no longer in the logs: {shown}")
    positions: dict[TopicPartition, int] = {}
    for name, position in step.positions.items():
        if name not in logs.partitions and selects(name) and not logs.may_return:
            continue  # it is reported as lost; a topic that gets its name later is a new one
        at = position
        if name not in start.offsets:
            at = min(max(cluster.starts.get(name, at), at), logs.ends.get(name, at))
        positions[name] = at
    ends = admit(positions, logs.ends, most)
    asked = {name: OffsetSpan(at, ends[name]) for name, at in positions.items() if ends[name] > at}
    left = sum(max(0, logs.ends.get(name, at) - at) for name, at in ends.items())
    waiting = frozenset(name for name in (before.waiting | logs.partitions) - ends.keys()
                        if name in logs.partitions or not selects(name))  # fmt: skip
    state = LoadState(
        StreamOffsets(
            ends, _created_zxids(start, logs, ends, waiting), logs.cluster_ms or start.cluster_ms,
            _epochs(start, logs, ends),
        ),
        _last_messages(before, cluster, ends),
        waiting,
        cluster.topics_seen,
        cluster.by_brokers,
    )  # fmt: skip
    return RunPlan(asked, state, lost, left)


def _never_reached(before: LoadState, logs: Logs, selects: Callable[[TopicPartition], bool]) -> Iterator[Loss]:
    """The losses of partitions that were left to this run, because they had no leader, and are gone."""
    for name in sorted(before.waiting):
        if not selects(name):
            continue
        if logs.is_recreated(name.topic, before.offsets):
            yield Loss(name, 0, None, "it had no leader, and its topic was deleted and created again")
        elif name not in logs.partitions and not logs.may_return:
            yield Loss(name, 0, None, "it had no leader, and no longer exists")


def _created_zxids(
    start: StreamOffsets, logs: Logs, ends: Mapping[TopicPartition, int], waiting: frozenset[TopicPartition]
) -> dict[str, int]:
    """The incarnations of the topics that have a position."""
    created_zxids = {**start.created_zxids, **logs.created_zxids}
    topics = {name.topic for name in [*ends, *waiting]} | logs.created_zxids.keys()
    return {topic: created_zxids[topic] for topic in sorted(topics) if topic in created_zxids}


def _epochs(start: StreamOffsets, logs: Logs, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The epochs of leaders whose logs reached the ends of a run; a position that stays keeps its epoch."""
    found: dict[TopicPartition, int] = {}
    for name, end in ends.items():
        is_other_log = name in logs.cuts or logs.is_recreated(name.topic, start)
        stays = start.offsets.get(name) == end and not is_other_log
        known = start.epochs if stays else logs.epochs
        if name in known and (stays or end <= logs.ends.get(name, -1)):
            found[name] = known[name]
    return found


def _last_messages(
    before: LoadState, cluster: ClusterState, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, LastMessage]:
    """The last messages that are still in the logs."""
    kept = {name: last for name, last in before.last_messages.items()
            if name in ends and last.offset < min(ends[name], cluster.logs.cuts.get(name, ends[name]))
            and name not in cluster.kept_ends
            and name not in cluster.logs.replaced
            and not cluster.logs.is_recreated(name.topic, before.offsets)}  # fmt: skip
    return kept | dict(cluster.last_messages)
