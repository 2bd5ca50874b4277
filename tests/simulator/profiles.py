"""Profiles that plans are drawn from: how likely each kind of step is, and which members and topics exist. Pure values.

`everything` has every kind of fault at any time. `moments`, `stuck`, `blocked`, `ends` and `scenes` wait for states
that pass quickly; long runs take all six in turn. The others look at one side of the product, and find what is wrong
with it sooner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tests.simulator.operator_faults import POISONS
from tests.simulator.plan import Step
from tests.simulator.scenes import LATE_PROOFS, LONG_DRAINS, OTHER_LOGS, SCENES, WITHIN_ENTRIES
from tests.simulator.waiting_steps import PASSING_STATES

__all__ = ["ALL", "PROFILES", "Profile", "profile_07", "profile_of"]

# fmt: off
_EVERYTHING: Final[Mapping[str, float]] = {
    "join": 6, "leave": 4, "crash": 4, "pause": 5, "slow": 3, "stuck": 2, "hold up": 3, "wall clock": 0.5,
    "end session": 4, "stall": 4, "cut": 4, "old requests": 3, "late watch": 3, "lost reply": 4, "lost request": 2,
    "outage": 1.5, "stop server": 1.5, "freeze": 1.5, "isolate": 1.5, "lag": 1.5, "wipe": 0.3,
    "grow": 1, "create topic": 0.7, "delete topic": 0.7, "leader": 2, "retention": 1, "damaged offset": 2,
    "owner deleted": 1.5, "owner replaced": 1, "offset set": 1.5, "unregistered": 1.5, "poison": 1.5, "closed": 2,
    "late answers": 1, "moved": 1, "refused": 0.7, "name taken": 0.7, "fault": 1,
}
# fmt: on


@dataclass(frozen=True, slots=True)
class Profile:
    """What a plan is drawn from.

    Attributes:
        weights: kind of step -> how likely, against each other.
        steps: fewest and most steps, the first joins left out.
        members: fewest and most members.
        servers: numbers of ZooKeeper servers, all alike likely.
        settings: of every member, where they are not to be drawn.
        others: how likely a member comes back with another subscription.
        limited: how likely a member has a `max.processing.interval.ms`.
        waits: how likely a step waits for a state of a member.
        states: those states, see `tests.simulator.waiting_steps`.
        streams: how many a member may have for a topic, all alike likely.
        partitions: fewest and most of a topic.
        poisons: the invalid registrations that operators create.
        scenes: one of them is part of each plan.
        scenes_07: the same of plans of Kafka 0.7, where they are others.
        roundrobin: how likely the group assigns by roundrobin.
        topics: numbers of topics, all alike likely.
        java: how likely a mixed group has Java members; without them it is one of ours.
        slow_ms: the least and the most that an application takes for a message in a step `slow`.
        drains: values of `rebalance.drain.timeout.ms` in seconds, all alike likely.
        storages: of the offsets: one of these is drawn for a plan, and one of its words for each member.
        bunched: whether steps come close together, and not all over the time of faults.
    """

    weights: Mapping[str, float]
    steps: tuple[int, int] = (2, 14)
    members: tuple[int, int] = (1, 4)
    servers: tuple[int, ...] = (1, 3)
    settings: Mapping[str, object] = field(default_factory=dict)
    others: float = 0.25
    limited: float = 0.15
    waits: float = 0.0
    states: tuple[str, ...] = PASSING_STATES
    streams: tuple[int, ...] = (1, 1, 2, 3)
    partitions: tuple[int, int] = (1, 4)
    poisons: tuple[str, ...] = tuple(POISONS)
    scenes: tuple[tuple[Step, ...], ...] = ()
    scenes_07: tuple[tuple[Step, ...], ...] = ()
    roundrobin: float = 0.2
    topics: tuple[int, ...] = (1, 1, 2)
    java: float = 1.0
    slow_ms: tuple[int, int] = (100, 2000)
    drains: tuple[float, ...] = (0.5, 3.0)
    storages: tuple[tuple[str, ...], ...] = (("",),)
    bunched: bool = False


def _some(*kinds: str) -> Mapping[str, float]:
    return dict.fromkeys(kinds, 1.0)


_STORAGES: Final = (("kafka",), ("dual",), ("zookeeper",), ("zookeeper", "dual"), ("dual", "kafka"))
"""Groups whose members find each other's offsets: each reads a store that all others write."""

