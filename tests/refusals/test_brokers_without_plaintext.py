"""Every command at a cluster whose only broker has no PLAINTEXT listener: a sentence that names it, and no guess."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from every_command import SERVICES, every_command, run_one
from kazoo.client import KazooClient
from secured import PATIENCE_S

from zkconsumer.testing.zookeeper import ZooKeeperServer

STATE = b'{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0]}'
NODES = {
    "/brokers/ids/0": json.dumps({
        "jmx_port": -1, "timestamp": "1", "endpoints": ["SSL://127.0.0.1:9093"], "host": None, "version": 4, "port": -1,
        "listener_security_protocol_map": {"SSL": "SSL"},
    }).encode(),
    "/brokers/topics/topic": b'{"version":1,"partitions":{"0":[0]}}',
    "/brokers/topics/topic/partitions/0/state": STATE,
    "/consumers/group/offsets/topic/0": b"1",
}  # fmt: skip
NAMED = "it has no PLAINTEXT listener (/brokers/ids/0), and TLS and SASL to brokers are not supported yet"
ASK_BROKERS = ["consume", "produce", "describe", "verify", "lag", "topics list", "offsets get", "load"]
"""Commands that cannot do their work without a broker."""


@pytest.fixture
def cluster(zookeeper: ZooKeeperServer, fresh_group: str) -> Iterator[str]:
    client = KazooClient(zookeeper.connect)
    client.start(timeout=PATIENCE_S)
    for path, data in NODES.items():
        client.create(f"/{fresh_group}{path}", data, makepath=True)
    yield f"{zookeeper.connect}/{fresh_group}"
    client.delete(f"/{fresh_group}", recursive=True)
    client.stop()
    client.close()


@pytest.mark.parametrize("name", [each for each in every_command() if each not in {*SERVICES, "load", "topics delete"}])
def test_the_broker_is_named(cluster: str, name: str) -> None:
    ran = run_one(name, "--zookeeper", cluster)
    said = ran.stdout + ran.stderr
    assert "fault of the program" not in said
    assert "Traceback" not in said
    assert "no broker is registered" not in said
    assert "no broker leads it" not in said
    if name in ASK_BROKERS:
        assert f"broker 0 is left out: {NAMED}" in ran.stderr
