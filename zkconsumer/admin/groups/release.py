"""Releases a claim on a partition whose owner is dead, and no other claim.

Rule: only the node that was examined is deleted. It is read again after a `sync` and must be the same; then one
transaction proves that no such consumer is registered (its registration is created and deleted again, which also
triggers a rebalance of Java members) and deletes the node at the version that was read.

Whether the session of an owner lives, ZooKeeper's servers say by four-letter words: `cons` names the clients of one
server; `dump` at the leader (or the only server) names all sessions. From ZooKeeper 3.5 on both have to be allowed
(`4lw.commands.whitelist`); without an answer nothing is known. Every request has a deadline.

Triggers a rebalance of a group, by a registration that is created and deleted in one transaction.

Java members rebalance when the children of `ids` change, and at hardly anything else; a member that has used up its
`rebalance.max.retries` waits for such a change. The registration subscribes to no topic, and as it is created and
deleted in one transaction no member ever reads it; ZooKeeper reports the change all the same. (ZooKeeper 3.3 has no
transactions: there the registration exists for a moment, and harms nobody.)

Source: ZookeeperConsumerConnector.scala, ZKRebalancerListener (0.8.0 to 1.1.1); org.apache.zookeeper.server.DataTree.
"""

from __future__ import annotations

import re
import socket
import time
import uuid
from collections.abc import Sequence

from rebalance.errors import UnreadableNode, refusal_of
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.kazoo_port import call
from rebalance.zookeeper.port.requests import Create, Delete, Fault, GetData, Multi, Reply, Sync, ZooKeeperPort
from rebalance.zookeeper.znodes_07 import Generation
from zkconsumer.admin.groups.release_rules import Claim, Evidence, consumers_of, proof
from zkconsumer.admin.values import ClaimNotReleased, NotFound, RebalanceNotTriggered, Released, nearest
from zkconsumer.cluster.registry import no_partition, read_partitions
from zkconsumer.cluster.zookeeper_connection import READ_TIMEOUT_S, children, read_all
from zkconsumer.config.zookeeper_settings import parse_zookeeper_address
from zkconsumer_error import first_few


