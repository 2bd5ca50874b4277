"""What a run has to read: from where the last one ended to where the logs end now, by the rules of streams. Pure.

Source: `zkconsumer.spark.log_changes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.admission import admit
from zkconsumer.spark.load.audit import OffsetSpan
from zkconsumer.spark.load.errors import OffsetsLost
from zkconsumer.spark.load.load_state import LastMessage, LoadState
from zkconsumer.spark.log_changes import Logs, Loss, next_step
from zkconsumer.spark.stream_offsets import StreamOffsets

__all__ = ["RunPlan", "ClusterState", "plan_run"]

_SHOWN = 5


@dataclass(frozen=True)
class ClusterState:
    """What a run sees of the cluster before it plans.

    Attributes:
        logs: of the partitions that are wanted; those without a leader have no end.
        log_starts: of the logs, as `next_step` needs them.
        starts: where to begin with partitions that were never loaded; those that are not named begin at their start.
        kept_ends: of logs that were cut since, the ends of what is known to have stayed.
        last_messages: last messages of the logs that were cut and end where the last run did, or before that.
        topics_seen: see `LoadState`.
        compacted: topics whose logs have holes, or may have some.
        silent: why partitions have no end, a clause for each.
    """

    logs: Logs
    log_starts: Mapping[TopicPartition, int]
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    kept_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    last_messages: Mapping[TopicPartition, LastMessage] = field(default_factory=dict)
    topics_seen: int | None = None
    compacted: frozenset[str] = frozenset()
    silent: Mapping[TopicPartition, str] = field(default_factory=dict)


class RunPlan(NamedTuple):
    """What to read.

    Attributes:
        asked: by partition, those with nothing new left out.
        state: behind this run, without the last messages that it will have read.
        lost: what is passed over.
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
    reads: Callable[[TopicPartition], bool] = lambda name: True,
    most: int | None = None,
) -> RunPlan:
    """The next run.

    Args:
        before: where the last one ended.
        allow_loss: pass over what is not in the logs any more, instead of raising.
        reads: whether a partition would be loaded if it existed. What is not wanted any more keeps its place.
        most: how many offsets to read at most, shared as `maxOffsetsPerTrigger` is.

    Raises:
        OffsetsLost: what was left to be read is not there any more; names each partition.
    """
    start, logs = before.offsets, cluster.logs
    step = next_step(start, logs, cluster.log_starts, None, reads, cluster.kept_ends)
    # What had no leader was there before: what its log has lost since then was never in reach.
    lost = tuple(loss for loss in step.losses if loss.partition not in before.waiting)
    lost += tuple(_never_reached(before, logs, reads))
    if lost and not allow_loss:
        more = f"; and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
        raise OffsetsLost(f"what the last run left to be read is gone: {'; '.join(map(str, lost[:_SHOWN]))}{more}; "
                          "`--on-data-loss skip` goes on with what there is")
    positions: dict[TopicPartition, int] = {}
    for name, position in step.positions.items():
        if name not in logs.partitions and reads(name):
            continue  # it is named as lost, and a topic that takes its name is a new one
        at = position
        if name not in start.offsets:
            at = min(max(cluster.starts.get(name, at), at), logs.ends.get(name, at))
        positions[name] = at
    ends = admit(positions, logs.ends, most)
    asked = {name: OffsetSpan(at, ends[name]) for name, at in positions.items() if ends[name] > at}
    left = sum(max(0, logs.ends.get(name, at) - at) for name, at in ends.items())
    waiting = frozenset(name for name in (before.waiting | logs.partitions) - ends.keys()
                        if name in logs.partitions or not reads(name))  # fmt: skip
    state = LoadState(
        StreamOffsets(ends, _created_zxids(start, logs, ends, waiting), logs.cluster_ms or start.cluster_ms),
        _last_messages(before, cluster, ends),
        waiting,
        cluster.topics_seen,
    )  # fmt: skip
    return RunPlan(asked, state, lost, left)


def _never_reached(before: LoadState, logs: Logs, reads: Callable[[TopicPartition], bool]) -> Iterator[Loss]:
    """The partitions that were left to this run as they had no leader, and are gone."""
    for name in sorted(before.waiting):
        if not reads(name):
            continue
        if logs.is_recreated(name.topic, before.offsets):
            yield Loss(name, 0, None, "it had no leader, and its topic was deleted and created anew")
        elif name not in logs.partitions:
            yield Loss(name, 0, None, "it had no leader, and does not exist any more")


def _created_zxids(
    start: StreamOffsets, logs: Logs, ends: Mapping[TopicPartition, int], waiting: frozenset[TopicPartition]
) -> dict[str, int]:
    """Those of the topics that have a place."""
    created_zxids = {**start.created_zxids, **logs.created_zxids}
    topics = {name.topic for name in [*ends, *waiting]} | logs.created_zxids.keys()
    return {topic: created_zxids[topic] for topic in sorted(topics) if topic in created_zxids}


def _last_messages(
    before: LoadState, cluster: ClusterState, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, LastMessage]:
    """The last messages that are still those of the log."""
    kept = {name: last for name, last in before.last_messages.items()
            if name in ends and last.offset < ends[name] and name not in cluster.kept_ends
            and not cluster.logs.is_recreated(name.topic, before.offsets)}  # fmt: skip
    return kept | dict(cluster.last_messages)
