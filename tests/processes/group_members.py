"""Members of a group as child processes, with waits short enough for tests."""

from __future__ import annotations

import inspect
import sys
from types import TracebackType
from typing import Any, Self

from rebalance.lease import LEASE_FRACTION
from zkconsumer.testing.history import Event
from zkconsumer.testing.members.member_process import MemberProcess

# Short waits, so that a fault and its end fit into a few seconds; what depends on a wait is computed from these.
SESSION_S = 3.0
AUTO_COMMIT_S = 0.5
LAST_DELIVERY_S = SESSION_S * (LEASE_FRACTION + 1) / 2
"""A member that nobody answers has delivered its last message by then: halfway from the end of its lease to that of its
session. A process that waits for its turn on a busy machine writes down late what it has delivered in time."""
RECONNECTED_S = SESSION_S / 2
"""A client whose session was ended from outside learns of it when it has reconnected. It does so by then, on a busy
machine, too; its lease would end its deliveries a little later."""
SETTINGS = {
    "zookeeper.session.timeout.ms": int(SESSION_S * 1000),
    "zookeeper.connection.timeout.ms": 15_000,
    "auto.commit.interval.ms": int(AUTO_COMMIT_S * 1000),
}
OPTIONS = set(inspect.signature(MemberProcess).parameters)


class Group:
    """Members of one group, ours, closed together."""

    def __init__(self, connect: str, name: str) -> None:
        self.connect = connect
        self.name = name
        self.members: dict[str, MemberProcess] = {}

    def join(self, name: str, *, connect: str | None = None, **options: Any) -> MemberProcess:
        """A new member, when its streams exist."""
        return self.launch(name, connect=connect, **options).wait_ready()

    def launch(self, name: str, *, connect: str | None = None, **options: Any) -> MemberProcess:
        """A new member, not waited for; the history of an earlier one of this name is forgotten.

        Options as `MemberProcess` has them; any other is a setting, with `_` for `.`, over `SETTINGS`.
        """
        if name in self.members:
            self.members.pop(name).close()
        chosen = SETTINGS | {key.replace("_", "."): options.pop(key) for key in set(options) - OPTIONS}
        member = MemberProcess(connect or self.connect, self.name, name, settings=chosen, **options)
        self.members[name] = member
        return member

    def events(self) -> list[Event]:
        """The histories of all members."""
        return [event for member in self.members.values() for event in member.events()]

    def close(self) -> None:
        """End all members."""
        for member in self.members.values():
            member.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members.values():
            print(f"---- log of {member.name}\n{member.process.tail(60)}", file=sys.stderr)  # shown when a test fails
        self.close()
