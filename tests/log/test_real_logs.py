"""Logs that real brokers have written: read as the brokers serve them, without a false alarm, and with drawn faults."""

from __future__ import annotations

import base64
import itertools
import json
import random
import shutil
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from simpleconsumer.dialect import KAFKA011
from simpleconsumer.types import Message
from tests.log.drawn_faults import FAULTS
from tests.log.test_drawn_faults import check
from tests.log.written_logs import Row, WrittenLog
from zkconsumer import Producer, ProducerConfig, read_topic
from zkconsumer.admin import BrokerAdmin
from zkconsumer.cli.program import program
from zkconsumer.log import Damage, Gap, GapKind, LogReading, open_log
from zkconsumer.log.checking import check_partition
from zkconsumer.log.partition_log import DiskPartition, Placed
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.kafka.settings import version_tuple
from zkconsumer.testing.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

VERSIONS: Final = ("0.8.2.2", "0.10.2.2", "1.1.1", "2.8.2", "3.9.2", "4.3.1")
KILLED: Final = ("0.8.2.2", "1.1.1", "2.8.2", "4.3.1")
"""Their brokers are killed; the others stop in order."""
CODECS: Final = ("none", "gzip", "snappy", "lz4")
SEGMENT_BYTES: Final = 4000
LEAST_SEGMENT_BYTES: Final = 1_048_576
"""Of Kafka 4, whose messages are larger here so that there are some segments all the same."""
FAULTS_EACH: Final = 60
CUT_AT: Final = 47
"""The messages of the topic `cut` before this offset are deleted, within an entry."""
COMMITTED: Final = {"isolation.level": "read_committed"}
SETTINGS: Final = {
    "offsets.topic.replication.factor": 1, "log.cleaner.enable": "true", "log.cleaner.backoff.ms": 300,
    "log.cleaner.dedupe.buffer.size": 8_000_000, "log.cleaner.io.buffer.size": 1_100_000,
    "replica.high.watermark.checkpoint.interval.ms": 300,
    "log.flush.start.offset.checkpoint.interval.ms": 300, "log.roll.jitter.ms": None,
}  # fmt: skip


class RealLogs:
    """The folder of a broker that is gone, and what it served of each topic before."""

    def __init__(self, version: str, folder: Path, served: dict[str, list[Message]]) -> None:
        self.version = version
        self.folder = folder
        self.served = served


