"""The offsets of a stream in Spark's checkpoint: `{"clicks": {"0": 42}, "@born": {"clicks": 8589934603}}`. Pure.

The format is that of Spark's own Kafka source, with one more entry: the transaction that created each topic's node in
ZooKeeper, which identifies the incarnation of the topic. Without it, a topic that was deleted and created anew could
not be distinguished from the old one once it has grown past the old position, and its first messages would be skipped
silently. Clusters that are set up in the same way number their transactions in the same way, so the time when the
cluster's node for topics was created is stored, too, as `@cluster`. No topic name contains `@`.

On Kafka 0.7 partitions have their names, and there is no incarnation: `{"clicks": {"0-0": 42}, "@born": {"@cluster":
1393632000000}}`. Topics cannot be deleted there, and their nodes in ZooKeeper say nothing about the logs.

Where the brokers alone are known, the topic id that they give each topic (Kafka 2.8 and later) takes the place of that
transaction, and the cluster's id that of the time: `{"clicks": {"0": 42}, "@ids": {"clicks": "b8f1...", "@cluster":
"mKBItNTP..."}}`. Both kinds are numbers here; those of ids are far larger than any of ZooKeeper.

Brokers of Kafka 2.1 and later report the epoch of a partition's leader. That of the leader that had the messages up to
each position stands in an entry `@epochs`, in the form of the offsets: `{"clicks": {"0": 42}, "@epochs": {"clicks":
{"0": 5}}}`. A later leader knows where its log differs from what earlier ones had (`ask_cuts`).

The keys are in checkpoints and never change. Rule: equal offsets give equal text, because Spark compares texts.

Sets of offsets as spans: sorted pairs of a first offset and the one after the last, with gaps between the pairs.

Limits the offsets of a micro-batch, shared among partitions by lag, and delays batches that are too small.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from simpleconsumer.types import MAX_INT64, TopicPartition
from zkconsumer.spark.options.offsets_json import are_byte_positions, nested_offsets, read_offsets

ZXIDS_KEY = "@born"
"""The key of the entry with the number of each topic's incarnation, instead of offsets."""
IDS_KEY = "@ids"
"""The key of the entry with the id of each topic as the brokers give it, in hex digits."""
EPOCHS_KEY = "@epochs"
"""The key of the entry with the epochs of leaders, instead of offsets."""
CLUSTER_KEY = "@cluster"
"""The key of the cluster in that entry."""
_NO_TOPICS = (ZXIDS_KEY, IDS_KEY, EPOCHS_KEY)
_EXCERPT = 200
_SMALLEST_ID = 2**63
"""Transactions and times of ZooKeeper are below; topic ids, which are random UUIDs, and ids of clusters above."""


def number_of_topic(topic_id: str) -> int:
    """Return the number that stands for a topic id, given in hex digits."""
    return int(topic_id, 16)


def number_of_cluster(cluster_id: str) -> int:
    """Return the number that stands for the id of a cluster."""
    return int.from_bytes(b"\1" * 8 + cluster_id.encode())


def is_id(number: int) -> bool:
    """Return whether a number stands for an id that brokers give; else it is one of ZooKeeper."""
    return number >= _SMALLEST_ID


