"""How many offsets of each partition a micro-batch may take, shared by lag, and whether they are enough. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from simpleconsumer.types import TopicPartition

__all__ = ["TriggerDelay", "admit"]


def admit(
    positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], max_offsets: int | None
) -> dict[TopicPartition, int]:
    """Where the next batch ends in each partition of `positions`.

    Each partition that has something gets one offset, and of the rest a share in proportion to its lag; where there
    are more such partitions than offsets, the largest lags come first, so that nobody waits for ever.

    >>> a, b = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
    >>> list(admit({a: 0, b: 50}, {a: 900, b: 150}, 100).values())
    [90, 60]

    Args:
        positions: where reading goes on.
        ends: where it could end; a partition that is missing, or ends before its position, has nothing.
        max_offsets: at most so many in all; `None` takes everything.
    """
    lags = {name: ends.get(name, at) - at for name, at in positions.items()}
    waiting = {name: lag for name, lag in lags.items() if lag > 0}
    if max_offsets is None or sum(waiting.values()) <= max_offsets:
        shares = waiting
    else:
        shares = _shares(waiting, max_offsets)
    return {name: at + shares.get(name, 0) for name, at in positions.items()}


def _shares(lags: Mapping[TopicPartition, int], budget: int) -> dict[TopicPartition, int]:
    """Shares that sum up to the budget, which is smaller than all lags together."""
    by_lag = sorted(lags, key=lambda name: (-lags[name], name.topic, int(name.partition)))
    if budget <= len(by_lag):
        return dict.fromkeys(by_lag[:budget], 1)
    rest = budget - len(by_lag)
    behind = sum(lags.values()) - len(by_lag)
    shares = {name: 1 + rest * (lags[name] - 1) // behind for name in by_lag}
    # Rounding down left less than one for each partition: the largest lags have room for it.
    for name in by_lag[: budget - sum(shares.values())]:
        shares[name] += 1
    return shares


class TriggerDelay:
    """When there is enough for a batch.

    The first batch of a run waits for nothing: nobody knows how long ago the last one was.

    Args:
        min_offsets: least number of offsets that a batch is made of.
        max_delay_s: a smaller one is made when the last one was so long ago.
    """

    def __init__(self, min_offsets: int, max_delay_s: float) -> None:
        self._min_offsets = min_offsets
        self._max_delay_s = max_delay_s
        self._last: float | None = None

    def must_wait(self, new_offsets: int, now: float) -> bool:
        """Whether what is there has to wait for more."""
        if not new_offsets:
            return False
        is_due = self._last is None or now - self._last >= self._max_delay_s
        if new_offsets < self._min_offsets and not is_due:
            return True
        self._last = now
        return False
