"""`zkconsumer cluster`: runs brokers and a ZooKeeper on this machine, embedded or of any version of Kafka."""

from __future__ import annotations

import json
import re
import resource
import select
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rebalance.errors import InvalidName
from rebalance.subscription import check_topic
from zkconsumer.admin.values import count_of
from zkconsumer.cli.terminal import CliError, Interrupted, LeaveSignals, print_table, scratch_folder

if TYPE_CHECKING:
    from zkconsumer.testing.cluster import Cluster

_LOOK_S = 1.0
_MAX_PARTITIONS = 2_000
"""Most partitions of one topic: ZooKeeper takes some ten seconds for these, and minutes for five times as many."""

_MAX_FILE_NAME = 255
_GENERATIONS = ("0.8", "0.7", "0.9", "0.10", "0.11", "1.1", "2.8", "3.9", "4.3")
_COUNTS_07 = "topic.partition.count.map"

_UP_EPILOG = """\
\b
Embedded brokers run inside this command and start in about two seconds. They speak the protocol of Kafka 0.8.2, or
that of --generation; from 0.11 on they store record batches. Only ZooKeeper needs Java, and 4.3 has no ZooKeeper.
Real brokers (--kafka) are Kafka's own, each in a JVM. Maven downloads their jars once.

\b
All servers listen on 127.0.0.1 only. They keep their data in a temporary folder, unless --data names a folder. They
stop when this command ends: at Ctrl-C, at SIGTERM, and when it is killed.

\b
Example: two brokers, and a topic of eight partitions, each on both brokers
  zkconsumer cluster up --brokers 2 --topic clicks:8:2
Example: fixed ports, and data that is kept
  zkconsumer cluster up --zookeeper-port 2181 --port 9092 --data clicks-cluster
Example: brokers of Kafka 0.7, and a topic with four partitions on each of the two brokers
  zkconsumer cluster up --generation 0.7 --brokers 2 --topic clicks:4
Example: brokers that store record batches, without ZooKeeper and without Java
  zkconsumer cluster up --generation 4.3
Example: real brokers
  zkconsumer cluster up --kafka 0.9.0.1
Example: real brokers of Kafka 4, which has no ZooKeeper
  zkconsumer cluster up --kafka 4.3.1
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
        wanted = TopicWanted(found[1], int(found[2] or 1), int(found[3] or 1))
        try:
            check_topic(wanted.name)
        except InvalidName as error:
            self.fail(str(error), param, ctx)
        if wanted.partitions > _MAX_PARTITIONS:
            self.fail(
                f"{wanted.name}: {wanted.partitions} partitions; at most {_MAX_PARTITIONS} are possible", param, ctx
            )
        folder = f"{wanted.name}-{wanted.partitions - 1}"
        if len(folder) > _MAX_FILE_NAME:
            self.fail(
                f"topic name of {len(wanted.name)} characters: with the number of a partition it is the name of a "
                f"folder, which can have {_MAX_FILE_NAME}", param, ctx,
            )  # fmt: skip
        return wanted


class ClusterWanted(NamedTuple):
    """The options of `cluster up`."""

    kafka: str | None
    generation: str | None
    brokers: int
    chroot: str
    zookeeper_port: int | None
    port: int | None
    data: Path | None

    @property
    def words(self) -> str:
        """Describes the brokers."""
        if self.kafka is None:
            return count_of(self.brokers, "embedded broker")
        return f"{count_of(self.brokers, 'real broker')} of Kafka {self.kafka}"

    @property
    def is_07(self) -> bool:
        """Whether the brokers are of Kafka 0.7."""
        return (self.kafka or self.generation or "").startswith("0.7")

    def make(self, topics: Sequence[TopicWanted]) -> Cluster:
        """Return the cluster, not yet started.

        Args:
            topics: In Kafka 0.7 the settings of the brokers say how many partitions they have.

        Raises:
            KitError, ValueError: It cannot be created.
        """
        from zkconsumer.testing.embedded.cluster import EmbeddedCluster
        from zkconsumer.testing.kafka import KafkaCluster

        where: dict[str, Any] = {"chroot": self.chroot, "zookeeper_port": self.zookeeper_port, "port": self.port}
        if self.is_07 and topics:
            where["settings"] = {_COUNTS_07: ",".join(f"{topic.name}:{topic.partitions}" for topic in topics)}
        if self.kafka is None:
            return EmbeddedCluster(self.brokers, generation=self.generation or "0.8", folder=self.data, **where)
        return KafkaCluster(self.kafka, self.brokers, **where)


@click.group()
def cluster() -> None:
    """Run a Kafka cluster on this machine, to try things out."""


@cluster.command(epilog=_VERSIONS_EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def versions(as_json: bool) -> None:
    """List the Kafka versions that `cluster up` can start, and what each needs.

    Embedded brokers come first: `cluster up` starts 0.8.2.2 by default, and the others with --generation. It starts
    real brokers with --kafka.
    """
    from zkconsumer.testing.embedded.cluster import VERSIONS, WITH_ZOOKEEPER
    from zkconsumer.testing.kafka.known_versions import kafka_versions, needs_of
    from zkconsumer.testing.zookeeper.server import needs

    rows = [
        (version, "embedded", needs() if name in WITH_ZOOKEEPER else "nothing") for name, version in VERSIONS.items()
    ]
    rows += [(version, "real", needs_of(version)) for version in kafka_versions()]
    if as_json:
        fields = ("version", "brokers", "needs")
        click.echo(json.dumps({"versions": [dict(zip(fields, row, strict=True)) for row in rows]}))
    else:
        print_table(["VERSION", "BROKERS", "NEEDS"], rows)


@cluster.command(epilog=_UP_EPILOG)
@click.option("--kafka", metavar="VERSION", help="Start real brokers of this version instead of embedded brokers.")
@click.option("--generation", type=click.Choice(_GENERATIONS), help="Generation of the embedded brokers. [0.8]")
@click.option("--brokers", metavar="N", type=click.IntRange(1, 20), default=1, help="Number of brokers. [1]")
@click.option(
    "--topic",
    "topics",
    metavar="NAME:PARTITIONS:REPLICATION",
    type=_TopicType(),
    multiple=True,
    help="Create this topic unless it exists; both numbers are 1 if left out; may be repeated. "
    "In Kafka 0.7 each broker has that many partitions.",
)
@click.option("--chroot", metavar="PATH", default="", help="Path in ZooKeeper under which the cluster is registered.")
@click.option("--zookeeper-port", metavar="PORT", type=click.IntRange(1, 65535), help="Port of ZooKeeper. [free]")
@click.option(
    "--port",
    metavar="PORT",
    type=click.IntRange(1, 65535),
    help="Port of the first broker; the next broker has the next port. [free]",
)
@click.option(
    "--data",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the data of embedded brokers and ZooKeeper in FOLDER, and use data that FOLDER has.",
)
def up(topics: tuple[TopicWanted, ...], **options: Any) -> None:
    """Start ZooKeeper and brokers, and stop them at Ctrl-C.

    The brokers are embedded in this command, unless --kafka asks for real brokers. Prints the addresses of all servers,
    and commands to try.
    """
    wanted = ClusterWanted(**options)
    if wanted.kafka is not None and wanted.generation is not None:
        raise click.BadParameter(
            "--kafka already chooses the brokers; leave one of them out", param_hint="--generation"
        )
    for topic in topics:
        if wanted.is_07 and topic.replication > 1:
            raise click.BadParameter(f"{topic.name}: Kafka 0.7 has no replicas; leave the last number out",
                                     param_hint="--topic")  # fmt: skip
        if topic.replication > wanted.brokers:
            raise click.BadParameter(
                f"{topic.name}: {topic.replication} replicas need as many brokers; --brokers is {wanted.brokers}",
                param_hint="--topic",
            )
    if wanted.data is not None and wanted.kafka is not None:
        raise click.BadParameter(
            "the data of real brokers cannot be kept; leave --data or --kafka out", param_hint="--data"
        )
    with LeaveSignals() as signals:
        try:
            with scratch_folder("zkconsumer-cluster-"), _running(wanted, topics) as running:
                _print_addresses(wanted, running, topics)
                signals.wait_quietly()
                _wait(running, signals)
                click.echo("stopping", err=True)
        except Interrupted:
            click.echo("stopped", err=True)


@contextmanager
def _running(wanted: ClusterWanted, topics: Sequence[TopicWanted]) -> Iterator[Cluster]:
    """Yield a cluster that runs for the block.

    Raises:
        CliError: It cannot be started; says what to install if something is missing.
    """
    from zkconsumer.testing.errors import KitError, MavenMissing

    try:
        made = wanted.make(topics)
    except (KitError, ValueError) as error:
        raise CliError(str(error)) from error
    except OSError as error:
        where = error.filename or wanted.data or tempfile.gettempdir()
        raise CliError(f"the folder of the cluster, {where}, cannot be created: {error.strerror}") from error
    _allow_many_files()
    try:
        zookeeper_too = "ZooKeeper and " if made.has_zookeeper else ""
        click.echo(f"starting {zookeeper_too}{wanted.words} ...", err=True)
        try:
            made.start_all()
            _create(made, topics)
        except (KitError, OSError) as error:
            embedded_would_do = wanted.kafka is not None and isinstance(error, MavenMissing)
            remedy = "or leave --kafka out: embedded brokers need no Kafka" if embedded_would_do else ""
            raise CliError(f"the cluster cannot be started: {error}", remedy) from error
        yield made
    finally:
        made.close()


def _allow_many_files() -> None:
    """Raise the limit of open files to the hard limit: an embedded broker keeps one open for each partition."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # a platform with a lower limit of its own
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _create(running: Cluster, topics: Sequence[TopicWanted]) -> None:
    from zkconsumer.testing.errors import KitError

    for topic in topics:
        try:
            running.partitions(topic.name)
        except KitError:  # there is none
            running.create_topic(topic.name, topic.partitions, topic.replication)


