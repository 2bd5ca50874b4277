"""The simulated ZooKeeper behaves as the real one: the same requests to both, and all replies and events compared."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from zookeeper_worlds import RealWorld, SimulatedWorld, Terms, World, ask, replies_and_events, settle

from rebalance.zookeeper.port.requests import (
    Check,
    Create,
    Delete,
    Exists,
    Fault,
    GetChildren,
    GetData,
    Multi,
    Request,
    SetData,
    Sync,
)
from zkconsumer.testing.zookeeper import ZooKeeperServer

SESSIONS = ("first", "second")
STEPS = 150
SEEDS = range(10)


class Steps:
    """A random course of things, the same for each world: which session does what next."""

    def __init__(self, seed: int, root: str) -> None:
        self._rng = random.Random(seed)
        below = [f"{root}/{name}" for name in "abc"]
        self._paths = [*below, *(f"{path}/{name}" for path in below for name in "xy"), f"{root}/a/x/deep"]

    def __iter__(self) -> Iterator[tuple[str, str, list[Any]]]:
        for _ in range(STEPS):
            name = self._rng.choice(SESSIONS)
            kind = self._rng.choices(["ask", "burst", "close", "end"], [82, 14, 2, 2])[0]
            count = self._rng.randint(2, 6) if kind == "burst" else 1
            yield kind, name, [self._request() for _ in range(count)]

    def _path(self) -> str:
        return self._rng.choice(self._paths)

    def _version(self) -> int:
        return self._rng.choice([-1, -1, 0, 0, 1, 2])

    def _data(self) -> bytes:
        return self._rng.choice([b"", b"one", b"two"])

    def _create(self) -> Create:
        return Create(self._path(), self._data(), ephemeral=self._rng.random() < 0.4)

    def _write(self) -> Create | SetData | Delete:
        return self._rng.choice(
            [
                self._create,
                self._create,
                lambda: SetData(self._path(), self._data(), self._version()),
                lambda: Delete(self._path(), self._version()),
            ]
        )()

    def _operation(self) -> Create | SetData | Delete | Check:
        return self._write() if self._rng.random() < 0.7 else Check(self._path(), self._version())

    def _label(self) -> str | None:
        return self._rng.choice([None, "red", "green", "blue"])

    def _request(self) -> Callable[[Callable[[str | None], Any]], Request]:
        """A request, once somebody makes watches of labels."""
        path, label = self._path(), self._label()
        kind = self._rng.choices(["write", "multi", "sync", "exists", "data", "children"], [35, 20, 3, 14, 14, 14])[0]
        if kind in ("write", "multi", "sync"):
            request: Request = Sync(path)
            if kind == "write":
                request = self._write()
            elif kind == "multi":
                request = Multi(tuple(self._operation() for _ in range(self._rng.randint(0, 4))))
            return lambda watch: request
        reads = {"exists": Exists, "data": GetData, "children": GetChildren}
        return lambda watch: reads[kind](path, watch(label))


class Course:
    """One world going through the steps; `seen` is what they are compared by."""

    def __init__(self, world: World, root: str) -> None:
        self.world = world
        self.terms = Terms(world)
        for name in SESSIONS:
            world.open(name)
        self.terms.name_sessions()
        ask(world, SESSIONS[0], Create(root))

    def step(self, kind: str, name: str, requests: list[Any]) -> Any:
        session = self.world.sessions[name]
        if kind == "close":
            self.world.close(name)
            self.world.open(name)
            answers: list[Any] = []
        elif kind == "end":
            before = len(session.changes)
            self.world.end_session(session.ids[-1])
            self.world.reached(lambda: len(session.changes) >= before + 3)
            answers = []
        else:
            asked = [request(lambda label: label and session.watch(label)) for request in requests]
            replies = ask(self.world, name, *asked)
            answers = [self.terms.of(request, reply) for request, reply in zip(asked, replies, strict=True)]
        self.terms.name_sessions()
        settle(self.world)
        return answers, {each: replies_and_events(self._told(each)) for each in SESSIONS}

    def _told(self, name: str) -> list[Any]:
        transcript = self.world.sessions[name].transcript
        told = list(transcript)
        transcript.clear()
        return told


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_requests_get_the_same_answers_faults_versions_orders_and_events(
    zookeeper: ZooKeeperServer, fresh_topic: Callable[[], str], seed: int
) -> None:
    root = f"/{fresh_topic()}"
    with RealWorld(zookeeper) as real_world:
        real, simulated = Course(real_world, root), Course(SimulatedWorld(seed), root)
        for number, (kind, name, requests) in enumerate(Steps(seed, root)):
            wanted = real.step(kind, name, requests)
            got = simulated.step(kind, name, requests)
            asked = [request(lambda label: label) for request in requests]
            assert got == wanted, f"step {number}: {name}, {kind}: {asked}"
            assert simulated.terms.ranks() == real.terms.ranks(), f"step {number}: {name}, {kind}: {asked}"


def test_the_course_reaches_every_fault_and_every_kind_of_event() -> None:
    """Else the comparison above would compare less than it says."""
    faults: set[Fault | None] = set()
    kinds: set[str] = set()
    for seed in SEEDS:
        course = Course(SimulatedWorld(seed), "/root")
        for kind, name, requests in Steps(seed, "/root"):
            answers, told = course.step(kind, name, requests)
            kinds.add(kind)
            for answer in answers:
                faults.update(
                    item for item in (answer if isinstance(answer, list) else [answer]) if isinstance(item, Fault)
                )
            for entries in told.values():
                kinds.update(entry[0] for entry in entries if isinstance(entry, tuple))
    assert faults == {
        Fault.NO_NODE,
        Fault.NODE_EXISTS,
        Fault.BAD_VERSION,
        Fault.NOT_EMPTY,
        Fault.NO_CHILDREN_FOR_EPHEMERALS,
        Fault.ROLLED_BACK,
    }
    assert kinds == {"ask", "burst", "close", "end", "event", "reply"}
