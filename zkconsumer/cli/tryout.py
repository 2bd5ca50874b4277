"""`zkconsumer tryout`: a real cluster, a real group, a join and a leave, and the count of messages.

Source of the promise it shows: docs/SEMANTICS.md, "A graceful handover repeats nothing".
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import ExitStack

import click

from rebalance.requests import ZooKeeperPort
from zkconsumer.cli.cluster import TopicWanted, running_cluster
from zkconsumer.cli.failures import CliError
from zkconsumer.cli.group_reading import read_owners
from zkconsumer.cli.sender import Sender, SendSettings
from zkconsumer.cli.signals import Interrupted, LeaveSignals
from zkconsumer.cli.tryout_ledger import Delivered, Ledger
from zkconsumer.cli.tryout_members import MemberProcess
from zkconsumer.cli.zookeeper_access import open_zookeeper

__all__ = ["tryout"]

TOPIC, GROUP = "tryout", "tryout"
PARTITIONS, BROKERS = 8, 2
STEADY_S = 4.0
SETTLE_S = 20.0
COLOURS = {"ann": "cyan", "bob": "yellow", "cleo": "magenta"}

_EPILOG = """\
\b
It needs Java 17 and, the first time, a way to fetch Kafka's jars; what is missing is said. Everything runs on
127.0.0.1, in temporary folders, and is gone at the end.

\b
Example:
  zkconsumer tryout
