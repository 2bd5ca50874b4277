"""Loads of topics that grow, are cut, go and come again, by the dice: each message once in the lake, or named as lost.

`LOAD_SEEDS=100 pytest -m slow tests/spark/test_load_random.py -s`; `LOAD_FIRST_SEED` says with which one to begin.

Not drawn, as no load can see it: retention that takes the last message that was read of a log that was cut and has
grown since; and compaction.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet
import pytest
from load_process import LoadProcess

from zkconsumer.testing import EmbeddedCluster, load
from zkconsumer.testing.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

FIRST, SEEDS = int(os.environ.get("LOAD_FIRST_SEED", "0")), int(os.environ.get("LOAD_SEEDS", "3"))
STEPS = 14
DISK_KIB = 4096


@dataclass
class Life:
    """A topic from its creation to its deletion.

    Attributes:
        values: by partition, what is in its log by offset.
        entries: by partition, where what was produced together begins: brokers cut nothing in its middle.
        seen: whether a load has published a run since it was created.
    """

    topic: str
    partitions: int
    values: dict[int, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    entries: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    retained: list[tuple[int, int, str, bool]] = field(default_factory=list)
    cut: set[int] = field(default_factory=set)
    seen: bool = False
    lost: list[tuple[int, int, int | None]] = field(default_factory=list)


class World:
    """Two topics, the loads of them, and what is to be in the lake."""

    def __init__(self, seed: int, cluster: EmbeddedCluster, folder: Path, can_fill: bool) -> None:
        self.dice = random.Random(seed)
        self.cluster = cluster
        self.folder = folder
        self.can_fill = can_fill
        self.prefix = f"s{seed}"
        self.lives: dict[str, Life] = {}
        self.past: list[Life] = []
        self.number = 0
        self.runs = 0
        self.told: list[str] = []
        self.workers = [LoadProcess(), LoadProcess()]
        for name in ("a", "b"):
            self.create(f"{self.prefix}{name}", 1 + self.dice.randrange(3))

    # -- what happens to topics ----------------------------------------------------------------------------------------

    def create(self, topic: str, partitions: int) -> None:
        self.cluster.create_topic(topic, partitions=partitions)
        self.cluster.wait_leaders(topic, range(partitions))
        self.lives[topic] = Life(topic, partitions)
        self.grow(self.lives[topic])

    def any_life(self) -> Life:
        return self.dice.choice([self.lives[topic] for topic in sorted(self.lives)])

    def grow(self, life: Life | None = None) -> None:
        life = life or self.any_life()
        for partition in range(life.partitions):
            count = self.dice.choice((0, 1, 3, 20))
            if not count or self.cluster.leader(life.topic, partition) is None:
                continue
            first, self.number = self.number, self.number + count
            codec = self.dice.choice(("none", "gzip", "snappy"))
            for event in load(self.cluster, life.topic, count, partitions=[partition], first=first, codec=codec):
                life.values[partition][event.offset] = event.id
                if codec == "none" or event.id.endswith(f":{first}"):
                    life.entries[partition].add(event.offset)

    def cut(self) -> None:
        life, partition = self.some_log()
        values = life.values[partition]
        if partition < 0 or not values:
            return
        log = self.cluster.log(life.topic, partition)
        lowest = log.end_offset - self.dice.choice((1, 2, 5, 30))
        end = min(offset for offset in [*life.entries[partition], log.end_offset] if offset >= max(lowest, min(values)))
        log.truncate(end)
        life.entries[partition] = {offset for offset in life.entries[partition] if offset < end}
        for offset in [offset for offset in values if offset >= end]:
            del values[offset]
        life.cut.add(partition)
        if self.dice.random() < 0.5:
            self.grow(life)

    def retain(self) -> None:
        life, partition = self.some_log()
        if partition < 0 or partition in life.cut or not life.values[partition]:
            return
        log = self.cluster.log(life.topic, partition)
        log.roll()
        start = log.delete_head(self.dice.randrange(log.start_offset, log.end_offset + 1))
        for offset in [offset for offset in life.values[partition] if offset < start]:
            life.retained.append((partition, offset, life.values[partition].pop(offset), life.seen))

    def some_log(self) -> tuple[Life, int]:
        life = self.any_life()
        led = [n for n in range(life.partitions) if self.cluster.leader(life.topic, n) is not None]
        return life, self.dice.choice(led) if led else -1

    def recreate(self) -> None:
        self.heal()
        life = self.any_life()
        self.past.append(self.lives.pop(life.topic))
        self.cluster.delete_topic(life.topic)
        node = f"/brokers/topics/{life.topic}"
        wait_until(lambda: self.cluster.client.exists(node) is None, 30, "the end of a topic")
        if self.dice.random() < 0.3:
            self.load()
        self.create(life.topic, 1 + self.dice.randrange(3))

    def widen(self) -> None:
        self.heal()
        life = self.any_life()
        life.partitions += 1
        self.cluster.add_partitions(life.topic, life.partitions)
        self.cluster.wait_leaders(life.topic, range(life.partitions))

    def stop(self) -> None:
        self.heal()
        self.cluster.stop(self.dice.choice(sorted(self.cluster.brokers)))

    def heal(self) -> None:
        for broker_id, broker in self.cluster.brokers.items():
            if not broker.running:
                self.cluster.start(broker_id)
        for life in self.lives.values():
            self.cluster.wait_leaders(life.topic, range(life.partitions))

    # -- loads ---------------------------------------------------------------------------------------------------------

    def asked(self, skip: bool = True, most: int | None = None) -> dict[str, object]:
        return {"folder": str(self.folder), "zookeeper": self.cluster.zookeeper_connect,
                "pattern": f"{self.prefix}[ab]", "skip": skip, "most": most}  # fmt: skip

    def load(self) -> dict[str, object] | None:
        return self.noted(self.workers[0].load(self.asked()))

    def load_a_part(self) -> None:
        self.noted(self.workers[0].load(self.asked(most=self.dice.choice((1, 5, 20)))))

    def load_without_loss(self) -> None:
        self.noted(self.workers[0].load(self.asked(skip=False)))

    def load_and_kill(self) -> None:
        self.noted(self.workers[0].load(self.asked(), self.dice.uniform(0.05, 2.5)))

    def load_twice_at_once(self) -> None:
        for worker in self.workers:
            worker.begin(self.asked())
        for worker in self.workers:
            self.noted(worker.end())

    def load_on_a_full_disk(self) -> None:
        if not self.can_fill:
            return
        hog = self.folder.parent / "hog"
        left = self.dice.choice((0, 8, 40)) * 1024
        with hog.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                pass
        with hog.open("r+b") as file:
            file.truncate(max(0, hog.stat().st_size - left))
        self.noted(self.workers[0].load(self.asked(), self.dice.choice((None, 1.0))))
        hog.unlink()

    def noted(self, came: dict[str, object] | None) -> dict[str, object] | None:
        """Take note of the losses that runs have named since the last look."""
        self.told.append(f"    {came}")
        runs = self.folder / "_zkconsumer" / "runs"
        for path in sorted(runs.glob("*.json")) if runs.exists() else []:
            if int(path.stem) <= self.runs:
                continue
            self.runs = int(path.stem)
            for topic, partition, begin, end, reason in json.loads(path.read_text())["lost"]:
                if "created again" not in reason and "not exist" not in reason:
                    self.lives[topic].lost.append((partition, begin, end))
            for life in self.lives.values():
                life.seen = True
        if came is not None and "error" not in came and not came.get("left") and not came.get("silent"):
            for life in self.lives.values():
                life.cut.clear()
        return came

    # -- the end -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        steps: list[tuple[Callable[[], object], int]] = [
            (self.grow, 8), (self.cut, 3), (self.retain, 3), (self.recreate, 2), (self.widen, 1), (self.stop, 1),
            (self.heal, 1), (self.load, 4), (self.load_a_part, 3), (self.load_without_loss, 1), (self.load_and_kill, 3),
            (self.load_twice_at_once, 1), (self.load_on_a_full_disk, 1),
        ]  # fmt: skip
        for _ in range(STEPS):
            [step] = self.dice.choices([each for each, _ in steps], [weight for _, weight in steps])
            self.told.append(step.__name__)
            step()
        self.heal()
        for _ in range(4):
            came = self.load()
            assert came is not None
            assert "error" not in came, came
        assert came["run"] is None, came

    def check(self) -> None:
        counted: Counter[str] = Counter()
        for path in sorted(self.folder.glob("topic=*/**/*.parquet")):
            counted.update(bytes(value).decode() for value in pyarrow.parquet.read_table(path)["value"].to_pylist())
        twice = {value: count for value, count in counted.items() if count > 1}
        assert not twice, twice
        missing = []
        for life in [*self.lives.values(), *self.past]:
            there = [(p, offset, value, True) for p, values in life.values.items() for offset, value in values.items()]
            if life in self.past:
                there = []  # the brokers have deleted them
            for partition, offset, value, must_be_named in [*there, *life.retained]:
                is_named = any(
                    p == partition and begin <= offset and (end is None or offset < end) for p, begin, end in life.lost
                )
                if value not in counted and not is_named and must_be_named and life not in self.past:
                    missing.append((life.topic, partition, offset, value))
        assert not missing, missing
        staging = self.folder / "_zkconsumer" / "staging"
        assert not staging.exists() or not [*staging.iterdir()], [*staging.iterdir()]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(2) as running:
        yield running


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Path, bool]]:
    """A small disk, and whether it is one."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_KIB}k", "tmpfs", str(place)], capture_output=True, check=False
        ).returncode
        == 0
    )
    try:
        yield place, mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(place)], check=False)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_each_message_is_once_in_the_lake_or_named(
    cluster: EmbeddedCluster, disk: tuple[Path, bool], seed: int
) -> None:
    place, can_fill = disk
    began = time.monotonic()
    world = World(seed, cluster, place / "lake", can_fill)
    try:
        world.run()
        world.check()
    except BaseException:
        print(f"seed {seed}:", *world.told, sep="\n")
        subprocess.run(f"df -k {place}; du -ak {place} | sort -n | tail -40", shell=True)
        raise
    finally:
        for worker in world.workers:
            worker.kill()
    print(f"seed {seed}: {world.number} messages, {world.runs} runs, {time.monotonic() - began:.0f} s", flush=True)
