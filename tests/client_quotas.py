"""Sets quotas for clients of real brokers: in ZooKeeper before Kafka 2.6, by a request since then."""

from __future__ import annotations

import json
import socket
import struct

from zkconsumer.testing.errors import version_tuple
from zkconsumer.testing.kafka import KafkaCluster

__all__ = ["set_quota"]

_ALTER_CLIENT_QUOTAS = 49


def set_quota(cluster: KafkaCluster, client_id: str | None = None, **limits: float) -> None:
    """Limit what a client may do.

    Args:
        client_id: None for all clients that have no quota of their own.
        limits: `consumer_byte_rate`, `producer_byte_rate` in bytes per second; `request_percentage` of a thread.
    """
    if version_tuple(cluster.version) < (2, 6):
        _set_in_zookeeper(cluster, client_id or "<default>", limits)
        return
    name = struct.pack(">h", -1) if client_id is None else _text(client_id)
    changes = b"".join(_text(key) + struct.pack(">d?", value, False) for key, value in limits.items())
    body = struct.pack(">ii", 1, 1) + _text("client-id") + name + struct.pack(">i", len(limits)) + changes + b"\0"
    frame = struct.pack(">hhi", _ALTER_CLIENT_QUOTAS, 0, 1) + _text("quotas") + body
    with socket.create_connection(("127.0.0.1", cluster.port(0)), 30) as broker:
        broker.sendall(struct.pack(">i", len(frame)) + frame)
        answer = broker.recv(4096)
    code = struct.unpack_from(">h", answer, 16)[0]  # size, correlation id, throttle time, number of entries
    assert code == 0, answer


def _set_in_zookeeper(cluster: KafkaCluster, client_id: str, limits: dict[str, float]) -> None:
    config = {key: f"{value:g}" if key == "request_percentage" else str(int(value)) for key, value in limits.items()}
    zookeeper = cluster.client
    zookeeper.ensure_path(f"/config/clients/{client_id}")
    zookeeper.set(f"/config/clients/{client_id}", json.dumps({"version": 1, "config": config}).encode())
    change = {"version": 2, "entity_path": f"clients/{client_id}"}
    zookeeper.create("/config/changes/config_change_", json.dumps(change).encode(), sequence=True)


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()
