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
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet
import pytest
from killing import descendants, victim_of, wait_gone

from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.loads import SteadyLoad
from zkconsumer.testing.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

KILLS = 12
VICTIMS = ("driver", "jvm", "worker")


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
