"""Cuts the logs of a topic: its leaders delete the messages below an offset of each partition (Kafka 0.11 and later).

Rules, and which failure each prevents:
- The target is looked up in every log before the first one is cut: an offset after the end of one of them, or a log
  that is not known, leaves all as they are.
- A compacted topic is refused before its leaders are asked: they delete messages only where `cleanup.policy` has
  `delete`.
- A leader that has moved is looked up and asked again until a deadline. To ask twice does no harm.

Source: kafka.server.ReplicaManager.deleteRecords (1.1, 2.8), org.apache.kafka.clients.admin.KafkaAdminClient (4.3).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from simpleconsumer.dialect import KAFKA011
from simpleconsumer.errors import BrokerError, SimpleConsumerError, VersionNotServed
from simpleconsumer.types import Broker, TopicPartition, TopicVerdict
from zkconsumer.admin.offsets.offset_plans import OffsetTarget, parse_target, topic_partitions
from zkconsumer.admin.topics.controller_calls import ControllerCalls, refusal
from zkconsumer.admin.topics.topic_changes import check_not_internal
from zkconsumer.admin.values import JsonValue, TopicNotAuthorized, TopicRefused, TopicUnfinished, count_of
from zkconsumer.cluster.log_ends import LogOffsets
from zkconsumer_error import ErrorCode

_DEADLINE_S: Final = 30.0
_BACKOFF_S: Final = 0.2
_CHANGE_S: Final = 10.0
_ASK_AGAIN: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
)  # fmt: skip
_INSTEAD: Final = "let retention do it: `zkconsumer topics set {} --topic-config retention.ms=...`"


@dataclass(frozen=True)
class CutPartition:
    """One partition whose log is cut.

    Attributes:
        partition: Its number.
        earliest: Offset of the oldest message before.
        latest: Offset that the next message will get.
        new_earliest: Offset of the oldest message afterwards; the same as `earliest` where nothing is deleted.
    """

    partition: int
    earliest: int
    latest: int
    new_earliest: int


@dataclass(frozen=True)
class TopicCut(JsonValue):
    """A topic whose logs were cut, or would be.

    Attributes:
        topic: Its name.
        partitions: By number.
        written: The messages are deleted; False with `dry_run`.
    """

    topic: str
    partitions: tuple[CutPartition, ...]
    written: bool


def cut_topic(calls: ControllerCalls, topic: str, before: str | int, chosen: Sequence[int], dry_run: bool) -> TopicCut:
    """Delete the messages below a target in partitions of a topic.

    Args:
        before: An offset, `latest` or a time; see `parse_target`.
        chosen: Numbers of partitions; none for all.

    Raises:
        ValueError: The target is none.
        NotFound: There is no such topic or partition.
        TopicRefused: A log does not have the offset or is not known, the topic is compacted, or the brokers are too
            old; nothing was deleted.
        TopicNotAuthorized: A leader does not let this user delete messages.
        TopicUnfinished: Some leaders have not done it; names them.
    """
    check_not_internal(topic, "cut")
    target = parse_target(str(before))
    cluster = calls.cluster
    names = topic_partitions(cluster, topic, list(chosen))
    calls.require("cut", topic, "cut", _INSTEAD.format(topic))
    _refuse_compacted(calls, topic)
    logs = cluster.log_ends(names, target.times_ms)
    rows = tuple(_planned(calls, name, target, logs[name]) for name in names)
    wanted = {TopicPartition(topic, row.partition): row.new_earliest for row in rows if row.new_earliest > row.earliest}
    if not dry_run:
        _delete(calls, topic, wanted)
    return TopicCut(topic, rows, not dry_run)


def _refuse_compacted(calls: ControllerCalls, topic: str) -> None:
    try:
        [(code, settings)] = calls.ask(lambda client: client.ask(KAFKA011.topic_settings([topic], ["cleanup.policy"])))
    except VersionNotServed:
        return
    policy = settings.get("cleanup.policy") or "delete"
    if not code and "delete" not in policy:
        raise TopicRefused(
            f"topic {topic!r} is not cut {calls.where}: its cleanup.policy is {policy!r}, and brokers delete "
            "messages below an offset only if it includes delete",
            f"`zkconsumer topics set {topic} --topic-config cleanup.policy={policy},delete` first",
        )


def _planned(calls: ControllerCalls, name: TopicPartition, target: OffsetTarget, found: LogOffsets) -> CutPartition:
    where = f"topic {name.topic!r} is not cut {calls.where}: partition {name.partition}: "
    if isinstance(found, str) or found[0] is None or found[1] is None:
        why = found if isinstance(found, str) else "its leader reports no offsets"
        raise TopicRefused(f"{where}its log is not known ({why})", "try again when the partition has a leader")
    earliest, latest = found[0], found[1]
    if target.offset is None:
        offset = target.resolve(found, False)
    elif target.offset <= latest:
        offset = target.offset
    else:
        raise TopicRefused(f"{where}offset {target.offset} is after the end of its log, {latest}",
                           "choose an offset that the log has, or latest")  # fmt: skip
    return CutPartition(int(name.partition), earliest, latest, max(offset, earliest))


def _delete(calls: ControllerCalls, topic: str, wanted: dict[TopicPartition, int]) -> None:
    """Have the leaders delete messages; errors are those of `cut_topic`."""
    deadline = time.monotonic() + _DEADLINE_S
    left, reasons = dict(wanted), dict.fromkeys(wanted, "no broker leads it")
    while left:
        by_leader: defaultdict[Broker, dict[TopicPartition, int]] = defaultdict(dict)
        for name, broker in calls.cluster.leaders(list(left)).items():
            by_leader[broker][name] = left[name]
        for broker, offsets in by_leader.items():
            for name, reason in _ask(calls, broker, offsets, is_first=left == wanted).items():
                if reason is None:
                    del left[name]
                else:
                    reasons[name] = reason
        if left and time.monotonic() + _BACKOFF_S >= deadline:
            name = next(iter(left))
            raise TopicUnfinished(
                f"topic {topic!r} is only cut in part {calls.where}: {len(left)} of "
                f"{count_of(len(wanted), 'partition')} are left, such as partition {name.partition}: {reasons[name]}",
                "check that all brokers run, and try again: cutting twice is harmless",
            )
        if left:
            time.sleep(_BACKOFF_S)


def _ask(
    calls: ControllerCalls, broker: Broker, offsets: dict[TopicPartition, int], *, is_first: bool
) -> dict[TopicPartition, str | None]:
    """Return why a leader has not cut each partition; None where it has.

    Raises:
        TopicRefused, TopicNotAuthorized: It refuses one.
    """
    try:
        with calls.client(broker, _CHANGE_S) as client:
            answers = client.ask(KAFKA011.delete_records(offsets, round(_CHANGE_S * 1000)))
    except SimpleConsumerError as error:
        return dict.fromkeys(offsets, str(error))
    found: dict[TopicPartition, str | None] = {}
    for (name, offset), (code, _) in zip(offsets.items(), answers, strict=True):
        if code and code not in _ASK_AGAIN:
            refused = refusal(TopicVerdict(code), name.topic, "cut", calls.where)
            sentence = f"{refused.sentence}, of partition {name.partition} below offset {offset}"
            if not is_first and not isinstance(refused, TopicNotAuthorized):
                raise TopicUnfinished(f"{sentence}; other partitions are already cut", refused.remedy)
            raise type(refused)(sentence, refused.remedy)
        found[name] = f"broker {broker.id}: {BrokerError(code, None, None)}" if code else None
    return found
