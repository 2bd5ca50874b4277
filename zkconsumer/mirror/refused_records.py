"""Says which record of the source the target refuses, and why: brokers refuse whole batches, by the offset. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from simpleconsumer.dialect import KAFKA011
from simpleconsumer.errors import BrokenFraming, MessageError, broker_error
from simpleconsumer.types import Message, TopicPartition
from zkconsumer.mirror.errors import BatchRefused, RecordRefused
from zkconsumer.mirror.lane_runs import Lane
from zkconsumer.mirror.topics.plan_findings import is_compacted
from zkconsumer_error import ErrorCode

_SIZE_CODES: Final = frozenset((ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE))


def refused_record(
    lane: Lane, first_offset: int, error: BatchRefused, data: bytes, settings: Mapping[str, str]
) -> RecordRefused:  # fmt: skip
    """Return the error that names the record.

    Args:
        lane: What was copied.
        first_offset: Of the batch in the source.
        error: What the broker says.
        data: The batch, as it was sent.
        settings: Of the target topic, as far as they are known.
    """
    source, topic = lane.source, lane.target.topic
    messages = _messages(data, lane.target)

    def found(index: int, reason: str, remedy: str) -> RecordRefused:
        return RecordRefused(lane.target, source, first_offset + index, error.code, reason, remedy)

    keyless = next((index for index, each in enumerate(messages) if each.key is None), None)
    # Brokers before Kafka 2.4 answer code 2, which may also mean damage.
    may_need_key = error.code == ErrorCode.INVALID_RECORD or (
        error.code == ErrorCode.CORRUPT_MESSAGE and is_compacted(settings)
    )  # fmt: skip
    if may_need_key and keyless is not None:
        return found(
            keyless, "the record has no key, and a compacted topic takes none without",
            f"copy it into a topic that is not compacted: --rename, or `zkconsumer topics set {topic} --topic-config "
            "cleanup.policy=delete` there",
        )  # fmt: skip
    if error.code in _SIZE_CODES:
        sizes = [len(each.key or b"") + len(each.value or b"") for each in messages]
        largest = sizes.index(max(sizes)) if sizes else 0
        limit = settings.get("max.message.bytes")
        takes = f"it takes {limit} bytes (max.message.bytes)" if limit else "it takes less (max.message.bytes)"
        return found(
            largest, f"the batch with this record has {len(data)} bytes, and {takes}",
            f"`zkconsumer topics set {topic} --topic-config max.message.bytes={len(data)}` there, or more",
        )  # fmt: skip
    return found(0, f"{broker_error(error.code).meaning}; its batch starts there", "see the settings of the topic")


def _messages(data: bytes, name: TopicPartition) -> list[Message]:
    """Return the records of a batch; none if they cannot be read."""
    try:
        return list(KAFKA011.decode_messages(data, *name, 0))
    except (MessageError, BrokenFraming):
        return []
