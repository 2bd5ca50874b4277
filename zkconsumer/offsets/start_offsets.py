"""Checks the start offsets that `on_partitions_assigned` returned.

Pure. Rule: a value that is no offset is refused, with the value and what was expected, and never replaced by another
offset: the application stores its offsets beside its data, and any other start would skip or repeat some of it.

Source: docs/SEMANTICS.md, "The rebalance listener".
"""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Mapping

from rebalance.assignment import Partition
from rebalance.ports import Starts
from simpleconsumer.types import MAX_INT64
from zkconsumer_error import shown

__all__ = ["read_starts"]


def read_starts(answer: object, assigned: Collection[Partition]) -> Starts:
    """The chosen and refused starts of the partitions that were assigned.

    A wrong offset refuses its partition. A value that is no mapping, or names a partition that was not assigned in this
    call, refuses all of them: it is unknown which one was meant.
    """
    if answer is None:
        return Starts()
    if not isinstance(answer, Mapping):
        reason = (
            f"on_partitions_assigned returned {reprlib.repr(answer)}; it must return None, or a mapping of assigned "
            "partitions to offsets, such as {TopicPartition('clicks', 0): 42}"
        )
        return Starts(refused=dict.fromkeys(assigned, reason))
    try:
        entries = dict(answer)
    except Exception as error:  # noqa: BLE001 - a mapping of the application's own making
        reason = f"the value that on_partitions_assigned returned cannot be read: {shown(error)}"
        return Starts(refused=dict.fromkeys(assigned, reason))
    unassigned = [key for key in entries if not (isinstance(key, tuple) and key in assigned)]
    if unassigned:
        names = ", ".join(_shown(key) for key in unassigned[:5]) + (", ..." if len(unassigned) > 5 else "")
        reason = f"on_partitions_assigned returned an offset for {names}, which this call did not assign"
        return Starts(refused=dict.fromkeys(assigned, reason))
    chosen: dict[Partition, int] = {}
    refused: dict[Partition, str] = {}
    for (topic, partition), offset in entries.items():
        if isinstance(offset, int) and not isinstance(offset, bool) and 0 <= offset <= MAX_INT64:
            chosen[topic, partition] = offset
        else:
            refused[topic, partition] = (
                f"on_partitions_assigned returned offset {reprlib.repr(offset)}; it must be an integer from 0 to 2^63-1"
            )
    return Starts(chosen, refused)


def _shown(key: object) -> str:
    if isinstance(key, tuple) and len(key) == 2:
        return f"{key[0]}-{key[1]}"
    return reprlib.repr(key)
