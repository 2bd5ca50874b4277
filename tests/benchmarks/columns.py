"""How fast message sets become record batches, and how much faster than messages one by one.

Usage: .venv/bin/python tests/benchmarks/columns.py [rounds]

Both decoders take turns on sets of about a megabyte of one process; every checksum is compared. Printed is the best
round of each, in rows a second of processor time, so that a busy machine disturbs little.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from time import process_time
from typing import Any

from simpleconsumer import decode_messages, encode_message_set
from simpleconsumer.columns import decode_columns

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


def message_set(size: int, is_varying: bool, key_bytes: int, codec: str, magic: int) -> tuple[bytes, int]:
    """Return a set of values that compress as text does, and how many there are."""
    draw = random.Random(7)
    count = _SET_BYTES // (size + 26 + key_bytes)
    rows = []
    for number in range(count):
        length = draw.randint(size // 2, size + size // 2) if is_varying else size
        value = b" ".join(draw.choice(_WORDS) for _ in range(length // 3))[:length].ljust(length, b".")
        rows.append((b"%0*d" % (key_bytes, number) if key_bytes else None, value))
    if codec == "none":
        return encode_message_set(rows, magic=magic, first_offset=10**9), count
    each = max(1, _WRAPPER_BYTES // (size + 26 + key_bytes))
    wrappers = [
        encode_message_set(rows[at : at + each], codec, magic, first_offset=10**9 + at) for at in range(0, count, each)
    ]
    return b"".join(wrappers), count


def seconds(decode: Callable[..., Any], data: bytes, repeats: int) -> float:
    begin = process_time()
    for _ in range(repeats):
        for _ in decode(data, "clicks", 0, 10**9):
            pass
    return (process_time() - begin) / repeats


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    print(f"{'values':28} {'messages, M/s':>14} {'columns, M/s':>14} {'ratio':>6}")
    for name, case in _CASES.items():
        data, count = message_set(*case)
        repeats = max(1, 40_000 // count)
        both = [[seconds(way, data, repeats) for way in (decode_messages, decode_columns)] for _ in range(rounds)]
        messages, columns = (count / min(times) / 1e6 for times in zip(*both, strict=True))
        print(f"{name:28} {messages:14.2f} {columns:14.2f} {columns / messages:6.1f}")


if __name__ == "__main__":
    main()
