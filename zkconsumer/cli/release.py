"""`zkconsumer release`: breaks a claim on a partition whose owner is dead, and no other.

Rule: what was judged is what is deleted. The node is read again behind a `sync` and must be the same; then one
transaction proves that no such consumer is registered (its registration is made and deleted again, which also wakes
Java members) and deletes the node at the version that was read.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import click

from rebalance import znodes
from rebalance.errors import refusal_of
from rebalance.requests import Create, Delete, Fault, GetData, Multi, Reply, SessionChange, Sync, ZooKeeperPort
from rebalance.subscription import check_group, check_topic
from rebalance.zookeeper import call
from zkconsumer.admin.rebalance_trigger import passing_registration
from zkconsumer.admin.release_rules import Claim, Evidence, consumers_of, proof
from zkconsumer.admin.zookeeper_sessions import client_of, leader_knows
from zkconsumer.cli.failures import CliError, nearest
from zkconsumer.cli.zookeeper_access import READ_TIMEOUT_S, ask_all, children, open_zookeeper, zookeeper_option
from zkconsumer.config.zookeeper_address import parse_zookeeper_address

__all__ = ["delete_claim", "read_claim", "release"]

_EPILOG = """\
\b
Released is what is proved to be dead: a persistent owner node, or one whose session has ended, if no consumer of the
name in it is registered. Where the session lives the command says whose it is; end that process. When you know that
it does not read the partition, give --claim with the number that is printed. docs/OPERATIONS.md says what each proof is
worth.

\b
The members of the group rebalance at it, so that somebody claims the partition.

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
            self.fail(f"{value!r} is no number of a claim, like 0x1f3", param, ctx)


@click.command(epilog=_EPILOG)
@click.argument("group")
@click.argument("topic")
@click.argument("partition")
@zookeeper_option()
@click.option("--claim", "vouched_czxid", metavar="NUMBER", type=_ClaimType(),
              help="Release this claim though its session lives: you say that nobody works under it.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
def release(
    group: str, topic: str, partition: str, zookeeper: str, vouched_czxid: int | None, dry_run: bool
) -> None:
    """Break the claim on PARTITION of TOPIC in GROUP, if its owner is dead."""
    check_group(group)
    check_topic(topic)
    path = znodes.owner_path(group, topic, partition)
    sessions: list[SessionChange] = []
    with open_zookeeper(zookeeper, heard=sessions.append) as port:
        claim = read_claim(port, path)
        if claim is None:
            _refuse_unknown(port, group, topic)
            click.echo(f"{path}: nobody owns it")
            return
        why = proof(claim, _evidence(port, zookeeper, group, claim, vouched_czxid, sessions))
        if dry_run:
            click.echo(f"{path} would be released: {why}")
            return
        delete_claim(port, group, claim)
    click.echo(f"{path} is released: {why}")


def read_claim(port: ZooKeeperPort, path: str) -> Claim | None:
    """The owner node as ZooKeeper's leader has it now."""
    call(port, Sync(path), READ_TIMEOUT_S)
    [value] = ask_all(port, [GetData(path)])
    if value is None:
        return None
    data, stat = value
    return Claim(path, znodes.parse_owner(data), stat.ephemeral_owner, stat.czxid, stat.version)


def _refuse_unknown(port: ZooKeeperPort, group: str, topic: str) -> None:
    """Raise when the group or the topic was mistyped."""
    groups = children(port, znodes.CONSUMERS) or []
    if group not in groups:
        raise CliError(f"group {group!r} does not exist", nearest(group, groups, "group"))
    topics = children(port, znodes.TOPICS) or []
    if topic not in topics:
        raise CliError(f"there is no topic {topic!r}", nearest(topic, topics, "topic"))


def _evidence(
    port: ZooKeeperPort, zookeeper: str, group: str, claim: Claim, vouched_czxid: int | None,
    sessions: list[SessionChange],
) -> Evidence:
    registered = children(port, znodes.ids_path(group)) or []
    if not claim.session:
        return Evidence(registered, vouched_czxid=vouched_czxid)
    servers = parse_zookeeper_address(zookeeper).hosts
    own = next((change.session_id for change in reversed(sessions) if change.what == "connected"), 0)
    lives = leader_knows(servers, claim.session, own)
    client = client_of(servers, claim.session) if lives is not False else None
    return Evidence(registered, lives, client, vouched_czxid)


def delete_claim(port: ZooKeeperPort, group: str, claim: Claim) -> None:
    """Delete the node that was judged.

    Raises:
        CliError: it is another one by now, or its owner has registered; nothing is deleted then.
    """
    now = read_claim(port, claim.path)
    if now != claim:
        raise CliError(f"{claim.path} is not released: it was changed by somebody else meanwhile", "look again")
    operations: list[Create | Delete] = []
    if children(port, znodes.ids_path(group)) is not None:
        for consumer in _possible(claim.thread) or [f"{group}_release-{uuid.uuid4().hex[:8]}"]:
            operations += passing_registration(group, consumer)
    operations.append(Delete(claim.path, claim.version))
    refusal = _refusal(operations, call(port, Multi(tuple(operations)), READ_TIMEOUT_S))
    if refusal is not None:
        raise CliError(f"{claim.path}: {refusal}", "look again")


def _possible(thread: str) -> list[str]:
    """The consumers that may stand behind an owner node and that ZooKeeper would take as names of nodes."""
    return [
        name for name in consumers_of(thread)
        if name not in ("", ".", "..") and "/" not in name and name.isprintable() and max(name) < "\ud800"
    ]  # fmt: skip


def _refusal(operations: Sequence[Create | Delete], reply: Reply) -> str | None:
    """Why the node was not deleted, `None` when it was."""
    if reply.fault is not None:
        return f"ZooKeeper did not say whether it was released ({reply.reason})"
    for operation, result in zip(operations, reply.value, strict=True):
        if not isinstance(result, Fault) or result is Fault.ROLLED_BACK:
            continue
        if isinstance(operation, Create) and result is Fault.NODE_EXISTS:
            return f"not released: {operation.path} has been registered meanwhile"
        if result in (Fault.NO_NODE, Fault.BAD_VERSION):
            return "not released: it was changed by somebody else meanwhile"
        action = "create" if isinstance(operation, Create) else "delete"
        return f"not released: {refusal_of(action, operation.path, result)}"
    return None
