"""Prints ours beside its peers in one table: reading and sending as multiples of confluent-kafka and Java, and imports.

    python tests/benchmarks/peers.py                                 # 0.8.2.2, 3.9.2 and 4.3.1: about 40 minutes
    python tests/benchmarks/peers.py --kafka 3.9.2 --codecs none --rounds 1 --megabytes 100

It runs `consume.py` and `produce.py`, whose tables with the absolute figures go to stderr. Then it measures imports:
the seconds that a process takes for `from zkconsumer import KafkaConsumer` and for the same of confluent-kafka and
kafka-python, without those of an empty process. A multiple above 1 means that ours is faster. It needs what those two
benchmarks need.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
IMPORTS: Final = {
    "zkconsumer": "from zkconsumer import KafkaConsumer",
    "confluent-kafka": "from confluent_kafka import Consumer",
    "kafka-python": "from kafka import KafkaConsumer",
}


def ratios_of(benchmark: str, arguments: list[str]) -> Iterator[list[str]]:
    """Run a benchmark and yield the rows of its last table, the one with ratios."""
    command = [sys.executable, str(HERE / f"{benchmark}.py"), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    print(done.stdout, file=sys.stderr)
    table = done.stdout.rstrip().rpartition("\n\n")[2]
    for line in table.splitlines()[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


def read_rows(arguments: list[str]) -> Iterator[list[str]]:
    """Yield rows of (Kafka, size, codec, what, rate and CPU beside confluent-kafka, the same beside Java)."""
    for version, size, codec, client, rate, cpu, java_rate, java_cpu in ratios_of("consume", arguments):
        yield [version, size, codec, client, rate, cpu, java_rate, java_cpu]


def sent_rows(arguments: list[str]) -> Iterator[list[str]]:
    """Yield the same rows of sending."""
    for version, size, codec, client, confluent, java in ratios_of("produce", arguments):
        yield [version, size, codec, client, *_two(confluent), *_two(java)]


def _two(cell: str) -> list[str]:
    return cell.split(" / ") if " / " in cell else ["-", "-"]


def import_s(statement: str, rounds: int = 9) -> float:
    """Return the median seconds of a process that runs a statement, without those of a process that does nothing."""

    environment = {**os.environ}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has compiled modules

    def took(code: str) -> float:
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)
        return time.perf_counter() - started

    took(statement)
    return statistics.median(took(statement) - took("pass") for _ in range(rounds))


def main() -> None:
    """Run the benchmarks and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka", nargs="+", default=["0.8.2.2", "3.9.2", "4.3.1"], metavar="VERSION")
    parser.add_argument("--codecs", nargs="+", default=["none", "snappy"])
    parser.add_argument("--sizes", nargs="+", default=["100", "1000"])
    parser.add_argument("--rounds", default="3")
    parser.add_argument("--megabytes", default="200")
    parser.add_argument("--clients", nargs="+", help="for consume.py alone", default=[
        "ours", "ours-batches", "ours-topic", "ours-brokers", "ours-polled", "ours-iterated", "confluent", "java",
    ])  # fmt: skip
    arguments = parser.parse_args()
    both = ["--kafka", *arguments.kafka, "--codecs", *arguments.codecs, "--sizes", *arguments.sizes,
            "--rounds", arguments.rounds, "--megabytes", arguments.megabytes]  # fmt: skip
    rows = [*read_rows([*both, "--clients", *arguments.clients]),
            *sent_rows([*both, "--clients", "ours-send-all", "ours-send", "confluent", "java"])]  # fmt: skip
    print("| Kafka | size | codec | ours | : confluent, rate | for each CPU s | : Java, rate | for each CPU s |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print("\n| import | seconds |\n|---|---|")
    for name, statement in IMPORTS.items():
        print(f"| {name} | {import_s(statement):.2f} |")


if __name__ == "__main__":
    main()
