"""`zkconsumer verify`: whether a group is as it should be, what is wrong, and what would mend it; Java members, too.

Source: kafka.tools.VerifyConsumerRebalance (0.8.2.2), which calls every sound group broken (KAFKA-3952).
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Mapping, Sequence

import click

from rebalance import znodes
from rebalance.requests import Sync, ZooKeeperPort
from rebalance.subscription import check_group
from rebalance.zookeeper import call
from simpleconsumer.consumer import EARLIEST, LATEST
from simpleconsumer.types import TopicPartition
from zkconsumer.admin.assignment_preview import STRATEGIES
from zkconsumer.admin.findings import Finding, Verdict
from zkconsumer.admin.group_reader import read_group
from zkconsumer.admin.group_report import GroupNodes, Name
from zkconsumer.admin.offset_findings import LogRange, offset_findings
from zkconsumer.admin.rebalance_trigger import wake_group
from zkconsumer.admin.repeated_checks import look_until_settled
from zkconsumer.admin.verification import partition_number, partitions_of, verify_group
from zkconsumer.cli.failures import sentence_of
from zkconsumer.cli.tables import count_of, print_problem
from zkconsumer.cli.zookeeper_access import BROKER_TIMEOUT_S, READ_TIMEOUT_S, open_zookeeper, zookeeper_option
from zkconsumer.cluster.cluster import Cluster

__all__ = ["verify"]

_CLIENT_ID = "zkconsumer-verify"
_SHOWN = 20
_EPILOG = """\
\b
Status 0: each partition of each subscribed topic has the owner it is dealt to, and offsets can be gone on from. Status
1: something is wrong. Status 2: the group could not be read. docs/OPERATIONS.md lists what can be wrong.

\b
--nudge has the members rebalance once more, for a Java member that gave up (rebalance.max.retries): no node of theirs
is touched, and nothing is done unless some member lacks what is its own. The other Java members of the group stop for
a moment, as they do when anybody joins.

\b
Examples:
  zkconsumer verify billing --zookeeper localhost:2181
  zkconsumer verify billing --zookeeper localhost:2181 --members 3 --wait 120
  zkconsumer verify billing --zookeeper localhost:2181 --nudge
