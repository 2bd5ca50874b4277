"""What `zkconsumer consume` checks and changes before it joins a group, and removes afterwards.

Topics and offsets are looked at first, so that errors are reported before the group is joined.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import click

from rebalance.subscription import Subscription
from rebalance.zookeeper import znodes
from zkconsumer.admin.broker_groups import BrokerAdmin
from zkconsumer.admin.errors import NotFound
from zkconsumer.admin.groups.group_removal import delete_offsets, remove_group, stored_offsets
from zkconsumer.admin.phrases import count_of
from zkconsumer.cli.failures import CliError
from zkconsumer.cluster.opening import open_cluster
from zkconsumer.cluster.zookeeper_connection import configured_connection, zookeeper_connection
from zkconsumer.cluster.zookeeper_reads import children
from zkconsumer.config import ConsumerConfig
from zkconsumer.config.zookeeper_options import zookeeper_options
from zkconsumer.errors import ZkConsumerError

__all__ = ["WantedGroup", "prepare", "remove_generated"]

_ANSWER_S: Final = 5.0


class WantedGroup(NamedTuple):
    """The group that is to be joined.

    Attributes:
        config: The settings.
        topics: Those that are named; empty with a filter.
        has_filter: Whether a filter selects topics.
        subscription: What is subscribed to.
        is_generated: The group was generated for this run.
    """

    config: ConsumerConfig
    topics: tuple[str, ...]
    has_filter: bool
    subscription: Subscription
    is_generated: bool

    def is_read(self, topic: str) -> bool:
        """Return whether a topic is subscribed to."""
        return self.subscription.matches(topic, self.config.exclude_internal_topics)


def prepare(wanted: WantedGroup, *, from_beginning: bool, delete_first: bool) -> None:
    """Check topics and offsets, and delete offsets if that is wanted.

    Raises:
        CliError: The group has offsets, and is to start at the beginning.
        ZkConsumerError: ZooKeeper or the brokers cannot be asked.
    """
    if wanted.config.coordination == "brokers":
        _prepare_at_brokers(wanted, from_beginning, delete_first)
        return
    config = wanted.config
    with configured_connection(config) as port:
        _report_missing(wanted, children(port, znodes.TOPICS) or [])
        if not wanted.is_generated:
            _prepare_offsets(
                wanted, from_beginning, delete_first,
                lambda: len(stored_offsets(port, config.group_id, wanted.is_read)),
                lambda: delete_offsets(port, config.group_id, wanted.is_read),
            )  # fmt: skip


def _prepare_at_brokers(wanted: WantedGroup, from_beginning: bool, delete_first: bool) -> None:
    config = wanted.config
    with open_cluster(config, _ANSWER_S) as opened:
        _report_missing(wanted, opened.cluster.topics())
    given = {name: value for name, value in config.to_properties().items() if name != "bootstrap.servers"}
    with BrokerAdmin(config.to_properties()["bootstrap.servers"], properties=given) as admin:

        def topics() -> dict[str, int]:
            try:
                rows = admin.offsets(config.group_id).partitions
            except NotFound:
                return {}
            found: dict[str, int] = {}
            for row in rows:
                if row.offset is not None and wanted.is_read(row.topic):
                    found[row.topic] = found.get(row.topic, 0) + 1
            return found

        def delete() -> int:
            found = topics()
            for topic in found:
                admin.delete_offsets(config.group_id, topic)
            return sum(found.values())

        _prepare_offsets(wanted, from_beginning, delete_first, lambda: sum(topics().values()), delete)


def _prepare_offsets(
    wanted: WantedGroup, from_beginning: bool, delete_first: bool, count: Callable[[], int], delete: Callable[[], int]
) -> None:
    group = wanted.config.group_id
    if delete_first:
        click.echo(f"Deleted {count_of(delete(), 'offset')} of group {group}", err=True)
    elif from_beginning and (found := count()):
        raise CliError(
            f"group {group!r} already has offsets for {count_of(found, 'partition')}, so it would not start at the "
            "beginning",
            "add --delete-offsets, give another --group, or leave --from-beginning out",
        )


def _report_missing(wanted: WantedGroup, topics: Sequence[str]) -> None:
    for sentence in _missing(wanted, topics):
        click.echo(sentence, err=True)


def _missing(wanted: WantedGroup, topics: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each topic that does not exist, or one if the filter matches none."""
    for topic in wanted.topics:
        if topic not in topics:
            near = difflib.get_close_matches(topic, topics, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            yield f"topic {topic!r} does not exist{hint}; waiting for it to be created"
    if wanted.has_filter and not wanted.subscription.topics(set(topics)):
        yield f"the filter matches none of the {len(topics)} topics; waiting for one that matches"


def remove_generated(config: ConsumerConfig) -> None:
    """Remove a generated group from ZooKeeper; a failure must not hide how the run ended."""
    try:
        with zookeeper_connection(config.zookeeper, 2.0, **zookeeper_options(config)) as port:
            remove_group(port, config.group_id)
    except ZkConsumerError as error:
        click.echo(f"warning: group {config.group_id} stays in ZooKeeper: {error}", err=True)
