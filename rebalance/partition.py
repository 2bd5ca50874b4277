"""The state machine of one partition of a member: from free to owned and back.

Pure: it takes events and returns actions. It does not know why a partition is wanted (the group's machine does) nor how
a node is written (`rebalance.zookeeper.claims` does). Rules, and which failure each prevents:
- The result of a create, set or delete always counts, however late: an owner node must not be forgotten.
- A result that is unknown is found out by a read: the write may have been applied.
- Whatever is held is either fetched or released: a partition must not be owned and idle.

The transition table stands at the end of the file; a pair of state and event that is not in it is a bug and raises.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass


class PartitionState(enum.Enum):
    """The states of a partition, as this member sees it."""

    FREE = "free"
    CLAIMING = "claiming"
    BLOCKED = "blocked"
    OWNED = "owned"
    DRAINING = "draining"
    RELEASING = "releasing"
    UNKNOWN = "unknown"


# -- events ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Want:
    """This thread of the member should own it; `None`: none of its threads."""

    thread_id: str | None


@dataclass(frozen=True, slots=True)
class ClaimsAllowed:
    """No group change is pending."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The owner node was created with `thread_id` as its data; `version` is 0."""

    thread_id: str
    version: int = 0


@dataclass(frozen=True, slots=True)
class ClaimPutOff:
    """The group changed before the claim was sent; claims will be allowed again."""


@dataclass(frozen=True, slots=True)
class ClaimRefused:
    """Another owner node exists."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """The write was refused, mostly because the registration is over: nothing was written."""


@dataclass(frozen=True, slots=True)
class ResultUnknown:
    """The connection was lost before the answer came."""


@dataclass(frozen=True, slots=True)
class OwnerRead:
    """The owner node holds `thread_id`; `mine` when this session owns it."""

    thread_id: str
    mine: bool
    version: int
    session_id: int = 0


@dataclass(frozen=True, slots=True)
class OwnerGone:
    """There is no owner node."""


@dataclass(frozen=True, slots=True)
class OwnerChanged:
    """The watch on the owner node fired."""


@dataclass(frozen=True, slots=True)
class Drained:
    """The application works on no message of the partition any more, and the done position is committed."""


@dataclass(frozen=True, slots=True)
class Released:
    """The owner node is deleted."""


@dataclass(frozen=True, slots=True)
class ReleaseRefused:
    """The owner node is not owned by this session any more; it was left alone."""


@dataclass(frozen=True, slots=True)
class MovedToThread:
    """The owner node now names another thread of this member."""

    thread_id: str
    version: int


@dataclass(frozen=True, slots=True)
class Reconnected:
    """The same session answers, or is registered, again; all watches are lost."""


@dataclass(frozen=True, slots=True)
class SessionOver:
    """The session is gone and the owner node with it."""


Event = (
    Want
    | ClaimsAllowed
    | Claimed
    | ClaimPutOff
    | ClaimRefused
    | Fenced
    | ResultUnknown
    | OwnerRead
    | OwnerGone
    | OwnerChanged
    | Drained
    | Released
    | ReleaseRefused
    | MovedToThread
    | Reconnected
    | SessionOver
)

# -- actions -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claim:
    """Create the owner node; list the owner nodes first, unless its end was just reported."""

    thread_id: str
    is_vacant: bool = False


@dataclass(frozen=True, slots=True)
class AwaitEnd:
    """Find out when the owner node that blocks the claim is gone: mostly it is being released."""


@dataclass(frozen=True, slots=True)
class Inspect:
    """Read the owner node, with a watch while it blocks."""

    watch: bool


@dataclass(frozen=True, slots=True)
class Start:
    """The partition is held: load the offset and deliver to this thread."""

    thread_id: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Stop fetching, let the message in hand finish, commit; then report `Drained`."""


@dataclass(frozen=True, slots=True)
class MoveToThread:
    """Set the data of the owner node to another thread of this member."""

    thread_id: str
    version: int


@dataclass(frozen=True, slots=True)
class Release:
    """Delete the owner node if this session owns it."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Deliver nothing more, at once: ownership ended without a release."""


@dataclass(frozen=True, slots=True)
class Recheck:
    """An owner node is gone: read the members before anything is created.

    A Java member that rebalances releases everything for a moment, also what stays assigned to it.
    """


Action = Claim | AwaitEnd | Inspect | Start | Drain | MoveToThread | Release | Stop | Recheck


