"""The registry of an embedded cluster in ZooKeeper: the same nodes as Java brokers of its version write.

| node | kept by |
|---|---|
| `/brokers/ids/<id>`, `/controller` (ephemeral) | a session for each broker |
| `/controller_epoch`, `/brokers/topics/<t>`, `.../partitions/<p>/state`, `/config/topics/<t>` | the cluster's session |
| `/consumers/<group>/offsets/<t>/<p>` | offset commits of version 0 |

Topics made, grown or marked for deletion by others (Kafka's own tools, say) are seen by watches.

`nodes` has the texts.

Source: kafka.utils.ZkUtils, kafka.admin.AdminUtils, kafka.controller.KafkaController (0.8.2.2).

ZooKeeper sessions of an embedded cluster and of its brokers: start, requests, and an orderly or an abrupt end.
"""

from __future__ import annotations

import json
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, NoAuthError, NodeExistsError, NoNodeError, NotEmptyError
from kazoo.handlers.threading import KazooTimeoutError

from rebalance.zookeeper.znodes import format_grown_topic, format_topic_config
from zkconsumer.testing.embedded.leadership import PartitionState
from zkconsumer.testing.embedded.protocol import BrokerAddress
from zkconsumer.testing.embedded.registries.nodes import (
    broker_node,
    controller_node,
    json_text,
    read_topic_id,
    state_node,
    topic_node,
)
from zkconsumer.testing.embedded.registries.registry import (
    Assignment,
    RegistryUnavailable,
    TopicEntry,
    TopicExists,
    id_text,
)
from zkconsumer.testing.errors import KitError, NoSession
from zkconsumer.testing.zookeeper.client import connected_client
from zkconsumer.testing.zookeeper.login import ZooKeeperLogin
from zkconsumer.testing.zookeeper.wire import end_session

START_TIMEOUT_S: Final = 30.0
ANSWER_TIMEOUT_S: Final = 10.0
# Nothing ephemeral hangs on the cluster's own session. It is so short because kazoo waits as long for the answer to a
# handshake, and a ZooKeeper that is just coming up may never answer the first one.
CLUSTER_SESSION_S: Final = 10.0


def done(asked: Any) -> Any:
    """The answer to an asynchronous request of kazoo.

    Raises:
        RegistryUnavailable: the connection is down, or ZooKeeper has not answered for ten seconds.
        kazoo's own errors: the ones that are answers.
    """
    try:
        return asked.get(timeout=ANSWER_TIMEOUT_S)
    except (NoNodeError, NodeExistsError, BadVersionError, NotEmptyError):
        raise
    except NoAuthError as error:
        raise RegistryUnavailable(
            "ZooKeeper refused a request of the embedded cluster (NoAuth): an access list does not name its login; "
            "give EmbeddedCluster(login=...) one that it names, or have the list changed (setAcl)"
        ) from error
    except (KazooException, KazooTimeoutError) as error:
        raise RegistryUnavailable(f"ZooKeeper did not answer: {error!r}") from error


def connected(connect: str, session_timeout_s: float, login: ZooKeeperLogin | None) -> KazooClient:
    """A client with a session.

    Raises:
        RegistryUnavailable: no ZooKeeper answered for half a minute, or it refused the login.
    """
    try:
        return connected_client(connect, login, session_s=session_timeout_s, timeout_s=START_TIMEOUT_S)
    except NoSession as error:
        raise RegistryUnavailable(str(error)) from error


def cluster_client(hosts: str, chroot: str, login: ZooKeeperLogin | None) -> KazooClient:
    """A client of the cluster's own inside the chroot, whose path is made if need be.

    Raises:
        RegistryUnavailable: no ZooKeeper answered for half a minute, or it refused the login.
        NodeRefused: an access list does not name the login.
    """
    if chroot:
        root = connected(hosts, CLUSTER_SESSION_S, login)
        try:
            root.ensure_path(chroot)
        finally:
            root.stop()
            root.close()
    return connected(hosts + chroot, CLUSTER_SESSION_S, login)


def end_owner(client: KazooClient, hosts: str, path: str, login: ZooKeeperLogin | None, *, keep: int = 0) -> None:
    """End the session that owns an ephemeral node, as that of a killed predecessor.

    Args:
        client: reads the node.
        hosts: connect string without chroot.
        keep: a session that is not ended.
    """
    stat = done(client.exists_async(path))
    if stat is not None and stat.ephemeralOwner not in (0, keep):
        end_session(hosts, stat.ephemeralOwner, tls=None if login is None else login.tls())


