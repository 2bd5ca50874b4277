"""Settings of Kafka brokers by version: small, quiet, on loopback. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from zkconsumer.testing.errors import version_tuple as version_tuple

SESSION_TIMEOUT_MS = 6000
KRAFT_SESSION_TIMEOUT_MS = 3000
"""For so long, a broker that was killed is refused when it comes back."""
FIRST_WITH_TLS = (2, 5)
"""The first version of Kafka whose brokers have settings for TLS with ZooKeeper (KIP-515)."""

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_OFFSETS_TOPIC: Mapping[str, object] = {"offsets.topic.num.partitions": 1, "offsets.topic.replication.factor": 1}
_INTERNAL_TOPICS: Mapping[str, object] = {
    **_OFFSETS_TOPIC,
    "group.initial.rebalance.delay.ms": 0,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.min.isr": 1,
}

BROKER = "broker"
CONTROLLER = "controller"
FIRST_KRAFT = (3, 9)
"""The first version of Kafka that the kit runs without ZooKeeper."""
FIRST_WITHOUT_ZOOKEEPER = (4, 0)
"""The first version of Kafka that cannot run with ZooKeeper."""


def broker_properties(
    version: str,
    broker_id: int,
    port: int,
    zookeeper_connect: str,
    log_folder: Path,
    *,
    advertised_port: int | None = None,
    secured_ports: Mapping[str, int] | None = None,
    settings: Mapping[str, object] | None = None,
) -> dict[str, str]:
    """The server.properties of one broker.

    Args:
        advertised_port: port that clients get instead of `port`. 0.7 and 0.8.0 have no such setting and ignore it.
        secured_ports: port of each further listener, by its protocol.
        settings: override everything else; a value of None leaves that key out.
    """
    number = version_tuple(version)
    if number < (0, 8):
        properties = _properties_07(broker_id, port, zookeeper_connect, log_folder)
    else:
        properties = _properties_08(number, broker_id, zookeeper_connect, log_folder)
        properties |= _address(number, port, advertised_port, secured_ports or {})
    properties |= dict(settings or {})
    return {key: _text(value) for key, value in properties.items() if value is not None}


def kraft_properties(
    version: str,
    node_id: int,
    roles: Sequence[str],
    port: int,
    voters: Mapping[int, int],
    log_folder: Path,
    *,
    advertised_port: int | None = None,
    secured_ports: Mapping[str, int] | None = None,
    settings: Mapping[str, object] | None = None,
) -> dict[str, str]:
    """The server.properties of one server in KRaft mode.

    Args:
        roles: `BROKER`, `CONTROLLER` or both.
        port: where it listens as a broker.
        voters: port of each controller by its id.
        advertised_port: port that clients get instead of `port`.
        secured_ports: port of each further listener of a broker, by its protocol.
        settings: override everything else; a value of None leaves that key out.
    """
    further = secured_ports or {}
    listeners = [_listeners(port, further)] if BROKER in roles else []
    if CONTROLLER in roles:
        listeners.append(f"CONTROLLER://127.0.0.1:{voters[node_id]}")
    properties: dict[str, object] = {
        "process.roles": ",".join(roles),
        "node.id": node_id,
        "controller.quorum.voters": ",".join(f"{each}@127.0.0.1:{at}" for each, at in voters.items()),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in (("CONTROLLER", "PLAINTEXT"), *((p, p) for p in PROTOCOLS))
        ),
        "listeners": ",".join(listeners),
        "broker.session.timeout.ms": KRAFT_SESSION_TIMEOUT_MS,
        "broker.heartbeat.interval.ms": KRAFT_SESSION_TIMEOUT_MS // 10,
        "log.dirs": log_folder,
        "num.partitions": 2,
        "default.replication.factor": 1,
        "auto.create.topics.enable": True,
        "auto.leader.rebalance.enable": False,  # a leader moves when a test says so
        "controlled.shutdown.enable": False,
        "num.network.threads": 1,
        "num.io.threads": 2,
        "log.cleaner.dedupe.buffer.size": 2 * 1024 * 1024,
        **_INTERNAL_TOPICS,
    }
    if BROKER in roles and advertised_port is not None:
        properties["advertised.listeners"] = _listeners(advertised_port, further)
    properties |= dict(settings or {})
    return {key: _text(value) for key, value in properties.items() if value is not None}


def _properties_07(broker_id: int, port: int, zookeeper_connect: str, log_folder: Path) -> dict[str, object]:
    return {
        "brokerid": broker_id,
        "hostname": "127.0.0.1",
        "port": port,
        "log.dir": log_folder,
        "num.partitions": 2,
        "zk.connect": zookeeper_connect,
        "enable.zookeeper": True,
        "log.flush.interval": 1,  # else a message stays invisible for up to 500 messages or 3 s
        "log.default.flush.interval.ms": 100,
        "log.default.flush.scheduler.interval.ms": 100,
        "zk.sessiontimeout.ms": SESSION_TIMEOUT_MS,
        "num.threads": 2,
    }


def _properties_08(
    number: tuple[int, ...], broker_id: int, zookeeper_connect: str, log_folder: Path
) -> dict[str, object]:
    properties: dict[str, object] = {
        "broker.id": broker_id,
        "log.dirs": log_folder,
        "num.partitions": 2,
        "zookeeper.connect": zookeeper_connect,
        "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
        "controlled.shutdown.enable": False,
        "default.replication.factor": 1,
        "auto.create.topics.enable": True,
        "auto.leader.rebalance.enable": False,  # a leader moves when a test says so
        "num.network.threads": 1,
        "num.io.threads": 2,
    }
    if number >= (0, 8, 1):
        properties |= {"log.cleaner.enable": number >= (0, 9), "log.cleaner.dedupe.buffer.size": 2 * 1024 * 1024}
    if number >= (0, 8, 2):
        properties |= {
            "delete.topic.enable": True,
            **_OFFSETS_TOPIC,
        }
    if number >= (0, 11):
        properties |= _INTERNAL_TOPICS
    return properties


def _address(
    number: tuple[int, ...], port: int, advertised_port: int | None, secured_ports: Mapping[str, int]
) -> dict[str, object]:
    if number >= (0, 9):
        address: dict[str, object] = {"listeners": _listeners(port, secured_ports)}
        if advertised_port is not None:
            address["advertised.listeners"] = _listeners(advertised_port, secured_ports)
        return address
    address = {"host.name": "127.0.0.1", "port": port}
    if number >= (0, 8, 1):
        address |= {
            "advertised.host.name": "127.0.0.1",
            "advertised.port": port if advertised_port is None else advertised_port,
        }
    return address


def _listeners(port: int, secured_ports: Mapping[str, int]) -> str:
    ports = {"PLAINTEXT": port, **secured_ports}
    return ",".join(f"{protocol}://127.0.0.1:{each}" for protocol, each in ports.items())


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
