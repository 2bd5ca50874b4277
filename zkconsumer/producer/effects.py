"""What becomes of a batch: it has its outcome, or goes on as two. Pure."""

from __future__ import annotations

from typing import NamedTuple

from zkconsumer.producer.batch import Batch
from zkconsumer.producer.errors import ProducerError

__all__ = ["Effect", "Finished", "Split"]


class Finished(NamedTuple):
    """A batch has its outcome.

    Attributes:
        batch: The batch.
        offset: Offset of its first message; -1 where the broker names none.
        error: Why it failed; None if it is acknowledged.
    """

    batch: Batch
    offset: int
    error: ProducerError | None


class Split(NamedTuple):
    """A batch goes on as two."""

    batch: Batch
    halves: tuple[Batch, Batch]


Effect = Finished | Split
