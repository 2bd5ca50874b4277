"""`zkconsumer verify`: verifies a group, Java members included; prints what is wrong and how to fix it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from rebalance.errors import InvalidName
from zkconsumer.admin import BrokerGroups, Verification
from zkconsumer.admin.groups.group_report import STRATEGIES
from zkconsumer.admin.values import count_of
from zkconsumer.cli.connection_options import (
    OF_ZOOKEEPER,
    bootstrap_option,
    groups_of,
    open_groups,
    refuse_options,
    zookeeper_option,
)
from zkconsumer.cli.option_types import Seconds
from zkconsumer.cli.terminal import print_problem, sentence_of, shown_group
from zkconsumer_error import printable

_SHOWN = 20
_EPILOG = """\
\b
Status 0: the assigned thread owns each partition of each subscribed topic, and the members can continue from the
stored offsets. Status 1: something is wrong. Status 2: the group could not be read. docs/OPERATIONS.md lists what can
be wrong.

\b
--trigger-rebalance makes the members rebalance once more, for a Java member that gave up (rebalance.max.retries). It
changes no node of the members, and does nothing unless a member lacks a partition that is assigned to it. The other
Java members of the group stop for a moment, as they do when a member joins.

\b
For a group that brokers coordinate (Kafka 0.9 and later), the command verifies its state, the member of each
partition, and the offsets. --bootstrap-server looks for such groups only. With --zookeeper, a group that has no node
there is one of them.

\b
Examples:
  zkconsumer verify billing --zookeeper localhost:2181
  zkconsumer verify billing --zookeeper localhost:2181 --members 3 --wait 120
  zkconsumer verify billing --zookeeper localhost:2181 --trigger-rebalance
  zkconsumer verify billing --bootstrap-server b1:9092,b2:9092
"""


@click.command(epilog=_EPILOG)
@click.argument("group")
@zookeeper_option(required=False)
@bootstrap_option()
@click.option(
    "--members",
    "least_members",
    metavar="COUNT",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Report a fault if fewer members are registered.",
)
@click.option(
    "--strategy",
    type=click.Choice(["auto", *STRATEGIES, "any"]),
    default="auto",
    show_default=True,
    help="Expected assignment strategy; auto: the one that fits most owners; any: do not compare owners.",
)
@click.option(
    "--patience",
    "patience_s",
    metavar="SECONDS",
    type=Seconds(),
    default=20.0,
    show_default=True,
    help="How long a rebalance may take; the default is enough for Java's four attempts.",
)
@click.option(
    "--wait",
    "wait_s",
    metavar="SECONDS",
    type=Seconds(),
    default=0.0,
    help="Wait at most SECONDS until the group exists and has no faults.",
)
@click.option(
    "--trigger-rebalance",
    "--nudge",
    "trigger",
    is_flag=True,
    help="Trigger a rebalance if members lack partitions that they could own.",
)
@click.option("--no-logs", is_flag=True, help="Do not ask the brokers whether the logs have the stored offsets.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def verify(
    group: str,
    zookeeper: str | None,
    brokers: str | None,
    least_members: int,
    strategy: str,
    patience_s: float,
    wait_s: float,
    trigger: bool,
    no_logs: bool,
    as_json: bool,
) -> None:
    """Verify that each partition of GROUP has the right owner.

    Prints what is wrong, and how to fix it.
    """
    strategies = {"auto": STRATEGIES, "any": ()}.get(strategy, (strategy,))
    fine = "Each partition of each subscribed topic is owned by the registered thread to which it is assigned."
    try:
        with open_groups(zookeeper, brokers, "zkconsumer-verify", group) as admin:
            groups = groups_of(admin, group)
            if isinstance(groups, BrokerGroups):
                fine = "Each partition of each subscribed topic is assigned to a member."
                other = None if strategy == "auto" else strategy
                refuse_options(OF_ZOOKEEPER, trigger_rebalance=trigger, strategy=other)
                found = groups.verify(
                    group, least_members=least_members, patience_s=patience_s, wait_s=wait_s, with_logs=not no_logs,
                    on_wait=_on_wait,
                )  # fmt: skip
            else:
                found = groups.verify(
                    group, strategies=strategies, least_members=least_members, patience_s=patience_s, wait_s=wait_s,
                    trigger=trigger, with_logs=not no_logs, on_wait=_on_wait, on_trigger=_on_trigger,
                )  # fmt: skip
    except (click.UsageError, InvalidName):
        raise
    except Exception as error:
        sentence = sentence_of(error)
        if sentence is None:
            raise
        click.echo(f"zkconsumer: {printable(sentence)}", err=True)
        raise click.exceptions.Exit(2) from None
    if as_json:
        click.echo(found.to_json())
    else:
        _print(found, fine)
        if trigger and found.faults and not found.triggered_for:
            click.echo("No rebalance was triggered: it would not fix this.")
    if found.faults:
        raise click.exceptions.Exit(1)


def _on_wait() -> None:
    """Say on a terminal why there is no answer yet."""
    if sys.stderr is not None and sys.stderr.isatty():
        click.echo("something is wrong that a rebalance could explain; checking again for a while", err=True)


def _on_trigger(members: Sequence[str]) -> None:
    click.echo(f"a rebalance was triggered for {printable(', '.join(members))}", err=True)


def _print(found: Verification, fine: str) -> None:
    """Print what was found.

    Args:
        fine: The sentence for a group without faults.
    """
    assigned = f", assigned by {printable(found.strategy)}" if found.strategy else ""
    click.echo(
        f"Group {shown_group(found.group)}: {count_of(found.members, 'member')}, "
        f"{count_of(found.partitions, 'partition')} subscribed{assigned}"
    )
    for finding in found.faults[:_SHOWN]:
        print_problem(finding.sentence, f"at:  {finding.path}", f"fix: {finding.remedy}")
    if len(found.faults) > _SHOWN:
        click.echo(f"... and {len(found.faults) - _SHOWN} more; --json lists all")
    for finding in found.findings:
        if not finding.fault:
            click.echo(f"- {printable(finding.sentence)} ({printable(str(finding.path))})")
    if not found.faults:
        click.echo(fine)
