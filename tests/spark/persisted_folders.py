"""A checkpoint and the folder of a load as an earlier version wrote them, with the cluster they belong to.

`python tests/spark/persisted_folders.py` writes `tests/spark/persisted/` anew; its README says when that is right.
Tests read the folders through `restore_checkpoint` and `restore_load`.

The persisted names are literals here. They must stay what they are, whatever the code calls these values.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from producing import Message, produce

from zkconsumer.spark.load.compact import CompactionSettings, run_compactions
from zkconsumer.spark.load.compaction_history import CompactionHistory
from zkconsumer.spark.load.history import History
from zkconsumer.spark.load.job import run_load
from zkconsumer.spark.load.settings import LoadSettings
from zkconsumer.spark.load.writing import Shape
from zkconsumer.testing.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).resolve().parents[2]
PERSISTED = Path(__file__).with_name("persisted")
TOPIC = "persisted-clicks"
SHAPE = Shape("parquet", "date", text=True)
STREAMED = (9, 7)
"""How many messages each partition had when the stream ended."""
LOADED = ((4, 2), (7, 2), (9, 7))
"""The same at the end of each run of the load; a compaction came before the last one, another one after it."""
NOT_TEXT = (1, 5)
"""The message that is not UTF-8: partition and offset."""
_WIDTH = 20


def message(partition: int, offset: int) -> Message:
    if (partition, offset) == NOT_TEXT:
        return b"bad", b"\xff\xfe"
    return b"k%d" % offset if offset % 2 else None, None if offset == 3 else b"%d:%d" % (partition, offset)


def produce_up_to(cluster: Cluster, ends: Iterable[int], starts: Iterable[int] = (0, 0)) -> None:
    for partition, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if start < end:
            produce(cluster, TOPIC, partition, [message(partition, n) for n in range(start, end)])


def identity(cluster: Cluster) -> dict[str, int]:
    """What identifies the cluster and the incarnation of its topic: transactions of ZooKeeper, and a time."""
    topics = cluster.client.exists("/brokers/topics")
    created = cluster.client.exists(f"/brokers/topics/{TOPIC}").czxid
    return {"created_zxid": created, "cluster_ms": topics.ctime, "topics_zxid": topics.pzxid}


def stream_options(cluster: Cluster) -> dict[str, str]:
    return {"zookeeper.connect": cluster.zookeeper_connect, "subscribe": TOPIC, "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "6"}  # fmt: skip


def load_settings(cluster: Cluster, folder: Path) -> LoadSettings:
    return LoadSettings({"zookeeper.connect": cluster.zookeeper_connect, "subscribe": TOPIC}, str(folder), SHAPE)


def run_stream(spark: SparkSession, options: dict[str, str], checkpoint: Path) -> dict[int, list[list[int]]]:
    """Read what is there by `availableNow`, and return partition and offset of each row, by the number of the batch."""
    batches: dict[int, list[list[int]]] = {}

    def keep(rows: DataFrame, number: int) -> None:
        batches[number] = sorted([row.partition, row.offset] for row in rows.collect())

    rows = spark.readStream.format("zkconsumer").options(**options).load()
    writer = rows.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    assert writer.foreachBatch(keep).start().awaitTermination(120)
    return batches


# -- reading -----------------------------------------------------------------------------------------------------------


def restore_checkpoint(to: Path, cluster: Cluster) -> dict[int, list[list[int]]]:
    """Put the checkpoint into a folder as if it was one of this cluster; return what its batches had read."""
    shutil.copytree(PERSISTED / "checkpoint", to)
    now = identity(cluster)
    for path in (to / "offsets").iterdir():
        *head, last = path.read_text("utf-8").splitlines()
        offsets = json.loads(last)
        assert offsets["@born"].keys() == {TOPIC, "@cluster"}
        offsets["@born"] = {TOPIC: now["created_zxid"], "@cluster": now["cluster_ms"]}
        path.write_text("\n".join([*head, json.dumps(offsets)]), "utf-8")
    batches = json.loads((PERSISTED / "batches.json").read_text("utf-8"))
    return {int(number): rows for number, rows in batches.items()}


def restore_load(to: Path, cluster: Cluster) -> None:
    """Put the folder of the load into a folder as if it was loaded from this cluster.

    It was left by a compaction that died when it was published, and by a fourth run that died before.
    """
    shutil.copytree(PERSISTED / "load", to)
    now = identity(cluster)
    for path in (to / "_zkconsumer" / "runs").iterdir():
        manifest = json.loads(path.read_text("utf-8"))
        assert manifest["births"].keys() == {TOPIC}
        patch = {"births": {TOPIC: now["created_zxid"]}, "cluster_ms": now["cluster_ms"],
                 "topics_seen": now["topics_zxid"]}  # fmt: skip
        path.write_text(json.dumps(manifest | patch), "utf-8")


# -- writing -----------------------------------------------------------------------------------------------------------


def session(folder: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    from zkconsumer.spark import ZkConsumerSource

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": "1",
                "spark.local.dir": str(folder / "local"), "spark.ui.showConsoleProgress": "false"}  # fmt: skip
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    spark.dataSource.register(ZkConsumerSource)
    return spark


def end_in(step: str, connect: str, folder: Path) -> None:
    """Load, or compact, and die in the middle of it; in a process of its own."""
    spark = session(folder)

    def die(*arguments: Any, **more: Any) -> None:
        os._exit(0)

    if step == "load":
        History.publish = die  # type: ignore[method-assign]
        run_load(spark, LoadSettings({"zookeeper.connect": connect, "subscribe": TOPIC}, str(folder / "load"), SHAPE))
    else:
        CompactionHistory.finish = die  # type: ignore[method-assign]
        list(run_compactions(spark, CompactionSettings(str(folder / "load"))))
    raise AssertionError(f"{step} did not come to the place where it dies")


def write(folder: Path) -> None:
    from zkconsumer.testing import EmbeddedCluster

    with EmbeddedCluster() as cluster:
        spark = session(folder)
        cluster.create_topic(TOPIC, partitions=2)
        cluster.wait_leaders(TOPIC, range(2))
        settings = load_settings(cluster, folder / "load")
        reached = (0, 0)
        for number, ends in enumerate(LOADED, 1):
            produce_up_to(cluster, ends, reached)
            reached = ends
            run_load(spark, settings)
            if number == 2:
                list(run_compactions(spark, CompactionSettings(settings.folder)))
        batches = run_stream(spark, stream_options(cluster), folder / "checkpoint")
        produce_up_to(cluster, (reached[0] + 1, reached[1]), reached)
        for step in ("load", "compaction"):
            subprocess.run(
                [sys.executable, __file__, step, cluster.zookeeper_connect, str(folder)],
                check=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
            )  # fmt: skip
        spark.stop()
    (folder / "batches.json").write_text(json.dumps(batches) + "\n", "utf-8")
    shutil.rmtree(folder / "local", ignore_errors=True)
    for path in [*folder.rglob(".*.crc")]:
        path.unlink()  # Hadoop would compare them with what `restore_checkpoint` has changed
    for path in [*folder.rglob("*.room")]:
        path.write_text("")  # 64 KiB of nothing


def main(arguments: list[str]) -> None:
    if arguments:
        end_in(arguments[0], arguments[1], Path(arguments[2]))
        return
    for name in ("checkpoint", "load"):
        shutil.rmtree(PERSISTED / name, ignore_errors=True)
    PERSISTED.mkdir(exist_ok=True)
    write(PERSISTED)


if __name__ == "__main__":
    main(sys.argv[1:])