class BrokerSession:
    """A broker's ZooKeeper session, and under which session id it is registered."""

    def __init__(self, connect: str, timeout_s: float, login: ZooKeeperLogin | None) -> None:
        self.client = connected(connect, timeout_s, login)
        self.registered_as = 0

    @property
    def session_id(self) -> int:
        """0 while there is none."""
        identity = self.client.client_id
        return int(identity[0]) if identity and self.client.connected else 0

    def end(self, *, abruptly: bool) -> None:
        """Close the session; `abruptly`: only the connection, as the death of a process does."""
        if abruptly:
            # kazoo has only an orderly end, so its loop is stopped and its socket is closed.
            self.client._stopped.set()
            connection = getattr(self.client._connection, "_socket", None)
            if connection is not None:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it was just reconnecting
            self.client._safe_close()
        else:
            self.client.stop()
        self.client.close()


IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
CONFIG = "/config/topics"
CONFIG_CHANGES = "/config/changes"
DOOMED = "/admin/delete_topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
ROOTS = ("/consumers", IDS, TOPICS, CONFIG_CHANGES, CONFIG, DOOMED)


def state_path(topic: str, partition: int) -> str:
    """The path of a partition's state node."""
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def _offset_path(group: str, topic: str, partition: int) -> str:
    return f"/consumers/{group}/offsets/{topic}/{partition}"


