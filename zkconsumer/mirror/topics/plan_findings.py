"""What a plan says about a topic: what speaks against it, what the operator should know, and how it is copied. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from simpleconsumer import codecs
from simpleconsumer.dialect import BatchHead
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.values import count_of
from zkconsumer.mirror.pieces import WHOLE_BYTES

_CODEC_MASK: Final = 7
_OVERHEAD: Final = 12
_CODEC_NAMES: Final = {number: name for name, number in codecs.BATCH_CODECS.items()}
_COPY_ON_COMPACTED: Final = "give --topic-config cleanup.policy=delete, or copy into another topic by --rename"

Settings = Mapping[str, str]


class Sample(NamedTuple):
    """What some records of a partition are like.

    Attributes:
        name: The partition.
        heads: Of the record batches, without markers of transactions; none for messages of older formats.
        records: How many records were decoded.
        keyless: The offset of the first of them without a key; None if each has one.
        oldest_ms: The smallest time of them; -1 if one has no time, None if there are none.
    """

    name: TopicPartition
    heads: tuple[BatchHead, ...]
    records: int
    keyless: int | None
    oldest_ms: int | None = None


@dataclass(frozen=True)
class Way:
    """How the records of a topic are copied.

    Attributes:
        name: `whole`, `decoded`, or `unknown` if there is no record to judge by.
        reason: Why, a clause.
    """

    name: str = "unknown"
    reason: str = "it was not looked at"

    @property
    def text(self) -> str:
        """Both, for people."""
        return {"whole": "whole batches", "decoded": "decoded", "unknown": "-"}[self.name] + (
            f": {self.reason}" if self.name != "unknown" else ""
        )


def way_of(found: Sequence[Sample], *, sets_times: bool, takes_zstd: bool) -> Way:
    """Return how records like these are copied."""
    heads = [head for each in found for head in each.heads]
    if sets_times:
        return Way("decoded", "--timestamps target")
    if not heads:
        has_records = any(each.records for each in found)
        return Way("decoded", "messages of Kafka 0.8 to 0.10") if has_records else Way("unknown", "no records yet")
    if not takes_zstd and any(head.attributes & _CODEC_MASK == codecs.ZSTD for head in heads):
        return Way("decoded", "zstd, which the target does not take")
    sizes = [_OVERHEAD + head.size for head in heads]
    small = sum(size < WHOLE_BYTES for size in sizes)
    average = _size_text(sum(sizes) // len(sizes))
    if not small:
        return Way("whole", f"{average} on average")
    if small == len(sizes):
        return Way("decoded", f"batches of {average} are merged")
    return Way("whole" if 2 * small <= len(sizes) else "decoded",
               f"{average} on average; {small} of {len(sizes)} smaller ones are merged")  # fmt: skip


def _size_text(size_bytes: int) -> str:
    return f"{size_bytes} bytes" if size_bytes < 1024 else f"{size_bytes / 1024:.0f} KiB"


def is_compacted(settings: Settings) -> bool:
    """Return whether a topic keeps the last record of each key."""
    return "compact" in settings.get("cleanup.policy", "")


def keyless_findings(target: str, settings: Settings, found: Sequence[Sample]) -> list[str]:
    """Return what says that a compacted topic would refuse records without keys."""
    if not is_compacted(settings):
        return []
    offsets = sorted((each.name, each.keyless) for each in found if each.keyless is not None)
    if not offsets:
        return []
    (topic, partition), offset = offsets[0]
    others = {name for name, _ in offsets[1:]} - {offsets[0][0]}
    more = f", and so has {count_of(len(others), 'other partition')}" if others else ""
    return [
        f"{topic}/{partition} has a record without a key at offset {offset}{more}, and topic {target} is compacted "
        f"(cleanup.policy={settings['cleanup.policy']}): its brokers refuse such records; {_COPY_ON_COMPACTED}"
    ]


def foreign_finding(target: str, partition: int | str, start: int, end: int) -> str:
    """Return the sentence about records of a target topic that this mirror has not written."""
    return (
        f"{target}/{partition} has offsets {start} to {end - 1}, and this mirror has not written them: copy into a "
        "topic that nobody else writes (--rename, --prefix), or delete it"
    )


def notes_of(
    topic: str, target: str, source: Settings, settings: Settings, found: Sequence[Sample], *, sets_times: bool
) -> list[str]:
    """Return what an operator should know, and what does not stop a mirror.

    Args:
        topic, target: Both names.
        source, settings: What is in force on both sides, as far as it is known.
        found: Samples of the source.
        sets_times: The user wants the times of the copying.
    """
    notes = []
    theirs, ours = _number(source, "max.message.bytes"), _number(settings, "max.message.bytes")
    if theirs is not None and ours is not None and ours < theirs:
        notes.append(
            f"topic {target} takes {ours} bytes at most (max.message.bytes), and topic {topic} of the source {theirs}: "
            "a larger record would stop its partition, and larger batches are decoded; give --topic-config "
            f"max.message.bytes={theirs}, or set it there with `zkconsumer topics set`"
        )
    if settings.get("message.timestamp.type") == "LogAppendTime" and not sets_times:
        notes.append(
            f"topic {target} has message.timestamp.type=LogAppendTime: records get the time at which they are copied, "
            "and their own times are not kept"
        )
    codec = settings.get("compression.type", "producer")
    others = {name for name in _codecs(found) if name != codec.replace("uncompressed", "none")}
    if codec != "producer" and others:
        notes.append(
            f"topic {target} has compression.type={codec}, and the source has batches with "
            f"{', '.join(sorted(others))}: the target's brokers compress them again, which costs them CPU also where "
            "batches are copied whole"
        )
    return notes


def guard_notes(topic: str, first: Sequence[Sample], oldest_ms: int) -> list[str]:
    """Return what says that brokers of the target will not know who has written the first records of a topic.

    Args:
        topic: Of the source.
        first: Samples of the starts of its partitions.
        oldest_ms: Brokers forget the producers of records with smaller times.
    """
    times = [each.oldest_ms for each in first if each.oldest_ms is not None]
    old = sum(time_ms < oldest_ms for time_ms in times)
    if not old:
        return []
    why = "have no times" if min(times) < 0 else "are older than brokers keep producers"
    return [
        f"records of topic {topic} {why} (in {old} of {count_of(len(times), 'partition')} that were looked at): they "
        "are copied unguarded; --pin-producers or --timestamps target guards them"
    ]


def _codecs(found: Sequence[Sample]) -> set[str]:
    """Return the names of the codecs of batches; that of older messages is not known."""
    return {
        _CODEC_NAMES.get(head.attributes & _CODEC_MASK, "an unknown codec") for each in found for head in each.heads
    }


def _number(settings: Settings, name: str) -> int | None:
    value = settings.get(name, "")
    return int(value) if value.isdigit() else None


def offset_findings(
    topic: str, partitions: Sequence[int | str], settings: Mapping[str, str]
) -> Iterator[str]:  # fmt: skip
    """Yield why the records of a topic cannot keep their offsets.

    Args:
        topic: At the source.
        partitions: Of the topic.
        settings: In force on the target.
    """
    if any(isinstance(each, str) for each in partitions):
        yield f"topic {topic} is of Kafka 0.7, whose positions are bytes: no record can keep its offset"
    if is_compacted(settings):
        yield f"topic {topic} is compacted: its records cannot keep their offsets, as holes there may grow"
