"""What a run has to read: from where the last one ended to where the logs end now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.bounds import LogEnds
from zkconsumer.spark.load.audit import OffsetSpan
from zkconsumer.spark.load.errors import OffsetsLost

__all__ = ["LostSpan", "RunPlan", "plan_run"]

_SHOWN = 5


class LostSpan(NamedTuple):
    """Offsets that nobody can read any more; how many is not known when `end` is `start`."""

    place: TopicPartition
    start: int
    end: int
    reason: str

    def __str__(self) -> str:
        span = f"{self.start} to {self.end - 1}" if self.end > self.start else f"from {self.start} on"
        return f"{self.place.topic}/{self.place.partition}: {span} ({self.reason})"


class RunPlan(NamedTuple):
    """What to read.

    Attributes:
        asked: by partition, those with nothing new left out.
        ends: where each known partition stands behind this run, those of topics that are not wanted any more included.
        lost: what is passed over.
    """

    asked: dict[TopicPartition, OffsetSpan]
    ends: dict[str, dict[int, int]]
    lost: tuple[LostSpan, ...]


def plan_run(
    logs: Mapping[TopicPartition, LogEnds],
    births: Mapping[str, int],
    before: Mapping[str, Mapping[int, int]],
    births_before: Mapping[str, int],
    starts: Mapping[TopicPartition, int],
    allow_loss: bool,
) -> RunPlan:
    """The next run.

    Args:
        logs: of the partitions that are wanted.
        births: of their topics; see Manifest.
        before: where the last run ended, empty for the first.
        births_before: of the topics then.
        starts: where to begin with partitions that were never loaded; those that are not named begin at their start.
        allow_loss: pass over what is not in the logs any more, instead of raising.

    Raises:
        OffsetsLost: what was left to be read is not there any more; names each partition.
    """
    asked: dict[TopicPartition, OffsetSpan] = {}
    ends = {topic: dict(of_topic) for topic, of_topic in before.items()}
    lost: list[LostSpan] = []
    for place, log in sorted(logs.items()):
        topic, number = place.topic, int(place.partition)
        start = before.get(topic, {}).get(number)
        if start is None:
            start = min(max(starts.get(place, log.earliest), log.earliest), log.latest)
        elif births_before.get(topic, births[topic]) != births[topic]:
            lost.append(LostSpan(place, start, start, "the topic was deleted and created anew"))
            start = log.earliest
        elif log.latest < start:
            lost.append(LostSpan(place, log.latest, start, "the log ends before it: it was cut or lost"))
            start = log.earliest
        elif log.earliest > start:
            lost.append(LostSpan(place, start, log.earliest, "the brokers have deleted them: retention"))
            start = log.earliest
        if log.latest > start:
            asked[place] = OffsetSpan(start, log.latest)
        ends.setdefault(topic, {})[number] = max(log.latest, start)
    if lost and not allow_loss:
        more = f"; and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
        raise OffsetsLost(f"what the last run left to be read is gone: {'; '.join(map(str, lost[:_SHOWN]))}{more}; "
                          "`--on-data-loss skip` goes on with what there is")
    return RunPlan(asked, ends, tuple(lost))