class ZooKeeperRegistry:
    """A cluster's nodes.

    Threads: every method from any thread; watches only take notes and call `changed`.
    """

    def __init__(
        self,
        connect: str,
        *,
        chroot: str = "",
        session_timeout_s: float = 6.0,
        login: ZooKeeperLogin | None = None,
        node_version: int = 1,
    ) -> None:
        """Prepare a registry; nothing is connected before `start()`.

        Args:
            connect: connect string without chroot.
            session_timeout_s: of the brokers' sessions.
            login: how its sessions authenticate.
            node_version: of the nodes of brokers, by which others tell their generation.
        """
        self._login = login
        self._node_version = node_version
        self._hosts = connect
        self._connect = connect + chroot
        self._chroot = chroot
        self._session_timeout_s = session_timeout_s
        self._changed: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._client: KazooClient | None = None
        self._sessions: dict[int, BrokerSession] = {}
        self._topics: dict[str, TopicEntry] = {}
        self._stale: set[str] = set()
        self._list_is_stale = True

    @property
    def client(self) -> KazooClient:
        """The cluster's own session; KitError before `start()`."""
        if self._client is None:
            raise KitError("the cluster was not started")
        return self._client

    @property
    def reachable(self) -> bool:
        """True while the cluster's own session is connected."""
        return self._client is not None and bool(self._client.connected)

    def start(self, changed: Callable[[], None]) -> None:
        """Connect, and make the nodes that an idle Java broker makes.

        Raises:
            RegistryUnavailable: no ZooKeeper answered, or it refused the login.
            NodeRefused: an access list does not name the login.
        """
        self._changed = changed
        client = cluster_client(self._hosts, self._chroot, self._login)
        try:
            for path in ROOTS:
                client.ensure_path(path)
        except BaseException:
            client.stop()
            client.close()
            raise
        self._client = client

    # ---- watches

    def _brokers_moved(self, event: Any) -> None:
        if event.type == "NONE":
            self._connection_moved()
        self._changed()

    def _topics_moved(self, event: Any) -> None:
        with self._lock:
            self._list_is_stale = True
        self._changed()

    def _topic_moved(self, event: Any) -> None:
        with self._lock:
            self._stale.add(event.path.rpartition("/")[2] if event.path else "")
        self._brokers_moved(event)

    def _config_moved(self, event: Any) -> None:
        with self._lock:
            self._list_is_stale = True
            self._stale |= set(self._topics)
        self._changed()

    def _connection_moved(self) -> None:
        """kazoo forgets all watches of a lost connection: read everything again."""
        with self._lock:
            self._list_is_stale = True
            self._stale |= set(self._topics)

    # ---- brokers

    def register(self, broker: BrokerAddress) -> None:
        """Make the id node, in a session of the broker's own; the node of a killed predecessor is removed first."""
        session = self._sessions.get(broker.broker_id)
        end_owner(self.client, self._hosts, f"{IDS}/{broker.broker_id}", self._login,
                  keep=0 if session is None else session.session_id)  # fmt: skip
        if session is None:
            session = BrokerSession(self._connect, self._session_timeout_s, self._login)
            session.client.add_listener(lambda state: self._changed())
            self._sessions[broker.broker_id] = session
        try:
            text = broker_node(broker, _now_ms(), self._node_version)
            done(session.client.create_async(f"{IDS}/{broker.broker_id}", text, ephemeral=True))
        except NodeExistsError:
            pass  # a lost reply: the node is of this very session
        session.registered_as = session.session_id

    def needs_registration(self, broker_id: int) -> bool:
        """True if the broker has a new session, and so no node."""
        session = self._sessions.get(broker_id)
        return session is not None and session.session_id not in (0, session.registered_as)

    def unregister(self, broker_id: int, *, abruptly: bool) -> None:
        """End the broker's session, or only its connection."""
        session = self._sessions.pop(broker_id, None)
        if session is not None:
            session.end(abruptly=abruptly)

    def live_brokers(self) -> dict[int, BrokerAddress]:
        """The id nodes."""
        found = {}
        for name in done(self.client.get_children_async(IDS, watch=self._brokers_moved)):
            try:
                data = json.loads(done(self.client.get_async(f"{IDS}/{name}"))[0])
            except NoNodeError:
                continue  # it was deleted in between; the watch reports it
            found[int(name)] = BrokerAddress(int(name), str(data["host"]), int(data["port"]))
        return found

    def controller_epoch(self, candidates: Sequence[int]) -> int:
        """Epoch of the controller; a candidate takes the node if it is gone."""
        if done(self.client.exists_async(CONTROLLER, watch=self._brokers_moved)) is None:
            for broker_id in candidates:
                if self._elect(broker_id):
                    break
        try:
            return int(done(self.client.get_async(CONTROLLER_EPOCH))[0])
        except NoNodeError:
            return 1

    def _elect(self, broker_id: int) -> bool:
        session = self._sessions.get(broker_id)
        if session is None:
            return False
        try:
            done(session.client.create_async(CONTROLLER, controller_node(broker_id, _now_ms()), ephemeral=True))
        except (NodeExistsError, RegistryUnavailable):
            return False  # another one was faster, or this session is down: the next look decides
        try:
            epoch, stat = done(self.client.get_async(CONTROLLER_EPOCH))
            done(self.client.set_async(CONTROLLER_EPOCH, b"%d" % (int(epoch) + 1), version=stat.version))
        except NoNodeError:
            done(self.client.create_async(CONTROLLER_EPOCH, b"1"))
        return True

    # ---- topics

    def topics(self) -> dict[str, TopicEntry]:
        """All topics; only what moved since the last time is read."""
        try:
            return self._read_topics()
        except RegistryUnavailable:
            self._connection_moved()  # the notes of what is stale were taken already
            raise

    def _read_topics(self) -> dict[str, TopicEntry]:
        with self._lock:
            list_is_stale, self._list_is_stale = self._list_is_stale, False
            stale, self._stale = self._stale, set()
        if list_is_stale:
            done(self.client.get_children_async(DOOMED, watch=self._topics_moved))
            done(self.client.get_children_async(CONFIG_CHANGES, watch=self._config_moved))
            names = set(done(self.client.get_children_async(TOPICS, watch=self._topics_moved)))
            for gone in set(self._topics) - names:
                del self._topics[gone]
            stale |= names - set(self._topics)
        for name in stale:
            entry = self._read_topic(name) if name else None
            if entry is not None:
                self._topics[name] = entry
        return dict(self._topics)

    def _read_topic(self, topic: str) -> TopicEntry | None:
        try:
            data = json.loads(done(self.client.get_async(f"{TOPICS}/{topic}", watch=self._topic_moved))[0])
            assignment = {int(p): tuple(replicas) for p, replicas in data["partitions"].items()}
        except (NoNodeError, ValueError, KeyError):
            return None  # gone, or edited manually: as in Java, a topic without partitions
        try:
            config = json.loads(done(self.client.get_async(f"{CONFIG}/{topic}"))[0])["config"]
        except (NoNodeError, ValueError, KeyError):
            config = {}
        return TopicEntry(assignment, config, read_topic_id(data))

    def create_topic(self, topic: str, assignment: Assignment, config: Mapping[str, object]) -> None:
        """Write configuration and assignment, in this order, as Kafka's tools do."""
        if done(self.client.exists_async(f"{TOPICS}/{topic}")) is not None:
            raise TopicExists(topic)
        settings = format_topic_config(config)
        try:
            done(self.client.create_async(f"{CONFIG}/{topic}", settings))
        except NodeExistsError:
            done(self.client.set_async(f"{CONFIG}/{topic}", settings))
        try:
            done(self.client.create_async(f"{TOPICS}/{topic}", topic_node(assignment, self._node_version)))
        except NodeExistsError:
            raise TopicExists(topic) from None
        self._topics_moved(None)

    def set_assignment(self, topic: str, assignment: Assignment) -> None:
        """Write the assignment; other fields stay as they are."""
        path = f"{TOPICS}/{topic}"
        text = format_grown_topic(topic, done(self.client.get_async(path))[0], assignment)
        done(self.client.set_async(path, text))
        with self._lock:
            self._stale.add(topic)
        self._changed()

    def set_config(self, topic: str, config: Mapping[str, object]) -> None:
        """Write the settings of a topic, and tell the other readers of them."""
        self._put(f"{CONFIG}/{topic}", format_topic_config(config))
        change = json_text({"version": 2, "entity_path": f"topics/{topic}"})
        done(self.client.create_async(f"{CONFIG_CHANGES}/config_change_", change, sequence=True))
        self._config_moved(None)

    def doomed_topics(self) -> list[str]:
        """The children of `/admin/delete_topics`."""
        return sorted(done(self.client.get_children_async(DOOMED)))

    def doom_topic(self, topic: str) -> None:
        """Add a child to `/admin/delete_topics`."""
        done(self.client.ensure_path_async(f"{DOOMED}/{topic}"))
        self._changed()

    def forget_topic(self, topic: str) -> None:
        """Delete the topic's nodes, the wish last."""
        for path in (f"{TOPICS}/{topic}", f"{CONFIG}/{topic}", f"{DOOMED}/{topic}"):
            self._delete(path)
        with self._lock:
            self._list_is_stale = True

    def _delete(self, path: str) -> None:
        """Delete a node and the nodes below it."""
        try:
            for name in done(self.client.get_children_async(path)):
                self._delete(f"{path}/{name}")
            done(self.client.delete_async(path))
        except NoNodeError:
            return

    def state(self, topic: str, partition: int) -> PartitionState | None:
        """The content of the state node."""
        try:
            data = json.loads(done(self.client.get_async(state_path(topic, partition)))[0])
        except NoNodeError:
            return None
        return PartitionState(data["controller_epoch"], data["leader"], data["leader_epoch"], tuple(data["isr"]))

    def set_state(self, topic: str, partition: int, state: PartitionState) -> None:
        """Write the state node."""
        self._put(state_path(topic, partition), state_node(state))

    def cluster_id(self) -> str:
        """Read the id of the cluster; the first call makes the node."""
        text = json_text({"version": "1", "id": id_text(uuid.uuid4().bytes)})
        try:
            done(self.client.create_async(CLUSTER_ID, text, makepath=True))
        except NodeExistsError:
            text = done(self.client.get_async(CLUSTER_ID))[0]
        return str(json.loads(text)["id"])

    # ---- offsets

    def commit_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Write the node that consumers write."""
        self._put(_offset_path(group, topic, partition), b"%d" % offset)

    def committed_offset(self, group: str, topic: str, partition: int) -> int | None:
        """Read the node that consumers write."""
        try:
            return int(done(self.client.get_async(_offset_path(group, topic, partition)))[0])
        except NoNodeError:
            return None

    def _put(self, path: str, data: bytes) -> None:
        try:
            done(self.client.set_async(path, data))
        except NoNodeError:
            try:
                done(self.client.create_async(path, data, makepath=True))
            except NodeExistsError:
                done(self.client.set_async(path, data))

    # ---- end

    def close(self) -> None:
        """End all sessions."""
        for broker_id in list(self._sessions):
            self.unregister(broker_id, abruptly=False)
        if self._client is not None:
            self._client.stop()
            self._client.close()
            self._client = None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