def cluster_id_of(number: int) -> str:
    """Return the id of a cluster for which a number stands."""
    return number.to_bytes((number.bit_length() + 7) // 8)[8:].decode()


@dataclass(frozen=True)
class StreamOffsets:
    """The position of a stream.

    Attributes:
        offsets: the next message of each partition.
        created_zxids: topic -> the transaction that created it, or the number of its id.
        cluster_ms: when the cluster was set up, or the number of its id; `None` if that is not known.
        epochs: partition -> the epoch of a leader whose log reached the position, as far as that is known.
    """

    offsets: Mapping[TopicPartition, int]
    created_zxids: Mapping[str, int] = field(default_factory=dict)
    cluster_ms: int | None = None
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def marks(self) -> list[int]:
        """The numbers by which topics and the cluster are known again."""
        return [*self.created_zxids.values(), *([] if self.cluster_ms is None else [self.cluster_ms])]

    def to_json(self) -> dict[str, Any]:
        """The value that Spark writes to the checkpoint and shows in the progress."""
        shown: dict[str, Any] = {**nested_offsets(self.offsets)}
        known = {name: self.epochs[name] for name in self.offsets if name in self.epochs}
        epochs = {EPOCHS_KEY: nested_offsets(known)} if known else {}
        created_zxids = {topic: self.created_zxids[topic] for topic in shown if topic in self.created_zxids}
        if any(map(is_id, self.marks)):
            ids = {topic: f"{number:032x}" for topic, number in created_zxids.items()}
            if self.cluster_ms is not None and shown:
                ids[CLUSTER_KEY] = cluster_id_of(self.cluster_ms)
            return {**shown, **({IDS_KEY: ids} if ids else {}), **epochs}
        if (created_zxids or are_byte_positions(self.offsets)) and self.cluster_ms is not None:
            created_zxids[CLUSTER_KEY] = self.cluster_ms
        return {**shown, **({ZXIDS_KEY: created_zxids} if created_zxids else {}), **epochs}


def parse_stream_offsets(value: object) -> StreamOffsets:
    """Parse what Spark returns of a value of `to_json`: a dictionary, or its JSON text.

    Raises:
        ValueError: it is anything else; the text names the place.
    """
    try:
        topics = json.loads(value) if isinstance(value, str) else value
        if not isinstance(topics, dict):
            raise ValueError("they are not an object of topics")
        offsets = read_offsets({topic: each for topic, each in topics.items() if topic not in _NO_TOPICS})
        epochs = read_offsets(topics.get(EPOCHS_KEY, {}))
        zxids = topics.get(ZXIDS_KEY, {})
        wrong = [name for name, offset in offsets.items() if offset < 0]
        if wrong:
            raise ValueError(f"{wrong[0].topic}/{wrong[0].partition} has {offsets[wrong[0]]}, not an offset from 0")
        if any(epoch < 0 for epoch in epochs.values()) or epochs.keys() - offsets.keys():
            raise ValueError(f"{EPOCHS_KEY!r} has no epochs of these partitions")
        if not isinstance(zxids, dict) or not all(type(zxid) is int and zxid >= 0 for zxid in zxids.values()):
            raise ValueError(f"{ZXIDS_KEY!r} has values that are not numbers")
        if IDS_KEY in topics:
            if zxids:
                raise ValueError(f"they have both {ZXIDS_KEY!r} and {IDS_KEY!r}")
            zxids = _numbers(topics[IDS_KEY])
    except RecursionError:
        raise ValueError("offsets of a stream cannot be read: they are nested too deep") from None
    except ValueError as error:
        raise ValueError(f"offsets of a stream cannot be read: {error}: {_excerpt(value)}") from None
    created_zxids = {topic: zxid for topic, zxid in zxids.items() if topic != CLUSTER_KEY}
    return StreamOffsets(offsets, created_zxids, zxids.get(CLUSTER_KEY), epochs)


def _excerpt(value: object) -> str:
    try:
        return str(value)[:_EXCERPT]
    except RecursionError:
        return "they are nested too deep"


def _numbers(ids: object) -> dict[str, int]:
    """Return the numbers of the ids of topics and of the cluster; ValueError if they are none."""
    if not isinstance(ids, dict) or not all(isinstance(each, str) for each in ids.values()):
        raise ValueError(f"{IDS_KEY!r} has values that are not ids")
    found = {topic: number_of_topic(each) for topic, each in ids.items() if topic != CLUSTER_KEY}
    if not all(map(is_id, found.values())):
        raise ValueError(f"{IDS_KEY!r} has values that are not ids of topics")
    return found if CLUSTER_KEY not in ids else {**found, CLUSTER_KEY: number_of_cluster(ids[CLUSTER_KEY])}


Spans = tuple[tuple[int, int], ...]
BEHIND_ALL: Final = MAX_INT64 + 1
"""As the end of a span: it has no end."""
ALL_OFFSETS: Final[Spans] = ((0, BEHIND_ALL),)
NO_OFFSETS: Final[Spans] = ()


def spans_of(pairs: Iterable[tuple[int, int]]) -> Spans:
    """Return the set of all offsets in any of the pairs, which may be empty, overlap, and come in any order.

    >>> spans_of([(7, 9), (3, 5), (5, 6), (4, 4)])
    ((3, 6), (7, 9))
    """
    joined: list[tuple[int, int]] = []
    for start, end in sorted((max(start, 0), min(end, BEHIND_ALL)) for start, end in pairs):
        if start >= end:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple(joined)


def common(left: Spans, right: Spans) -> Spans:
    """Return the offsets that are in both.

    >>> common(((0, 5), (8, 20)), ((3, 10),))
    ((3, 5), (8, 10))
    """
    found: list[tuple[int, int]] = []
    here = there = 0
    while here < len(left) and there < len(right):
        start, end = max(left[here][0], right[there][0]), min(left[here][1], right[there][1])
        if start < end:
            found.append((start, end))
        if left[here][1] < right[there][1]:
            here += 1
        else:
            there += 1
    return tuple(found)


def others(spans: Spans) -> Spans:
    """Return the offsets that are not in the set.

    >>> others(((0, 5), (8, 9)))
    ((5, 8), (9, 9223372036854775808))
    """
    edges = [0, *(edge for span in spans for edge in span), BEHIND_ALL]
    return tuple((start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end)


def at_most(spans: Spans, count: int) -> Spans:
    """Return a set of at most `count` spans that contains this one: the shortest gaps are filled.

    >>> at_most(((0, 5), (6, 7), (90, 95)), 2)
    ((0, 7), (90, 95))
    """
    gaps = sorted(range(1, len(spans)), key=lambda after: spans[after][0] - spans[after - 1][1])
    kept = sorted(gaps[len(gaps) - count + 1 :]) if len(spans) > count else range(1, len(spans))
    cuts = [0, *kept, len(spans)]
    return tuple((spans[first][0], spans[after - 1][1]) for first, after in pairwise(cuts) if after > first)


def admit(
    positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], max_offsets: int | None
) -> dict[TopicPartition, int]:
    """Where the next batch ends in each partition of `positions`.

    Each partition with new messages gets one offset, and a share of the rest in proportion to its lag. If there are
    more such partitions than offsets, those with the largest lag come first, so that no partition waits for ever.

    >>> a, b = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
    >>> list(admit({a: 0, b: 50}, {a: 900, b: 150}, 100).values())
    [90, 60]

    Args:
        positions: the next offset to read.
        ends: where the logs end; a partition that is missing, or ends before its position, has nothing new.
        max_offsets: the most offsets of the batch; `None` for no limit.
    """
    lags = {name: ends.get(name, at) - at for name, at in positions.items()}
    waiting = {name: lag for name, lag in lags.items() if lag > 0}
    if max_offsets is None or sum(waiting.values()) <= max_offsets:
        shares = waiting
    else:
        shares = _shares(waiting, max_offsets)
    return {name: at + shares.get(name, 0) for name, at in positions.items()}


def _shares(lags: Mapping[TopicPartition, int], budget: int) -> dict[TopicPartition, int]:
    """Shares whose sum is the budget, which is smaller than the sum of the lags."""
    by_lag = sorted(lags, key=lambda name: (-lags[name], name))
    if budget <= len(by_lag):
        return dict.fromkeys(by_lag[:budget], 1)
    rest = budget - len(by_lag)
    rest_of_lags = sum(lags.values()) - len(by_lag)
    shares = {name: 1 + rest * (lags[name] - 1) // rest_of_lags for name in by_lag}
    # Rounding down leaves less than one offset for each partition; the partitions with the largest lags take it.
    for name in by_lag[: budget - sum(shares.values())]:
        shares[name] += 1
    return shares


class TriggerDelay:
    """Decides whether there are enough offsets for a batch.

    The first batch of a run does not wait, because the time of the last one is unknown.

    Args:
        min_offsets: least number of offsets of a batch.
        max_delay_s: a smaller batch is allowed if the last one was this long ago.
    """

    def __init__(self, min_offsets: int, max_delay_s: float) -> None:
        self._min_offsets = min_offsets
        self._max_delay_s = max_delay_s
        self._last: float | None = None

    def must_wait(self, new_offsets: int, now: float) -> bool:
        """Whether the new offsets have to wait for more."""
        if not new_offsets:
            return False
        is_due = self._last is None or now - self._last >= self._max_delay_s
        if new_offsets < self._min_offsets and not is_due:
            return True
        self._last = now
        return False
