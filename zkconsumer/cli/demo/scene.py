"""One moment of a demonstration, as values: members, owners, counts, events. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Actor", "Happening", "Scene", "shares"]


@dataclass(frozen=True)
class Happening:
    """One event, `at_s` seconds after the start."""

    at_s: float
    text: str


@dataclass(frozen=True)
class Actor:
    """One member.

    Attributes:
        state: Joining, consuming, leaving, left, killed.
        delivered: Messages that it has got.
        rates: Messages in each of the last seconds, the newest last.
    """

    name: str
    state: str
    delivered: int
    rates: tuple[int, ...]


@dataclass(frozen=True)
class Scene:
    """One moment.

    Attributes:
        length_s: About how long the demonstration takes, in seconds.
        rate: Messages produced in a second.
        elapsed_s: Seconds since the start.
        cluster: Addresses; empty while it starts.
        partitions: Their names.
        owners: The owner of each partition, as ZooKeeper has it; None for no owner.
        lag: Messages of each partition that are acknowledged and not delivered.
        happenings: Events, the oldest first.
    """

    length_s: float
    rate: int
    elapsed_s: float = 0.0
    cluster: str = ""
    partitions: tuple[str, ...] = ()
    owners: tuple[str | None, ...] = ()
    lag: tuple[int, ...] = ()
    actors: tuple[Actor, ...] = ()
    produced: int = 0
    delivered: int = 0
    repeated: int = 0
    happenings: tuple[Happening, ...] = ()


def shares(owners: Mapping[str, str | None]) -> str:
    """Return who owns which partitions, in one line.

    >>> shares({"0": "ann", "1": "ann", "2": "bob", "3": None})
    'ann 0 1, bob 2, nobody 3'
    """
    found: dict[str, list[str]] = {}
    for partition, owner in owners.items():
        found.setdefault(owner or "nobody", []).append(partition)
    return ", ".join(f"{owner} {' '.join(partitions)}" for owner, partitions in sorted(found.items(), key=_last))


def _last(entry: tuple[str, list[str]]) -> tuple[bool, str]:
    return entry[0] == "nobody", entry[0]
