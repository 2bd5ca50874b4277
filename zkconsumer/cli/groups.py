"""`zkconsumer groups`: lists groups, with their members and topics.

Source: kafka.admin.ConsumerGroupCommand --list (0.8.2.2), which lists names alone.
"""

from __future__ import annotations

import click

from zkconsumer.admin import GroupList
from zkconsumer.admin.phrases import count_of
from zkconsumer.cli.connection_options import open_admin, zookeeper_option
from zkconsumer.cli.terminal.tables import print_table

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


@click.command(epilog=_EPILOG)
@zookeeper_option()
@click.option("--active", is_flag=True, help="Only groups that have members.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def groups(zookeeper: str, active: bool, as_json: bool) -> None:
    """Show all groups, how many members they have, and what they read."""
    with open_admin(zookeeper, "zkconsumer-groups") as admin:
        found = admin.groups()
    if active:
        found = found.active()
    for sentence in found.refused:
        click.echo(f"zkconsumer: {sentence}", err=True)
    if as_json:
        click.echo(found.to_json())
    else:
        _print(found)


def _print(found: GroupList) -> None:
    click.echo(count_of(len(found.groups), "group"))
    if found.groups:
        click.echo()
        cells = [[row.group, str(row.members), str(row.owned), ", ".join(row.topics) or "-"] for row in found.groups]
        print_table(["GROUP", "MEMBERS", "OWNED", "TOPICS"], cells, right=[1, 2])
