"""The pytest plugin: real ZooKeeper, real Kafka and embedded brokers as fixtures.

A `conftest.py` loads it: `pytest_plugins = ["zkconsumer.testing.pytest_plugin"]`. It is no entry point of pytest: then
pytest would rewrite the assertions of all modules of the package, in every test run of each project that installs it.

| fixture | scope | |
|---|---|---|
| `zookeeper` | session | a `ZooKeeperServer` that all tests share |
| `kafka_cluster` | function | a running `KafkaCluster` of the version and size that the test asks for |
| `kafka_clusters` | session | `kafka_clusters(version, brokers)`: the same for fixtures of a wider scope |
| `embedded_cluster` | function | a running `EmbeddedCluster` of the size and generation that the test asks for |
| `embedded_clusters` | session | `embedded_clusters(brokers, generation)`: the same for fixtures of a wider scope |
| `kafka_containers` | session | ZooKeeper and two brokers of Kafka 0.8.2.2 in Docker; skipped where no Docker answers |

Version and number of brokers come from the markers `kafka_cluster(version=..., brokers=...)` and
`embedded_cluster(brokers=..., generation="0.7")`, else from the ini options `zkconsumer_kafka_version` and
`zkconsumer_kafka_brokers`. Clusters that are alike are one cluster, started when first asked for, and all end with the
session. Embedded ones are restored after each test: no fault in force, all brokers running. A test that cannot have its
servers on this machine is skipped with the sentence that says what to install; with ZKCONSUMER_REQUIRE_REAL=1 it fails.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from zkconsumer.testing.errors import DockerMissing, JavaMissing, MavenMissing

if TYPE_CHECKING:
    from zkconsumer.testing.containers import KafkaContainers
    from zkconsumer.testing.embedded.cluster import EmbeddedCluster
    from zkconsumer.testing.kafka.cluster import KafkaCluster
    from zkconsumer.testing.zookeeper.server import ZooKeeperServer

    class EmbeddedClusters(Protocol):
        """Gives a running embedded cluster by number of brokers and generation of Kafka."""

        def __call__(self, brokers: int, generation: str = "0.8") -> EmbeddedCluster:
            """The cluster."""


REQUIRE_REAL = "ZKCONSUMER_REQUIRE_REAL"
VERSION_OPTION = "zkconsumer_kafka_version"
BROKERS_OPTION = "zkconsumer_kafka_brokers"
MARKER = "kafka_cluster"
EMBEDDED_MARKER = "embedded_cluster"
EMBEDDED: pytest.StashKey[dict[tuple[int, str], EmbeddedCluster]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the ini options."""
    parser.addini(VERSION_OPTION, "Kafka version of the fixture kafka_cluster", default="0.8.2.2")
    parser.addini(BROKERS_OPTION, "number of brokers of the fixtures kafka_cluster and embedded_cluster", default="1")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers."""
    embedded = (EMBEDDED_MARKER, "brokers=None, generation='0.8'")
    for marker, arguments in ((MARKER, "version=None, brokers=None"), embedded):
        text = f"{marker}({arguments}): which cluster the fixture {marker} gives to the test"
        config.addinivalue_line("markers", text)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Turn a missing Java or a missing jar, wherever it shows up, into a skip, unless real servers are required."""
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, JavaMissing | MavenMissing) and os.environ.get(REQUIRE_REAL) != "1":
        try:
            pytest.skip(str(error))
        except pytest.skip.Exception:
            call.excinfo = pytest.ExceptionInfo.from_current()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Clear the faults of this test before other tests use its embedded clusters."""
    try:
        return (yield)
    finally:
        for cluster in item.config.stash.get(EMBEDDED, {}).values():
            cluster.restore()


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeperServer]:
    """A ZooKeeper server that all tests share: do not stop, pause or wipe it; start one of your own for that."""
    from zkconsumer.testing.zookeeper.server import ZooKeeperServer

    with ZooKeeperServer() as server:
        yield server


@pytest.fixture(scope="session")
def kafka_clusters() -> Iterator[Callable[[str, int], KafkaCluster]]:
    """Gives running clusters by version and number of brokers, one for all tests that ask for the same."""
    from zkconsumer.testing.kafka.cluster import KafkaCluster

    running: dict[tuple[str, int], KafkaCluster] = {}
    with contextlib.ExitStack() as stack:

        def cluster(version: str, brokers: int) -> KafkaCluster:
            key = (version, brokers)
            if key not in running:
                running[key] = stack.enter_context(KafkaCluster(version, brokers))
            return running[key]

        yield cluster


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest, kafka_clusters: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    """A cluster that is shared by tests: do not stop its brokers, and use topics and groups of your own."""
    asked = _arguments(request.node.get_closest_marker(MARKER), ("version", "brokers"))
    version = asked.get("version") or request.config.getini(VERSION_OPTION)
    return kafka_clusters(str(version), _brokers(asked, request.config))


@pytest.fixture(scope="session")
def embedded_clusters(pytestconfig: pytest.Config) -> Iterator[EmbeddedClusters]:
    """Gives running embedded clusters by number of brokers and generation of Kafka (0.8 by default).

    Tests share them, and each is restored after every test. So a fault that is to last longer than a test needs a
    cluster of its own.
    """
    from zkconsumer.testing.embedded.cluster import EmbeddedCluster

    running = pytestconfig.stash[EMBEDDED] = {}
    with contextlib.ExitStack() as stack:
        stack.callback(running.clear)

        def cluster(brokers: int, generation: str = "0.8") -> EmbeddedCluster:
            key = (brokers, generation)
            if key not in running:
                running[key] = stack.enter_context(EmbeddedCluster(brokers, generation=generation))
            return running[key]

        yield cluster


@pytest.fixture
def embedded_cluster(request: pytest.FixtureRequest, embedded_clusters: EmbeddedClusters) -> EmbeddedCluster:
    """An embedded cluster that is shared by tests: do what you like to its brokers, with topics and groups of your own.

    After the test its faults are cleared and all its brokers run again.
    """
    asked = _arguments(request.node.get_closest_marker(EMBEDDED_MARKER), ("brokers", "generation"))
    return embedded_clusters(_brokers(asked, request.config), _generation(asked))


def _arguments(marker: pytest.Mark | None, names: Sequence[str]) -> dict[str, Any]:
    """The arguments of a marker, by name.

    Raises:
        pytest.UsageError: it has other arguments.
    """
    if marker is None:
        return {}
    asked = {**marker.kwargs, **dict(zip(names, marker.args, strict=False))}
    if set(asked) - set(names) or len(marker.args) > len(names):
        raise pytest.UsageError(f"{marker}: the marker {marker.name} takes {' and '.join(names)}")
    return asked


def _brokers(asked: dict[str, Any], config: pytest.Config) -> int:
    """Number of brokers: that of the marker, else the ini option; UsageError if it is none."""
    brokers = asked.get("brokers")
    if brokers is None:
        brokers = config.getini(BROKERS_OPTION)
    if not str(brokers).isdigit() or int(brokers) < 1:
        raise pytest.UsageError(f"{brokers!r} brokers: a number from 1 is needed")
    return int(brokers)


def _generation(asked: dict[str, Any]) -> str:
    """Generation of Kafka of embedded brokers: that of the marker, else 0.8; UsageError if there is no such one."""
    from zkconsumer.testing.embedded.cluster import VERSIONS

    generation = str(asked.get("generation") or "0.8")
    if generation not in VERSIONS:
        raise pytest.UsageError(f"generation {generation!r}: embedded brokers are of {' and '.join(VERSIONS)}")
    return generation


@pytest.fixture(scope="session")
def kafka_containers() -> Iterator[KafkaContainers]:
    """ZooKeeper and two brokers of Kafka 0.8.2.2 in containers of the images that docker-compose.yml builds, too."""
    from zkconsumer.testing.containers import KafkaContainers

    try:
        containers = KafkaContainers().start()
    except DockerMissing as error:
        pytest.skip(str(error))
    try:
        yield containers
    finally:
        containers.close()
