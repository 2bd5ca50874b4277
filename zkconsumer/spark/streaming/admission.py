"""Limits the offsets of a micro-batch, shared among partitions by lag, and delays batches that are too small. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from simpleconsumer.types import TopicPartition

__all__ = ["TriggerDelay", "admit"]


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
