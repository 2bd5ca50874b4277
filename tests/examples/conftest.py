"""What the tests of the examples share: one cluster of embedded brokers, and a way to start an example on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.examples.example_process import Example
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.zookeeper import ZooKeeperServer

Start = Callable[..., Example]


@pytest.fixture(scope="session")
def small_cluster(zookeeper: ZooKeeperServer) -> Iterator[EmbeddedCluster]:
    """Two embedded brokers that the examples share: use topics and groups of your own."""
    with EmbeddedCluster(2, zookeeper=zookeeper, chroot="/examples") as cluster:
        yield cluster


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts examples, `start("whitelist.py", zookeeper=..., group=..., topic=...)`; they end with the test."""
    with ExitStack() as running:

        def begin(name: str, **options: object) -> Example:
            return running.enter_context(Example(name, tmp_path, **options))

        yield begin
