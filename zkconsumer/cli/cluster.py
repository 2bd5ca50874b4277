"""`zkconsumer cluster`: real Kafka brokers and a ZooKeeper on this machine."""

from __future__ import annotations

import re
import select
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import click

from rebalance.subscription import check_topic
from zkconsumer.cli.failures import CliError
from zkconsumer.cli.signals import Interrupted, LeaveSignals

if TYPE_CHECKING:
    from zkconsumer.testing.kafka import KafkaCluster

__all__ = ["cluster", "running_cluster"]

_LOOK_S = 1.0

_UP_EPILOG = """\
\b
The servers listen on 127.0.0.1 only, keep their data in a temporary folder, and end with this command: at Ctrl-C, at
SIGTERM, and when it is killed.

\b
Example: two brokers and a topic of eight partitions, each on both
  zkconsumer cluster up --brokers 2 --topic clicks:8:2
"""
_VERSIONS_EPILOG = """\
\b
Example:
  zkconsumer cluster versions
"""


class TopicWanted(NamedTuple):
    """A topic to be created."""

    name: str
    partitions: int
    replication: int


class _TopicType(click.ParamType[TopicWanted]):
    name = "topic"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> TopicWanted:
        if isinstance(value, TopicWanted):
            return value
        found = re.fullmatch(r"([^:]+)(?::([1-9][0-9]{0,4}))?(?::([1-9][0-9]?))?", str(value))
        if found is None:
            self.fail(f"{value!r} is not name, name:partitions or name:partitions:replication", param, ctx)
        return TopicWanted(check_topic(found[1]), int(found[2] or 1), int(found[3] or 1))


@click.group()
def cluster() -> None:
    """Real Kafka clusters on this machine, to try things with."""


@cluster.command(epilog=_VERSIONS_EPILOG)
def versions() -> None:
    """List the versions of Kafka that `cluster up` can start."""
    from zkconsumer.testing.kafka import kafka_versions

    for version in kafka_versions():
        click.echo(version)


@cluster.command(epilog=_UP_EPILOG)
@click.option("--kafka", metavar="VERSION", default="0.8.2.2", help="Version of Kafka. [0.8.2.2]")
@click.option("--brokers", metavar="N", type=click.IntRange(1, 20), default=1, help="Number of brokers. [1]")
@click.option("--topic", "topics", metavar="NAME:PARTITIONS:REPLICATION", type=_TopicType(), multiple=True,
              help="Create a topic; both numbers may be left out and are 1 then; may be repeated.")
@click.option("--chroot", metavar="PATH", default="", help="Path in ZooKeeper under which the cluster lives.")
def up(kafka: str, brokers: int, topics: tuple[TopicWanted, ...], chroot: str) -> None:
    """Start ZooKeeper and brokers, and stop them at Ctrl-C."""
    for topic in topics:
        if topic.replication > brokers:
            raise click.BadParameter(f"{topic.name}: {topic.replication} replicas need as many brokers, there are "
                                     f"{brokers}", param_hint="--topic")
    with LeaveSignals() as signals:
        try:
            with running_cluster(kafka, brokers, chroot, topics) as running:
                _tell(running, topics)
                signals.wait_quietly()
                _wait(running, signals)
                click.echo("stopping", err=True)
        except Interrupted:
            click.echo("stopped", err=True)


@contextmanager
def running_cluster(
    version: str, brokers: int, chroot: str = "", topics: Sequence[TopicWanted] = ()
) -> Iterator[KafkaCluster]:
    """A cluster that runs for the block.

    Raises:
        CliError: it cannot be started; says what to install where something is missing.
    """
    from zkconsumer.testing.errors import KitError
    from zkconsumer.testing.kafka import KafkaCluster

    try:
        made = KafkaCluster(version, brokers, chroot=chroot)
    except (KitError, ValueError) as error:
        raise CliError(str(error)) from error
    noun = "broker" if brokers == 1 else "brokers"
    click.echo(f"starting ZooKeeper and {brokers} {noun} of Kafka {version} ...", err=True)
    try:
        made.start_all()
        for topic in topics:
            made.create_topic(topic.name, topic.partitions, topic.replication)
    except KitError as error:
        made.close()
        raise CliError(f"the cluster cannot be started: {error}") from error
    except BaseException:
        made.close()
        raise
    try:
        yield made
    finally:
        made.close()


def _tell(running: KafkaCluster, topics: Sequence[TopicWanted]) -> None:
    topic = topics[0].name if topics else "clicks"
    zookeeper = running.zookeeper_connect
    click.echo(f"ZooKeeper  {zookeeper}\nbrokers    {running.broker_list}")
    for name, partitions, replication in topics:
        click.echo(f"topic      {name}: {partitions} partitions, {replication} replicas")
    click.echo(
        "\nTry, in other terminals:\n"
        f"  zkconsumer consume --zookeeper {zookeeper} --topic {topic} --group demo --from-beginning\n"
        f"  seq 1000 | zkconsumer produce --zookeeper {zookeeper} --topic {topic}\n"
        f"  zkconsumer describe demo --zookeeper {zookeeper}\n"
        "\nCtrl-C stops everything."
    )


def _wait(running: KafkaCluster, signals: LeaveSignals) -> None:
    """Wait for a signal, or for a server to end."""
    while not signals.came:
        select.select([signals.fd], [], [], _LOOK_S)
        signals.drain()
        if not running.zookeeper.running:
            raise CliError("ZooKeeper has ended", "start the cluster again")
        for broker in running.brokers.values():
            if not broker.running:
                raise CliError(f"broker {broker.broker_id} has ended", "start the cluster again")
