"""The commands `zkconsumer groups` and `zkconsumer release`.

`zkconsumer groups`: lists groups, with their members, topics and stores of offsets; deletes groups without members.

Source: kafka.admin.ConsumerGroupCommand --list, --delete (0.8.2.2).

`zkconsumer release`: releases a claim on a partition whose owner is dead, and no other claim.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from rebalance.subscription import check_topic
from simpleconsumer.types import CONSUMER_PROTOCOL
from zkconsumer.admin import Admin, BrokerAdmin, BrokerGroups, DeletedGroup, DeletedGroups, GroupList, GroupRow
from zkconsumer.admin.groups.broker_group_report import STATES
from zkconsumer.admin.values import count_of
from zkconsumer.cli.connection_options import (
    OF_ZOOKEEPER,
    bootstrap_option,
    groups_of,
    open_admin,
    open_groups,
    refuse_options,
    zookeeper_option,
)
from zkconsumer.cli.option_types import ListingGroup, store_option
from zkconsumer.cli.terminal import cell, print_table, shown_group
from zkconsumer_error import printable

_CLIENT_ID = "zkconsumer-groups"
_LIST_EPILOG = """\
\b
OWNED counts the partitions that have an owner now; ? stands for a number that ZooKeeper does not let you read. TOPICS
are the topics of which the group owns partitions or has stored offsets. If a group has offsets in Kafka, OFFSETS IN
shows where each group has its offsets; "Kafka?" means that its offset manager did not answer within three seconds.
Groups that brokers coordinate (Kafka 0.9 and later) are listed with the groups in ZooKeeper, or alone with
--bootstrap-server. COORDINATED BY then shows the kind of each group. STATE and TYPE are from its coordinator: classic
groups, and consumer groups (KIP-848). A group without TYPE has stored offsets, and never had a member.

\b
Example:
  zkconsumer groups list --zookeeper localhost:2181
"""
_EPILOG = (
    _LIST_EPILOG[: _LIST_EPILOG.index("\b\nExample")]
    + """\
\b
Examples:
  zkconsumer groups --zookeeper localhost:2181 --active
  zkconsumer groups --bootstrap-server b1:9092,b2:9092 --state Empty
  zkconsumer groups delete billing --zookeeper localhost:2181 --dry-run
"""
)
_DELETE_EPILOG = """\
\b
All groups are checked before the first one is deleted. The command refuses a group that has members, or nodes of a
live session; an owner node without a session is deleted. Brokers before Kafka 1.1 cannot delete groups. There the
offsets no longer count at once, and the broker deletes them when it next looks for expired offsets (every 10 minutes
by default). These brokers do not list offsets of topics that no longer exist. Such offsets stay, and count again if
the topic is created again.
A group that brokers coordinate is deleted by its coordinator, which refuses that while the group has members.

\b
Example: see what would be deleted
  zkconsumer groups delete billing --zookeeper localhost:2181 --dry-run