# fmt: off
PROFILES: Final[Mapping[str, Profile]] = {
    "everything": Profile(_EVERYTHING),
    "membership": Profile(_some("join", "leave", "crash"), steps=(3, 12), servers=(1,)),
    "sessions": Profile(
        _some("join", "leave", "pause", "hold up", "end session", "stall", "cut", "old requests", "lost reply")
    ),
    "late proofs": Profile(
        _some("slow", "leader"), steps=(0, 2), members=(2, 2), servers=(3,), settings={"session_s": 4.0},
        scenes=LATE_PROOFS,
    ),
    "pauses": Profile({"join": 2, "pause": 4}, steps=(4, 14), members=(2, 4)),
    "returns": Profile(
        {"join": 4, "leave": 4, "pause": 2}, steps=(8, 16), members=(2, 3), others=1.0, servers=(1,),
    ),
    "scenes": Profile(
        _some("slow", "late watch", "lag", "leader", "offset set"), steps=(0, 3), members=(2, 2), partitions=(4, 4),
        settings={"topics": (("t", 2),), "whitelist": "", "max_processing_s": 2.0}, scenes=SCENES,
    ),
    "handovers": Profile({"join": 2, "leave": 2, "slow": 1, "lost request": 3, "lost reply": 1}, servers=(1,)),
    "ends": Profile(
        {**_some("crash", "slow", "stuck", "pause", "hold up", "end session", "outage", "freeze", "isolate", "lag",
                 "lost reply", "lost request", "owner deleted", "unregistered"),
         "join": 6.0, "leave": 6.0, "fault": 5.0, "stall": 3.0, "cut": 3.0},
        steps=(6, 16), waits=0.4, bunched=True,
        states=("disconnected", "registering", "reading", "settling", "claiming", "draining", "draining", "releasing",
                 "unknown"),
    ),
    "servers": Profile(_some("join", "leave", "outage", "stop server", "freeze", "isolate", "lag"), servers=(3,)),
    "topics": Profile(
        _some("join", "leave", "cut", "grow", "create topic", "delete topic", "leader", "retention"),
        scenes_07=OTHER_LOGS,
    ),
    "moments": Profile(
        {**_some("join", "leave", "crash", "pause", "stall", "cut", "lost request", "late watch", "poison",
                 "name taken"),
         **dict.fromkeys(("end session", "lost reply", "moved", "refused", "unregistered"), 2.0),
         "late answers": 3.0, "owner deleted": 4.0, "owner replaced": 3.0},
        steps=(6, 16), waits=0.75, streams=(1, 2, 3),
        states=("disconnected", "registering", "registering", "reading", "settling", "free", "claiming",
                 "claiming", "blocked", "draining", "draining", "releasing", "unknown"),
    ),
    "stuck": Profile(
        {**_some("join", "pause", "cut", "lost request", "outage"),
         **dict.fromkeys(("end session", "lost reply", "unregistered", "name taken", "late answers"), 2.0),
         "refused": 3.0, "stall": 3.0, "stuck": 6.0},
        steps=(6, 14), members=(1, 3), limited=1.0, waits=0.6, bunched=True,
        states=("registering", "reading", "reading", "settling", "leaving", "leaving", "unregistering",
                 "unregistering", "out"),
    ),
    "blocked": Profile(
        {**_some("join", "leave", "crash", "late watch"), "owner replaced": 3.0, "owner deleted": 4.0, "poison": 3.0},
        steps=(6, 16), members=(1, 3), waits=0.6, states=("free", "claiming", "claiming", "blocked"),
        partitions=(1, 2), poisons=("foreign filter",),
    ),
    "hands": Profile(
        _some("join", "owner deleted", "owner replaced", "offset set", "unregistered", "poison"),
        scenes_07=WITHIN_ENTRIES,
    ),
    "orders": Profile(
        {**_some("crash", "cut", "end session", "lost reply", "pause", "slow", "stall", "late watch"),
         "join": 4.0, "leave": 3.0, "grow": 3.0},
        steps=(3, 12), members=(2, 4), partitions=(1, 3), roundrobin=1.0, topics=(2, 2, 3), java=0.8,
        # Longer than owner nodes of Java members have to be unchanged: a drain must not look like their evidence.
        slow_ms=(100, 5000), drains=(0.5, 3.0, 5.0), scenes=LONG_DRAINS,
    ),
    "stores": Profile(
        {**_some("crash", "pause", "slow", "cut", "end session", "lost reply", "stall", "leader", "outage",
                 "stop server", "retention"),
         "join": 5.0, "leave": 4.0, "manager moved": 2.5, "manager dead": 2.5, "manager slow": 2.5,
         "offset in kafka set": 2.0},
        steps=(4, 14), storages=_STORAGES,
    ),
    "damaged": Profile(
        {**_some("join", "leave", "crash", "cut", "end session", "leader", "retention"), "damaged offset": 8.0},
        steps=(6, 20),
    ),
    "closed": Profile(
        {**_some("join", "leave", "crash", "end session", "cut", "grow", "delete topic"), "closed": 6.0}, steps=(4, 14),
    ),
}
# fmt: on


ALL: Final = "all"
"""The choice of several profiles, each in its turn by the number of the seed: together they reach everything."""

_IN_TURN: Final = (
    "everything", "moments", "everything", "stuck", "everything", "moments", "blocked", "scenes", "ends",
)  # fmt: skip


_NOT_IN_07: Final = frozenset(
    {"delete topic", "leader", "damaged offset", "manager moved", "manager dead", "manager slow", "offset in kafka set"}
)
"""Topics stay and have no leaders, the entries of their logs do not name their positions, offsets are in ZooKeeper."""


def profile_07(profile: Profile) -> Profile:
    """The same profile for Kafka 0.7: brokers come and go with their partitions, and all groups assign by range."""
    weights = {kind: weight for kind, weight in profile.weights.items() if kind not in _NOT_IN_07}
    weights["broker"] = max(1.0, profile.weights.get("leader", 0.0) + profile.weights.get("delete topic", 0.0))
    scenes = tuple(tuple(step for step in scene if step.kind not in _NOT_IN_07) for scene in profile.scenes)
    return replace(profile, weights=weights, roundrobin=0.0, storages=(("",),), scenes=profile.scenes_07 or scenes)


def profile_of(name: str, seed: int) -> Profile:
    """The profile of this name, or, with the name `all`, the one whose turn it is at this seed."""
    return PROFILES[_IN_TURN[seed % len(_IN_TURN)] if name == ALL else name]
