"""How fast message sets become record batches, and messages one by one, of Kafka 0.8 and of 0.7.

Usage: .venv/bin/python tests/benchmarks/columns.py [rounds]

All decoders take turns on sets of the same values, about a megabyte of one process; every checksum is compared. Printed
is the best round of each, in rows a second of processor time, so that a busy machine disturbs little; and how fast 0.7
is read beside 0.8, as the median of the ratios of neighbouring runs, where 0.7 can store the same messages.
"""

from __future__ import annotations

import random
import statistics
import sys
from time import process_time

from simpleconsumer import KAFKA07, KAFKA08, encode_message_set
from simpleconsumer.dialect import Dialect

_SET_BYTES = 1_000_000
_WRAPPER_BYTES = 16_384
_WORDS = b"click view purchase login search cart item user session web ios GET POST 200 404 /index utm_source".split()
_CASES = {
    "100 B": (100, False, 0, "none", 0),
    "100 B, keys of 16 B": (100, False, 16, "none", 0),
    "1000 B": (1000, False, 0, "none", 0),
    "50 to 150 B": (100, True, 0, "none", 0),
    "50 to 150 B, keys of 16 B": (100, True, 16, "none", 0),
    "500 to 1500 B": (1000, True, 0, "none", 0),
    "50 to 150 B, timestamps": (100, True, 0, "none", 1),
    "50 to 150 B, snappy": (100, True, 0, "snappy", 0),
    "50 to 150 B, gzip": (100, True, 0, "gzip", 0),
    "500 to 1500 B, snappy": (1000, True, 0, "snappy", 0),
    "500 to 1500 B, gzip": (1000, True, 0, "gzip", 0),
}


Rows = list[tuple[bytes | None, bytes]]


def rows_of(size: int, is_varying: bool, key_bytes: int) -> Rows:
    """Return messages that compress as text does."""
    draw = random.Random(7)
    rows: Rows = []
    for number in range(_SET_BYTES // (size + 26 + key_bytes)):
        length = draw.randint(size // 2, size + size // 2) if is_varying else size
        value = b" ".join(draw.choice(_WORDS) for _ in range(length // 3))[:length].ljust(length, b".")
        rows.append((b"%0*d" % (key_bytes, number) if key_bytes else None, value))
    return rows


def message_set(size: int, is_varying: bool, key_bytes: int, codec: str, magic: int) -> tuple[bytes, int]:
    """Return a set of Kafka 0.8, and how many messages are in it."""
    rows = rows_of(size, is_varying, key_bytes)
    if codec == "none":
        return encode_message_set(rows, magic=magic, first_offset=10**9), len(rows)
    each = max(1, _WRAPPER_BYTES // (size + 26 + key_bytes))
    wrappers = [
        encode_message_set(rows[at : at + each], codec, magic, first_offset=10**9 + at)
        for at in range(0, len(rows), each)
    ]
    return b"".join(wrappers), len(rows)


def message_set_07(size: int, is_varying: bool, key_bytes: int, codec: str, magic: int) -> bytes | None:
    """Return a set of Kafka 0.7 of the same messages; None for keys and timestamps, which it cannot store."""
    if key_bytes or magic:
        return None
    rows = rows_of(size, is_varying, 0)
    each = max(1, _WRAPPER_BYTES // (size + 26))
    parts = [rows[at : at + each] for at in range(0, len(rows), each)]
    return b"".join(KAFKA07.encode_messages(part, codec, None, None) for part in parts)


def seconds(dialect: Dialect, *, as_columns: bool, data: bytes, repeats: int) -> float:
    """Return the processor time of one decoding; columns are all that the generation has."""
    begin = process_time()
    for _ in range(repeats):
        decoding = (
            dialect.decode_columns(data, "clicks", 0, 10**9, columns=dialect.columns)
            if as_columns
            else dialect.decode_messages(data, "clicks", 0, 10**9)
        )
        for _ in decoding:
            pass
    return (process_time() - begin) / repeats


def measured(case: tuple[int, bool, int, str, int], rounds: int) -> dict[tuple[str, bool], list[float]]:
    """Return the messages a second of each round, by generation and whether columns were made."""
    data, count = message_set(*case)
    sets = {KAFKA08: data, KAFKA07: message_set_07(*case)}
    ways = [(dialect, data, way) for way in (False, True) for dialect, data in sets.items() if data is not None]
    repeats = max(1, 40_000 // count)
    found: dict[tuple[str, bool], list[float]] = {(dialect.name, way): [] for dialect, _, way in ways}
    for number in range(rounds):
        for dialect, encoded, way in ways if number % 2 else reversed(ways):
            taken = seconds(dialect, as_columns=way, data=encoded, repeats=repeats)
            found[dialect.name, way].append(count / taken)
    return found


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    heads = ("messages", "columns", "ratio", "0.7 messages", "0.7 columns", "messages 0.7:0.8", "columns 0.7:0.8")
    print(f"{'values, M/s':28}" + "".join(f"{head:>17}" for head in heads))
    for name, case in _CASES.items():
        rates = measured(case, rounds)
        messages, columns = (max(rates[KAFKA08.name, way]) / 1e6 for way in (False, True))
        cells = [f"{messages:.2f}", f"{columns:.2f}", f"{columns / messages:.1f}"]
        if (KAFKA07.name, True) in rates:
            cells += [f"{max(rates[KAFKA07.name, way]) / 1e6:.2f}" for way in (False, True)]
            for way in (False, True):
                pairs = zip(rates[KAFKA07.name, way], rates[KAFKA08.name, way], strict=True)
                cells.append(f"{statistics.median(new / old for new, old in pairs):.2f}")
        print(f"{name:28}" + "".join(f"{cell:>17}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
