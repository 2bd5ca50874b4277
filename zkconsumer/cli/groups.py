"""`zkconsumer groups`: which groups there are, how many members they have, and what they read.

Source: kafka.admin.ConsumerGroupCommand --list (0.8.2.2), which lists names alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import click

from rebalance import znodes
from rebalance.errors import RefusedNode
from rebalance.requests import GetChildren, ZooKeeperPort
from zkconsumer.cli.tables import count_of, print_table
from zkconsumer.cli.zookeeper_access import READ_TIMEOUT_S, children, open_zookeeper, zookeeper_option
from zkconsumer.cluster.zookeeper_reads import read_each

__all__ = ["groups"]

_EPILOG = """\
\b
OWNED counts the partitions that somebody owns now. TOPICS are those that the group owns partitions of or has stored
offsets for.

\b
Examples:
  zkconsumer groups --zookeeper localhost:2181
  zkconsumer groups --zookeeper localhost:2181 --active
"""


@dataclass(frozen=True)
class GroupRow:
    """One group: registered members, owned partitions, topics by name."""

    group: str
    members: int
    owned: int
    topics: tuple[str, ...]


@click.command(epilog=_EPILOG)
@zookeeper_option()
@click.option("--active", is_flag=True, help="Only groups that have members.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def groups(zookeeper: str, active: bool, as_json: bool) -> None:
    """Show all groups, how many members they have, and what they read."""
    with open_zookeeper(zookeeper) as port:
        rows = [row for row in read_groups(port) if row.members or not active]
    if as_json:
        click.echo(json.dumps({"groups": [asdict(row) for row in rows]}, ensure_ascii=False))
        return
    click.echo(count_of(len(rows), "group"))
    if rows:
        click.echo()
        cells = [[row.group, str(row.members), str(row.owned), ", ".join(row.topics) or "-"] for row in rows]
        print_table(["GROUP", "MEMBERS", "OWNED", "TOPICS"], cells, right=[1, 2])


def read_groups(port: ZooKeeperPort) -> list[GroupRow]:
    """All groups, by name.

    Raises:
        ZooKeeperSilent: ZooKeeper does not answer.
    """
    names = children(port, znodes.CONSUMERS) or []
    members = _names_below(port, [znodes.ids_path(group) for group in names])
    offset_topics = _names_below(port, [f"{znodes.group_path(group)}/offsets" for group in names])
    owner_topics = _names_below(port, [f"{znodes.group_path(group)}/owners" for group in names])
    topic_paths = [
        f"{znodes.group_path(group)}/owners/{topic}"
        for group, topics in zip(names, owner_topics, strict=True) for topic in topics
    ]  # fmt: skip
    owned = dict(zip(topic_paths, map(len, _names_below(port, topic_paths)), strict=True))
    rows = []
    for group, ids, has_offsets, has_owners in zip(names, members, offset_topics, owner_topics, strict=True):
        counts = {topic: owned[f"{znodes.group_path(group)}/owners/{topic}"] for topic in has_owners}
        # A group that is done with a topic leaves its empty node under owners behind.
        topics = sorted({*has_offsets, *(topic for topic, count in counts.items() if count)})
        rows.append(GroupRow(group, len(ids), sum(counts.values()), tuple(topics)))
    return rows


def _names_below(port: ZooKeeperPort, paths: Sequence[str]) -> list[list[str]]:
    """The children of each node, none where there is no such node; one that may not be read is named."""
    listings = read_each(port, [GetChildren(path) for path in paths], READ_TIMEOUT_S)
    for listing in listings:
        if isinstance(listing, RefusedNode):
            click.echo(f"zkconsumer: {listing}; what is below that node is not counted", err=True)
    return [[] if listing is None or isinstance(listing, RefusedNode) else listing[0] for listing in listings]
