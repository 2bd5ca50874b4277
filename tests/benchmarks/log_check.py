"""How fast `zkconsumer log check` and `list` are: megabytes a second of processor time, and seconds.

Usage: .venv/bin/python tests/benchmarks/log_check.py [--megabytes 256] [--rounds 3] [--folder FOLDER] [--beside 3.9.2]

Logs are written to a folder of their own, of values of 1 kB: record batches of 16 and of one record, and messages of
magic 0 and 1, uncompressed; batches with lz4; entries of Kafka 0.7. Printed is the best round of each.

With --beside, `check` and `dump --json` run as processes beside DumpLogSegments of that Kafka, in turns, on the same
segments; its lines and those of `dump` go to /dev/null. Printed are the seconds, and the processor seconds, of the best
round. The JVM has 1 GiB of heap, and no flags.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time

from simpleconsumer import Message, encode_message_set
from simpleconsumer.kafka011.record_encode import encode_record_batch
from simpleconsumer.kafka07.requests import encode_message_set as encode_07
from zkconsumer.log import open_log
from zkconsumer.log.checking import CheckedPartition, check_partition
from zkconsumer.log.outline import outline_of
from zkconsumer.testing.java import maven
from zkconsumer.testing.java.runtime import find_java

_VALUE_BYTES = 1000
_SEGMENT_BYTES = 64 * 1024 * 1024
_INDEX_BYTES = 4096
_BASE = struct.Struct(">q")
_NOW_MS = 1_700_000_000_000


def batch(values: list[bytes], offset: int) -> bytes:
    rows = [Message("t", 0, offset + at, 0, None, value, _NOW_MS) for at, value in enumerate(values)]
    return encode_record_batch(rows, first_offset=offset, leader_epoch=0)


def packed(values: list[bytes], offset: int) -> bytes:
    rows = [Message("t", 0, offset + at, 0, None, value, _NOW_MS) for at, value in enumerate(values)]
    return encode_record_batch(rows, "lz4", first_offset=offset, leader_epoch=0)


_KINDS: dict[str, tuple[int, Callable[[list[bytes], int], bytes]]] = {
    "batches of 16": (16, batch),
    "batches of 1": (1, batch),
    "batches of 16, lz4": (16, packed),
    "magic 1": (1, lambda values, offset: encode_message_set(values, "none", 1, first_offset=offset)),
    "magic 0": (1, lambda values, offset: encode_message_set(values, "none", 0, first_offset=offset)),
    "Kafka 0.7": (1, lambda values, offset: encode_07(values)),
}


def write(folder: Path, kind: str, size: int) -> None:
    """Write segments of a kind, with indexes, until there are so many bytes."""
    count, encode = _KINDS[kind]
    folder.mkdir()
    draw = random.Random(1)
    is_07, offset, position = kind == "Kafka 0.7", 0, 0
    entry = encode([draw.randbytes(_VALUE_BYTES) for _ in range(count)], 0)
    while size > 0:
        base = position if is_07 else offset
        extension = "kafka" if is_07 else "log"
        index = b""
        with open(folder / f"{base:020d}.{extension}", "wb") as file:
            indexed = at = 0
            while at < min(size, _SEGMENT_BYTES):
                if not is_07:  # no checksum covers the offset
                    entry = _BASE.pack(offset) + entry[8:]
                file.write(entry)
                if at - indexed > _INDEX_BYTES:
                    index += struct.pack(">ii", offset - base, at)
                    indexed = at
                at += len(entry)
                offset += count
        if not is_07:
            (folder / f"{base:020d}.index").write_bytes(index)
        position += at
        size -= at


def checked(folder: Path) -> CheckedPartition:
    """Check a partition, which must be sound."""
    [partition] = open_log(folder).partitions
    *findings, counted = check_partition(partition)
    assert not findings, findings[0]
    assert isinstance(counted, CheckedPartition)
    return counted


def seconds_of(command: list[str]) -> tuple[float, float]:
    """Run a command to its end; return its seconds, and its processor seconds."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=1800, check=True)
    wall, after = perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def beside_java(folder: Path, version: str, rounds: int) -> dict[str, tuple[float, float]]:
    """Return the seconds, and processor seconds, of the best round of each tool on a folder."""
    files = ",".join(map(str, sorted(folder.glob("*.log"))))
    jars = os.pathsep.join(map(str, maven.jars(version)))
    java = [str(find_java().program), "-Xmx1g", "-cp", jars, "kafka.tools.DumpLogSegments", "--files", files]
    ours = [sys.executable, "-m", "zkconsumer.cli", "log"]
    commands = {
        "check": [*ours, "check", str(folder)],
        "DumpLogSegments --deep-iteration": [*java, "--deep-iteration"],
        "dump --json": [*ours, "dump", str(folder), "--topic", "clicks", "--json"],
        "DumpLogSegments --print-data-log": [*java, "--print-data-log"],
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            found[name].append(seconds_of(command))
    return {name: min(times, key=lambda each: each[1]) for name, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where logs are written; in /dev/shm the disk does not count")
    parser.add_argument("--beside", metavar="VERSION", help="run DumpLogSegments of this Kafka, too")
    parser.add_argument("--kinds", nargs="+", choices=list(_KINDS), default=list(_KINDS), metavar="KIND")
    given = parser.parse_args()
    print(f"{'':20}{'check, MB/s':>14}{'entries':>10}{'list, ms':>10}")
    for kind in given.kinds:
        with tempfile.TemporaryDirectory(dir=given.folder) as root:
            folder = Path(root, "clicks-0")
            write(folder, kind, given.megabytes * 1024 * 1024)
            size = sum(os.path.getsize(path) for path in folder.glob("*[lk]*") if path.suffix != ".index")
            rates, times, entries = [], [], 0
            for _ in range(given.rounds):
                begin = process_time()
                entries = checked(folder).entries
                rates.append(size / 1e6 / (process_time() - begin))
                start = perf_counter()
                outline_of(open_log(folder).partitions[0])
                times.append(1000 * (perf_counter() - start))
            print(f"{kind:20}{max(rates):14.0f}{entries:10}{min(times):10.1f}", flush=True)
            if given.beside and kind != "Kafka 0.7":
                for name, (wall, cpu) in beside_java(folder, given.beside, given.rounds).items():
                    print(f"    {name:34}{wall:8.2f} s{cpu:8.2f} CPU s", flush=True)


if __name__ == "__main__":
    main()
