"""Cuts record batches of Kafka 0.7 between entries, as only whole entries can be committed.

This module needs numpy and pyarrow (the extra `columns`); it is imported only when columns are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["cuts"]


def cuts(batch: Any, max_rows: int | None) -> Iterator[tuple[int, int]]:
    """Yield first row and end of each part of a record batch.

    A part ends where an entry ends, unless an entry alone has more than `max_rows` rows, or is not whole in the batch.
    A part that starts within an entry ends with that entry.

    Args:
        batch: At least one row, with the columns offset, entry_index and next_offset.
        max_rows: Most rows of a part; None for no limit.
    """
    indexes = batch.column("entry_index")
    is_last_of_entry = np.asarray(batch.column("next_offset")) > np.asarray(batch.column("offset"))
    ends = np.flatnonzero(is_last_of_entry) + 1
    first = 0
    while first < batch.num_rows:
        limit = batch.num_rows if max_rows is None else min(first + max_rows, batch.num_rows)
        behind_first = int(np.searchsorted(ends, first, "right"))
        if indexes[first].as_py() > 0:
            end = min(limit, int(ends[behind_first])) if behind_first < len(ends) else limit
        else:
            whole = int(np.searchsorted(ends, limit, "right"))
            end = int(ends[whole - 1]) if whole > behind_first else limit
        yield first, end
        first = end
