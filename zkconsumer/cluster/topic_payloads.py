"""The payloads of the nodes that create and grow a topic, as Kafka's own tools write them. Pure.

Every controller from 0.8.0 to 3.9 reads version 1 of a topic's node, and needs its partitions alone. From 2.4 on the
controller adds fields (`adding_replicas`, `removing_replicas`, from 2.8 on `topic_id`); whoever grows a topic keeps
them, because a topic whose id changes is another topic to such brokers.

Source: kafka.admin.AdminUtils (0.8.0 to 2.0), kafka.zk.TopicZNode, kafka.zk.ConfigEntityZNode (1.1 to 3.9).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from rebalance.errors import UnreadableNode
from rebalance.zookeeper import znodes
from rebalance.zookeeper.lenient_json import parse_lenient

__all__ = ["format_grown_topic", "format_topic", "format_topic_config"]


def format_topic(replicas: Mapping[int, Sequence[int]]) -> bytes:
    """Return the data of a new topic's node.

    Args:
        replicas: Partition -> ids of the brokers that keep it, the preferred leader first.
    """
    return _json({"version": 1, "partitions": {str(number): list(ids) for number, ids in sorted(replicas.items())}})


def format_grown_topic(topic: str, data: bytes | None, added: Mapping[int, Sequence[int]]) -> bytes:
    """Return the data of a topic's node with more partitions; all other fields stay as they are.

    Raises:
        UnreadableNode: The node does not list its partitions.
    """
    present = znodes.parse_replicas(topic, data)
    fields = parse_lenient(data or b"")
    if not isinstance(fields, dict):
        raise UnreadableNode(znodes.topic_path(topic), "not a JSON object", data)
    partitions = {str(number): list(ids) for number, ids in {**present, **added}.items()}
    return _json({**fields, "partitions": partitions})


def format_topic_config(settings: Mapping[str, object]) -> bytes:
    """Return the data of the node of a topic's settings."""
    return _json({"version": 1, "config": {name: str(value) for name, value in settings.items()}})


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