"""


@click.group(cls=ListingGroup, no_args_is_help=False, epilog=_EPILOG)
def groups() -> None:
    """List groups, or delete groups without members.

    Without a command, all groups are listed.
    """


@groups.command("list", epilog=_LIST_EPILOG)
@zookeeper_option(required=False)
@bootstrap_option()
@click.option("--active", is_flag=True, help="Only groups that have members, or may have members.")
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES, case_sensitive=False),
    multiple=True,
    help="Only groups that brokers coordinate, in this state; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_groups(zookeeper: str | None, brokers: str | None, active: bool, states: Sequence[str], as_json: bool) -> None:
    """List groups with their members, their topics, and the stores of their offsets."""
    with open_groups(zookeeper, brokers, _CLIENT_ID) as admin:
        found = admin.groups()
    if active:
        found = found.active()
    if states:
        found = found.in_states(states)
    for sentence in (*found.refused, *([] if found.unknown is None else [found.unknown]), *found.unlisted):
        click.echo(f"zkconsumer: {printable(sentence)}", err=True)
    if as_json:
        click.echo(found.to_json())
    else:
        _print(found)


def _print(found: GroupList) -> None:
    click.echo(count_of(len(found.groups), "group"))
    if not found.groups:
        return
    click.echo()
    has_stores = any(row.offsets_in_kafka is not False for row in found.groups)
    has_brokers = any(row.coordinator is not None for row in found.groups)
    cells = []
    for row in found.groups:
        stores = [_stores(row)] if has_stores else []
        by = _coordination(row) if has_brokers else []
        numbers = [cell(row.members), cell(row.owned)]
        cells.append([shown_group(row.group), *by, *numbers, *stores, ", ".join(row.topics) or "-"])
    by = ["COORDINATED BY", "STATE", "TYPE"] if has_brokers else []
    headers = ["GROUP", *by, "MEMBERS", "OWNED", *(["OFFSETS IN"] if has_stores else []), "TOPICS"]
    print_table(headers, cells, right=[1 + len(by), 2 + len(by)])


def _coordination(row: GroupRow) -> list[str]:
    if row.coordinator is None:
        return ["ZooKeeper", "-", "-"]
    kind = "-" if not row.protocol_type else str(row.group_type)
    if row.protocol_type not in ("", CONSUMER_PROTOCOL):
        kind = f"{kind} ({row.protocol_type})"
    return [f"broker {row.coordinator}", str(row.state), kind]


def _stores(row: GroupRow) -> str:
    kafka = {True: "Kafka", None: "Kafka?", False: ""}[row.offsets_in_kafka]
    return ", ".join(name for name in ("ZooKeeper" if row.offsets_in_zookeeper else "", kafka) if name) or "-"


@groups.command("delete", epilog=_DELETE_EPILOG)
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@zookeeper_option(required=False)
@bootstrap_option()
@store_option(["zookeeper", "kafka"], "Delete only what is in this store, of groups in ZooKeeper.")
@click.option("--dry-run", is_flag=True, help="Check and print everything, and delete nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def delete_groups(
    names: Sequence[str], zookeeper: str | None, brokers: str | None, store: str | None, dry_run: bool, as_json: bool
) -> None:
    """Delete groups that have no members: their nodes in ZooKeeper, and their offsets in Kafka."""
    with open_groups(zookeeper, brokers, _CLIENT_ID, *names) as admin:
        found = _delete(admin, names, store, dry_run)
    for note in found.notes:
        click.echo(f"note: {printable(note)}", err=True)
    if as_json:
        click.echo(found.to_json())
        return
    for row in found.groups:
        click.echo(printable(_deleted(row, found)))


def _delete(admin: Admin | BrokerAdmin, names: Sequence[str], store: str | None, dry_run: bool) -> DeletedGroups:
    """Delete groups of both kinds; all of them are checked before the first one is deleted."""
    of_brokers = [name for name in dict.fromkeys(names) if isinstance(groups_of(admin, name), BrokerGroups)]
    if of_brokers:
        refuse_options(OF_ZOOKEEPER, store=store)
    if isinstance(admin, BrokerAdmin):
        return admin.delete_groups(*names, dry_run=dry_run)
    others = [name for name in dict.fromkeys(names) if name not in of_brokers]
    if not of_brokers:
        return admin.delete_groups(*names, store=store, dry_run=dry_run)
    if not others:
        return admin.broker_groups.delete_groups(*of_brokers, dry_run=dry_run)
    admin.delete_groups(*others, dry_run=True)
    first = admin.broker_groups.delete_groups(*of_brokers, dry_run=dry_run)
    second = admin.delete_groups(*others, dry_run=dry_run)
    return DeletedGroups((*first.groups, *second.groups), not dry_run, (*first.notes, *second.notes))


def _deleted(row: DeletedGroup, found: DeletedGroups) -> str:
    verb = "deleted" if found.deleted else "would be deleted"
    sentence = f"{shown_group(row.group)} {verb}: "
    if row.nodes:
        sentence += (f"{count_of(row.nodes, 'node')} of ZooKeeper with "
                     f"{count_of(row.offsets_in_zookeeper, 'offset')}, ")  # fmt: skip
    sentence += f"{count_of(row.offsets_in_kafka, 'offset')} in Kafka"
    if row.expires:
        sentence += " (they no longer count; the broker deletes them when it next looks for expired offsets)"
    return sentence


_RELEASE_EPILOG = """\
\b
The command releases a claim if it can prove that the owner is dead: the owner node is persistent, or its session has
ended, and no consumer with the name in the node is registered. If the session is alive, the command names the client
that has the session; end that process. If you know that the process does not read the partition, give --claim with
the number that the command prints. docs/OPERATIONS.md says how strong each proof is.

\b
The members of the group then rebalance, and one of them claims the partition. In Kafka 0.7 partitions are named
broker-partition, such as 0-3.

\b
Examples:
  zkconsumer release billing clicks 3 --zookeeper localhost:2181 --dry-run
  zkconsumer release billing clicks 3 --zookeeper localhost:2181
"""


class _ClaimType(click.ParamType[int]):
    name = "claim"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return value if isinstance(value, int) else int(str(value), 0)
        except ValueError:
            self.fail(f"{value!r} is not the number of a claim, such as 0x1f3", param, ctx)


@click.command(epilog=_RELEASE_EPILOG)
@click.argument("group")
@click.argument("topic")
@click.argument("partition")
@zookeeper_option()
@click.option(
    "--claim",
    "vouched_czxid",
    metavar="NUMBER",
    type=_ClaimType(),
    help="Release this claim although its session is alive: you confirm that its owner is dead.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be done, and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def release(
    group: str, topic: str, partition: str, zookeeper: str, vouched_czxid: int | None, dry_run: bool, as_json: bool
) -> None:
    """Release the claim on PARTITION of TOPIC in GROUP, if its owner is dead."""
    check_topic(topic)
    with open_admin(zookeeper, "zkconsumer-release", group) as admin:
        found = admin.release(group, topic, partition, claim=vouched_czxid, dry_run=dry_run)
    if as_json:
        click.echo(found.to_json())
    elif found.reason is None:
        click.echo(printable(f"{found.path}: the partition has no owner"))
    elif found.is_released:
        click.echo(printable(f"{found.path} is released: {found.reason}"))
    else:
        click.echo(printable(f"{found.path} would be released: {found.reason}"))
