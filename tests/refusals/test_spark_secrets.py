"""Spark on executors of its own, at a ZooKeeper that demands a certificate and a password.

Both reach the driver and the executors in files. The password is in no plan, page of the UI, event log, checkpoint, log
line or list of processes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from certificates import PASSWORD, Certificates
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl
from secured import SecureServer

from simpleconsumer.consumer import SimpleConsumer
from tests.spark.spark_jobs import QUICK_JAVA, run_job
from zkconsumer.testing.embedded.cluster import EmbeddedCluster

SECRET = "digest-4711"
PLAIN = "plain-4711"
"""Neither has a word by which Spark recognizes secrets (`spark.redaction.regex`) and hides them, as `secret` would."""
CONFIG = "consumer.properties"

JOB = """
import glob, urllib.request
from pathlib import Path
given = json.loads(Path("given.json").read_text())
shown = []
rows = spark.read.format("zkconsumer").options(**given["options"]).load()
count = rows.count()
for mode in ("simple", "extended", "codegen", "cost", "formatted"):
    shown.append(rows._jdf.queryExecution().explainString(spark._jvm.org.apache.spark.sql.execution.ExplainMode
                 .fromString(mode)))
shown += [rows._jdf.queryExecution().toString(), rows._jdf.queryExecution().logical().toJSON()]

stream = spark.readStream.format("zkconsumer").options(**given["options"], startingOffsets="earliest").load()
query = (stream.writeStream.format("parquet").option("path", "out").option("checkpointLocation", "checkpoint")
         .trigger(availableNow=True).start())
query.awaitTermination(120)
shown += [json.dumps(query.lastProgress, default=str), str(query.status), str(query.exception())]
shown.append(query._jsq.streamingQuery().explainInternal(True))
streamed = spark.read.parquet("out").count()

def look_up(number):
    from simpleconsumer.types import TopicPartition
    from zkconsumer.spark.reading.connections import search_leader
    from zkconsumer.spark.options.options import batch_options
    from zkconsumer.spark.settings_files import with_settings_files
    found = search_leader(config)(TopicPartition(given["topic"], 0), None)
    return found.broker.port if found.broker else found.reason

from zkconsumer.spark.options.options import batch_options
from zkconsumer.spark.settings_files import with_settings_files
config = batch_options(with_settings_files(given["options"])).config
looked_up = spark.sparkContext.parallelize([0], 1).map(look_up).collect()

from pyspark.sql.datasource import DataSource
from zkconsumer.spark.source import ZkConsumerSource

class Unguarded(ZkConsumerSource):
    def __init__(self, options):
        DataSource.__init__(self, options)

    @classmethod
    def name(cls):
        return "unguarded"

refusal = ""
try:
    spark.read.format("zkconsumer").options(**{**given["options"], "zookeeper.auth": given["auth"]}).load()
except Exception as error:
    refusal = str(error)
shown.append(refusal)
if given["unguarded"]:
    spark.dataSource.register(Unguarded)
    spark.sql("create temporary view shown using unguarded options (config 'consumer.properties', subscribe '%s', "
              "`zookeeper.auth` 'digest:reader:%s')" % (given["topic"], given["unguarded"]))

base, application = spark.sparkContext.uiWebUrl, spark.sparkContext.applicationId
for page in ("/api/v1/applications/%s/sql?details=true&planDescription=true", "/api/v1/applications/%s/environment",
             "/api/v1/applications/%s/jobs", "/api/v1/applications/%s/stages?details=true"):
    shown.append(urllib.request.urlopen(base + page % application, timeout=30).read().decode())
executions = ["/SQL/execution/?id=%d" % number for number in range(2)]
for page in ("/SQL/", *executions, "/environment/", "/StreamingQuery/", "/jobs/", "/stages/"):
    shown.append(urllib.request.urlopen(base + page, timeout=30).read().decode())
for file in glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/proc/[0-9]*/environ"):
    try:
        shown.append(Path(file).read_bytes().decode(errors="replace"))
    except OSError:
        pass
