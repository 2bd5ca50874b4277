"""Decides when an operator may release a claim: when it is proved, or vouched for, that nobody works under it.

Pure. The claim of a living member is never released: two members would read the partition.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from rebalance.subscription import consumer_id_of
from zkconsumer.admin.values import ClaimNotReleased
from zkconsumer.admin.verify.findings import session_text


@dataclass(frozen=True)
class Claim:
    """An owner node as it was read.

    Attributes:
        path: Of the node.
        thread: The thread id that it holds.
        session: The session that keeps it, 0 for a persistent node.
        czxid, version: Of the node; another node in its place has another `czxid`.
    """

    path: str
    thread: str
    session: int
    czxid: int
    version: int


@dataclass(frozen=True)
class Evidence:
    """Further evidence about a claim.

    Attributes:
        registered: Consumer ids in the group.
        session_lives: Whether the session lives, as ZooKeeper's leader says; None when it does not say.
        client: Address of the client that has the session, None when no server names it.
        vouched_czxid: The claim for which the caller vouches that nobody works under it.
    """

    registered: Collection[str]
    session_lives: bool | None = None
    client: str | None = None
    vouched_czxid: int | None = None


def consumers_of(thread: str) -> tuple[str, ...]:
    """Return the consumer ids for which an owner node may stand; some clients write theirs without a thread number."""
    return tuple(dict.fromkeys((consumer_id_of(thread), thread)))


def proof(claim: Claim, evidence: Evidence) -> str:
    """Return why the claim may be released, a clause.

    Raises:
        ClaimNotReleased: It may not; says why, and what would help.
    """
    refused = f"{claim.path} is not released"
    if evidence.vouched_czxid is not None and evidence.vouched_czxid != claim.czxid:
        raise ClaimNotReleased(f"{refused}: it is now another node, claim {claim.czxid:#x}", "look again")
    for consumer in consumers_of(claim.thread):
        if consumer in evidence.registered:
            kept = "would continue to read" if claim.session else "may regard it as its own"
            raise ClaimNotReleased(
                f"{refused}: its owner {claim.thread!r} belongs to {consumer}, which is registered and {kept}",
                f"stop {consumer} first, or trigger a rebalance (trigger_rebalance() of Admin, --trigger-rebalance of "
                "`zkconsumer verify`)",
            )
    if not claim.session:
        return f"it is persistent, and {claim.thread!r}, the owner in it, is not registered"
    session = session_text(claim.session)
    if evidence.session_lives is False:
        return f"its session {session} has ended, as ZooKeeper's leader confirms, but the node still exists"
    if evidence.vouched_czxid is not None:
        return f"its owner {claim.thread!r} is not registered, and you confirm that nobody uses session {session}"
    lives = "lives" if evidence.session_lives else "may live"
    whose = f", a client at {evidence.client}" if evidence.client else ""
    raise ClaimNotReleased(
        f"{refused}: its owner {claim.thread!r} is not registered, but session {session} {lives}{whose}",
        "end that process: ZooKeeper then deletes the node with the session. If you know that the process does not "
        f"read the partition, confirm it with the number of the claim: claim={claim.czxid:#x}, or --claim "
        f"{claim.czxid:#x} of the command",
    )  # fmt: skip
