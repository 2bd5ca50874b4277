"""Partitions that cannot exist are refused by each command and method that takes one, in a sentence that names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner

from simpleconsumer.consumer import SimpleConsumer
from zkconsumer.admin import Admin
from zkconsumer.cli.program import program
from zkconsumer.errors import ZkConsumerError
from zkconsumer.testing import EmbeddedCluster, load

IMPOSSIBLE = ["-1", "2147483648", "99", "x", "1.5"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1) as running:
        running.create_topic("clicks", 2)
        load(running, "clicks", 5)
        running.client.create("/consumers/g/offsets/clicks/0", b"3", makepath=True)
        yield running


@pytest.mark.parametrize("partition", IMPOSSIBLE)
@pytest.mark.parametrize(
    "call",
    [
        ["offsets", "set", "g", "--topic", "clicks", "--to", "0", "--partition"],
        ["offsets", "delete", "g", "--topic", "clicks", "--partition"],
        ["produce", "--topic", "clicks", "--partition"],
        ["release", "g", "clicks", "--"],
    ],
    ids=lambda call: " ".join(call[:2]),
)
def test_commands_refuse_them(cluster: EmbeddedCluster, call: list[str], partition: str) -> None:
    where = ["--zookeeper", cluster.zookeeper_connect]
    arguments = [call[0], *where, *call[1:], partition] if call[0] == "release" else [*call, partition, *where]
    done = CliRunner().invoke(program, arguments, input="a\n", prog_name="zkconsumer")
    assert done.exit_code in (1, 2), done.output
    assert "bug in zkconsumer" not in done.stderr
    assert partition in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("partition", [-1, 2**31, 99])
@pytest.mark.parametrize(
    "call",
    [
        lambda admin, partition: admin.set_offsets("g", "clicks", 0, [partition]),
        lambda admin, partition: admin.delete_offsets("g", "clicks", [partition]),
        lambda admin, partition: admin.release("g", "clicks", partition),
    ],
    ids=["set_offsets", "delete_offsets", "release"],
)
def test_methods_refuse_them(cluster: EmbeddedCluster, call: Callable[[Admin, int], object], partition: int) -> None:
    with Admin(cluster.zookeeper_connect) as admin, pytest.raises((ZkConsumerError, ValueError), match=str(partition)):
        call(admin, partition)


@pytest.mark.parametrize("partition", [-1, 2**31])
def test_requests_refuse_them(cluster: EmbeddedCluster, partition: int) -> None:
    broker = next(iter(cluster.brokers.values()))
    with SimpleConsumer("127.0.0.1", broker.port, 5.0, "test") as consumer:
        with pytest.raises((ZkConsumerError, ValueError), match=str(partition)):
            consumer.fetch("clicks", partition, 0, 1000)
        with pytest.raises((ZkConsumerError, ValueError), match=str(partition)):
            consumer.multi_offsets_before([("clicks", partition)], -1)  # type: ignore[list-item]
