"""The cluster is gone, the disks are here: from the folder of a killed 0.8.2.2 broker into a topic of Kafka 4.3.1.

The steps are those of docs/LOG.md.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from simpleconsumer.types import Message
from tests.cli.command_line import command
from tests.log.test_real_logs import SEGMENT_BYTES, read, written
from tests.log.written_logs import Row, WrittenLog
from zkconsumer import Producer, ProducerConfig
from zkconsumer.log import open_log
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.real, pytest.mark.slow]

TOPIC: Final = "clicks"
GROUP: Final = "billing"
CODECS: Final = ("none", "gzip", "snappy")
TIMEOUT_S: Final = 120
Sent = list[tuple[bytes | None, bytes | None]]


class Rescued:
    """A copy of what is left of the old cluster.

    Attributes:
        disk, zookeeper: Folders of the broker and of ZooKeeper.
        served: What the broker served before.
        log: The log in `disk`, as it was before it was damaged.
        hurt: The entry of which one byte is flipped.
        gone: The segment that is removed.
    """

    def __init__(self, disk: Path, zookeeper: Path, served: list[Message], log: WrittenLog) -> None:
        self.disk = disk
        self.zookeeper = zookeeper
        self.served = served
        self.log = log
        self.hurt: Row = log.of(log.files[0])[1]
        self.gone = log.files[2]

    @property
    def removed(self) -> tuple[int, int]:
        """The first and the last offset of the removed segment."""
        return self.log.base(self.gone), self.log.base(self.log.files[3]) - 1

    def damage(self) -> None:
        """Flip a byte, and remove a segment with its index."""
        path = self.log.path(self.hurt.file)
        data = bytearray(path.read_bytes())
        data[self.hurt.end - 1] ^= 0xFF
        path.write_bytes(data)
        self.log.path(self.gone).unlink()
        self.log.path(self.gone).with_suffix(".index").unlink()

    @property
    def left(self) -> list[Message]:
        """The messages that can be read."""
        lost = ((self.hurt.first, self.hurt.last), self.removed)
        return [message for message in self.served if not any(first <= message.offset <= last for first, last in lost)]


@pytest.fixture(scope="module")
def rescued(tmp_path_factory: pytest.TempPathFactory) -> Rescued:
    root = tmp_path_factory.mktemp("rescue")
    data = root / "zookeeper-of-the-cluster"
    with ZooKeeperServer(data=data) as zookeeper, KafkaCluster("0.8.2.2", 1, zookeeper=zookeeper) as cluster:
        cluster.create_topic(TOPIC, config={"segment.bytes": SEGMENT_BYTES, "retention.ms": 10**14})
        draw = random.Random(1)
        for number in range(60):
            values = [b"%d " % number + draw.randbytes(draw.choice((0, 20, 300))) for _ in range(draw.randint(1, 6))]
            cluster.produce(TOPIC, values, key=draw.choice((None, b"k%d" % number)), codec=CODECS[number % 3])
        with Producer(ProducerConfig(zookeeper_connect=cluster.zookeeper_connect)) as producer:
            producer.send(TOPIC, None, key=b"deleted")
            producer.send(TOPIC, b"", key=b"empty")
        served = read(cluster, TOPIC)
        given = "--zookeeper", cluster.zookeeper_connect, GROUP, "--topic", TOPIC, "--to", "70"
        zkconsumer("offsets", "set", *given, "--store", "zookeeper")
        folder = cluster.brokers[0].folder / "data"

        def has_mark() -> bool:
            return open_log(folder).select(TOPIC)[0].checkpoint.high_watermark == served[-1].next_offset

        wait_until(has_mark, 30, "the high watermark to be written")
        cluster.kill(0)
        zookeeper.kill()
        shutil.copytree(data, root / "zookeeper")
        log = written(open_log(folder).select(TOPIC)[0], root / "broker-1")
    found = Rescued(root / "broker-1", root / "zookeeper", served, log)
    found.damage()
    return found


def zkconsumer(*arguments: str | Path, status: int = 0) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(command([*map(str, arguments)]), capture_output=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == status, done.stderr.decode()
    return done


def lines(done: subprocess.CompletedProcess[bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_list_names_the_missing_segment(rescued: Rescued) -> None:
    first, last = rescued.removed
    done = zkconsumer("log", "list", rescued.disk)
    title, row = done.stdout.decode().splitlines()
    assert " ".join(title.split()) == "TOPIC PARTITION FIRST NEXT FROM TO BYTES FILES FORMATS PROBLEMS"
    assert row.split()[:6] == [TOPIC, "0", "0", str(rescued.served[-1].next_offset), "-", "-"]
    assert done.stderr.decode() == f"{TOPIC}-0: offsets {first} to {last} before {rescued.log.files[3]} are missing\n"


def test_a_check_says_exactly_what_is_lost(rescued: Rescued) -> None:
    hurt, (first, last) = rescued.hurt, rescued.removed
    found = lines(zkconsumer("log", "check", rescued.disk, "--topic", TOPIC, status=2))
    assert [line["type"] for line in found] == ["damage", "gap", "gap", "partition", "summary"]
    damage, damaged, missing, counted, summary = found
    assert (damage["file"], damage["start_byte"], damage["end_byte"]) == (hurt.file, hurt.start, hurt.end)
    assert (damage["first_offset"], damage["last_offset"]) == (hurt.first, hurt.last)
    assert not damage["is_repaired"]
    assert (damaged["kind"], damaged["first_offset"], damaged["last_offset"]) == ("damaged", hurt.first, hurt.last)
    assert (missing["kind"], missing["first_offset"], missing["last_offset"]) == ("segment_missing", first, last)
    lost = damaged["missing"] + missing["missing"]
    assert lost == len(rescued.served) - len(rescued.left)
    assert counted["messages"] == len(rescued.left)
    assert (summary["status"], summary["damaged"], summary["gaps"]) == ("damage", 1, 2)


def test_what_is_left_arrives_in_a_cluster_of_today(rescued: Rescued) -> None:
    hurt, (first, last) = rescued.hurt, rescued.removed
    dumped = zkconsumer("log", "dump", rescued.disk, "--topic", TOPIC, "--json", status=1)
    said = dumped.stderr.decode()
    assert f"{hurt.file}, bytes {hurt.start} to {hurt.end}: " in said
    assert f"; offsets {hurt.first} to {hurt.last} are lost" in said
    assert f"offsets {first} to {last} before {rescued.log.files[3]} are missing (segment_missing)" in said
    assert said.endswith(f"Printed {len(rescued.left)} messages\n")
    rows = lines(dumped)
    assert [row["offset"] for row in rows] == [message.offset for message in rescued.left]
    assert {row["timestamp_ms"] for row in rows} == {None}, "messages of 0.8 have no time"
    with KafkaCluster("4.3.1", 1) as cluster:
        cluster.create_topic(TOPIC)
        where = f"127.0.0.1:{cluster.port(0)}"
        produce = command(["produce", "--bootstrap-server", where, "--topic", TOPIC, "--from-json"])
        sent = subprocess.run(produce, input=dumped.stdout, capture_output=True, timeout=TIMEOUT_S, check=False)
        assert sent.returncode == 0, sent.stderr
        assert f"Produced {len(rescued.left)} messages" in sent.stderr.decode()
        found: Sent = [(message.key, message.value) for message in read(cluster, TOPIC)]
    assert found == [(message.key, message.value) for message in rescued.left]


def test_the_position_of_a_group_is_in_the_folder_of_zookeeper(rescued: Rescued) -> None:
    done = zkconsumer("log", "groups", "--zookeeper-data", rescued.zookeeper, "--group", GROUP, "--json")
    [row] = json.loads(done.stdout)["offsets"]
    assert (row["topic"], row["partition"], row["offset"], row["store"]) == (TOPIC, 0, 70, "zookeeper")
