"""What there is to see at one moment of a demonstration, as values. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Actor", "Happening", "Scene", "shares"]


@dataclass(frozen=True)
class Happening:
    """One thing that happened, `at_s` seconds after the start."""

    at_s: float
    text: str


@dataclass(frozen=True)
class Actor:
    """One member, as it stands.

    Attributes:
        state: joining, consuming, leaving, left, killed.
        delivered: messages it has got.
        rates: messages in each of the last seconds, the newest last.
    """

    name: str
    state: str
    delivered: int
    rates: tuple[int, ...]


@dataclass(frozen=True)
class Scene:
    """One moment.

    Attributes:
        length_s: how long it all takes, about.
        rate: messages produced in a second.
        cluster: addresses; empty while it starts.
        owners: of each partition, as ZooKeeper has them; None: nobody.
        lag: messages of each partition that are acknowledged and not delivered.
        happenings: oldest first.
    """

    length_s: float
    rate: int
    elapsed_s: float = 0.0
    cluster: str = ""
    owners: tuple[str | None, ...] = ()
    lag: tuple[int, ...] = ()
    actors: tuple[Actor, ...] = ()
    produced: int = 0
    delivered: int = 0
    repeated: int = 0
    happenings: tuple[Happening, ...] = ()


def shares(owners: Iterable[str | None]) -> str:
    """Who owns which partitions, in a line.

    >>> shares(["ann", "ann", "bob", None])
    'ann 0 1, bob 2, nobody 3'
    """
    found: dict[str, list[str]] = {}
    for partition, owner in enumerate(owners):
        found.setdefault(owner or "nobody", []).append(str(partition))
    return ", ".join(f"{owner} {' '.join(partitions)}" for owner, partitions in sorted(found.items(), key=_last))


def _last(entry: tuple[str, list[str]]) -> tuple[bool, str]:
    return entry[0] == "nobody", entry[0]
