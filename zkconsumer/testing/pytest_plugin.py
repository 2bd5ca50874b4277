"""The pytest plugin: real ZooKeeper and real Kafka as fixtures.

| fixture | scope | |
|---|---|---|
| `zookeeper` | session | a `ZooKeeperServer` that all tests share |
| `kafka_cluster` | function | a running `KafkaCluster` of the version and size that the test asks for |
| `kafka_clusters` | session | `kafka_clusters(version, brokers)`: the same for fixtures of a wider scope |
| `kafka_containers` | session | ZooKeeper and two brokers of Kafka 0.8.2.2 in Docker; skipped where no Docker answers |

Version and number of brokers come from the marker `kafka_cluster(version=..., brokers=...)`, else from the ini options
`zkconsumer_kafka_version` and `zkconsumer_kafka_brokers`. Clusters that are alike are one cluster, started when first
asked for, and all end with the session. A test that cannot have its servers on this machine is skipped with the
sentence that says what to install; with ZKCONSUMER_REQUIRE_REAL=1 it fails.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from zkconsumer.testing.errors import DockerMissing, JavaMissing, MavenMissing

if TYPE_CHECKING:
    from zkconsumer.testing.containers import KafkaContainers
    from zkconsumer.testing.kafka import KafkaCluster
    from zkconsumer.testing.zookeeper import ZooKeeperServer

REQUIRE_REAL = "ZKCONSUMER_REQUIRE_REAL"
VERSION_OPTION = "zkconsumer_kafka_version"
BROKERS_OPTION = "zkconsumer_kafka_brokers"
MARKER = "kafka_cluster"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the ini options."""
    parser.addini(VERSION_OPTION, "Kafka version of the fixture kafka_cluster", default="0.8.2.2")
    parser.addini(BROKERS_OPTION, "number of brokers of the fixture kafka_cluster", default="1")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers", f"{MARKER}(version=None, brokers=None): which cluster the fixture kafka_cluster gives to the test"
    )


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


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeperServer]:
    """A ZooKeeper server that all tests share: do not stop, pause or wipe it; start one of your own for that."""
    from zkconsumer.testing.zookeeper import ZooKeeperServer

    with ZooKeeperServer() as server:
        yield server


@pytest.fixture(scope="session")
def kafka_clusters() -> Iterator[Callable[[str, int], KafkaCluster]]:
    """Gives running clusters by version and number of brokers, one for all who ask for the same."""
    from zkconsumer.testing.kafka import KafkaCluster

    running: dict[tuple[str, int], KafkaCluster] = {}
    with contextlib.ExitStack() as stack:

        def cluster(version: str, brokers: int) -> KafkaCluster:
            key = (version, brokers)
            if key not in running:
                running[key] = stack.enter_context(KafkaCluster(version, brokers))
            return running[key]

        yield cluster


@pytest.fixture
def kafka_cluster(
    request: pytest.FixtureRequest, kafka_clusters: Callable[[str, int], KafkaCluster]
) -> KafkaCluster:
    """A cluster that is shared by tests: do not stop its brokers, and use topics and groups of your own."""
    version, brokers = wanted_cluster(request.config, request.node.get_closest_marker(MARKER))
    return kafka_clusters(version, brokers)


def wanted_cluster(config: pytest.Config, marker: pytest.Mark | None) -> tuple[str, int]:
    """Version and number of brokers: what the marker says, and the ini options for what it does not say.

    Raises:
        pytest.UsageError: the marker has other arguments, or the number is none.
    """
    asked = dict(marker.kwargs) if marker else {}
    positional = marker.args if marker else ()
    asked.update(zip(("version", "brokers"), positional, strict=False))
    if set(asked) - {"version", "brokers"} or len(positional) > 2:
        raise pytest.UsageError(f"{marker}: the marker {MARKER} takes version and brokers")
    version = asked.get("version") or config.getini(VERSION_OPTION)
    brokers = asked.get("brokers") or config.getini(BROKERS_OPTION)
    if not str(brokers).isdigit() or int(brokers) < 1:
        raise pytest.UsageError(f"{brokers!r} brokers: a number from 1 is needed")
    return str(version), int(brokers)


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