"""


@click.command(epilog=_EPILOG)
@click.option("--kafka", metavar="VERSION", default="0.8.2.2", help="Version of Kafka. [0.8.2.2]")
@click.option("--rate", metavar="N", type=click.IntRange(1, 500), default=20, help="Messages a second. [20]")
def tryout(kafka: str, rate: int) -> None:
    """Watch a consumer group at work, in about 15 seconds.

    Starts a ZooKeeper and two Kafka brokers, writes numbered messages to a topic of eight partitions, and has two
    consumer processes share it. A third one joins, one leaves. Prints who owns what and each message as it comes; the
    last line counts, and the status is 1 when a message was lost or came twice.
    """
    with LeaveSignals():
        try:
            ledger, problems = Show(kafka, rate).run()
        except Interrupted:
            click.echo("interrupted; everything is stopped", err=True)
            raise click.exceptions.Exit(130) from None
    for problem in problems:
        click.echo(f"zkconsumer: {problem}", err=True)
    click.echo(ledger.summary)
    if problems or ledger.missing or ledger.repeated:
        raise click.exceptions.Exit(1)


class Show:
    """The whole course of it.

    Args:
        version: of Kafka.
        rate: messages a second.
    """

    def __init__(self, version: str, rate: int) -> None:
        self._version = version
        self._rate = rate
        self._ledger = Ledger()
        self._problems: list[str] = []
        self._start = time.monotonic()
        self._print_lock = threading.Lock()
        self._members: dict[str, MemberProcess] = {}
        self._owners: dict[str, list[int]] = {}

    def run(self) -> tuple[Ledger, list[str]]:
        """What came of it: the count, and what did not go as it should.

        Raises:
            CliError: the cluster cannot be started.
            Interrupted: a signal came; everything is stopped.
        """
        with ExitStack() as stack:
            topic = TopicWanted(TOPIC, PARTITIONS, 1)
            cluster = stack.enter_context(running_cluster(self._version, BROKERS, topics=[topic]))
            self._zookeeper = cluster.zookeeper_connect
            self._port = stack.enter_context(open_zookeeper(self._zookeeper))
            self._say(f"cluster is up: ZooKeeper {self._zookeeper}, brokers {cluster.broker_list}")
            stack.callback(self._kill_members)
            producing = stack.enter_context(Producing(self._port, self._zookeeper, self._rate, self._ledger))
            self._say(f"producing {self._rate} messages a second to {PARTITIONS} partitions of {TOPIC!r}")
            self._play()
            producing.stop()
            if producing.failure is not None:
                self._problems.append(f"the producer failed: {producing.failure}")
            self._say("producing has stopped; waiting for the last messages")
            self._wait(lambda: not self._ledger.missing, lambda: f"{len(self._ledger.missing)} messages are missing")
            for name in list(self._members):
                self._leave(name)
        return self._ledger, self._problems

    def _play(self) -> None:
        self._join("ann", "bob")
        self._steady()
        self._join("cleo")
        self._steady()
        self._leave("bob")
        self._wait_for_owners()
        self._steady()

    # -- the members -------------------------------------------------------------------------------------------------

    def _join(self, *names: str) -> None:
        self._say(f"{' and '.join(names)} join{'s' if len(names) == 1 else ''} group {GROUP!r}")
        for name in names:
            self._members[name] = MemberProcess(name, self._zookeeper, TOPIC, GROUP, self._message, self._note)
        self._wait_for_owners()

    def _leave(self, name: str) -> None:
        self._say(f"{name} leaves")
        status = self._members.pop(name).leave()
        if status != 0:
            self._problems.append(f"{name} ended with status {status}")

    def _kill_members(self) -> None:
        for member in self._members.values():
            member.kill()

    def _message(self, message: Delivered) -> None:
        again = self._ledger.delivered(message)
        name = click.style(f"{message.member:4}", fg=COLOURS.get(message.member))
        again_mark = "  AGAIN" if again else ""
        self._say(f"{name}  {message.topic}-{message.partition} @ {message.offset:<4} message {message.number}"
                  f"{again_mark}")

    def _note(self, member: str, line: str) -> None:
        self._say(f"{click.style(f'{member:4}', fg=COLOURS.get(member))}  {line}")

    # -- who owns what -----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Print who owns what, when that has changed."""
        owners: defaultdict[str, list[int]] = defaultdict(list)
        for (_, name), thread in read_owners(self._port, GROUP).items():
            owners[thread.removeprefix(f"{GROUP}_").rpartition("-")[0]].append(int(name))
        found = {member: sorted(numbers) for member, numbers in sorted(owners.items())}
        if found != self._owners:
            self._owners = found
            shares = (f"{click.style(name, fg=COLOURS.get(name))} {numbers}" for name, numbers in found.items())
            self._say(f"owners: {'   '.join(shares) or 'nobody'}")

    def _wait_for_owners(self) -> None:
        """Wait until every partition is owned and every member has its share."""

        def shared() -> bool:
            self._look()
            sizes = [len(numbers) for numbers in self._owners.values()]
            return set(self._owners) == set(self._members) and sum(sizes) == PARTITIONS and max(sizes) - min(sizes) <= 1

        self._wait(shared, lambda: f"the partitions are not shared by {', '.join(self._members)}: {self._owners}")

    def _steady(self) -> None:
        end = time.monotonic() + STEADY_S
        while time.monotonic() < end:
            self._look()
            time.sleep(0.1)

    def _wait(self, condition: Callable[[], bool], otherwise: Callable[[], str]) -> None:
        end = time.monotonic() + SETTLE_S
        while not condition():
            if time.monotonic() > end:
                self._problems.append(f"after {SETTLE_S:g} s {otherwise()}")
                return
            time.sleep(0.1)

    def _say(self, text: str) -> None:
        with self._print_lock:
            try:
                click.echo(f"{time.monotonic() - self._start:5.1f} s  {text}")
            except BrokenPipeError:
                # Nobody reads any more; the show goes on to its end, which stops all processes in order.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Producing:
    """Writes numbered messages, one partition after the other, on a thread of its own, for the block.

    Attributes:
        failure: why it stopped before its time.
    """

    def __init__(self, port: ZooKeeperPort, zookeeper: str, rate: int, ledger: Ledger) -> None:
        self.failure: Exception | None = None
        self._sender = Sender(port, zookeeper, TOPIC, SendSettings())
        self._pause_s = 1 / rate
        self._ledger = ledger
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producing", daemon=True)

    def _run(self) -> None:
        try:
            self._sender.open()
            self._send(range(1, sys.maxsize))
        except Exception as error:  # noqa: BLE001 - top of a thread: the show reports it
            self.failure = error

    def _send(self, numbers: Iterable[int]) -> None:
        due = time.monotonic()
        for number in numbers:
            if self._stop.wait(max(0.0, due - time.monotonic())):
                return
            due += self._pause_s
            self._sender.send(number % PARTITIONS, [(None, f"message {number}".encode())])
            self._ledger.produced(number)

    def stop(self) -> None:
        """Write no more; back when the last message is acknowledged."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(60.0)
        if self._thread.is_alive():
            raise CliError("the producer does not end")

    def __enter__(self) -> Producing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(5.0)
        self._sender.close()
