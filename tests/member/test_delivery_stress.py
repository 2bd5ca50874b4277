"""A coordinator that starts, drains, expires and abandons at random while readers read.

Every event goes to one list, in the order in which it happened (`list.append` is atomic): what the coordinator
commanded and was told, and what the readers got. Each ownership of a partition goes to another stream than the one
before, so the stream tells to which ownership a message belongs.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from rebalance.lease import lease_clock
from simpleconsumer.types import TopicPartition
from tests.fetching.feeding import Drained, ScriptedLog
from tests.member.delivering import DEADLINE_S, Rig, rigged
from zkconsumer.errors import ConsumerTimeout
from zkconsumer.streams.stream import KafkaStream

STREAMS, PARTITIONS = 3, 6


@dataclass(frozen=True)
class Started:
    partition: int
    stream: int
    offset: int


@dataclass(frozen=True)
class Ended:
    """`how`: drained, expired or abandoned."""

    partition: int
    how: str
    position: int


@dataclass(frozen=True)
class Got:
    partition: int
    stream: int
    offset: int


Event = Started | Ended | Got


def check_history(events: list[Event]) -> int:
    """Check the promises of the delivery; return how many messages were delivered.

    Raises:
        AssertionError: One was broken.
    """
    for partition in range(PARTITIONS):
        mine = [event for event in events if event.partition == partition]
        owner, expected, resume_at = -1, -1, None
        late: Got | None = None
        for event in mine:
            if isinstance(event, Started):
                assert owner == -1
                assert resume_at in (None, event.offset), f"started at {event.offset}, ended at {resume_at}"
                owner, expected = event.stream, event.offset
            elif isinstance(event, Got) and event.stream == owner:
                assert event.offset == expected, f"{partition}: {event.offset} came, {expected} was next"
                expected += 1
            elif isinstance(event, Got):
                # What was in hand at the end may be seen after it: once, and exactly that message.
                assert event == late, f"{event} came after its partition had ended"
                late = None
            else:
                if event.how == "drained":
                    assert event.position == expected, f"drained at {event.position}, delivered below {expected}"
                else:
                    assert event.position in (expected - 1, expected), f"{event}, delivered below {expected}"
                in_hand = event.how != "drained" and event.position == expected
                late = Got(partition, owner, expected) if in_hand else None
                owner, resume_at = -1, event.position
    return sum(isinstance(event, Got) for event in events)


class Readers:
    """One thread a stream, that reads until its stream ends."""

    def __init__(self, streams: list[KafkaStream], events: list[Event], seed: int) -> None:
        self.errors: list[BaseException] = []
        self._events = events
        self.threads = [
            threading.Thread(target=self._run, args=(index, stream, random.Random(seed + index)), daemon=True)
            for index, stream in enumerate(streams)
        ]
        for thread in self.threads:
            thread.start()

    def _run(self, index: int, stream: KafkaStream, rng: random.Random) -> None:
        while True:
            try:
                for message in stream:
                    self._events.append(Got(int(message.partition), index, message.offset))
                    if rng.random() < 0.02:
                        time.sleep(rng.uniform(0, 0.01))  # the application works on it
                return
            except ConsumerTimeout:
                continue
            except BaseException as error:
                self.errors.append(error)
                raise

    def join(self) -> None:
        for thread in self.threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()


class Commander:
    """Commands at random, and writes down what it commanded and what it was told."""

    def __init__(self, rig: Rig, events: list[Event], seed: int) -> None:
        self._rig = rig
        self._events = events
        self._rng = random.Random(seed)
        self._owner: dict[int, int] = {}
        self._last_stream: dict[int, int] = {}
        self._position = dict.fromkeys(range(PARTITIONS), 0)
        self._draining: dict[int, Drained] = {}
        self.ends = dict.fromkeys(("drained", "expired", "abandoned"), 0)
        self.drains: list[tuple[Drained, str]] = []

    def step(self) -> None:
        partition = self._rng.randrange(PARTITIONS)
        if partition in self._draining:
            self._see_to_drain(partition)
        elif partition not in self._owner:
            self._start(partition)
        else:
            self._rng.choice((self._drain, self._drain, self._abandon, self._commit, self._flip_lease))(partition)

    def _start(self, partition: int) -> None:
        stream = self._rng.choice([one for one in range(STREAMS) if one != self._last_stream.get(partition)])
        self._owner[partition] = self._last_stream[partition] = stream
        self._events.append(Started(partition, stream, self._position[partition]))
        self._rig.delivery.start(("t", partition), f"thread-{stream}", self._position[partition])

    def _drain(self, partition: int) -> None:
        self._draining[partition] = drained = Drained()
        del self._owner[partition]
        self._rig.delivery.drain(("t", partition), drained)

    def _see_to_drain(self, partition: int) -> None:
        drained = self._draining[partition]
        if drained.positions:
            self._ended(partition, "drained", drained.positions[0])
        elif self._rng.random() < 0.3:
            position = self._rig.delivery.expire_drain(("t", partition))
            self._ended(partition, "expired", position)

    def _abandon(self, partition: int) -> None:
        position = self._rig.delivery.abandon(("t", partition))
        assert position is not None
        self._draining[partition] = Drained()
        self._ended(partition, "abandoned", position)
        del self._owner[partition]

    def _ended(self, partition: int, how: str, position: int) -> None:
        self.drains.append((self._draining.pop(partition), how))
        self._events.append(Ended(partition, how, position))
        self._position[partition] = position
        self.ends[how] += 1

    def _commit(self, partition: int) -> None:
        name = TopicPartition("t", partition)
        positions = self._rig.delivery.positions()
        assert positions[name] >= self._position[partition]
        self._rig.delivery.mark_committed({name: positions[name]})

    def _flip_lease(self, _: int) -> None:
        self._rig.lease.until = 0.0 if self._rng.random() < 0.2 else float("inf")


@pytest.fixture
def hectic() -> Iterator[None]:
    """Has threads take turns a hundred times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.00005)
    yield
    sys.setswitchinterval(before)


