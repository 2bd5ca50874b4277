"""How many messages and bytes of one partition were fetched, in total and per second.

Pure: time comes in as `now`. It counts once for each chunk, never for each message.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["FetchMeter"]

WINDOW_S: Final = 10.0
"""The rate covers the last ten to twenty seconds; the older half has less and less weight."""
_SHORTEST_S: Final = 1.0


class _Window(NamedTuple):
    started_at: float
    messages: int = 0
    size_bytes: int = 0
    messages_before: int = 0
    bytes_before: int = 0
    is_first: bool = False


class FetchMeter:
    """Totals and rates of one partition.

    Attributes:
        messages: Counted by offsets, so the holes of a compacted log count, too. In Kafka 0.7, where offsets count
            bytes, the entries: a compressed one counts once.
        size_bytes: Counted as fetched, that is compressed if the messages are.

    Threads: `add` by one thread at a time; the rest by any, as each state is one value that is replaced.
    """

    __slots__ = ("_window", "messages", "size_bytes")

    def __init__(self, now: float) -> None:
        self.messages = self.size_bytes = 0
        self._window = _Window(now, is_first=True)

    def add(self, now: float, messages: int, size_bytes: int) -> None:
        """Count a chunk that was fetched."""
        self.messages += messages
        self.size_bytes += size_bytes
        window = _rolled(self._window, now)
        self._window = window._replace(
            messages=window.messages + messages, size_bytes=window.size_bytes + size_bytes
        )

    def rates(self, now: float) -> tuple[float, float]:
        """Return messages and bytes per second."""
        window = _rolled(self._window, now)
        passed_s = min(max(now - window.started_at, 0.0), WINDOW_S)
        if window.is_first:
            span_s = max(passed_s, _SHORTEST_S)
            return window.messages / span_s, window.size_bytes / span_s
        kept = 1.0 - passed_s / WINDOW_S
        return (
            (window.messages_before * kept + window.messages) / WINDOW_S,
            (window.bytes_before * kept + window.size_bytes) / WINDOW_S,
        )


def _rolled(window: _Window, now: float) -> _Window:
    """Return the window of `now`, with the counts of the window before it."""
    passed_s = now - window.started_at
    if passed_s < WINDOW_S:
        return window
    if passed_s < 2 * WINDOW_S:
        return _Window(window.started_at + WINDOW_S, 0, 0, window.messages, window.size_bytes)
    return _Window(now - passed_s % WINDOW_S)
