"""Spark Connect: a client without a driver of its own, and a server with the archive, or with the package installed.

Needs what `pip install 'pyspark[connect]'` brings, and is skipped without it.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
from spark_jobs import reads_streams
from standalone import SPARK, StandaloneSpark

from zkconsumer.spark.archive import write_archive
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.processes import ChildProcess, free_port
from zkconsumer.testing.waiting import wait_until

pytest.importorskip("grpc")
pytestmark = [pytest.mark.slow, pytest.mark.real, reads_streams]

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
CLIENT = """
import json, os, sys
from zkconsumer.spark import ZkConsumerSource, commit_offsets, follow
from zkconsumer.spark.load.failures import LoadRefused
from zkconsumer.spark.load.job import run_load
from zkconsumer.spark.load.settings import LoadSettings
from pyspark.sql import SparkSession
address, zookeeper, archive, folder = sys.argv[1:]
spark = SparkSession.builder.remote(address).getOrCreate()
if archive != "-":
    spark.addArtifact(archive, pyfile=True)
    spark.dataSource.register(ZkConsumerSource)
follow(spark)
cluster = {"zookeeper.connect": zookeeper}
source = {**cluster, "subscribe": "t"}
found = {"table": spark.read.format("zkconsumer").options(**source).load().count()}

def run(rows, name, **into):
    writer = rows.writeStream.options(checkpointLocation=f"{folder}/{name}", **into).trigger(availableNow=True)
    query = writer.format("zkconsumer" if "topic" in into else "parquet").start()
    query.awaitTermination()
    return query

stream = spark.readStream.format("zkconsumer").options(**source, startingOffsets="earliest")
grouped = {**source, "group.id": "connect"}
query = run(stream.options(**grouped).load(), "first", path=f"{folder}/rows")
found["stream"] = spark.read.parquet(f"{folder}/rows").count()
found["stored"] = sum(commit_offsets(query, grouped).values())
run(stream.load().select("value"), "second", topic="out", **cluster)
spark.range(10).selectExpr("cast(id as string) as value").write.format("zkconsumer").options(**cluster, topic="out") \\
    .mode("append").save()
found["sinks"] = spark.read.format("zkconsumer").options(**cluster, subscribe="out").load().count()
try:
    run_load(spark, LoadSettings(source, f"{folder}/lake"))
except LoadRefused as error:
    found["load"] = str(error)
print(json.dumps(found), flush=True)
os._exit(0)  # the thread of Spark's listeners would go on
"""


@pytest.mark.parametrize("server_has", ["the archive alone", "the package"])
def test_a_client_reads_and_writes_and_has_to_store_offsets_itself(server_has: str, tmp_path: Path) -> None:
    port, archive = free_port(), tmp_path / "zkconsumer.zip"
    is_installed = server_has == "the package"
    write_archive(archive)
    with EmbeddedCluster(1) as cluster, StandaloneSpark(tmp_path) as spark:
        cluster.create_topic("t", partitions=2)
        cluster.create_topic("out")
        for partition in (0, 1):
            cluster.produce("t", [b"%d" % n for n in range(50)], partition=partition)
        settings = {"spark.connect.grpc.binding.port": f"{port}", "spark.driver.host": "127.0.0.1",
                    "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "600m",
                    "spark.cores.max": "2", "spark.ui.enabled": "false"}  # fmt: skip
        server = ChildProcess(
            "Connect", [str(SPARK / "bin" / "spark-submit"), "--class", SERVER, "--master", spark.master,
                        *(f"--conf={name}={value}" for name, value in settings.items()), "spark-internal"],
            tmp_path / "server.txt", directory=tmp_path,
            environment={**spark.environment, **({"PYSPARK_PYTHON": sys.executable} if is_installed else {})},
        )  # fmt: skip
        try:
            wait_until(
                lambda: "Spark Connect server started" in server.log_path.read_text(errors="replace"), 120,
                "the server", state=server.tail,
            )  # fmt: skip
            program = [sys.executable, "-c", CLIENT, f"sc://127.0.0.1:{port}", cluster.zookeeper_connect,
                       "-" if is_installed else str(archive), str(tmp_path)]  # fmt: skip
            client = ChildProcess(
                "client", program, tmp_path / "said.txt", output_path=tmp_path / "found.txt",
                environment={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )  # fmt: skip
            assert client.wait(180) == 0, client.tail(100)
        finally:
            server.kill_group()
    found = json.loads((tmp_path / "found.txt").read_text().splitlines()[-1])
    assert found == {
        "table": 100, "stream": 100, "stored": 100, "sinks": 110,
        "load": "a load needs a Spark session with its own driver, not a client of Spark Connect",
    }  # fmt: skip
    said = (tmp_path / "said.txt").read_text()
    unknown = re.findall("its last offsets are not stored: the options of this query's source cannot be read", said)
    assert len(unknown) == 2, said
