"""Starts ZooKeeper and Kafka 0.8.2.2 in containers, with testcontainers and the images of docker-compose.yml."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Self

from zkconsumer.testing.errors import DockerMissing, KitError, StartFailed, WaitTimeout
from zkconsumer.testing.kafka import probe as kafka_probe
from zkconsumer.testing.processes import free_ports
from zkconsumer.testing.waiting import WithBlock, wait_until
from zkconsumer.testing.zookeeper.wire import handshake

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

CONTEXT = Path(__file__).parent
DOCKERFILE = "docker/Dockerfile"
IMAGES = {"zookeeper": ("zkconsumer-zookeeper:3.9", "zk-3.9"), "kafka": ("zkconsumer-kafka:0.8.2.2", "0.8.2.2")}
"""Target in the Dockerfile -> name of the image, and its jars."""
KRAFT_IMAGE = ("zkconsumer-kafka:4.3.1", "4.3.1")
"""Name and jars of the image of the target `kafka-kraft`, which docker-compose.yml alone builds."""

ZOOKEEPER_PORT = 2181
_PING_S = 10
_SHOWN_LINES = 40
_BUILD_S = 900
_LOCAL = ("localhost", "127.0.0.1")


def zookeeper_answers(port: int) -> bool:
    """True if a session can be opened at this port of 127.0.0.1."""
    try:
        handshake("127.0.0.1", port)
    except OSError:
        return False
    return True


def require_docker() -> None:
    """Return if a Docker engine answers.

    Raises:
        DockerMissing: says what is missing.
    """
    if find_spec("testcontainers") is None:
        raise DockerMissing("the package testcontainers is not installed: pip install testcontainers")
    from docker.errors import DockerException  # type: ignore[import-untyped]
    from testcontainers.core.docker_client import DockerClient

    try:
        client = DockerClient(timeout=_PING_S).client
        client.ping()
        client.close()
    except (DockerException, OSError) as error:  # requests' errors are OSErrors
        raise DockerMissing(
            f"no Docker engine answers ({error}); start one, or use the fixture kafka_cluster, which needs Java alone"
        ) from error


class KafkaContainers(WithBlock):
    """A ZooKeeper and brokers 0, 1, ... of Kafka 0.8.2.2 in containers, on free ports of 127.0.0.1.

    `with KafkaContainers() as cluster: ConsumerConfig(cluster.zookeeper_connect, ...)`. The images are built at the
    first start, which needs the network. All containers share one network, for a broker of that age has one address,
    which must be right for clients and for the other brokers alike; so the Docker engine must run on this machine.
    """

    def __init__(self, brokers: int = 2, *, timeout_s: float = 90.0) -> None:
        """Prepare; nothing runs before `start()`.

        Args:
            brokers: how many.
            timeout_s: longest wait for the servers to answer, once the images are there.

        Raises:
            ValueError: no broker.
        """
        if brokers < 1:
            raise ValueError(f"{brokers} brokers: at least 1 is needed")
        self.timeout_s = timeout_s
        self.zookeeper_port, *self.broker_ports = free_ports(1 + brokers)
        self._containers: list[DockerContainer] = []

    @property
    def zookeeper_connect(self) -> str:
        """Connect string for consumers."""
        return f"127.0.0.1:{self.zookeeper_port}"

    @property
    def broker_list(self) -> str:
        """`host:port,host:port` of the brokers."""
        return ",".join(f"127.0.0.1:{port}" for port in self.broker_ports)

    def start(self) -> Self:
        """Build the images if need be and start the containers; returns when all servers answer.

        Raises:
            DockerMissing: no Docker engine answers on this machine.
            StartFailed: the servers did not answer in time; carries the end of their logs.
        """
        require_docker()
        if self._containers:
            raise KitError("these containers run already")
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def _start(self) -> None:
        from testcontainers.core.container import DockerContainer
        from testcontainers.core.image import DockerImage

        for target, (name, jars) in IMAGES.items():
            image = DockerImage(
                CONTEXT, {"timeout": _BUILD_S}, name, clean_up=False, dockerfile_path=DOCKERFILE, target=target,
                buildargs={"JARS": jars},
            )  # fmt: skip
            image.build()
        zookeeper = DockerContainer(IMAGES["zookeeper"][0]).with_bind_ports(ZOOKEEPER_PORT, self.zookeeper_port)
        for port in self.broker_ports:
            zookeeper.with_bind_ports(port, port)
        self._containers.append(zookeeper)
        zookeeper.start()
        host = zookeeper.get_container_host_ip()
        if host not in _LOCAL:
            raise DockerMissing(f"the Docker engine is at {host}; the brokers advertise 127.0.0.1, so it must run here")
        self._wait(lambda: zookeeper_answers(self.zookeeper_port), "ZooKeeper", zookeeper)
        for broker_id, port in enumerate(self.broker_ports):
            broker = DockerContainer(IMAGES["kafka"][0], network_mode=f"container:{zookeeper.get_container_id()}")
            broker.with_envs(BROKER_ID=str(broker_id), PORT=str(port))
            self._containers.append(broker)
            broker.start()
        for broker_id, port in enumerate(self.broker_ports):
            self._wait(partial(kafka_probe.answers, port), f"broker {broker_id}", self._containers[1 + broker_id])

    def _wait(self, condition: Callable[[], bool], what: str, container: DockerContainer) -> None:
        try:
            wait_until(condition, self.timeout_s, f"{what} to answer")
        except WaitTimeout as error:
            log = b"".join(container.get_logs()).decode("utf-8", "replace")
            raise StartFailed("\n".join([str(error), *log.splitlines()[-_SHOWN_LINES:]])) from error

    def close(self) -> None:
        """Remove the containers; the images stay."""
        while self._containers:
            self._containers.pop().stop()

    def _enter(self) -> object:
        return self.start()
