"""Texts of the nodes in ZooKeeper by which an embedded cluster is registered. Pure.

From version 2 of its node on (0.9) a broker registers endpoints; from version 5 on (2.7) topics have ids.

Source: kafka.utils.ZkUtils (0.8.2.2), kafka.zk.BrokerIdZNode, kafka.zk.TopicZNode (2.8).
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from typing import Final

from rebalance.zookeeper.znodes import format_topic
from zkconsumer.testing.embedded.leadership import PartitionState
from zkconsumer.testing.embedded.protocol import BrokerAddress
from zkconsumer.testing.embedded.registries.registry import Assignment, id_text

_FIRST_WITH_ENDPOINTS: Final = 2
_FIRST_WITH_LISTENERS: Final = 4
_FIRST_WITH_TOPIC_IDS: Final = 5


def broker_node(broker: BrokerAddress, now_ms: int, version: int = 1) -> bytes:
    """Return the text of `/brokers/ids/<id>`: version 1 is that of 0.8.1 and 0.8.2, 2 of 0.9, 4 of 0.10.2, 5 of 2.8."""
    stamp = str(now_ms)
    if version < _FIRST_WITH_ENDPOINTS:
        return json_text({"jmx_port": -1, "timestamp": stamp, "host": broker.host, "version": 1, "port": broker.port})
    features: dict[str, object] = {"features": {}} if version >= _FIRST_WITH_TOPIC_IDS else {}
    listeners: dict[str, object] = {"listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"}}
    endpoints: dict[str, object] = {
        "endpoints": [f"PLAINTEXT://{broker.host}:{broker.port}"],
        "jmx_port": -1, "port": broker.port, "host": broker.host, "version": version, "timestamp": stamp,
    }  # fmt: skip
    return json_text(features | (listeners if version >= _FIRST_WITH_LISTENERS else {}) | endpoints)


def topic_node(assignment: Assignment, version: int) -> bytes:
    """Return the text of a new topic's node, as a broker whose own node has a version writes it."""
    if version < _FIRST_WITH_TOPIC_IDS:
        return format_topic(assignment)
    partitions = {str(number): list(ids) for number, ids in sorted(assignment.items())}
    moving: dict[str, object] = {"adding_replicas": {}, "removing_replicas": {}}
    return json_text({"version": 3, "topic_id": id_text(uuid.uuid4().bytes), "partitions": partitions} | moving)


def read_topic_id(data: Mapping[str, object]) -> bytes | None:
    """Return the id of 16 bytes in a topic's node; None without a valid one."""
    text = data.get("topic_id")
    try:
        found = base64.urlsafe_b64decode(str(text) + "==") if text is not None else b""
    except ValueError:
        return None
    return found if len(found) == 16 else None


def state_node(state: PartitionState) -> bytes:
    """Return the text of a state node."""
    fields = {
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
    }
    return json_text(fields)


def controller_node(broker_id: int, now_ms: int) -> bytes:
    """Return the text of `/controller`."""
    return json_text({"version": 1, "brokerid": broker_id, "timestamp": str(now_ms)})


def json_text(value: object) -> bytes:
    """Return a value as JSON without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()
