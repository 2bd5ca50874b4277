"""`zkconsumer release`: releases a claim on a partition whose owner is dead, and no other claim."""

from __future__ import annotations

import click

from rebalance.subscription import check_topic
from zkconsumer.cli.options.connection_options import open_admin, zookeeper_option
from zkconsumer_error import printable

__all__ = ["release"]

_EPILOG = """\
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


@click.command(epilog=_EPILOG)
@click.argument("group")
@click.argument("topic")
@click.argument("partition")
@zookeeper_option()
@click.option("--claim", "vouched_czxid", metavar="NUMBER", type=_ClaimType(),
              help="Release this claim although its session is alive: you confirm that its owner is dead.")
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
