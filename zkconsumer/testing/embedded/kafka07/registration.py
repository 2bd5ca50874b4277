"""The registration of an embedded broker of Kafka 0.7 in ZooKeeper: its id, and the topics of which it has logs.

| node, ephemeral | payload | made at the start, in each new session, and |
|---|---|---|
| `/brokers/ids/<id>` | `<host>-<milliseconds>:<host>:<port>` | |
| `/brokers/topics/<t>/<id>` | the number of partitions | when the broker makes its first log of the topic |

Source: kafka.server.KafkaZooKeeper, kafka.log.LogManager, kafka.utils.ZkUtils (0.7.2).
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError

from zkconsumer.testing.embedded.registries.registry import RegistryUnavailable
from zkconsumer.testing.embedded.registries.zookeeper import BrokerSession, done, end_owner
from zkconsumer.testing.zookeeper.login import ZooKeeperLogin

IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
STOP_TIMEOUT_S: Final = 15.0
_RETRY_S: Final = 0.5
_log = logging.getLogger(__name__)


def broker_node(host: str, port: int, now_ms: int) -> bytes:
    """Return the text of `/brokers/ids/<id>`."""
    return f"{host}-{now_ms}:{host}:{port}".encode()


class Registration07:
    """The nodes of one broker, in a session of its own.

    A thread registers new topics and registers everything again in a new session. Writes that fail because ZooKeeper
    does not answer are tried again. An id node of somebody else is left as it is: the broker, and all its topics, stay
    unregistered until the next session, as in Java; only topics that are new from then on are registered.

    Threads: every method from any thread.

    Attributes:
        path: of the id node.
    """

    def __init__(self, broker_id: int, host: str, port: int, topics: dict[str, int]) -> None:
        """Prepare.

        Args:
            port: that clients get.
            topics: number of partitions of each topic that the broker has logs of.
        """
        self.path = f"{IDS}/{broker_id}"
        self._broker_id = broker_id
        self._host = host
        self._port = port
        self._lock = threading.Lock()
        self._topics = dict(topics)
        self._registered: set[str] = set()
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._session: BrokerSession | None = None
        self._thread = threading.Thread(target=self._keep, name=f"registration of broker {broker_id}", daemon=True)

    def start(self, hosts: str, chroot: str, session_timeout_s: float, login: ZooKeeperLogin | None,
              client: KazooClient) -> None:  # fmt: skip
        """Register the broker and its topics; the session of a killed predecessor is ended first.

        Args:
            hosts: connect string without chroot.
            client: the cluster's own.

        Raises:
            RegistryUnavailable: ZooKeeper does not answer.
        """
        end_owner(client, hosts, self.path, login)
        self._session = BrokerSession(hosts + chroot, session_timeout_s, login)
        try:
            self._register_all(self._session)
        except BaseException:
            self._session.end(abruptly=False)
            raise
        self._session.client.add_listener(lambda state: self._wake.set())
        self._thread.start()

    def add(self, topic: str, partitions: int) -> None:
        """Have a topic registered soon."""
        with self._lock:
            self._topics[topic] = partitions
        self._wake.set()

    @property
    def topics(self) -> dict[str, int]:
        """Number of partitions of each topic that is registered, or will be soon."""
        with self._lock:
            return dict(self._topics)

    def close(self, *, abruptly: bool) -> None:
        """End the session; `abruptly`: only its connection, so that the nodes stay until it expires."""
        self._closed.set()
        self._wake.set()
        if self._session is None:
            return
        if abruptly:
            self._session.end(abruptly=True)
        if self._thread.is_alive():
            self._thread.join(STOP_TIMEOUT_S)
        if not abruptly:
            self._session.end(abruptly=False)
        self._session = None

    # ---- the thread

    def _keep(self) -> None:
        session = self._session
        assert session is not None
        while not self._closed.is_set():
            self._wake.wait()
            self._wake.clear()
            if self._closed.is_set():
                return
            try:
                if session.session_id not in (0, session.registered_as):
                    self._register_all(session)
                elif session.session_id:
                    self._register_topics(session)
            except RegistryUnavailable as error:
                _log.info("broker %d waits with its registration: %s", self._broker_id, error)
                self._closed.wait(_RETRY_S)
                self._wake.set()
            except Exception:  # noqa: BLE001 - top of the thread; the next session may succeed
                _log.exception("broker %d could not be registered", self._broker_id)

    def _register_all(self, session: BrokerSession) -> None:
        session_id = session.session_id
        self._registered.clear()
        text = broker_node(self._host, self._port, time.time_ns() // 1_000_000)
        try:
            done(session.client.create_async(self.path, text, ephemeral=True, makepath=True))
        except NodeExistsError:
            stat = done(session.client.exists_async(self.path))
            if stat is not None and stat.ephemeralOwner != session_id:
                session.registered_as = session_id
                self._registered.update(self.topics)
                _log.error("%s exists already: two brokers have the id %d", self.path, self._broker_id)
                return
        self._register_topics(session)
        session.registered_as = session_id

    def _register_topics(self, session: BrokerSession) -> None:
        for topic, partitions in self.topics.items():
            if topic in self._registered:
                continue
            path, text = f"{TOPICS}/{topic}/{self._broker_id}", b"%d" % partitions
            try:
                done(session.client.create_async(path, text, ephemeral=True, makepath=True))
            except NodeExistsError:
                self._compare(session, path, text)
            self._registered.add(topic)

    def _compare(self, session: BrokerSession, path: str, text: bytes) -> None:
        """Accept a node with the same text, which a lost answer explains; name another one."""
        try:
            found, _ = done(session.client.get_async(path))
        except NoNodeError:
            found = None
        if found != text:
            _log.error("%s is %r, not %r: the topic stays registered as it is", path, found, text)