class PartitionMachine:
    """One partition of one member.

    Attributes:
        state: the present state.
        wanted: the thread of this member that should own it, or `None`.
        held: the thread id in the owner node of this session, or `None`.
        version: version of that node.
        holder: who blocks the claim: (thread id, session id).
        is_vacant: whether the last report about the owner node is that it is gone.
    """

    __slots__ = ("held", "holder", "is_vacant", "state", "version", "wanted")

    def __init__(self) -> None:
        self.state = PartitionState.FREE
        self.wanted: str | None = None
        self.held: str | None = None
        self.version = 0
        self.holder: tuple[str, int] | None = None
        self.is_vacant = False

    def handle(self, event: Event) -> list[Action]:
        """The actions that follow from `event`, in order.

        Raises:
            LookupError: the table has no row for the event in the present state.
        """
        row = _TABLE.get((self.state, type(event)))
        if row is None:
            raise LookupError(f"no transition for {type(event).__name__} in state {self.state.value}")
        return row(self, event)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held, wanted or under way: the machine can be forgotten."""
        return self.state is PartitionState.FREE and self.wanted is None

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _go(self, state: PartitionState, *actions: Action) -> list[Action]:
        self.state = state
        self.is_vacant = False
        if state is not PartitionState.BLOCKED:
            self.holder = None
        if state in (PartitionState.FREE, PartitionState.CLAIMING, PartitionState.BLOCKED):
            self.held = None
        return list(actions)

    def _ignore(self, _: Event) -> list[Action]:
        return []

    def _want(self, event: Want) -> list[Action]:
        self.wanted = event.thread_id
        return []

    def _want_blocked(self, event: Want) -> list[Action]:
        self.wanted = event.thread_id
        return self._go(PartitionState.FREE) if event.thread_id is None else []

    def _want_owned(self, event: Want) -> list[Action]:
        self.wanted = event.thread_id
        return [] if event.thread_id == self.held else self._go(PartitionState.DRAINING, Drain())

    def _claim(self, _: Event) -> list[Action]:
        return [] if self.wanted is None else self._go(PartitionState.CLAIMING, Claim(self.wanted, self.is_vacant))

    def _hold(self, thread_id: str, version: int) -> list[Action]:
        """This session owns the node and nothing is fetched yet: deliver, move to another thread, or release."""
        self.held, self.version, self.holder = thread_id, version, None
        if self.wanted is None:
            self.state = PartitionState.RELEASING
            return [Release()]
        if self.wanted != thread_id:
            self.state = PartitionState.UNKNOWN
            return [MoveToThread(self.wanted, version)]
        self.state = PartitionState.OWNED
        # The watch reports that an operator deletes the node: nothing else would before the session ends.
        return [Start(thread_id), Inspect(watch=True)]

    def _claimed(self, event: Claimed) -> list[Action]:
        return self._hold(event.thread_id, event.version)

    def _moved_to_thread(self, event: MovedToThread) -> list[Action]:
        return self._hold(event.thread_id, event.version)

    def _refused(self, _: ClaimRefused) -> list[Action]:
        if self.wanted is None:
            # The owner decides: a node of this session, from a claim whose answer was lost, must be released.
            return self._go(PartitionState.UNKNOWN, Inspect(watch=False))
        return self._go(PartitionState.BLOCKED, AwaitEnd())

    def _put_off(self, _: ClaimPutOff) -> list[Action]:
        return self._go(PartitionState.FREE)

    def _blocked_by(self, event: OwnerRead) -> list[Action]:
        if event.mine:
            return self._hold(event.thread_id, event.version)
        self.holder = (event.thread_id, event.session_id)
        return []

    def _unblocked(self, _: Event) -> list[Action]:
        actions = self._go(PartitionState.FREE, Recheck())
        self.is_vacant = True
        return actions

    def _find_out(self, _: Event) -> list[Action]:
        """The result never came: read the node. That answer is as good as the one that was lost."""
        held = self.held
        actions = self._go(PartitionState.UNKNOWN, Inspect(watch=False))
        self.held = held
        return actions

    def _found(self, event: OwnerRead) -> list[Action]:
        if event.mine:
            return self._hold(event.thread_id, event.version)
        if self.wanted is None:
            return self._go(PartitionState.FREE)
        self._go(PartitionState.BLOCKED)
        self.holder = (event.thread_id, event.session_id)
        return [Inspect(watch=True)]

    def _found_free(self, _: Event) -> list[Action]:
        return self._go(PartitionState.FREE, *([Recheck()] if self.wanted is not None else []))

    def _read_again(self, _: Event) -> list[Action]:
        return [Inspect(watch=self.state is not PartitionState.UNKNOWN)]

    def _still_owned(self, event: OwnerRead) -> list[Action]:
        """The held node was read. A foreign node in its place ends delivery at once: its owner delivers too."""
        if event.mine:
            self.version = event.version
            return []
        self._go(PartitionState.BLOCKED)
        self.holder = (event.thread_id, event.session_id)
        return [Stop(), Inspect(watch=True)]

    def _taken_away(self, _: OwnerGone) -> list[Action]:
        """Stop, then claim again: somebody deleted the owner node, and another member may own it by now."""
        return self._go(PartitionState.FREE, Stop(), Recheck())

    def _drained(self, _: Drained) -> list[Action]:
        held = self.held or ""
        return self._hold(held, self.version)

    def _freed(self, _: Event) -> list[Action]:
        """Released, or never held; if it is wanted meanwhile, the group decides when to claim it."""
        return self._go(PartitionState.FREE, *([Recheck()] if self.wanted is not None else []))

    def _fenced(self, _: Event) -> list[Action]:
        """Nothing was claimed; the next registration or audit brings the next try."""
        return self._go(PartitionState.FREE)

    def _fenced_holding(self, _: Event) -> list[Action]:
        """The registration is gone but the session may live, and its owner node too: read it when registered again."""
        return self._go(PartitionState.UNKNOWN)

    def _lose(self, _: Event) -> list[Action]:
        return self._go(PartitionState.FREE, Stop())

    def _over(self, _: SessionOver) -> list[Action]:
        return self._go(PartitionState.FREE)


_P = PartitionMachine
_S = PartitionState


# Pairs that are not in the table cannot happen: an answer counts only in the state in which its question was asked
# (`MemberPartitions.handle`). Each state asks for the one thing that it waits for, or reads the owner node (`blocked`,
# `owned`, `unknown`).
_ANY_TIME: dict[type, Callable[..., list[Action]]] = {
    Want: _P._want,
    ClaimsAllowed: _P._ignore,
    # A watch on an earlier node, or on a node that this member wrote itself.
    OwnerChanged: _P._ignore,
    Reconnected: _P._ignore,
    SessionOver: _P._over,
}
_BY_STATE: dict[PartitionState, dict[type, Callable[..., list[Action]]]] = {
    _S.FREE: {ClaimsAllowed: _P._claim},
    _S.CLAIMING: {
        Claimed: _P._claimed,
        ClaimPutOff: _P._put_off,
        ClaimRefused: _P._refused,
        Fenced: _P._fenced,
        ResultUnknown: _P._find_out,
    },
    _S.BLOCKED: {
        Want: _P._want_blocked,
        OwnerRead: _P._blocked_by,
        OwnerGone: _P._unblocked,
        OwnerChanged: _P._unblocked,
        # The read with the watch was lost: the reconnection reads again.
        ResultUnknown: _P._ignore,
        Reconnected: _P._read_again,
    },
    _S.OWNED: {
        Want: _P._want_owned,
        OwnerRead: _P._still_owned,
        OwnerGone: _P._taken_away,
        OwnerChanged: _P._read_again,
        # A read that failed; the reconnection or the audit reads again.
        ResultUnknown: _P._ignore,
        Reconnected: _P._read_again,
        SessionOver: _P._lose,
    },
    _S.DRAINING: {Drained: _P._drained, SessionOver: _P._lose},
    _S.RELEASING: {
        Released: _P._freed,
        ReleaseRefused: _P._freed,
        Fenced: _P._fenced_holding,
        ResultUnknown: _P._find_out,
    },
    _S.UNKNOWN: {
        OwnerRead: _P._found,
        OwnerGone: _P._found_free,
        MovedToThread: _P._moved_to_thread,
        ReleaseRefused: _P._find_out,
        # The read failed as well: the reconnection reads again.
        ResultUnknown: _P._ignore,
        Fenced: _P._fenced_holding,
        Reconnected: _P._read_again,
    },
}

_TABLE: dict[tuple[PartitionState, type], Callable[..., list[Action]]] = {
    (state, event): step for state, rows in _BY_STATE.items() for event, step in {**_ANY_TIME, **rows}.items()
}
