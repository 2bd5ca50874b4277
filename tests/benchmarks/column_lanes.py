"""What walking in lanes (`column_lanes`) saves of the time in which message sets become record batches.

Usage: .venv/bin/python tests/benchmarks/column_lanes.py [rounds]

Each set of 16 MiB holds messages of varying sizes. It is decoded with lanes and without, by turns, in one process;
every checksum is compared. Printed are the medians over the rounds, in milliseconds of processor time, and the median
of the ratios of neighbouring runs. The module is worth its lines while that ratio is above 1.1 for 50 to 150 bytes.
"""

from __future__ import annotations

import random
import statistics
import sys
from time import process_time

from simpleconsumer import column_walk, encode_message_set
from simpleconsumer.columns import decode_columns

_SET_BYTES = 16 * 1024 * 1024
# Smallest and largest value, bytes of the key, magic.
_CASES = {
    "10 to 40 B": (10, 40, 0, 0),
    "25 to 75 B": (25, 75, 0, 0),
    "50 to 150 B": (50, 150, 0, 0),
    "50 to 150 B, keys of 16 B": (50, 150, 16, 0),
    "50 to 150 B, timestamps": (50, 150, 0, 1),
    "100 to 300 B": (100, 300, 0, 0),
    "250 to 750 B": (250, 750, 0, 0),
}
_is_worth_lanes = column_walk._is_worth_lanes


def message_set(smallest: int, largest: int, key_bytes: int, magic: int) -> bytes:
    """Return a set of values of random sizes."""
    draw = random.Random(7)
    body, rows, size = draw.randbytes(largest), [], 0
    while size < _SET_BYTES:
        length = draw.randint(smallest, largest)
        rows.append((b"%0*d" % (key_bytes, len(rows)) if key_bytes else None, body[:length]))
        size += 26 + 8 * magic + key_bytes + length
    return encode_message_set(rows, magic=magic, first_offset=10**9)


def seconds(data: bytes, *, lanes: bool) -> float:
    """Return the processor time of one decoding."""
    column_walk._is_worth_lanes = _is_worth_lanes if lanes else lambda left_bytes, block_bytes: False
    start = process_time()
    for _ in decode_columns(data, "clicks", 0, 10**9):
        pass
    return process_time() - start


def main(rounds: int) -> None:
    print("| messages | with lanes | without | without / with |\n|---|---|---|---|")
    for name, case in _CASES.items():
        data = message_set(*case)
        seconds(data, lanes=True)
        pairs = []
        for number in range(rounds):
            times = {lanes: seconds(data, lanes=lanes) for lanes in ((True, False) if number % 2 else (False, True))}
            pairs.append((times[True], times[False]))
        with_lanes, without = (statistics.median(times) * 1000 for times in zip(*pairs, strict=True))
        ratio = statistics.median(other / one for one, other in pairs)
        print(f"| {name} | {with_lanes:.1f} ms | {without:.1f} ms | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