def fill(cluster: KafkaCluster, version: tuple[int, ...]) -> list[str]:
    """Write topics of every kind that the version has; return their names."""
    is_large = version >= (4,)
    config = {"segment.bytes": LEAST_SEGMENT_BYTES if is_large else SEGMENT_BYTES, "retention.ms": 10**14}
    topics = ["plain", "mixed", "compacted"]
    cluster.create_topic("plain", config=config)
    cluster.create_topic("mixed", config=config)
    cluster.create_topic("compacted", config={**config, "cleanup.policy": "compact",
                                              "min.cleanable.dirty.ratio": "0.01"})  # fmt: skip
    if version >= (0, 11):
        topics.append("cut")
        cluster.create_topic("cut", config=config)
    draw = random.Random(1)
    codecs = [*CODECS, "zstd"] if version >= (2, 1) else list(CODECS)
    sizes = (20_000, 50_000) if is_large else (0, 20, 300)
    for number in range(60):
        values = [b"%d " % number + draw.randbytes(draw.choice(sizes)) for _ in range(draw.randint(1, 6))]
        cluster.produce("plain", values, key=draw.choice((None, b"k%d" % number)))
        send(cluster, "mixed", values, b"k%d" % (number % 7), codecs[number % len(codecs)])
        # The cleaner of 0.8 cleans no compressed messages.
        packed = codecs[number // 4 % len(codecs)] if version >= (0, 9) else "none"
        if version >= (0, 11):
            send(cluster, "cut", values, None, codecs[number % len(codecs)])
        send(cluster, "compacted", values, b"k%d" % (number % 5), packed)
    if version >= (0, 11):
        topics.append("transactions")
        cluster.create_topic("transactions", config=config)
        where = {"bootstrap_servers": f"127.0.0.1:{cluster.port(0)}"}
        with Producer(ProducerConfig(**where, transactional_id="tx")) as producer:  # type: ignore[arg-type]
            producer.init_transactions()
            for number in range(12):
                producer.begin_transaction()
                for at in range(number % 5 + 1):
                    value = b"%d %d " % (number, at) + bytes(90_000 if is_large else 200)
                    producer.send("transactions", value, key=b"k", partition=0)
                if number % 3 == 1:
                    producer.flush()
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
        with BrokerAdmin(where["bootstrap_servers"]) as admin:
            admin.cut_topic("cut", CUT_AT)
        cluster.produce("transactions", [b"no transaction"])
    return topics


def send(cluster: KafkaCluster, topic: str, values: list[bytes], key: bytes | None, codec: str) -> None:
    """Write messages to the only partition, with any codec that the version has."""
    if codec != "zstd":
        cluster.produce(topic, values, key=key, codec=codec)
        return
    servers = f"127.0.0.1:{cluster.port(0)}"
    with Producer(ProducerConfig(bootstrap_servers=servers, compression_codec=codec)) as producer:
        for value in values:
            producer.send(topic, value, key=key, partition=0)


def read(cluster: KafkaCluster, topic: str, **properties: str) -> list[Message]:
    given = {"bootstrap.servers": f"127.0.0.1:{cluster.port(0)}", **properties}
    if cluster.has_zookeeper and version_tuple(cluster.version) < (0, 10, 1):
        return list(read_topic(cluster.zookeeper_connect, topic))
    return list(read_topic(None, topic, properties=given))


@pytest.fixture(scope="module", params=VERSIONS)
def logs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RealLogs:
    version = request.param
    folder = tmp_path_factory.mktemp("logs") / "data"
    with KafkaCluster(version, 1, settings=SETTINGS) as cluster:
        topics = fill(cluster, version_tuple(version))
        is_large = version_tuple(version) >= (4,)
        count = 60

        def is_cleaned() -> bool:
            cluster.produce("compacted", [b"last" + random.randbytes(100_000 if is_large else 300)], key=b"last")
            return len(read(cluster, "compacted")) < count

        wait_until(is_cleaned, 120, "the log to be cleaned", interval_s=1)
        wait_until(lambda: _is_settled(cluster), 60, "the cleaner to have ended", interval_s=2)
        served = {topic: read(cluster, topic) for topic in topics}
        if "transactions" in topics:
            served["committed"] = read(cluster, "transactions", **COMMITTED)
        marks = {topic: found[-1].next_offset for topic, found in served.items() if topic in topics}
        data = cluster.brokers[0].folder / "data"
        wait_until(lambda: _marks(data, marks), 30, "the high watermarks to be written")
        (cluster.kill if version in KILLED else cluster.stop)(0)
        shutil.copytree(data, folder)
    return RealLogs(version, folder, served)


def _is_settled(cluster: KafkaCluster) -> bool:
    before = [message.offset for message in read(cluster, "compacted")]
    return before == [message.offset for message in read(cluster, "compacted")]


def _marks(data: Path, marks: dict[str, int]) -> bool:
    """Whether the checkpoints say what was written, and what was deleted."""
    written = {each.topic: each.checkpoint for each in open_log(data).partitions if each.topic in marks}
    is_cut = "cut" not in marks or written["cut"].log_start == CUT_AT
    return is_cut and all((written[topic].high_watermark or 0) >= mark for topic, mark in marks.items())


def fields(found: list[Message]) -> list[tuple[Any, ...]]:
    return [(each.offset, each.key, each.value, each.timestamp_ms, each.headers) for each in found]


def test_the_disk_has_what_the_broker_served(logs: RealLogs) -> None:
    disk = open_log(logs.folder)
    for topic, served in logs.served.items():
        if topic == "committed":
            found = list(disk.read_topic("transactions", isolation_level="read_committed"))
        else:
            found = list(disk.read_topic(topic))
        assert fields(found) == fields(served), topic


def test_no_false_alarm(logs: RealLogs) -> None:
    kinds = set()
    for partition in open_log(logs.folder).select():
        for finding in check_partition(partition, records=True):
            assert not isinstance(finding, Damage), (partition, finding)
            if isinstance(finding, Gap):
                assert not finding.kind.is_loss, (partition, finding)
                kinds.add(finding.kind)
    assert GapKind.COMPACTED in kinds
    assert (GapKind.TRANSACTION in kinds) == ("transactions" in logs.served)
    assert (GapKind.BELOW_LOG_START in kinds) == ("cut" in logs.served)
    listed = json.loads(CliRunner().invoke(program, ["log", "list", str(logs.folder), "--json"]).stdout)["partitions"]
    assert {row["topic"]: row["problems"] for row in listed if row["problems"]} == {}
    ends = {row["topic"]: row["next_offset"] for row in listed}
    for topic, served in logs.served.items():
        if topic != "committed":
            assert ends[topic] >= served[-1].next_offset


def written(partition: DiskPartition, folder: Path) -> WrittenLog:
    """A copy of a sound log in which faults can be drawn."""
    shutil.copytree(partition.folder, folder / partition.folder.name,
                    ignore=shutil.ignore_patterns("*.deleted", "*.cleaned"))  # fmt: skip
    for path in partition.folder.parent.iterdir():
        if path.is_file() and not path.name.startswith("."):
            shutil.copy(path, folder)
    rows = []
    for placed in partition.scan():
        if not isinstance(placed, Placed):
            continue
        entry = placed.entry
        data = bytes(placed.walk.data(entry))
        found = list(KAFKA011.decode_messages(data, partition.topic, 0, 0))
        rows.append(Row(placed.segment.path.name, entry.start, entry.end, entry.first, entry.last, str(entry.magic),
                        ("none", "gzip", "snappy", "lz4", "zstd")[entry.attributes & 7],
                        [(each.offset, each.key, each.value, each.headers) for each in found]))  # fmt: skip
    files = [name for name, _ in itertools.groupby(rows, key=lambda row: row.file)]
    return WrittenLog(folder / partition.folder.name, rows, files, partition.topic == "compacted")


@pytest.mark.parametrize("topic", ["plain", "mixed", "compacted", "transactions"])
def test_drawn_faults(logs: RealLogs, tmp_path: Path, topic: str) -> None:
    if topic not in logs.served:
        pytest.skip("no transactions before Kafka 0.11")
    [partition] = open_log(logs.folder).select(topic)
    done = 0
    for seed in itertools.count():
        draw = random.Random(f"{logs.version} {topic} {seed}")
        folder = tmp_path / str(seed)
        log = written(partition, folder)
        expected = draw.choice(FAULTS)(log, draw)
        if expected is not None:
            try:
                check(log, expected)
            except Exception as error:
                raise AssertionError(f"seed {seed}, {expected.said}: {error}") from error
            done += 1
        shutil.rmtree(folder)
        if done == FAULTS_EACH:
            return


def test_what_a_killed_broker_lost_is_said_and_the_rest_is_in_the_dump(logs: RealLogs, tmp_path: Path) -> None:
    """One byte flipped, one segment removed: the issue's own example."""
    [partition] = open_log(logs.folder).select("plain")
    log = written(partition, tmp_path / "copy")
    row = log.of(log.files[0])[1]
    data = bytearray(log.path(row.file).read_bytes())
    data[row.end - 1] ^= 0xFF
    log.path(row.file).write_bytes(data)
    gone = log.files[1]
    log.path(gone).unlink()
    run = CliRunner()
    checked = run.invoke(program, ["log", "check", str(tmp_path / "copy" / "plain-0")])
    assert checked.exit_code == 2, checked.output
    lines = [json.loads(line) for line in checked.stdout.splitlines()]
    [damage] = [line for line in lines if line["type"] == "damage"]
    assert (damage["start_byte"], damage["first_offset"], damage["last_offset"]) == (row.start, row.first, row.last)
    [missing] = [line for line in lines if line.get("kind") == "segment_missing"]
    assert (missing["first_offset"], missing["last_offset"]) == (log.base(gone), log.base(log.files[2]) - 1)
    dumped = run.invoke(program, ["log", "dump", str(tmp_path / "copy"), "--topic", "plain", "--json"])
    assert dumped.exit_code == 1
    kept = [
        each
        for each in logs.served["plain"]
        if not row.first <= each.offset <= row.last and not log.base(gone) <= each.offset < log.base(log.files[2])
    ]
    found = [json.loads(line) for line in dumped.stdout.splitlines()]
    assert [(line["offset"], _decoded(line)) for line in found] == [(each.offset, each.value) for each in kept]
    assert [line["timestamp_ms"] for line in found] == [each.timestamp_ms for each in kept]
    assert [message.offset for message in LogReading(open_log(tmp_path / "copy" / "plain-0").partitions[0], 0).events()
            if isinstance(message, Message)] == [each.offset for each in kept]  # fmt: skip


def _decoded(line: dict[str, Any]) -> bytes:
    value = line["value"]
    return base64.b64decode(value) if "value_encoding" in line else value.encode()
