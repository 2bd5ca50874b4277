"""How fast record batches (magic 2) become messages and columns, beside message sets of magic 1.

Usage: .venv/bin/python tests/benchmarks/record_batches.py [rounds]

Both decoders take turns on the same messages with timestamps, about a megabyte; every checksum is compared. Printed is
the best round of each, in rows a second of processor time, and the median of the ratios of neighbouring runs.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Iterator
from time import process_time
from typing import NamedTuple

from columns import rows_of

from simpleconsumer import KAFKA011, KAFKA08, Message, encode_message_set
from simpleconsumer.dialect import Dialect
from simpleconsumer.kafka011.record_encode import encode_record_batch

_FIRST = 10**9
_NOW = 1_700_000_000_000
_EPOCH = 5


class Case(NamedTuple):
    """What is measured.

    Attributes:
        size: Bytes of a value, or of a middling one.
        is_varying: Whether values are of half of that to one and a half.
        key_bytes: Bytes of each key; 0 for none.
        codec: Of the batches.
        together: How many messages a batch, or a compressed message, holds.
        spread_ms: How far timestamps are out of order.
    """

    size: int = 100
    is_varying: bool = True
    key_bytes: int = 0
    codec: str = "none"
    together: int = 130
    spread_ms: int = 0


_CASES = {
    "50 to 150 B": Case(),
    "50 to 150 B, keys of 16 B": Case(key_bytes=16),
    "500 to 1500 B": Case(1000, together=16),
    "100 B": Case(is_varying=False),
    "1000 B": Case(1000, is_varying=False, together=16),
    "50 to 150 B, one batch": Case(together=100_000),
    "50 to 150 B, 10 a batch": Case(together=10),
    "50 to 150 B, 1 a batch": Case(together=1),
    "50 to 150 B, times +-200 ms": Case(spread_ms=200),
    "50 to 150 B, gzip": Case(codec="gzip"),
    "50 to 150 B, snappy": Case(codec="snappy"),
    "50 to 150 B, lz4": Case(codec="lz4"),
    "500 to 1500 B, snappy": Case(1000, codec="snappy", together=16),
}


def parts_of(case: Case) -> Iterator[tuple[int, list[Message]]]:
    """Yield the messages of each batch, with the first offset."""
    draw = random.Random(5)
    messages = [
        Message("clicks", 0, 0, 0, key, value, _NOW + number // 10 + draw.randint(-case.spread_ms, case.spread_ms))
        for number, (key, value) in enumerate(rows_of(case.size, case.is_varying, case.key_bytes))
    ]
    for at in range(0, len(messages), case.together):
        yield _FIRST + at, messages[at : at + case.together]


def sets(case: Case) -> dict[Dialect, bytes]:
    """Return the same messages in the format of each dialect."""
    parts = list(parts_of(case))
    return {
        KAFKA08: b"".join(encode_message_set(part, case.codec, 1, first_offset=first) for first, part in parts),
        KAFKA011: b"".join(
            encode_record_batch(part, case.codec, first_offset=first, leader_epoch=_EPOCH) for first, part in parts
        ),
    }


def rate(dialect: Dialect, data: bytes, *, as_columns: bool) -> float:
    """Return the rows a second of processor time of one decoding."""
    begin, count = process_time(), 0
    for _ in range(4):
        if as_columns:
            for batch in dialect.decode_columns(data, "clicks", 0, _FIRST, columns=KAFKA08.columns):
                count += batch.num_rows
        else:
            for _ in dialect.decode_messages(data, "clicks", 0, _FIRST):
                count += 1
    return count / (process_time() - begin)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    heads = ("magic 1", "magic 2", "ratio", "columns, 1", "columns, 2", "ratio")
    print(f"{'values, M/s':28}" + "".join(f"{head:>12}" for head in heads))
    for name, case in _CASES.items():
        data, cells = sets(case), []
        for as_columns in (False, True):
            found: dict[Dialect, list[float]] = {dialect: [] for dialect in data}
            for number in range(rounds):
                for dialect in data if number % 2 else reversed(data):
                    found[dialect].append(rate(dialect, data[dialect], as_columns=as_columns))
            old, new = found[KAFKA08], found[KAFKA011]
            ratio = statistics.median(b / a for a, b in zip(old, new, strict=True))
            cells += [f"{max(old) / 1e6:.2f}", f"{max(new) / 1e6:.2f}", f"{ratio:.2f}"]
        print(f"{name:28}" + "".join(f"{cell:>12}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
