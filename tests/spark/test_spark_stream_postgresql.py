"""The recipe of docs/SPARK_STREAMING.md for servers with a JDBC driver, on a PostgreSQL of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import pwd
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.spark.spark_jobs import run_job
from zkconsumer.testing import KafkaCluster, load
from zkconsumer.testing.errors import KitError
from zkconsumer.testing.java.maven import jars
from zkconsumer.testing.processes import ChildProcess
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.slow

JAR_SET = "postgresql-42.7.4"
USER = "postgres"
"""Who runs the server where the tests run as root, as which it refuses to run; Debian's package makes the user."""
EACH, LIMIT = 300, 100
PROGRAM = """
from tests.spark.stream_job import recipe

job = json.loads(os.environ["JOB"])
names = recipe("psycopg")
psycopg = names["psycopg"]
into = names["into_postgresql"](job["url"], "clicks", user=job["user"])
options = {"zookeeper.connect": job["zookeeper"], "subscribe": job["topic"], "startingOffsets": "earliest",
           "maxOffsetsPerTrigger": job["limit"]}
died = []

def dying(rows, batch_id):
    place = {2: "staged", 3: "stored", 5: "staged", 6: "stored"}.get(batch_id)
    if place == "staged" and batch_id not in died:
        died.append(batch_id)
        names["psycopg"] = type("Gone", (), {"connect": lambda *given, **login: 1 / 0})
        try:
            into(rows, batch_id)
        finally:
            names["psycopg"] = psycopg
    into(rows.repartition(3), batch_id)
    if place == "stored" and batch_id not in died:
        died.append(batch_id)
        raise RuntimeError("died behind the transaction")

for _ in range(8):
    rows = spark.readStream.format("zkconsumer").options(**options).load()
    writer = rows.writeStream.foreachBatch(dying).option("checkpointLocation", "checkpoint")
    try:
        writer.trigger(availableNow=True).start().awaitTermination()
        break
    except Exception as error:
        print(str(error)[:200])
with psycopg.connect(job["url"], user=job["user"]) as database:
    found = database.execute('SELECT topic, partition, "offset", value FROM messages').fetchall()
    stages = database.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'stage%'").fetchall()
rows = sorted([topic, number, at, bytes(value).decode()] for topic, number, at, value in found)
print(json.dumps([died, stages, rows]))
"""


def programs() -> Path | None:
    """The folder of `initdb` and `postgres`: on PATH, or where Debian's package has it."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "postgres").exists()), None)


def as_unprivileged(command: list[str]) -> list[str]:
    if os.geteuid() != 0:
        return command
    return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *command]


def why_not() -> str:
    """What is missing for this test, empty where nothing is."""
    if programs() is None:
        return "PostgreSQL is not installed: apt-get install postgresql"
    if os.geteuid() == 0 and USER not in {user.pw_name for user in pwd.getpwall()}:
        return f"PostgreSQL does not run as root, and there is no user {USER}"
    if importlib.util.find_spec("psycopg") is None:
        return "Python's driver of PostgreSQL is missing: pip install 'psycopg[binary]'"
    return ""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def driver_jar() -> Path:
    try:
        [jar] = jars(JAR_SET)
    except KitError as error:
        pytest.skip(f"the JDBC driver of PostgreSQL is missing: {error}")
    return jar


@pytest.fixture
def postgresql() -> Iterator[str]:
    """The address of a server on loopback, which trusts everybody there."""
    if why_not():
        pytest.skip(why_not())
    bin_folder = programs()
    assert bin_folder is not None
    folder = Path(tempfile.mkdtemp(prefix="zkconsumer-postgresql-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, USER, USER)
        data, log = folder / "data", folder / "log"
        log.touch()
        made = [str(bin_folder / "initdb"), "-D", str(data), "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync"]
        ChildProcess("initdb", as_unprivileged(made), log, directory=folder).wait(120)
        port = free_port()
        started = [str(bin_folder / "postgres"), "-D", str(data), "-h", "127.0.0.1", "-p", str(port), "-k", str(folder),
                   "-c", "fsync=off"]  # fmt: skip
        server = ChildProcess("postgres", as_unprivileged(started), log, directory=folder)
        try:
            wait_until(lambda: "ready to accept connections" in log.read_text(), 60, "PostgreSQL", state=log.read_text)
            yield f"postgresql://127.0.0.1:{port}/postgres"
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_batches_that_die_beside_the_transaction_are_in_postgresql_once(
    postgresql: str,
    driver_jar: Path,
    kafka_0822: KafkaCluster,
    fresh_topic: Callable[[], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    topic = fresh_topic()
    kafka_0822.create_topic(topic, partitions=2)
    load(kafka_0822, topic, EACH)
    monkeypatch.setenv("JOB", json.dumps({"url": postgresql, "user": USER, "topic": topic, "limit": LIMIT,
                                          "zookeeper": kafka_0822.zookeeper_connect}))  # fmt: skip
    died, stages, found = run_job(PROGRAM, "local[2]", tmp_path, settings={"spark.jars": str(driver_jar)})
    assert (died, stages) == ([2, 3, 5, 6], [])
    assert found == [[topic, partition, n, f"{partition}:{n}"] for partition in (0, 1) for n in range(EACH)]
