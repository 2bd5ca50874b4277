"""`zkconsumer load` into HDFS, and into a store that speaks as S3: each message once there, too.

What is here is what differs from a local disk: how files are created, moved and listed. Processes are killed in
earnest, with their JVM; the lake is read back by Spark.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from load_process import ROOT, LoadProcess
from places import Place, hdfs, s3

from zkconsumer.spark.requirements import check_java
from zkconsumer.testing import EmbeddedCluster, load

pytestmark = [pytest.mark.real, pytest.mark.slow]

COMMAND_S = 300.0
MOST_CHANGES = 40

Row = list[int | str]


@pytest.fixture(scope="module", params=[hdfs, s3], ids=["hdfs", "s3a"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    check_java()
    with request.param(tmp_path_factory.mktemp("place")) as running:
        yield running


@pytest.fixture(scope="module")
def loads(place: Place) -> Iterator[Callable[[], LoadProcess]]:
    """Makes processes that load into the place."""
    # On the class path of the driver: Spark copies what is in `spark.jars`, and this is 650 MB.
    settings = {**place.settings, "spark.driver.extraClassPath": os.pathsep.join(map(str, place.jars))}
    made: list[LoadProcess] = []

    def make() -> LoadProcess:
        made.append(LoadProcess(settings if place.jars else place.settings, place.environment))
        return made[-1]

    yield make
    for each in made:
        each.kill()


@pytest.fixture(scope="module")
def loader(loads: Callable[[], LoadProcess]) -> LoadProcess:
    """The one that all tests of a place share; nobody kills it."""
    return loads()


class Topic:
    """One with two partitions, and what was sent to it."""

    def __init__(self, cluster: EmbeddedCluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.sent: list[Row] = []
        cluster.create_topic(name, partitions=2)

    def grow(self, count: int) -> None:
        """Send so many messages to each partition."""
        for event in load(self.cluster, self.name, count, first=len(self.sent)):
            self.sent.append([event.partition, event.offset, event.id])

    def into(self, folder: str, **more: object) -> dict[str, object]:
        """What a `LoadProcess` is asked for a load of it."""
        return {"folder": folder, "zookeeper": self.cluster.zookeeper_connect, "pattern": self.name, "skip": False,
                "most": None, **more}  # fmt: skip


@pytest.fixture
def topic(embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]) -> Topic:
    made = Topic(embedded_cluster, fresh_topic())
    made.grow(20)
    return made


@pytest.fixture
def lake(place: Place, topic: Topic) -> str:
    return f"{place.url}/{topic.name}"


def rows(loader: LoadProcess, lake: str) -> list[Row]:
    found: list[Row] = loader.ask(rows_of=lake)["rows"]
    return found


def staged(loader: LoadProcess, lake: str) -> list[str]:
    found: list[str] = loader.ask(staged_in=lake)["names"]
    return found


def test_the_command_loads_and_the_next_one_goes_on(place: Place, loader: LoadProcess, topic: Topic, lake: str) -> None:
    settings = dict(place.settings)
    if place.jars:
        settings["spark.jars"] = ",".join(map(str, place.jars))
    command = [sys.executable, "-m", "zkconsumer.cli", "load", "--zookeeper", topic.cluster.zookeeper_connect,
               "--topic", topic.name, "--to", lake, "--master", "local[2]", "--json",
               *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}"))]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **place.environment}

    def run() -> dict[str, object]:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=COMMAND_S, check=False
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4000:]
        found: dict[str, object] = json.loads(done.stdout)
        return found

    assert run()["run"] == 1
    assert rows(loader, lake) == sorted(topic.sent)
    topic.grow(5)
    assert run()["run"] == 2
    assert run()["run"] is None
    assert rows(loader, lake) == sorted(topic.sent)
    assert staged(loader, lake) == []


def test_a_load_that_is_killed_before_any_change_of_the_folder_costs_no_message_and_repeats_none(
    loads: Callable[[], LoadProcess], loader: LoadProcess, topic: Topic, lake: str
) -> None:
    moments: list[object] = ["written", *range(1, MOST_CHANGES)]
    killed = 0
    for moment in moments:
        victim = loads()
        victim.begin(topic.into(lake, dies=moment))
        came = victim.end(may_die=True)
        if came is not None:
            assert "error" not in came, came
            break
        killed += 1
        came = loader.load(topic.into(lake))
        assert came is not None
        assert "error" not in came, came
        assert rows(loader, lake) == sorted(topic.sent), f"killed: {moment}"
        assert staged(loader, lake) == []
        topic.grow(3)
    print(f"killed {killed} times")
    # After the writing; before the creation of the manifest; at each of two moves, and at a deletion after that.
    assert 5 <= killed < len(moments)
    assert rows(loader, lake) == sorted(topic.sent)


def test_of_two_loads_that_publish_at_the_same_moment_one_does(
    loads: Callable[[], LoadProcess], loader: LoadProcess, topic: Topic, lake: str
) -> None:
    both = [loads(), loads()]
    for number in range(1, 6):
        for each in both:
            each.begin(topic.into(lake, holds=True))
        assert [each.end() for each in both] == [{"holds": number}] * 2
        for each in both:
            each.begin({})
        came = [each.end() for each in both]
        runs = [each["run"] for each in came if each and "run" in each]
        errors = [each["error"] for each in came if each and "error" in each]
        assert runs == [number], came
        assert [error.partition(":")[0] for error in errors] == ["LoadOvertaken"]
        assert rows(loader, lake) == sorted(topic.sent)
        topic.grow(2)
    assert loader.load(topic.into(lake)) == {"run": 6, "left": 0, "silent": 0}
    assert rows(loader, lake) == sorted(topic.sent)
    assert staged(loader, lake) == []


def test_of_eight_that_create_the_same_file_one_does(loader: LoadProcess, lake: str) -> None:
    assert loader.ask(publish_in=f"{lake}-eight", times=25)["published"] == [1] * 25