Path("shown.txt").write_text("\\n".join(shown))
spark.stop()
print(json.dumps({"count": count, "streamed": streamed, "looked_up": looked_up, "refusal": refusal}))
"""


@pytest.fixture
def folder(tmp_path: Path, certificates: Certificates) -> Path:
    """Where the job runs, with its files elsewhere, as `--files` takes them."""
    (tmp_path / "files").mkdir()
    for source, name in (
        (certificates.authority, "ca.pem"),
        (certificates.client, "client.crt"),
        (certificates.encrypted_key, "client.key"),
    ):
        shutil.copy(source, tmp_path / "files" / name)
    (tmp_path / "job" / "events").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize("unguarded", ["", pytest.param(PLAIN, marks=pytest.mark.slow)])
def test_credentials_reach_spark_in_files_and_are_shown_nowhere(
    unguarded: str,
    strict_server: SecureServer,
    certificates: Certificates,
    folder: Path,
    fresh_topic: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With `unguarded`, a source that takes credentials as options: the search finds them where Spark shows options."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", QUICK_JAVA)
    topic = fresh_topic()
    with EmbeddedCluster(zookeeper=strict_server, chroot=f"/{topic}") as cluster:
        cluster.create_topic(topic, partitions=2)
        with SimpleConsumer("127.0.0.1", cluster.port(0)) as broker:
            broker.produce(topic, 1, [b"x"] * 10)
        _close_to_others(cluster.client, topic)
        config = folder / "files" / CONFIG
        config.touch(mode=0o600)
        config.write_text(
            f"zookeeper.connect={strict_server.secure}/{topic}\nzookeeper.auth=digest:reader:{SECRET}\n"
            "zookeeper.use.ssl=true\nzookeeper.ssl.cafile=ca.pem\nzookeeper.ssl.certfile=client.crt\n"
            f"zookeeper.ssl.keyfile=client.key\nzookeeper.ssl.keyfile.password={PASSWORD}\ngroup.id=none\n"
            "auto.commit.interval.ms=1000\n"
        )
        given = {"topic": topic, "options": {"config": CONFIG, "subscribe": topic}, "unguarded": unguarded,
                 "auth": f"digest:reader:{SECRET}"}  # fmt: skip
        (folder / "job" / "given.json").write_text(json.dumps(given))
        files = ",".join(str(path) for path in sorted((folder / "files").iterdir()))
        found = run_job(JOB, "local-cluster[1,2,1024]", folder / "job", settings={
            "spark.files": files, "spark.ui.enabled": "true", "spark.ui.port": "0",
            "spark.eventLog.enabled": "true", "spark.eventLog.dir": str(folder / "job" / "events"),
            "spark.eventLog.compress": "false",  # text, so that a search finds what is in it
            "spark.executor.memory": "512m", "spark.sql.ui.explainMode": "extended",
        })  # fmt: skip
        port = cluster.port(0)
    assert "option zookeeper.auth: it holds a secret, and Spark shows the options of a query" in found.pop("refusal")
    assert found == {"count": 10, "streamed": 10, "looked_up": [port]}
    events = [file for file in _files_with(folder / "job", topic) if file.startswith("events/")]
    assert events, "the event log is text that can be searched"
    assert _files_with(folder / "job", SECRET) == []
    assert _files_with(folder / "job", PASSWORD) == []
    if unguarded:
        assert _files_with(folder / "job", unguarded) == [*events, "shown.txt"]


def _close_to_others(client: KazooClient, topic: str) -> None:
    """Let only the reader read what is in /brokers."""
    acl = [make_digest_acl("reader", SECRET, read=True), make_digest_acl("owner", "owner-secret", all=True)]
    for path in ("/brokers/ids/0", f"/brokers/topics/{topic}"):
        client.set_acls(path, acl)


def _files_with(folder: Path, text: str) -> list[str]:
    """The files in which the text stands, without the file of the job and the copies of the settings file."""
    return [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in (CONFIG, "given.json") and text.encode() in path.read_bytes()
    ]