def passing_registration(group: str, consumer_id: str, generation: Generation) -> tuple[Create, Delete]:
    """Return the two operations; in one transaction they also prove that no such consumer is registered.

    Args:
        group: The group.
        consumer_id: The consumer.
        generation: That of the cluster: without transactions a Java member may read the registration.
    """
    path = znodes.registration_path(group, consumer_id)
    nothing = znodes.Registration(znodes.STATIC, (), time.time_ns() // 1_000_000)
    return Create(path, generation.format_registration(nothing), ephemeral=True), Delete(path, 0)


def trigger_rebalance(port: ZooKeeperPort, group: str, generation: Generation) -> None:
    """Have all members of the group rebalance once; members that own what is assigned to them keep it.

    Args:
        generation: That of the cluster.

    Raises:
        RebalanceNotTriggered: ZooKeeper did not take the transaction.
    """
    operations = passing_registration(group, f"{group}_nudge-{uuid.uuid4().hex[:8]}", generation)
    reply = call(port, Multi(operations), READ_TIMEOUT_S)
    refused = [item for item in reply.value or () if isinstance(item, Fault)]
    if reply.fault is not None or refused:
        fault = reply.fault or refused[0]
        said = refusal_of("create", operations[0].path, fault, reply.reason)
        raise RebalanceNotTriggered(
            f"no rebalance of group {group!r} was triggered: {said}", "" if fault is Fault.NO_AUTH else "try again"
        )


_TIMEOUT_S = 3.0
_MOST_BYTES = 16 * 1024 * 1024
_CLIENT = re.compile(r"^ */?(\S+?)\[\d+\]\(.*\bsid=0x([0-9a-f]+)", re.MULTILINE)
_SESSION = re.compile(r"^\s*0x([0-9a-f]+)\b", re.MULTILINE)
_LEADS = re.compile(r"^Mode: (leader|standalone)$", re.MULTILINE)
Server = tuple[str, int]


def client_of(servers: Sequence[Server], session: int) -> str | None:
    """Return the address of the client that has a session, None when no server names it."""
    for server in servers:
        address = clients_in(_ask(server, b"cons")).get(session % 2**64)
        if address is not None:
            return address
    return None


def leader_knows(servers: Sequence[Server], session: int, witness: int) -> bool | None:
    """Return whether the session lives, None when that is not known.

    Args:
        witness: A session that lives and is younger: a server that does not know it is not the leader any more.
    """
    for server in servers:
        if not _LEADS.search(_ask(server, b"srvr")):
            continue
        known = sessions_in(_ask(server, b"dump"))
        if witness % 2**64 in known:
            return session % 2**64 in known
    return None


def clients_in(text: str) -> dict[int, str]:
    """Return the addresses of the sessions in an answer to `cons`.

    >>> clients_in(" /10.0.0.7:41234[1](queued=0,recved=5,sent=5,sid=0x1f,lop=PING)")
    {31: '10.0.0.7:41234'}
    """
    return {int(session, 16): address for address, session in _CLIENT.findall(text)}


def sessions_in(text: str) -> set[int]:
    """Return the sessions that a leader lists as living in its answer to `dump`; none if it lists none.

    After that list come the owners of ephemeral nodes, which are not read: by a fault of the server, a node may
    outlive its session.
    """
    head, separator, _ = text.partition("ephemeral nodes dump:")
    return {int(session, 16) for session in _SESSION.findall(head)} if separator else set()


def _ask(server: Server, word: bytes) -> str:
    """Return the answer, an empty text without one."""
    deadline = time.monotonic() + _TIMEOUT_S
    answer = bytearray()
    try:
        with socket.create_connection(server, _TIMEOUT_S) as connection:
            connection.sendall(word)
            while len(answer) < _MOST_BYTES:
                connection.settimeout(max(0.001, deadline - time.monotonic()))
                chunk = connection.recv(65536)
                if not chunk:
                    return answer.decode("utf-8", "replace")
                answer += chunk
    except OSError:
        pass
    return ""  # half an answer could lack the session that is looked for


def release_claim(
    port: ZooKeeperPort,
    generation: Generation,
    zookeeper: str,
    group: str,
    path: str,
    vouched_czxid: int | None,
    own_session: int,
    dry_run: bool,
) -> Released:
    """Delete an owner node if nobody works under it.

    Args:
        generation: That of the cluster.
        zookeeper: The connection string; its servers are asked about the claim's session.
        path: Of the owner node.
        vouched_czxid: The claim for which the caller vouches that nobody works under it.
        own_session: The session of this connection.
        dry_run: Change nothing.

    Raises:
        ClaimNotReleased: Its owner may be alive, or the claim has changed in the meantime.
    """
    claim = read_claim(port, path)
    if claim is None:
        return Released(path, None, False)
    reason = proof(claim, _evidence(port, zookeeper, group, claim, vouched_czxid, own_session))
    if not dry_run:
        delete_claim(port, generation, group, claim)
    return Released(path, reason, not dry_run)


def check_names(port: ZooKeeperPort, group: str, topic: str, partition: int | str) -> None:
    """Raise when there is no such group, topic or partition.

    Raises:
        NotFound: The name was probably mistyped.
    """
    groups = children(port, znodes.CONSUMERS) or []
    if group not in groups:
        raise NotFound(f"group {group!r} does not exist", nearest(group, groups, "group"))
    topics = children(port, znodes.TOPICS) or []
    if topic not in topics:
        raise NotFound(f"topic {topic!r} does not exist", nearest(topic, topics, "topic"))
    try:
        numbers = read_partitions(port, [topic]).get(topic, ())
    except UnreadableNode:  # which partitions it has is not known
        return
    # A topic of Kafka 0.7 whose brokers are all gone shows none of its partitions.
    if numbers and str(partition) not in map(str, numbers):
        known = first_few(*numbers, most=10, rest=", ...")
        raise NotFound(f"{no_partition(topic, [partition], numbers)}; it has {known}")


def read_claim(port: ZooKeeperPort, path: str) -> Claim | None:
    """Return the owner node as ZooKeeper's leader has it now."""
    call(port, Sync(path), READ_TIMEOUT_S)
    [value] = read_all(port, [GetData(path)])
    if value is None:
        return None
    data, stat = value
    return Claim(path, znodes.parse_owner(data), stat.ephemeral_owner, stat.czxid, stat.version)


def _evidence(
    port: ZooKeeperPort, zookeeper: str, group: str, claim: Claim, vouched_czxid: int | None, own_session: int
) -> Evidence:
    registered = children(port, znodes.ids_path(group)) or []
    if not claim.session:
        return Evidence(registered, vouched_czxid=vouched_czxid)
    servers = parse_zookeeper_address(zookeeper).hosts
    lives = leader_knows(servers, claim.session, own_session)
    client = client_of(servers, claim.session) if lives is not False else None
    return Evidence(registered, lives, client, vouched_czxid)


def delete_claim(port: ZooKeeperPort, generation: Generation, group: str, claim: Claim) -> None:
    """Delete the node that was examined.

    Args:
        generation: That of the cluster.

    Raises:
        ClaimNotReleased: It is another node by now, or its owner has registered; nothing is deleted then.
    """
    now = read_claim(port, claim.path)
    if now != claim:
        raise ClaimNotReleased(
            f"{claim.path} is not released: another client has changed it in the meantime", "look again"
        )
    operations: list[Create | Delete] = []
    if children(port, znodes.ids_path(group)) is not None:
        for consumer in _possible(claim.thread) or [f"{group}_release-{uuid.uuid4().hex[:8]}"]:
            operations += passing_registration(group, consumer, generation)
    operations.append(Delete(claim.path, claim.version))
    refusal = _refusal(operations, call(port, Multi(tuple(operations)), READ_TIMEOUT_S))
    if refusal is not None:
        raise ClaimNotReleased(f"{claim.path}: {refusal}", "look again")


def _possible(thread: str) -> list[str]:
    """Return the consumers for which an owner node may stand and that ZooKeeper would take as names of nodes."""
    return [
        name for name in consumers_of(thread)
        if name not in ("", ".", "..") and "/" not in name and name.isprintable() and max(name) < "\ud800"
    ]  # fmt: skip


def _refusal(operations: Sequence[Create | Delete], reply: Reply) -> str | None:
    """Return why the node was not deleted, None when it was."""
    if reply.fault is not None:
        return f"ZooKeeper did not say whether it was released ({reply.reason})"
    for operation, result in zip(operations, reply.value, strict=True):
        if not isinstance(result, Fault) or result is Fault.ROLLED_BACK:
            continue
        if isinstance(operation, Create) and result is Fault.NODE_EXISTS:
            return f"not released: {operation.path} has been registered in the meantime"
        if result in (Fault.NO_NODE, Fault.BAD_VERSION):
            return "not released: another client has changed it in the meantime"
        action = "create" if isinstance(operation, Create) else "delete"
        return f"not released: {refusal_of(action, operation.path, result)}"
    return None
