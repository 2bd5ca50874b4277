"""What can go wrong in the group's side of a consumer.

    RebalanceError
    ├── UnreadableNode           a znode holds text that cannot be used; it is reported, and nobody else stops
    │   ├── Kafka07Node          the text is that of Kafka 0.7, in a place where that of 0.8 is expected
    │   └── NoPlaintextListener  a broker registration without an address that is spoken in plain text
    ├── RefusedNode              ZooKeeper does not let us read a znode: what it holds is unknown, not wrong
    ├── InvalidName              a group, topic, client or consumer name that Kafka does not allow (a ValueError)
    ├── UnsupportedFilter        a topic filter that means nothing to Java, or cannot be translated from Java
    ├── UnequalSubscriptions     round robin needs the same threads for every topic, and they differ
    ├── ConsumerIdInUse          a live session of somebody else is registered under our consumer id
    ├── GroupRefused             the group cannot be joined as things stand
    └── NamespaceMissing         the chroot of the connection string does not exist
"""

# The names say what happened; an "Error" behind each would only repeat the tree above.
# ruff: noqa: N818
from __future__ import annotations

from collections.abc import Iterable, Mapping

_EXCERPT_BYTES = 80


class RebalanceError(Exception):
    """Root of everything this package raises, wrong arguments (`ValueError`, `TypeError`) aside."""


class UnreadableNode(RebalanceError):
    """A znode whose data cannot be used.

    Attributes:
        path: Path of the node, relative to the chroot.
        reason: What is wrong with it, one clause.
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
    """A znode written by Kafka 0.7: the cluster, or that member, is of another generation."""


class NoPlaintextListener(UnreadableNode):
    """A broker registration that offers no PLAINTEXT address."""


class RefusedNode(RebalanceError):
    """A znode that ZooKeeper does not let us read.

    Attributes:
        path: Path of the node, relative to the chroot.
        reason: Why, as ZooKeeper says it.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path} cannot be read: {self.reason}"


class InvalidName(RebalanceError, ValueError):
    """A name that Kafka does not allow, or that is no component of a path."""

    def __init__(self, kind: str, name: object, reason: str) -> None:
        super().__init__(kind, name, reason)
        self.kind = kind
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}: {self.reason}"


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
    """Round robin was asked of a group whose topics are not all consumed by the same threads.

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
        return f"roundrobin needs the same consumer threads on every topic of the group: {shown}"


class ConsumerIdInUse(RebalanceError):
    """The registration node exists and belongs to a live session that is not ours."""

    def __init__(self, path: str, session: int) -> None:
        super().__init__(path, session)
        self.path = path
        self.session = session

    def __str__(self) -> str:
        return f"{self.path}: held by session 0x{self.session % 2**64:x}, another consumer with the same consumer id"


class GroupRefused(RebalanceError):
    """The group cannot be joined: its members speak another generation, or another rule is broken."""

    def __init__(self, group: str, reason: str) -> None:
        super().__init__(group, reason)
        self.group = group
        self.reason = reason

    def __str__(self) -> str:
        return f"group {self.group!r}: {self.reason}"


class NamespaceMissing(RebalanceError):
    """The chroot of the connection string does not exist; consumers never create it."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"the chroot {self.path!r} does not exist in ZooKeeper (KAFKA-2088: consumers do not create it)"