"""


@click.command(epilog=_EPILOG)
@click.argument("group")
@zookeeper_option()
@click.option("--members", "least_members", metavar="COUNT", type=click.IntRange(min=0), default=1, show_default=True,
              help="Fewer registered consumers are a fault.")
@click.option("--strategy", type=click.Choice(["auto", *STRATEGIES, "any"]), default="auto", show_default=True,
              help="How partitions are dealt; auto: as most owners say; any: do not compare who owns what.")
@click.option("--patience", "patience_s", metavar="SECONDS", type=click.FloatRange(min=0), default=20.0,
              show_default=True, help="How long a rebalance may take; the default fits Java's four tries.")
@click.option("--wait", "wait_s", metavar="SECONDS", type=click.FloatRange(min=0), default=0.0,
              help="Wait so long for the group to be there and without faults.")
@click.option("--nudge", is_flag=True, help="Wake members that lack partitions and could have them.")
@click.option("--no-logs", is_flag=True, help="Do not ask brokers whether their logs have the stored offsets.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def verify(
    group: str, zookeeper: str, least_members: int, strategy: str, patience_s: float, wait_s: float, nudge: bool,
    no_logs: bool, as_json: bool,
) -> None:
    """Say whether each partition of GROUP is owned by whom it should be, what is wrong, and what would mend it."""
    check_group(group)
    strategies = {"auto": STRATEGIES, "any": ()}.get(strategy, (strategy,))
    began = time.monotonic()
    try:
        with open_zookeeper(zookeeper) as port:
            looker = _Looker(port, zookeeper, group, strategies, least_members, not no_logs)
            verdict = look_until_settled(looker.look, patience_s, wait_s, looker.nudge if nudge else None)
    except Exception as error:
        sentence = sentence_of(error)
        if sentence is None:
            raise
        click.echo(f"zkconsumer: {sentence}", err=True)
        raise click.exceptions.Exit(2) from None
    verdict = looker.with_unrest(verdict, time.monotonic() - began)
    if as_json:
        click.echo(json.dumps({**verdict.to_dict(), "nudged": looker.nudged}, ensure_ascii=False))
    else:
        _print(verdict)
        if nudge and verdict.faults and not looker.nudged:
            click.echo("The group was not nudged: no rebalance would mend this.")
    if verdict.faults:
        raise click.exceptions.Exit(1)


class _Looker:
    """Reads and judges one group, any number of times.

    Attributes:
        nudged: the members to whom another rebalance was to give something, empty before.
    """

    def __init__(
        self, port: ZooKeeperPort, zookeeper: str, group: str, strategies: Sequence[str], least_members: int,
        with_logs: bool,
    ) -> None:
        self._port = port
        self._zookeeper = zookeeper
        self._group = group
        self._strategies = strategies
        self._least_members = least_members
        self._with_logs = with_logs
        self._sessions: Mapping[str, int] | None = None
        self._changes = 0
        self._waits = False
        self.nudged: tuple[str, ...] = ()

    def look(self, is_last: bool) -> Verdict:
        """What is wrong now. Brokers are not asked at each look of a rebalance.

        Raises:
            CliError: there is no such group.
            ZooKeeperSilent: ZooKeeper does not answer.
        """
        # Whichever server this is, it has caught up with its leader.
        call(self._port, Sync(znodes.group_path(self._group)), READ_TIMEOUT_S)
        nodes = read_group(self._port, self._zookeeper, self._group)
        self._changes += self._sessions not in (None, nodes.sessions)
        self._sessions = nodes.sessions
        verdict = verify_group(nodes, self._strategies, self._least_members)
        self._say_that_it_waits(verdict)
        ask_brokers = self._with_logs and (is_last or not verdict.is_passing)
        logs = _read_logs(self._port, self._zookeeper, nodes) if ask_brokers else {}
        return dataclasses.replace(verdict, findings=(*verdict.findings, *offset_findings(nodes, logs)))

    def _say_that_it_waits(self, verdict: Verdict) -> None:
        """Tell whoever sits before a terminal why there is no answer yet."""
        if verdict.is_passing and not self._waits and sys.stderr is not None and sys.stderr.isatty():
            click.echo("something is amiss that a rebalance would explain; looking again for a while", err=True)
        self._waits = self._waits or verdict.is_passing

    def nudge(self, verdict: Verdict) -> None:
        """Wake the members.

        Raises:
            CliError: ZooKeeper did not do it.
        """
        wake_group(self._port, self._group)
        self.nudged = verdict.wakeable
        click.echo(f"nudged for {', '.join(verdict.wakeable)}", err=True)

    def with_unrest(self, verdict: Verdict, looked_s: float) -> Verdict:
        """The verdict with a word about members that came and went all the time."""
        if self._changes < 2 or not verdict.is_passing:
            return verdict
        unrest = Finding(
            "unrest", znodes.ids_path(self._group),
            f"members came and went {self._changes} times in {looked_s:.0f} s",
            "look in their logs why they start again or lose their sessions", passing=True,
        )  # fmt: skip
        return dataclasses.replace(verdict, findings=(*verdict.findings, unrest))


def _read_logs(port: ZooKeeperPort, zookeeper: str, nodes: GroupNodes) -> dict[Name, LogRange]:
    """The logs of the partitions with a stored offset."""
    partitions, _ = partitions_of(nodes)
    wanted = [
        TopicPartition(topic, number) for topic, name in sorted(nodes.offsets)
        if (number := partition_number(name)) is not None and number in partitions.get(topic, ())
    ]  # fmt: skip
    found = Cluster(port, _CLIENT_ID, BROKER_TIMEOUT_S).log_ends(wanted, [EARLIEST, LATEST])
    return {(name.topic, str(name.partition)): _log_range(offsets) for name, offsets in found.items()}


def _log_range(offsets: tuple[int | None, ...] | str) -> LogRange:
    if isinstance(offsets, str):
        return offsets
    begin, end = offsets
    return "the broker names no offsets" if begin is None or end is None else (begin, end)


def _print(verdict: Verdict) -> None:
    dealt = f", dealt by {verdict.strategy}" if verdict.strategy else ""
    click.echo(f"Group {verdict.group}: {count_of(verdict.members, 'member')}, "
               f"{count_of(verdict.partitions, 'partition')} subscribed{dealt}")
    for finding in verdict.faults[:_SHOWN]:
        print_problem(f"{finding.sentence}\n    at:   {finding.path}\n    mend: {finding.remedy}")
    if len(verdict.faults) > _SHOWN:
        click.echo(f"... and {len(verdict.faults) - _SHOWN} more; --json lists all")
    for finding in verdict.findings:
        if not finding.fault:
            click.echo(f"- {finding.sentence} ({finding.path})")
    if not verdict.faults:
        click.echo("Each partition of each subscribed topic is owned by the registered thread that it is dealt to.")
