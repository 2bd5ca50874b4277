"""`zkconsumer load` killed in earnest, its driver, its JVM or a worker, while messages keep coming in."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow.parquet
import pytest

from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.steady_load import SteadyLoad
from zkconsumer.testing.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

KILLS = 12
VICTIMS = ("driver", "jvm", "worker")


def descendants(pid: int) -> dict[int, str]:
    """The processes below one, with their command lines."""
    children: dict[int, list[int]] = {}
    commands: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            commands[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, IndexError):
            continue
        children.setdefault(parent, []).append(int(entry.name))
    found, left = {}, [pid]
    while left:
        for child in children.get(left.pop(), []):
            found[child] = commands.get(child, "")
            left.append(child)
    return found


def victim_of(process: subprocess.Popen[bytes], kind: str) -> int | None:
    if kind == "driver":
        return process.pid
    words = {"jvm": "SparkSubmit", "worker": "pyspark.daemon"}[kind]
    matching = [pid for pid, command in descendants(process.pid).items() if words in command]
    return max(matching, default=None)


def wait_gone(pids: Iterable[int]) -> None:
    """Wait until none of the processes is there."""
    wait_until(lambda: not [pid for pid in pids if Path(f"/proc/{pid}").exists()], 60, f"the end of {list(pids)}")


@pytest.mark.parametrize("seed", [1])
def test_a_load_that_is_killed_at_random_brings_each_message_once(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    topic = fresh_topic()
    kafka_0822.create_topic(topic, partitions=3)
    lake = tmp_path / "lake"
    runs = lake / "_zkconsumer" / "runs"
    command = [sys.executable, "-m", "zkconsumer.cli", "load", "--zookeeper", kafka_0822.zookeeper_connect,
               "--topic", topic, "--to", str(lake), "--partition-by", "hour", "--master", "local[2]"]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    killed: Counter[str] = Counter()
    with SteadyLoad(kafka_0822, [topic], partitions=3, rate_per_s=300) as load:
        load.grow(200)
        for number, kind in zip(range(KILLS), itertools.cycle(VICTIMS), strict=False):
            before = len(list(runs.glob("*.json")))
            with (tmp_path / f"{number}.log").open("wb") as log:
                process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
            # A third dies as soon as something is written, a third as soon as it is published, a third at any time.
            moment = dice.choice(("staged", "published", "any"))
            wait_s = dice.uniform(2, 25)
            began_s = time.monotonic()

            def has_come(moment: str = moment, before: int = before, began_s: float = began_s, wait_s: float = wait_s,
                         process: subprocess.Popen[bytes] = process) -> bool:  # fmt: skip
                if process.poll() is not None:
                    return True
                if moment == "staged":
                    return any((lake / "_zkconsumer" / "staging").rglob("*.parquet"))
                if moment == "published":
                    return len(list(runs.glob("*.json"))) > before
                return time.monotonic() - began_s > wait_s

            wait_until(has_come, 240, f"the moment to kill: {moment}", interval_s=0.002)
            group = descendants(process.pid)
            if process.poll() is None and (pid := victim_of(process, kind)) is not None:
                os.kill(pid, signal.SIGKILL)
                killed[f"{kind}, {moment}"] += 1
            process.wait(240)
            wait_gone(group)
        load.stop()
        acked = {(event.partition, event.offset) for event in load.acked}
    subprocess.run(command, env=environment, check=True, timeout=240)
    assert not list((lake / "_zkconsumer" / "staging").iterdir())
    found: Counter[tuple[int, int]] = Counter()
    for path in lake.glob("topic=*/**/*.parquet"):
        table = pyarrow.parquet.ParquetFile(path).read(["partition", "offset"])
        found.update(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
    print(f"{len(acked)} messages, killed {dict(killed)}, {len(list(runs.glob('*.json')))} runs published")
    assert sum(killed.values()) >= KILLS // 2
    assert [place for place, times in found.items() if times > 1] == []
    assert found.keys() >= acked
