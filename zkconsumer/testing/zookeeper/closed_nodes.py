"""Makes nodes in ZooKeeper unreadable for all other sessions, until they are opened again or vanish."""

from __future__ import annotations

import secrets
from contextlib import suppress
from types import TracebackType

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from rebalance.zookeeper.port.kazoo_client import hide_secrets


class ClosedNodes:
    """Closes nodes by an access list that names this object alone: digest, with a secret of its own.

    What it made is gone at the end of the `with` block, and what it closed is open again.

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
