"""A load with each node that it needs closed to it: unaffected, or a sentence with the node and the remedy."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE
from loading import counts, settings_of

from simpleconsumer.consumer import SimpleConsumer
from tests.refusals.closed_to_others import MODES, OWNER_LOGIN, problem_of
from zkconsumer.spark.load.failures import failures_in_a_sentence
from zkconsumer.spark.load.job import run_load
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.zookeeper import ZooKeeperServer
from zkconsumer.testing.zookeeper.login import ZooKeeperLogin
from zkconsumer_error import ZkConsumerError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP = "/consumers/loaded"
"""The group in which the load stores its offsets."""
PLANNED = ("/brokers/ids", "/brokers/ids/0", "/brokers/topics/topic", "/brokers/topics/topic/partitions/0/state")
"""What is read before anything is loaded."""
OF_GROUP = ("/consumers",
            *(f"{GROUP}{path}" for path in ("", "/ids", "/offsets", "/offsets/topic", "/offsets/topic/0")))  # fmt: skip
PATIENCE = {"kafkaConsumer.pollTimeoutMs": "3000"}
"""How long leaders may be missing."""
FOLDERS = itertools.count()


@dataclass
class Loaded:
    """A topic that can be loaded, of a cluster whose nodes can be closed to the load."""

    spark: SparkSession
    cluster: EmbeddedCluster
    owner: KazooClient
    caplog: pytest.LogCaptureFixture
    folder: Path

    def load(self, **source: str) -> tuple[int, str, str]:
        """Load into a new folder: 0 or 1, what was loaded, and the sentences of the error or the log."""
        self.caplog.clear()
        settings = settings_of(self.cluster, self.folder / str(next(FOLDERS)), "topic", **PATIENCE, **source)
        try:
            with failures_in_a_sentence(), self.caplog.at_level(logging.WARNING):
                report = run_load(self.spark, settings)
        except ZkConsumerError as error:
            return 1, "", str(error)
        return 0, f"{counts(report)} stored {report.stored} silent {report.silent}", self.caplog.text

    def problems(self, path: str, mode: str, of_open: tuple[int, str], **source: str) -> list[str]:
        """Load while a node is closed, and return what is wrong with what the load says."""
        for name, data in (("ids", b""), ("offsets/topic/0", b"1")):
            self.owner.ensure_path(f"{GROUP}/{name}")
            self.owner.set(f"{GROUP}/{name}", data)
        self.owner.set_acls(path, MODES[mode])
        try:
            found = self.load(**source)
        finally:
            self.owner.retry(self.owner.set_acls, path, OPEN_ACL_UNSAFE)
        problem = problem_of(path, found, of_open)
        return [f"{path} {mode}: {problem}\n  {found}"] if problem else []


@pytest.fixture
def loaded(
    spark: SparkSession, zookeeper: ZooKeeperServer, fresh_group: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> Iterator[Loaded]:
    login = ZooKeeperLogin(*OWNER_LOGIN, scheme="digest")
    with EmbeddedCluster(zookeeper=zookeeper, chroot=f"/{fresh_group}", login=login) as cluster:
        cluster.create_topic("topic")
        with SimpleConsumer("127.0.0.1", cluster.port(0)) as broker:
            broker.produce("topic", 0, [b"x"] * 3)
        owner = KazooClient(cluster.zookeeper_connect, auth_data=[("digest", ":".join(OWNER_LOGIN))])
        owner.start()
        yield Loaded(spark, cluster, owner, caplog, tmp_path)
        owner.stop()
        owner.close()


def test_a_closed_node_of_the_topic_is_named(loaded: Loaded) -> None:
    status, printed, said = loaded.load()
    assert (status, printed) == (0, "{0: (0, 3, 3)} stored None silent {}"), said
    assert loaded.problems("/brokers/topics/topic", "closed", (status, printed)) == []


def test_the_offsets_of_a_closed_group_are_left_to_the_next_run(loaded: Loaded) -> None:
    status, printed, said = loaded.load(**{"group.id": "loaded"})
    assert (status, printed) == (0, "{0: (0, 3, 3)} stored True silent {}"), said
    wrong = loaded.problems(f"{GROUP}/offsets/topic/0", "closed", (status, printed), **{"group.id": "loaded"})
    assert wrong == []
    assert "the data is published, but the offsets of the group are left to the next run" in loaded.caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("start", ["earliest", "group"])
def test_every_closed_node_is_named_or_makes_no_difference(loaded: Loaded, mode: str, start: str) -> None:
    source = {"group.id": "loaded", "startingOffsets": start}
    loaded.owner.create(f"{GROUP}/offsets/topic/0", b"1", makepath=True)
    status, printed, said = loaded.load(**source)
    assert status == 0, said
    paths = (*PLANNED, "/brokers/topics", *OF_GROUP)
    wrong = [problem for path in paths for problem in loaded.problems(path, mode, (status, printed), **source)]
    assert wrong == []
