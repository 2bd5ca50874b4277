"""The contents of the images work without Docker, too: the scripts start real servers, the jars are checked."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from simpleconsumer.consumer import SimpleConsumer
from zkconsumer.testing import containers
from zkconsumer.testing.containers import KafkaContainers
from zkconsumer.testing.errors import DockerMissing
from zkconsumer.testing.java import find_java, maven
from zkconsumer.testing.kafka import probe as kafka_probe
from zkconsumer.testing.kafka import topics as kafka_topics
from zkconsumer.testing.kafka.settings import BROKER, CONTROLLER, broker_properties, kraft_properties
from zkconsumer.testing.processes import ChildProcess, free_ports
from zkconsumer.testing.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
DOCKER = containers.CONTEXT / "docker"
DOCKERFILE = (containers.CONTEXT / containers.DOCKERFILE).read_text(encoding="utf-8")
COMPOSE = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
TIMEOUT_S = 60


def compose() -> list[str]:
    """The command of Docker Compose; skips where there is none."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) is None:
            continue
        if subprocess.run([*command, "version"], capture_output=True, check=False, timeout=TIMEOUT_S).returncode == 0:
            return command
    pytest.skip("Docker Compose is not installed")


def test_the_compose_file_is_valid_and_puts_all_servers_at_one_address() -> None:
    ran = subprocess.run(
        [*compose(), "-f", str(ROOT / "docker-compose.yml"), "config"], env={**os.environ, "KAFKA_1_PORT": "19093"},
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    # Docker Compose 1 prints the services of profiles, too, which are not started without their profile.
    with_profiles = "kafka-kraft" in ran.stdout
    assert ran.stdout.count("network_mode: service:address") == 3
    assert ran.stdout.count("19093") >= 3  # published, inside, and passed to the broker
    assert ran.stdout.count("dockerfile: docker/Dockerfile") == 4 + with_profiles


def test_dockerfile_compose_file_and_fixture_name_the_same_images_and_jars() -> None:
    assert maven.COPY_DEPENDENCIES in DOCKERFILE
    for target, (name, jars) in {**containers.IMAGES, "kafka-kraft": containers.KRAFT_IMAGE}.items():
        assert f"AS {target}\n" in DOCKERFILE
        assert f"image: {name}\n" in COMPOSE
        assert f"JARS: {jars}\n" in COMPOSE
        assert jars in maven.known_versions()
    for copied in re.findall(r"docker/[\w.-]+", " ".join(re.findall(r"^COPY (.*)", DOCKERFILE, re.MULTILINE))):
        assert (containers.CONTEXT / copied).is_file()


def check_jars(lock: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = ["sh", str(DOCKER / "check-jars.sh"), str(lock), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


@pytest.mark.real
@pytest.mark.parametrize("version", [jars for _, jars in containers.IMAGES.values()])
def test_the_jars_of_an_image_are_checked_against_the_lock(version: str, tmp_path: Path) -> None:
    lock = maven.POMS / f"{version}.txt"
    for jar in maven.jars(version):
        shutil.copy(jar, tmp_path)
    good = check_jars(lock, tmp_path)
    assert good.returncode == 0, good.stderr
    extra = tmp_path / "extra.jar"
    extra.touch()
    assert "jars, " in check_jars(lock, tmp_path).stderr
    extra.unlink()
    changed = next(tmp_path.glob("*.jar"))
    changed.write_bytes(changed.read_bytes() + b"x")
    assert check_jars(lock, tmp_path).returncode != 0


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[str, list[int]]]:
    """ZooKeeper and two brokers, started by the scripts of the images: ZooKeeper's address, and the brokers' ports."""
    java = find_java().program.resolve()
    zookeeper_port, *broker_ports = free_ports(3)
    children: list[ChildProcess] = []

    def start(script: str, jars: str, **environment: str) -> None:
        folder = maven.jars(jars)[0].parent
        path = f"{java.parent}:{os.environ['PATH']}"
        child = ChildProcess(
            script, ["sh", str(DOCKER / script)], tmp_path / f"{script}-{len(children)}.log",
            environment={"PATH": path, "JARS_FOLDER": str(folder), "DATA_FOLDER": str(tmp_path), "LISTEN": "127.0.0.1",
                         **environment},
        )  # fmt: skip
        children.append(child)

    try:
        start("start-zookeeper.sh", containers.IMAGES["zookeeper"][1], PORT=str(zookeeper_port))
        wait_until(lambda: containers.zookeeper_answers(zookeeper_port), TIMEOUT_S, "ZooKeeper", state=children[0].tail)
        for broker_id, port in enumerate(broker_ports):
            start("start-kafka.sh", containers.IMAGES["kafka"][1], PORT=str(port), BROKER_ID=str(broker_id),
                  ZOOKEEPER=f"127.0.0.1:{zookeeper_port}", ADVERTISED_HOST="127.0.0.1",
                  SETTINGS="num.partitions=7")  # fmt: skip
        for child, port in zip(children[1:], broker_ports, strict=True):
            wait_until(lambda port=port: kafka_probe.answers(port), TIMEOUT_S, "broker", state=child.tail)  # type: ignore[misc]
        yield f"127.0.0.1:{zookeeper_port}", broker_ports
    finally:
        for child in reversed(children):
            child.kill()


@pytest.mark.real
def test_the_scripts_start_servers_that_reach_each_other_by_the_address_that_clients_are_told(
    servers: tuple[str, list[int]], tmp_path: Path
) -> None:
    zookeeper, ports = servers
    client = KazooClient(zookeeper)
    client.start()
    try:
        wait_until(lambda: len(client.get_children("/brokers/ids")) == 2, TIMEOUT_S, "both brokers to register")
        nodes = [json.loads(client.get(f"/brokers/ids/{broker_id}")[0]) for broker_id in (0, 1)]
        assert [(node["host"], node["port"]) for node in nodes] == [("127.0.0.1", port) for port in ports]
        kafka_topics.create(client, "clicks", {0: [0, 1]}, {})

        def both_in_sync() -> bool:
            told = [kafka_probe.topic_leaders(port, "clicks").get(0) for port in ports]
            return all(each is not None and each.leader == 0 and set(each.isr) == {0, 1} for each in told)

        wait_until(both_in_sync, TIMEOUT_S, "both replicas in sync")
        with SimpleConsumer("127.0.0.1", ports[0]) as broker:
            assert broker.produce("clicks", 0, [b"hello"], acks=-1) == 0  # every replica has it
            assert [message.value for message in broker.fetch("clicks", 0, 0)] == [b"hello"]
    finally:
        client.stop()
        client.close()
    assert "num.partitions=7" in (tmp_path / "server-1.properties").read_text()


@pytest.mark.real
def test_the_script_of_kafka_4_starts_a_broker_that_comes_back_with_its_topics(tmp_path: Path) -> None:
    java = find_java().program.resolve()
    port, controller_port = free_ports(2)
    name, jars = containers.KRAFT_IMAGE
    for turn in ("first", "second"):
        child = ChildProcess(
            name, ["sh", str(DOCKER / "start-kafka-kraft.sh")], tmp_path / f"{turn}.log",
            environment={"PATH": f"{java.parent}:{os.environ['PATH']}", "JARS_FOLDER": str(maven.jars(jars)[0].parent),
                         "DATA_FOLDER": str(tmp_path), "LISTEN": "127.0.0.1", "ADVERTISED_HOST": "127.0.0.1",
                         "PORT": str(port), "CONTROLLER_PORT": str(controller_port), "SETTINGS": "num.partitions=7"},
        )  # fmt: skip
        try:
            wait_until(lambda: kafka_probe.answers_versions(port), TIMEOUT_S, "broker", state=child.tail)

            def leaders() -> set[int]:
                return {each.leader for each in kafka_probe.topic_leaders(port, "clicks").values()}

            wait_until(lambda: leaders() == {0}, TIMEOUT_S, "the topic", state=leaders)
            assert len(kafka_probe.topic_leaders(port, "clicks")) == 7
        finally:
            child.stop()


@pytest.mark.parametrize(
    ("script", "kit"),
    [
        ("start-kafka.sh", broker_properties("0.8.2.2", 0, 9092, "127.0.0.1:2181", Path("/log"))),
        ("start-kafka-kraft.sh", kraft_properties("4.3.1", 0, (BROKER, CONTROLLER), 9092, {0: 9093}, Path("/log"))),
    ],
)
def test_the_settings_of_an_image_are_those_of_the_kit(script: str, kit: dict[str, str]) -> None:
    """All but those that a script's own environment names, and those that only a test wants."""
    text = (DOCKER / script).read_text(encoding="utf-8")
    fixed = dict(re.findall(r"^([a-z.]+)=([^$\n]*)$", text, re.MULTILINE))
    fixed.pop("listener.security.protocol.map", None)  # that of the kit knows more listeners
    assert {key: kit.get(key) for key in fixed} == fixed
    assert len(fixed) > 10


def test_no_engine_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    with pytest.raises(DockerMissing, match="no Docker engine answers"):
        KafkaContainers().start()


def test_at_least_one_broker_is_needed() -> None:
    with pytest.raises(ValueError, match="0 brokers"):
        KafkaContainers(brokers=0)


def test_containers_serve_clients_and_each_other(kafka_containers: KafkaContainers) -> None:
    client = KazooClient(kafka_containers.zookeeper_connect)
    client.start()
    try:
        kafka_topics.create(client, "clicks", {0: [0, 1]}, {})
        port = kafka_containers.broker_ports[0]
        wait_until(lambda: 0 in kafka_probe.topic_leaders(port, "clicks"), TIMEOUT_S, "the topic")
        wait_until(lambda: kafka_probe.offset_errors(port, "clicks", [0]) == {0: 0}, TIMEOUT_S, "its leader")
        with SimpleConsumer("127.0.0.1", port) as broker:
            assert broker.produce("clicks", 0, [b"hello"], acks=-1) == 0
    finally:
        client.stop()
        client.close()
