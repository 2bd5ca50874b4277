"""The errors of the group: names, filters, registrations, and access to znodes. Pure.

RebalanceError
├── UnreadableNode           a znode holds text that cannot be used; it is reported, and no member stops
│   ├── Kafka07Node          the text is in the format of Kafka 0.7, where that of 0.8 is expected
│   ├── Kafka08Node          the text is in the format of Kafka 0.8, where that of 0.7 is expected
│   └── NoListener  a broker registration without an address of the protocol that is wanted
├── UnreadableMetadata       a subscription or an assignment of a group of brokers that cannot be read
├── RefusedNode              ZooKeeper does not let this client read a znode: its content is unknown, not wrong
├── InvalidName              a group, topic, client or consumer name that Kafka does not allow (a ValueError)
├── UnsupportedFilter        a topic filter that Java refuses, or that cannot be translated from Java
├── UnequalSubscriptions     round robin needs the same threads for every topic, and they differ
├── ConsumerIdInUse          another live session is registered under the same consumer id
├── GroupRefused             the group cannot be joined in its present state
├── AccessRefused            ZooKeeper refuses the credentials, or access to a node (a PermissionError)
└── NamespaceMissing         the chroot of the connection string does not exist
"""

# The names say what happened; an "Error" at the end of each would only repeat the tree above.
# ruff: noqa: N818
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from zkconsumer_error import ZkConsumerError

if TYPE_CHECKING:
    from rebalance.zookeeper.port.requests import Fault, Reply

_EXCERPT_BYTES = 80
_GIVE_CREDENTIALS = "set zookeeper.auth or zookeeper.sasl.* to credentials that it accepts"
_CREDENTIALS_DEMANDED = "SessionClosedRequireSasl"
"""Part of the answer (error -124) of a server that serves no session without credentials."""


class RebalanceError(ZkConsumerError):
    """Base class of the errors of this package, except for wrong arguments (`ValueError`, `TypeError`)."""


class UnreadableNode(RebalanceError):
    """A znode whose data cannot be used.

    Attributes:
        path: Path of the node, relative to the chroot.
        reason: The fault, as a clause.
        excerpt: The first 80 bytes of the data; a node may hold a megabyte, a log line should not.
        size_bytes: Length of the whole data; 0 when the node holds none.
    """

    def __init__(self, path: str, reason: str, data: bytes | None) -> None:
        super().__init__(path, reason, data)
        self.path = path
        self.reason = reason
        self.excerpt = (data or b"")[:_EXCERPT_BYTES]
        self.size_bytes = len(data or b"")

    def __str__(self) -> str:
        held = f"{self.excerpt!r}" if self.size_bytes else "no data"
        if self.size_bytes > _EXCERPT_BYTES:
            held += f"... ({self.size_bytes} bytes)"
        return f"{self.path}: {self.reason}: {held}"


class Kafka07Node(UnreadableNode):
    """A znode in the format of Kafka 0.7: the cluster, or that member, is of another version."""


class Kafka08Node(UnreadableNode):
    """A znode in the format of Kafka 0.8 and later, in a cluster or a group of Kafka 0.7."""


class NoListener(UnreadableNode):
    """A broker registration that offers no address of the protocol that is wanted."""


class UnreadableMetadata(RebalanceError):
    """A subscription or an assignment of a member of a group that brokers coordinate, whose bytes make no sense.

    Attributes:
        reason: The fault, as a clause.
        excerpt: Its first 80 bytes.
        size_bytes: Its length.
    """

    def __init__(self, reason: str, data: bytes) -> None:
        super().__init__(reason, data)
        self.reason = reason
        self.excerpt = bytes(data[:_EXCERPT_BYTES])
        self.size_bytes = len(data)

    def __str__(self) -> str:
        cut = f"... ({self.size_bytes} bytes)" if self.size_bytes > _EXCERPT_BYTES else ""
        return f"{self.reason}: {self.excerpt!r}{cut}"


class RefusedNode(RebalanceError):
    """A znode that ZooKeeper does not let this client read. It stands for the content; callers that need that raise it.

    Attributes:
        path: Path of the node, relative to the chroot.
        fault: The answer to the read.
        reason: Details of ZooKeeper's answer.
        remedy: The advice for the operator, as a clause; empty for a fault other than missing rights.
    """

    def __init__(self, path: str, fault: Fault, reason: str = "") -> None:
        super().__init__(path, fault, reason)
        self.path = path
        self.fault = fault
        self.reason = reason
        if fault.needs_rights:
            self.remedy = AccessRefused.of_node("read", path, reason).remedy

    @classmethod
    def of(cls, path: str, reply: Reply) -> RefusedNode:
        """The error for a read of `path` that was refused."""
        assert reply.fault is not None
        return cls(path, reply.fault, reply.reason)

    @property
    def cause(self) -> str:
        """The sentence without the remedy."""
        if self.fault.needs_rights:
            return AccessRefused.of_node("read", self.path, self.reason).cause
        return str(self)

    def __str__(self) -> str:
        return refusal_of("read", self.path, self.fault, self.reason)


