"""MemberOffsets: what a member needs of its offsets beside what the coordination does; stores implement it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rebalance.assignment import Partition
from rebalance.ports import Offsets
from zkconsumer.offsets.known_offsets import OnCommit

__all__ = ["MemberOffsets"]


class MemberOffsets(Offsets, Protocol):
    """The offsets of one member.

    Attributes:
        failures: How many positions could not be committed so far.
        answering: Who answers a commit, for messages.
        commit_wait_s: How long the answer to a commit may take, in seconds.
        refused: Partition -> why it is not started, as a sentence.
        warnings: What the application should know about the stores, as sentences.
        on_commit: Called with what the member has committed by itself, before who asked for it; None for nobody.

    Threads: The coordinator's alone; `committed`, `behind` and `failures` from any, `close` too.
    """

    on_commit: OnCommit | None

    @property
    def failures(self) -> int: ...

    @property
    def answering(self) -> str: ...

    @property
    def commit_wait_s(self) -> float: ...

    @property
    def refused(self) -> Mapping[Partition, str]: ...

    @property
    def warnings(self) -> set[str]: ...

    def committed(self) -> dict[Partition, int]: ...

    def behind(self) -> dict[Partition, int]: ...

    def out_of_range(self, partition: Partition, gone: range, restart: int) -> None: ...

    def close(self, timeout_s: float) -> None: ...