def _print_addresses(wanted: ClusterWanted, running: Cluster, topics: Sequence[TopicWanted]) -> None:
    speaking = "" if wanted.kafka else f", protocol of Kafka {running.version}"
    click.echo(f"cluster    {wanted.words}{speaking}")
    if running.has_zookeeper:
        click.echo(f"ZooKeeper  {running.zookeeper_connect}")
    click.echo(f"brokers    {running.broker_list}")
    if wanted.data is not None:
        click.echo(f"data       {wanted.data.absolute()}")
    for name in dict.fromkeys(each.name for each in topics):
        click.echo(f"topic      {name}: {count_of(len(running.partitions(name)), 'partition')}")
    topic = topics[0].name if topics else "clicks"
    if running.has_zookeeper:
        _print_trials(running.zookeeper_connect, topic)
    else:
        where = f"--bootstrap-server {running.broker_list}"
        click.echo("\nTry, in other terminals:\n"
                   f"  zkconsumer consume {where} --topic {topic} --from-beginning\n"
                   f"  seq 1000 | zkconsumer produce {where} --topic {topic}")  # fmt: skip
    click.echo("\nCtrl-C stops everything.")


def _print_trials(zookeeper: str, topic: str) -> None:
    click.echo(
        "\nTry, in other terminals:\n"
        f"  zkconsumer consume --zookeeper {zookeeper} --topic {topic} --group demo --from-beginning\n"
        f"  seq 1000 | zkconsumer produce --zookeeper {zookeeper} --topic {topic}\n"
        f"  zkconsumer describe demo --zookeeper {zookeeper}"
    )


def _wait(running: Cluster, signals: LeaveSignals) -> None:
    """Wait for a signal, or for a server to end."""
    while not signals.came:
        select.select([signals.fd], [], [], _LOOK_S)
        signals.drain()
        if running.has_zookeeper and not running.zookeeper.running:
            raise CliError("ZooKeeper has ended", "start the cluster again")
        for broker in running.brokers.values():
            if not broker.running:
                raise CliError(f"broker {broker.broker_id} has ended", "start the cluster again")