class InvalidName(RebalanceError, ValueError):
    """A name that Kafka does not allow, or that is no component of a path."""

    remedy = "give it 1 to 255 of a-z, A-Z, 0-9, '.', '_' and '-', as Kafka's brokers require"

    def __init__(self, kind: str, name: object, reason: str) -> None:
        super().__init__(kind, name, reason)
        self.kind = kind
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} {self.reason}"


class UnsupportedFilter(RebalanceError):
    """A topic filter whose meaning in Java cannot be kept.

    Attributes:
        text: The filter, cleaned.
        reason: The construct and why it is refused.
        position: Index into `text` where it stands; None when only the whole is known to be wrong.
    """

    def __init__(self, text: str, reason: str, position: int | None = None) -> None:
        super().__init__(text, reason, position)
        self.text = text
        self.reason = reason
        self.position = position

    def __str__(self) -> str:
        place = "" if self.position is None else f" at position {self.position}"
        return f"topic filter {self.text!r}{place}: {self.reason}"


class UnequalSubscriptions(RebalanceError):
    """Round robin is configured in a group whose topics are not all consumed by the same threads.

    Attributes:
        threads: Topic -> sorted thread ids, for every topic that any member subscribes to.
    """

    def __init__(self, threads: Mapping[str, Iterable[str]]) -> None:
        self.threads = {topic: tuple(sorted(ids)) for topic, ids in sorted(threads.items())}
        super().__init__(self.threads)

    def __str__(self) -> str:
        everybody = {thread for ids in self.threads.values() for thread in ids}
        lacking = [
            f"{topic} lacks {', '.join(sorted(everybody.difference(ids)))}"
            for topic, ids in self.threads.items()
            if everybody.difference(ids)
        ]
        shown = "; ".join(lacking[:5]) + ("; ..." if len(lacking) > 5 else "")
        return f"roundrobin needs the same consumer threads for every topic of the group: {shown}"


class ConsumerIdInUse(RebalanceError):
    """The registration node exists and belongs to another live session.

    Attributes:
        path: The registration that another session has.
        session: That session.
    """

    remedy = "give another consumer.id, or wait until that session has ended"

    def __init__(self, path: str, session: int) -> None:
        super().__init__(path, session)
        self.path = path
        self.session = session

    def __str__(self) -> str:
        return (f"{self.path}: held by session 0x{self.session % 2**64:x}, another consumer with the same consumer id; "
                f"{self.remedy}")  # fmt: skip


class GroupRefused(RebalanceError):
    """The group cannot be joined: its members are of another version of Kafka, or another rule is broken.

    Attributes:
        group: Its name.
        reason: Why it cannot be joined.
    """

    def __init__(self, group: str, reason: str) -> None:
        super().__init__(group, reason)
        self.group = group
        self.reason = reason

    def __str__(self) -> str:
        return f"group {self.group!r}: {self.reason}"


class AccessRefused(RebalanceError, PermissionError):
    """ZooKeeper refuses the credentials, or the access list of a node does not name them.

    Attributes:
        cause: the refused request, as a clause.
        remedy: the advice for the operator, as a clause.
    """

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(cause, remedy)
        self.cause = cause
        self.remedy = remedy

    @classmethod
    def of_credentials(cls, cause: str) -> AccessRefused:
        """The refusal of the credentials."""
        named = "zookeeper.sasl.username and zookeeper.sasl.password" if "SASL" in cause else "zookeeper.auth"
        return cls(cause, f"check {named}, and the authentication settings of the server")

    @classmethod
    def of_node(cls, action: str, path: str, reason: str = "") -> AccessRefused:
        """The refusal of a request: `action` is create, delete, read or write; `reason` is ZooKeeper's answer."""
        if _CREDENTIALS_DEMANDED in reason:
            return cls("ZooKeeper requires credentials for every session", _GIVE_CREDENTIALS)
        # Whether a node may be created or deleted is defined by the list of its parent.
        keeper = path.rpartition("/")[0] or "/" if action in ("create", "delete") else path
        return cls(
            f"ZooKeeper does not let this client {action} {path} (NoAuth): the access list of {keeper} does not name "
            "its credentials",
            f"{_GIVE_CREDENTIALS}, or change that list (setAcl)",
        )

    def __str__(self) -> str:
        return f"{self.cause}; {self.remedy}"


class NamespaceMissing(RebalanceError):
    """The chroot of the connection string does not exist; consumers never create it.

    Attributes:
        path: The chroot that is missing.
    """

    remedy = "check the path after the hosts in zookeeper.connect"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return (f"the chroot {self.path!r} does not exist in ZooKeeper (KAFKA-2088: consumers do not create it); "
                f"{self.remedy}")  # fmt: skip


def refusal_of(action: str, path: str, fault: Fault, reason: str = "") -> str:
    """Why ZooKeeper refused a request about a node, with the remedy; arguments as for `AccessRefused.of_node`."""
    if fault.needs_rights:
        return str(AccessRefused.of_node(action, path, reason))
    return f"ZooKeeper did not {action} {path}: {reason or fault.value}"
