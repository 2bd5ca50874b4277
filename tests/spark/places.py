"""An HDFS and a store that speaks as S3, on this machine, for tests of loads into them.

Their jars are pinned and come by Maven like those of Kafka. The clients are those of Hadoop: the one for HDFS is among
the jars of pyspark, the one for S3 has to be of the same version.
"""

from __future__ import annotations

import base64
import hmac
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import NamedTuple

import pyspark
import pytest

from zkconsumer.testing.java import find_java
from zkconsumer.testing.java.maven import jars
from zkconsumer.testing.processes import ChildProcess, free_port
from zkconsumer.testing.waiting import wait_until

HADOOP = "3.5.0"
START_S = 90.0
KEYS = {"AWS_ACCESS_KEY_ID": "lake", "AWS_SECRET_ACCESS_KEY": "not secret"}
BUCKET = "bucket"


class Place(NamedTuple):
    """Where loads go.

    Attributes:
        url: of the folder in which they make theirs.
        settings: what Spark needs for it, but for the jars.
        jars: those that it needs for it.
        environment: variables with the credentials.
    """

    url: str
    settings: Mapping[str, str]
    jars: tuple[Path, ...] = ()
    environment: Mapping[str, str] = {}


@contextmanager
def hdfs(folder: Path) -> Iterator[Place]:
    """A name node and a data node in one process, for the time of a block."""
    details = folder / "details.json"
    command = find_java().command(
        jars(f"hdfs-{HADOOP}"), "org.apache.hadoop.test.MiniDFSClusterManager",
        ["-format", "-datanodes", "1", "-writeDetails", str(details), "-D", "dfs.replication=1"],
        heap_mb=384, flags=[f"-Dtest.build.data={folder / 'data'}"],
    )  # fmt: skip
    server = ChildProcess("MiniDFSCluster", command, folder / "log", directory=folder)
    try:
        wait_until(lambda: is_json(details), START_S, "the name node and its data node", state=server.last_message)
        yield Place(f"hdfs://127.0.0.1:{json.loads(details.read_text())['namenode_port']}/data", {})
    finally:
        server.stop()


def is_json(path: Path) -> bool:
    """Whether a file is there and was written to its end."""
    try:
        json.loads(path.read_text())
    except (OSError, ValueError):
        return False
    return True


@contextmanager
def s3(folder: Path) -> Iterator[Place]:
    """A store in memory that speaks as S3, with one bucket, for the time of a block."""
    refuse_another_hadoop()
    port = free_port()
    settings = folder / "s3proxy.properties"
    settings.write_text(
        f"s3proxy.endpoint=http://127.0.0.1:{port}\n"
        "s3proxy.authorization=aws-v2-or-v4\n"
        f"s3proxy.identity={KEYS['AWS_ACCESS_KEY_ID']}\n"
        f"s3proxy.credential={KEYS['AWS_SECRET_ACCESS_KEY']}\n"
        "jclouds.provider=transient-nio2\n"
    )
    command = find_java().command(
        jars("s3proxy-4.0.0"), "org.gaul.s3proxy.Main", ["--properties", str(settings)], heap_mb=512
    )
    server = ChildProcess("S3Proxy", command, folder / "log", directory=folder)
    client = {"endpoint": f"http://127.0.0.1:{port}", "endpoint.region": "us-east-1", "path.style.access": "true"}
    try:
        wait_until(lambda: answers(port), START_S, "S3Proxy", state=server.last_message)
        create_bucket(port)
        place = Place(f"s3a://{BUCKET}/data", {f"spark.hadoop.fs.s3a.{name}": value for name, value in client.items()},
                      tuple(jars(f"s3a-{HADOOP}")), KEYS)  # fmt: skip
        yield place
    finally:
        server.stop()


def answers(port: int) -> bool:
    """Whether a server answers requests, if only by refusing one."""
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def create_bucket(port: int) -> None:
    """Hadoop's client makes none. Source: S3's signature of version 2."""
    date = formatdate(usegmt=True)
    signed = hmac.digest(KEYS["AWS_SECRET_ACCESS_KEY"].encode(), f"PUT\n\n\n{date}\n/{BUCKET}".encode(), "sha1")
    authorization = f"AWS {KEYS['AWS_ACCESS_KEY_ID']}:{base64.b64encode(signed).decode()}"
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/{BUCKET}", method="PUT", headers={"Date": date, "Authorization": authorization}
    )
    urllib.request.urlopen(request, timeout=30).close()


def refuse_another_hadoop() -> None:
    """Skip where the module for S3 is not of the version of pyspark's Hadoop."""
    folder = Path(pyspark.__file__).parent / "jars"
    if not (folder / f"hadoop-client-api-{HADOOP}.jar").exists():
        found = ", ".join(path.name for path in folder.glob("hadoop-client-api-*.jar"))
        pytest.skip(f"hadoop-aws {HADOOP} needs a pyspark with hadoop-client-api-{HADOOP}.jar, this one has {found}")
