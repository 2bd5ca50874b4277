"""Reads what decides whether a topic can be created, grown or deleted: the brokers, their racks, and the controller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rebalance.zookeeper import znodes
from rebalance.zookeeper.lenient_json import parse_lenient
from rebalance.zookeeper.port.requests import Exists, GetChildren, GetData, ZooKeeperPort
from zkconsumer.admin.errors import TopicRefused
from zkconsumer.cluster.zookeeper_reads import read_all

__all__ = [
    "CONFIG_CHANGES",
    "CONTROLLER",
    "DELETIONS",
    "REASSIGNMENT",
    "TopicBrokers",
    "is_reassigned",
    "json_fields",
    "read_brokers",
]

CONTROLLER: Final = "/controller"
DELETIONS: Final = "/admin/delete_topics"
REASSIGNMENT: Final = "/admin/reassign_partitions"
CONFIG_CHANGES: Final = "/config/changes"
"""Brokers from 0.8.1 on create it when they start; those of 0.8.0 know no settings of topics."""


@dataclass(frozen=True)
class TopicBrokers:
    """The brokers of a cluster, as far as the administration of topics needs them.

    Attributes:
        racks: Broker id -> its rack, None if it names none; of all registered brokers, whatever their listeners.
        registration_version: That of the oldest broker; 1 up to 0.8.2, 2 in 0.9, 3 in 0.10.0, 4 up to 2.6, then 5.
        controller: Id of the broker that is the controller; None without one.
        has_settings: The brokers know settings of topics: they are not of 0.8.0.
        can_delete: The brokers know how to delete topics: they are not of 0.8.0.
    """

    racks: Mapping[int, str | None]
    registration_version: int
    controller: int | None
    has_settings: bool
    can_delete: bool


def json_fields(data: bytes | None) -> dict[str, object]:
    """Return the fields of a node that holds a JSON object; none of any other node."""
    try:
        value = parse_lenient(data or b"")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def read_brokers(port: ZooKeeperPort) -> TopicBrokers:
    """Return the brokers of a cluster.

    Raises:
        TopicRefused: The controller is one of KRaft, to which nodes in ZooKeeper mean nothing.
        ZooKeeperSilent: ZooKeeper does not answer.
        AccessRefused: One of the nodes may not be read.
    """
    listing, controller, changes, deletions = read_all(
        port, [GetChildren(znodes.BROKERS), GetData(CONTROLLER), Exists(CONFIG_CHANGES), Exists(DELETIONS)]
    )
    ids = znodes.broker_ids(listing[0] if listing is not None else ())
    values = read_all(port, [GetData(znodes.broker_path(each)) for each in ids])
    fields = {each: json_fields(value[0]) for each, value in zip(ids, values, strict=True) if value is not None}
    return TopicBrokers(
        {each: None if found.get("rack") is None else str(found["rack"]) for each, found in fields.items()},
        min((_number(found.get("version"), 1) for found in fields.values()), default=1),
        None if controller is None else _controller(json_fields(controller[0])),
        changes is not None,
        deletions is not None,
    )


def _controller(fields: Mapping[str, object]) -> int | None:
    if _number(fields.get("kraftControllerEpoch"), -1) >= 0:
        raise TopicRefused(
            "this cluster is on its way from ZooKeeper to KRaft: its controller does not read topics in ZooKeeper",
            "give --bootstrap-server in place of --zookeeper (BrokerAdmin in place of Admin)",
        )
    number = _number(fields.get("brokerid"), -1)
    return number if number >= 0 else None


def _number(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def is_reassigned(topic: str, topic_data: bytes, reassignment: bytes | None) -> bool:
    """Return whether partitions of a topic are on the way to other brokers.

    Args:
        topic: Its name.
        topic_data: Data of its node, where brokers from 2.4 on say so.
        reassignment: Data of the node of all reassignments, None without one.
    """
    fields = json_fields(topic_data)
    listed = json_fields(reassignment).get("partitions")
    entries = listed if isinstance(listed, list) else []
    return bool(fields.get("adding_replicas") or fields.get("removing_replicas")) or any(
        isinstance(entry, dict) and entry.get("topic") == topic for entry in entries
    )
