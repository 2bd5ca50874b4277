"""The kit's own ZooKeeper client, whose errors name what ZooKeeper refused and what to do about it.

Makes nodes in ZooKeeper unreadable for all other sessions, until they are opened again or vanish.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from rebalance.errors import AccessRefused, NamespaceMissing
from rebalance.zookeeper.port.kazoo_client import hide_secrets
from zkconsumer.cluster.zookeeper_connection import configured_connection
from zkconsumer.config import ConsumerConfig
from zkconsumer.testing.errors import KitError, NoSession
from zkconsumer.testing.waiting import Deadline
from zkconsumer.testing.zookeeper.login import ZooKeeperLogin
from zkconsumer_error import ZkConsumerError

_ANSWER_S: Final = 10.0
_ENSURE: Final = "read or create"
_SEARCH_S: Final = 3.0
"""How long the client of the library looks for the reason why kazoo's client got no session."""
_GIVE: Final = "give the kit a login=ZooKeeperLogin(...) that it names, or have the list changed (setAcl)"


class NodeRefused(KitError, NoAuthError):  # type: ignore[misc]  # noqa: N818 - kazoo's class is not typed
    """An access list does not name the login of the kit; also the error of kazoo that it replaces."""


class KitClient(KazooClient):  # type: ignore[misc]
    """A kazoo client that names the node when ZooKeeper refuses a request about it.

    Asynchronous requests raise kazoo's own `NoAuthError`.

    Attributes:
        refusals: The sentences of the requests that were refused. One that a `DataWatch` made is seen here alone: it
            runs on a thread of kazoo's.
    """

    def __init__(self, hosts: str, *, session_s: float, login: ZooKeeperLogin | None) -> None:
        super().__init__(hosts, timeout=session_s, **({} if login is None else login.client_options()))
        hide_secrets(self)
        self.refusals: list[str] = []

    def get(self, path: str, *rest: Any, **named: Any) -> Any:
        with self._naming("read", path):
            return super().get(path, *rest, **named)

    def exists(self, path: str, *rest: Any, **named: Any) -> Any:
        with self._naming("read", path):  # servers before 3.9 do not ask for a right
            return super().exists(path, *rest, **named)

    def get_children(self, path: str, *rest: Any, **named: Any) -> Any:
        with self._naming("read", path):
            return super().get_children(path, *rest, **named)

    def set(self, path: str, *rest: Any, **named: Any) -> Any:
        with self._naming("write", path):
            return super().set(path, *rest, **named)

    def set_acls(self, path: str, *rest: Any, **named: Any) -> Any:
        with self._naming("change the access list of", path):
            return super().set_acls(path, *rest, **named)

    def create(self, path: str, *rest: Any, **named: Any) -> Any:
        with self._naming("create", path):
            return super().create(path, *rest, **named)

    def ensure_path(self, path: str, *rest: Any, **named: Any) -> Any:
        with self._naming(_ENSURE, path):
            return super().ensure_path(path, *rest, **named)

    def delete(self, path: str, *rest: Any, **named: Any) -> Any:
        with self._naming("delete", path):
            return super().delete(path, *rest, **named)

    @contextmanager
    def _naming(self, action: str, path: str) -> Iterator[None]:
        try:
            yield
        except NodeRefused:
            raise  # of a request that this one is made of
        except NoAuthError as error:
            raise NodeRefused(self._refusal(action, path)) from error

    def check_readable(self, paths: Iterable[str]) -> None:
        """Note in `refusals` those of the nodes that may not be read; a server that does not answer is no matter.

        From ZooKeeper 3.9.2 on, a watch reports nothing of a node that may not be read.
        """
        asked = [(path, self.get_async(path)) for path in paths]
        deadline = Deadline(_ANSWER_S)
        for path, answer in asked:
            try:
                answer.get(timeout=max(deadline.remaining_s, 0.0))
            except NoAuthError:
                self._refusal("read", path)
            except (KazooException, KazooTimeoutError):
                continue

    def _refusal(self, action: str, path: str) -> str:
        # Who may create or delete a node is defined by the list of the node above it.
        above = path if action == _ENSURE else path.rpartition("/")[0]
        keeper = self._nearest(above) if action in (_ENSURE, "create", "delete") else path
        said = (f"ZooKeeper does not let the kit {action} {path} (NoAuth): the access list of {keeper} does not name "
                f"its login; {_GIVE}")  # fmt: skip
        self.refusals.append(said)
        return said

    def _nearest(self, path: str) -> str:
        """Return the path, or the nearest node above it that exists."""
        while path:
            try:
                if super().exists(path) is not None:
                    break
            except NoAuthError:
                break
            path = path.rpartition("/")[0]
        return path or "/"


