"""How long `zkconsumer mirror audit` takes, and what leaves cost the mirror that writes them.

Usage: .venv/bin/python tests/benchmarks/mirror_audit.py [--records 1000000] [--sizes 1000] [--codecs none lz4]

Two clusters of Kafka 3.9.2 with one broker each; the source holds a topic of four partitions for each size and codec,
in batches of about 64 KB. Each step is a process of its own:

    run            `zkconsumer mirror run --until-end`
    without        the same, without leaves
    audit          `zkconsumer mirror audit`, which reads both logs
    target-only    `zkconsumer mirror audit --target-only`, which compares the target with the leaves

Seconds and CPU seconds are those of the process from its start to its end. The last column is what the audit would take
for 10 million records.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

STEPS = ("run", "without", "audit", "target-only")
WITHOUT = (
    "from zkconsumer.mirror.leaf_writer import LeafWriter; LeafWriter.takes = lambda self, dialect: False; "
    "from zkconsumer.cli import main; main()"
)


def command_of(step: str, source: Any, target: Any, topic: str) -> list[str]:
    from tests.benchmarks.mirror import servers

    sides = ["--from-brokers", servers(source), "--to-brokers", servers(target)]
    given = [sys.executable, "-m", "zkconsumer.cli", "mirror"]
    if step in ("audit", "target-only"):
        return [*given, "audit", "--name", topic, *sides, *(["--target-only"] if step == "target-only" else [])]
    name, program = topic, given
    if step == "without":
        name, program = f"{topic}-without", [sys.executable, "-c", WITHOUT, "mirror"]
    return [*program, "run", "--name", name, *sides, "--whitelist", topic, "--rename", f"{topic}={name}",
            "--topic-config", "retention.ms=-1", "--slots", "4", "--until-end"]  # fmt: skip


def measure(command: list[str]) -> tuple[float, float]:
    """Return seconds and CPU seconds of a command."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    before, started_at = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900, check=False)
    seconds, after = time.monotonic() - started_at, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{command[2:6]} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    from tests.benchmarks.mirror import PARTITIONS, fill
    from zkconsumer.testing.kafka import KafkaCluster

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--sizes", nargs="+", type=int, default=[1000])
    parser.add_argument("--codecs", nargs="+", default=["none", "lz4"])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", nargs="+", default=list(STEPS), choices=STEPS)
    given = parser.parse_args()
    settings = {"offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 0}
    with (
        KafkaCluster("3.9.2", 1, settings=settings) as source,
        KafkaCluster("3.9.2", 1, settings=settings) as target,
    ):
        for size in given.sizes:
            for codec in given.codecs:
                for number in range(given.rounds):
                    topic = f"records-{size}-{codec}-{number}"
                    source.create_topic(topic, partitions=PARTITIONS)
                    fill(source, topic, given.records, size, codec)
                    for step in given.steps:
                        seconds, cpu_s = measure(command_of(step, source, target, topic))
                        for_10_million_s = seconds * 10_000_000 / given.records
                        print(f"{size:6} B {codec:6} {step:12} {seconds:7.2f} s {given.records / seconds:10,.0f} /s "
                              f"{cpu_s:7.2f} CPU s {for_10_million_s:7.1f} s", flush=True)  # fmt: skip
                    source.delete_topic(topic)
                    for copy in (topic, f"{topic}-without")[: 1 + ("without" in given.steps)]:
                        target.delete_topic(copy)


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[2])  # in place of this folder, where `rebalance` is another benchmark
    main()
