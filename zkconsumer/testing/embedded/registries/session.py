"""ZooKeeper sessions of an embedded cluster and of its brokers: start, requests, and an orderly or an abrupt end."""

from __future__ import annotations

import socket
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, NoAuthError, NodeExistsError, NoNodeError, NotEmptyError
from kazoo.handlers.threading import KazooTimeoutError

from zkconsumer.testing.embedded.registries.registry import RegistryUnavailable
from zkconsumer.testing.errors import NoSession
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