def connected_client(connect: str, login: ZooKeeperLogin | None, *, session_s: float, timeout_s: float) -> KitClient:
    """Return a client with a session that ZooKeeper serves.

    A login is tried by the client of the library first: it finds out why a server refuses one, where the thread of
    kazoo's client ends with a traceback, or tries on until the time is over.

    Args:
        connect: Connect string, with a chroot if there is one.
        login: How to authenticate; None: not at all.
        session_s: The session time-out to ask for, in seconds.
        timeout_s: Longest wait for the session, in seconds.

    Raises:
        NoSession: ZooKeeper did not answer, or refused the login, or a file of the login cannot be used, or the package
            that SASL needs is not installed.
    """
    if login is not None:
        login.check_library()
        _check(connect, login, timeout_s)
    client = KitClient(connect, session_s=session_s, login=login)
    try:
        client.start(timeout=timeout_s)
        client.exists_async("/").get(timeout=_ANSWER_S)  # some servers demand credentials no sooner
    except NoAuthError:
        return client  # there is a session; what may be done with it, each request finds out
    except (KazooException, KazooTimeoutError) as error:
        _end(client)
        _check(connect, login, _SEARCH_S)
        raise NoSession(
            f"ZooKeeper at {connect} opened no session within {timeout_s:g} s ({error!r}); check that it "
            "serves requests"
        ) from error
    except BaseException:
        _end(client)
        raise
    return client


def _end(client: KazooClient) -> None:
    client.stop()
    client.close()


def _check(connect: str, login: ZooKeeperLogin | None, timeout_s: float) -> None:
    """Open a session, and end it.

    Raises:
        NoSession: There is none; names the cause and the remedy.
    """
    settings = {} if login is None else login.settings()
    config = ConsumerConfig.from_properties({
        "zookeeper.connect": connect, "group.id": "kit",
        "zookeeper.connection.timeout.ms": max(1, round(timeout_s * 1000)), **settings,
    })  # fmt: skip
    try:
        with configured_connection(config):
            pass
    except NamespaceMissing:
        pass  # some callers make it
    except AccessRefused as error:
        if "requires credentials" in error.cause:
            raise NoSession(f"{error} (the kit came with {_named(login)})") from error
    except ZkConsumerError as error:
        raise NoSession(f"{error} (the kit came with {_named(login)})") from error


def _named(login: ZooKeeperLogin | None) -> str:
    return "no login" if login is None else repr(login)


class ClosedNodes:
    """Closes nodes by an access list that names this object alone: digest, with a secret of its own.

    Nodes that it made are gone at the end of the `with` block, and nodes that it closed are open again.

        with ClosedNodes(zookeeper.connect) as closed:
            closed.create("/consumers/billing/ids/billing_stranger", data)
            ...
            closed.open("/consumers/billing/ids/billing_stranger")

    Args:
        connect: `host:port` of ZooKeeper, with a chroot if there is one.
        timeout_s: longest wait for the connection, and for one to open or delete a node at the end.
    """

    def __init__(self, connect: str, timeout_s: float = 15.0) -> None:
        self._client = KazooClient(connect, auth_data=[("digest", f"closed:{secrets.token_hex(8)}")])
        hide_secrets(self._client)
        self._client.start(timeout_s)
        self._retry = KazooRetry(max_tries=-1, delay=0.05, max_delay=0.5, deadline=timeout_s)
        self._closed: set[str] = set()
        self._made: set[str] = set()

    def create(self, path: str, data: bytes, ephemeral: bool = True) -> None:
        """Create a node that is closed from its first moment."""
        self._client.create(path, data, acl=CREATOR_ALL_ACL, ephemeral=ephemeral)
        self._made.add(path)

    def replace(self, path: str, data: bytes) -> None:
        """Replace another session's node by an ephemeral node that is closed, in one transaction."""
        transaction = self._client.transaction()
        transaction.delete(path)
        transaction.create(path, data, acl=CREATOR_ALL_ACL, ephemeral=True)
        for outcome in transaction.commit():
            if isinstance(outcome, Exception):
                raise outcome
        self._made.add(path)

    def close(self, path: str) -> None:
        """Let no other session read or write a node, not even the one that has created it."""
        self._client.set_acls(path, CREATOR_ALL_ACL)
        self._closed.add(path)

    def write(self, path: str, data: bytes) -> None:
        """Set the data of a node, also of a closed one."""
        self._client.set(path, data)

    def open(self, path: str) -> None:
        """Give all rights on a node to all sessions."""
        self._client.set_acls(path, OPEN_ACL_UNSAFE)
        self._closed.discard(path)

    def delete(self, path: str) -> None:
        """Delete a node."""
        self._client.delete(path)
        self._closed.discard(path)
        self._made.discard(path)

    def __enter__(self) -> ClosedNodes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # However often the connection breaks, and not by the end of the session, of which the server may learn late: a
        # node that stays closed fails other tests of the server, all of whose groups they read.
        try:
            for path in self._made:
                with suppress(NoNodeError):
                    self._retry(self._client.delete, path, recursive=True)
            for path in self._closed - self._made:
                with suppress(NoNodeError):
                    self._retry(self._client.set_acls, path, OPEN_ACL_UNSAFE)
        finally:
            self._client.stop()
            self._client.close()
