"""KeptWriter: the writer of the last `Cluster.produce`, kept for the next one, which then needs no new connection."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from zkconsumer.testing.writer import Leaders, Target, Writer

Kind = tuple[str, float]
"""Codec and deadline of a writer."""


class KeptWriter:
    """Keeps one idle writer of a cluster.

    It is used again for the same codec and deadline, as long as leaders and ports of the topic are the same, and not in
    Kafka 0.7. Connections that a broker has closed meanwhile are made again. After a failure the writer is not kept:
    batches may be on their way.

    Threads: any; each call has a writer of its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: tuple[Kind, Writer] | None = None

    @contextmanager
    def writer(
        self, cluster: Target, topic: str, leaders: Leaders, *, codec: str, timeout_s: float
    ) -> Iterator[Writer]:
        """The kept writer, or a new one; at the end of the block it is kept, or closed if the block fails.

        Args:
            leaders: those of the partitions that are written to.
            codec: none, gzip, snappy, lz4.
            timeout_s: deadline of one request, and of the tries of a batch that was refused.

        Raises:
            What `Writer` raises.
        """
        kind = codec, timeout_s
        writer = self._taken(kind, topic, leaders)
        if writer is None:
            places: dict[str, Sequence[int | str]] = {topic: list(leaders)}
            writer = Writer(cluster, places, codec=codec, timeout_s=timeout_s, known={topic: leaders})
        try:
            yield writer
        except BaseException:
            writer.close()
            raise
        self._keep(kind, writer)

    def _taken(self, kind: Kind, topic: str, leaders: Leaders) -> Writer | None:
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is None:
            return None
        kept_kind, writer = kept
        if kept_kind == kind and writer.renew(topic, leaders):
            return writer
        writer.close()
        return None

    def _keep(self, kind: Kind, writer: Writer) -> None:
        with self._lock:
            earlier, self._kept = self._kept, (kind, writer)
        if earlier is not None:
            earlier[1].close()

    def close(self) -> None:
        """Close the kept writer."""
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is not None:
            kept[1].close()