def run_hectic(seed: int, seconds: float) -> tuple[Commander, list[Event]]:
    events: list[Event] = []
    with rigged(ScriptedLog(10**9), STREAMS, PARTITIONS, consumer_timeout_ms=3) as rig:
        readers = Readers(rig.streams, events, seed)
        commander = Commander(rig, events, seed)
        pause = random.Random(seed)
        end = time.monotonic() + seconds
        while time.monotonic() < end and not readers.errors:
            commander.step()
            time.sleep(pause.choice((0, 0, 0.0003, 0.002)))
        rig.lease.until = float("inf")
        final = rig.delivery.stop(None, lease_clock() + DEADLINE_S)
        readers.join()
        assert not readers.errors
        for name, position in final.items():
            events.append(Ended(int(name.partition), "drained", position))
        assert rig.delivery.queued_bytes() == 0
    return commander, events


@pytest.mark.catalogue("B17")
@pytest.mark.usefixtures("hectic")
@pytest.mark.parametrize("seed", [1, 2])
def test_no_message_is_lost_repeated_or_late_whatever_the_coordinator_does(seed: int) -> None:
    commander, events = run_hectic(seed, 3.0)
    assert check_history(events) > 500
    assert all(commander.ends.values()), commander.ends
    for drained, how in commander.drains:
        assert len(drained.positions) == 1 if how == "drained" else len(drained.positions) <= 1


# -- the checker itself ------------------------------------------------------------------------------------------------

GOOD: list[Event] = [
    Started(0, 1, 5), Got(0, 1, 5), Got(0, 1, 6), Ended(0, "drained", 7),
    Started(0, 2, 7), Got(0, 2, 7), Ended(0, "abandoned", 7),
    Started(0, 1, 7), Ended(0, "expired", 7), Got(0, 1, 7), Started(0, 0, 7), Got(0, 0, 7),
]  # fmt: skip


def test_the_checker_accepts_a_good_history() -> None:
    assert check_history(GOOD) == 5


@pytest.mark.parametrize(
    ("index", "wrong"),
    [
        (1, Got(0, 1, 6)),  # skipped
        (2, Got(0, 1, 5)),  # repeated
        (3, Ended(0, "drained", 6)),  # too low
        (3, Ended(0, "drained", 8)),  # too high
        (4, Started(0, 2, 8)),  # started elsewhere
        (6, Ended(0, "abandoned", 9)),
        (9, Got(0, 1, 8)),  # late, and not what was in hand
        (10, Got(0, 1, 7)),  # late twice
    ],
)
def test_the_checker_refuses_a_bad_history(index: int, wrong: Event) -> None:
    with pytest.raises(AssertionError):
        check_history([*GOOD[:index], wrong, *GOOD[index + 1 :]])
