"""A leader as far as lanes see it, and owners of a lane that use it, in virtual time and drawn from one seed.

The rules of the leader are those that `test_batches_of_one_id.py` finds on real brokers. Connections are lost at any
moment; what was sent on them may still be stored later, as by a broker that was frozen. Leaders are elected, cleanly or
not, and forget producers.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from simpleconsumer.types import ActiveProducer, ProducerId, TopicPartition
from zkconsumer.mirror.errors import LaneStopped
from zkconsumer.mirror.lanes.lane import FRESH_S, LaneMachine, LaneState
from zkconsumer.mirror.lanes.lane_events import (
    SEQUENCES,
    Action,
    Answered,
    Connect,
    Connected,
    EndRead,
    Event,
    GoOn,
    Lost,
    Moment,
    Offered,
    PutOff,
    ReadEnd,
    ReadRefused,
    Run,
    Send,
    Stop,
    Stored,
    Tail,
)

NAME = TopicPartition("t", 0)
PRODUCER = ProducerId(7, 0)
DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000
NOT_LEADER, TOO_FEW_REPLICAS, OUT_OF_ORDER, OLD_EPOCH, UNKNOWN_PRODUCER = 6, 19, 45, 47, 59
FAULTS = ("lose", "lose late", "elect", "elect uncleanly", "forget", "foreign", "refuse", "throttle")
"""What may go wrong beside the order in which things happen."""


class Flavor(NamedTuple):
    """How leaders of a version differ.

    Attributes:
        remembers: So many batches of a producer.
        unknown_code: The answer to a batch of an unknown producer that is not its first; 0: it is stored.
        describes: Whether leaders say which producers they know.
    """

    remembers: int = 5
    unknown_code: int = 0
    describes: bool = True


KAFKA_011 = Flavor(1, OUT_OF_ORDER, False)
KAFKA_1 = Flavor(5, UNKNOWN_PRODUCER, False)
KAFKA_2_5 = Flavor(5, 0, False)
KAFKA_4 = Flavor()


@dataclass
class Batch:
    """A batch; `first` is the offset to which its first record belongs."""

    producer: ProducerId
    sequence: int
    records: int
    first: int
    newest_ms: int = NOW_MS

    @property
    def last_sequence(self) -> int:
        return (self.sequence + self.records - 1) % SEQUENCES


@dataclass
class Known:
    """What a leader knows of a producer: its epoch, and first and last number and offset of its last batches."""

    epoch: int
    batches: deque[tuple[int, int, int]]


class Leader:
    """The log of a partition, and what its leader knows of producers."""

    def __init__(self, flavor: Flavor) -> None:
        self.flavor = flavor
        self.log: list[tuple[int, Batch]] = []
        self.known: dict[int, Known] = {}
        self.high_watermark = 0
        self.epoch = 0

    @property
    def end(self) -> int:
        return self.log[-1][0] + self.log[-1][1].records if self.log else 0

    def boundaries(self) -> list[int]:
        return [0, *(base + batch.records for base, batch in self.log)]

    def produce(self, batch: Batch) -> tuple[int, int]:
        """Error code and base offset."""
        known = self.known.get(batch.producer.producer_id)
        if known is None:
            if batch.sequence and self.flavor.unknown_code:
                return self.flavor.unknown_code, -1
        elif batch.producer.epoch < known.epoch:
            return OLD_EPOCH, -1
        elif batch.producer.epoch > known.epoch:
            if batch.sequence:
                return OUT_OF_ORDER, -1
        else:
            for first, last, base in known.batches:
                if (first, last) == (batch.sequence, batch.last_sequence):
                    return 0, base
            if batch.sequence != (known.batches[-1][1] + 1) % SEQUENCES:
                return OUT_OF_ORDER, -1
        base = self.end
        self.log.append((base, batch))
        self._note(base, batch)
        return 0, base

    def _note(self, base: int, batch: Batch) -> None:
        known = self.known.get(batch.producer.producer_id)
        if known is None or known.epoch != batch.producer.epoch:
            batches: deque[tuple[int, int, int]] = deque(maxlen=self.flavor.remembers)
            known = self.known[batch.producer.producer_id] = Known(batch.producer.epoch, batches)
        known.batches.append((batch.sequence, batch.last_sequence, base))

    def cut(self, end: int) -> None:
        """Drop what is after an offset, as a new leader that does not have it; it reads producers from its log."""
        self.epoch += 1
        self.log = [(base, batch) for base, batch in self.log if base < end]
        self.high_watermark = min(self.high_watermark, self.end)
        self.known.clear()
        for base, batch in self.log:
            self._note(base, batch)

    def read_end(self) -> EndRead:
        end = self.high_watermark
        tails = [each for each in self.log if each[0] < end]
        tail = None
        if tails:
            base, batch = tails[-1]
            tail = Tail(batch.producer, batch.last_sequence, base + batch.records - 1, batch.newest_ms)
        known = self.known.get(PRODUCER.producer_id) if self.flavor.describes else None
        if known is None:
            return EndRead(end, self.end, tail)
        return EndRead(end, self.end, tail, ActiveProducer(7, known.epoch, known.batches[-1][1], NOW_MS, None))


@dataclass
class Connection:
    """Requests and answers under way; the leader serves one request at a time, and answers when replicas have it."""

    epoch: int
    """Of the leader: the next one is another broker."""
    requests: deque[Batch] = field(default_factory=deque)
    answers: deque[Answered] = field(default_factory=deque)
    waits_for: tuple[int, int] | None = None
    """The base offset to answer, once replicas have the log up to the second."""


class Owner:
    """A process with a lane: what `LaneSender` is, with the leader of the model."""

    def __init__(self, world: World, machine: LaneMachine, run: Run) -> None:
        self.world, self.machine, self.run = world, machine, run
        self.actions: deque[Action] = deque(machine.start())
        self.data: dict[int, Batch] = {}
        self.connection: Connection | None = None
        self.acknowledged = 0
        self.stopped: LaneStopped | None = None

    def take(self, event: Event) -> None:
        if isinstance(event, Lost):
            self.actions.clear()
            self.connection = None
        self.actions.extend(self.machine.take(event, Moment(self.world.now_s, NOW_MS)))

    def step(self) -> None:
        """Do the next thing: an action, a new batch, or receiving an answer."""
        world, position = self.world, self.machine.position
        if self.stopped is not None:
            return
        if self.actions:
            self.perform(self.actions.popleft())
        elif self.machine.is_ready and position is not None and position < world.goal and world.rng.random() < 0.5:
            records = min(world.rng.randint(1, 4), world.goal - position)
            sequence = self.run.sequence_at(position)
            self.data[position] = Batch(self.run.producer, sequence, records, position, world.newest_ms)
            self.take(Offered(records, world.newest_ms))
        elif self.connection is not None and self.connection.answers:
            self.take(self.connection.answers.popleft())

    def put_off(self, action: Send | ReadEnd) -> None:
        self.actions = deque(each for each in self.actions if not isinstance(each, Send))
        self.take(PutOff(action.offset if isinstance(action, Send) else None))

    def perform(self, action: Action) -> None:
        world = self.world
        if isinstance(action, Send) and not self.machine.may_send(Moment(world.now_s, NOW_MS)):
            self.put_off(action)
        elif isinstance(action, Send):
            assert self.connection is not None
            self.connection.requests.append(self.data[action.offset])
        elif isinstance(action, ReadEnd):
            world.now_s += action.after_s
            assert self.connection is not None
            is_led = self.connection.epoch == world.leader.epoch
            self.take(world.leader.read_end() if is_led else ReadRefused(NOT_LEADER))
        elif isinstance(action, Connect):
            world.now_s += action.after_s
            self.connection = Connection(world.leader.epoch)
            world.connections.append(self.connection)
            self.take(Connected())
        elif isinstance(action, Stored):
            self.acknowledged = max(self.acknowledged, action.end)
            self.data = {offset: batch for offset, batch in self.data.items() if offset >= action.end}
        elif isinstance(action, GoOn):
            self.data.clear()
        else:
            assert isinstance(action, Stop)
            self.stopped = action.error


class World:
    """A leader and some owners of one lane.

    Args:
        seed: Everything is drawn from it.
        faults: Those of `FAULTS` that may happen.
        newest_ms: The times of all records.
    """

    def __init__(
        self, seed: int, machine: type[LaneMachine] = LaneMachine, *, flavor: Flavor = KAFKA_4, owners: int = 1,
        faults: tuple[str, ...] = (), newest_ms: int = NOW_MS, first_sequence: int = 0, goal: int = 60,
    ) -> None:  # fmt: skip
        self.rng = random.Random(seed)
        self.leader = Leader(flavor)
        self.faults = faults
        self.newest_ms = newest_ms
        self.goal = goal
        self.now_s = 1000.0
        self.connections: list[Connection] = []
        run = Run(PRODUCER, 0, first_sequence)
        self.owners = [Owner(self, machine(NAME, run, follows_others=owners > 1), run) for _ in range(owners)]

    def run(self) -> World:
        """Let it run until all owners have reached the goal, or have stopped; faults end at some time."""
        for number in range(20_000):
            if self._is_over():
                break
            self.now_s += self.rng.choice((0.0, 0.0, 0.01, 5.0))
            if self.faults and number < 600 and self.rng.random() < 0.08:
                self._fail(self.rng.choice(self.faults))
            kind = self.rng.random()
            if kind < 0.5:
                self.rng.choice(self.owners).step()
            elif kind < 0.85 and self.connections:
                self._serve(self.rng.choice(self.connections))
            else:
                ends = [each for each in self.leader.boundaries() if each >= self.leader.high_watermark]
                self.leader.high_watermark = self.rng.choice(ends)
        else:
            raise AssertionError("the owners get no further")
        return self

    def _is_over(self) -> bool:
        return all(owner.stopped is not None or (owner.machine.is_settled and owner.machine.stored == self.goal)
                   for owner in self.owners)  # fmt: skip

    def _serve(self, connection: Connection) -> None:
        if connection.waits_for is not None:
            base, end = connection.waits_for
            if self.leader.high_watermark >= end:
                connection.waits_for = None
                connection.answers.append(Answered(0, base))
        elif connection.requests:
            batch = connection.requests.popleft()
            is_led = connection.epoch == self.leader.epoch
            code, base = self.leader.produce(batch) if is_led else (NOT_LEADER, -1)
            if code:
                connection.answers.append(Answered(code, -1))
            else:
                connection.waits_for = base, base + batch.records

    def _lose(self, owner: Owner, keeps_requests: bool) -> None:
        connection = owner.connection
        if owner.machine.state is LaneState.STOPPED or connection is None:
            return
        connection.answers.clear()
        if not keeps_requests:
            connection.requests.clear()
        owner.take(Lost("a fault"))

    def _fail(self, fault: str) -> None:
        leader, rng, owner = self.leader, self.rng, self.rng.choice(self.owners)
        if fault in ("lose", "lose late"):
            self._lose(owner, fault == "lose late")
        elif fault in ("elect", "elect uncleanly"):
            least = 0 if fault == "elect uncleanly" else leader.high_watermark
            leader.cut(rng.choice([each for each in leader.boundaries() if each >= least]))
            for connection in self.connections:
                if connection.waits_for is not None:
                    connection.waits_for = None
                    connection.answers.append(Answered(NOT_LEADER, -1))
        elif fault == "forget":
            leader.known.clear()
        elif fault == "throttle":
            self.now_s += rng.choice((1.0, FRESH_S + 1))
            if owner.actions and isinstance(owner.actions[0], Send | ReadEnd):
                owner.put_off(owner.actions.popleft())
        elif fault == "foreign":
            leader.produce(Batch(ProducerId(99, 0), 0, rng.randint(1, 3), 1_000_000))
        elif owner.connection is not None and owner.connection.requests and owner.connection.waits_for is None:
            owner.connection.requests.popleft()
            owner.connection.answers.append(Answered(TOO_FEW_REPLICAS, -1))

    # -- what must hold ------------------------------------------------------------------------------------------------

    def check(self, *, may_stop: bool = False) -> None:
        """Every record is where it belongs, once, and nothing acknowledged is missing."""
        for base, batch in self.leader.log:
            assert batch.first == base, f"a batch for {batch.first} is at {base}"
        assert self.leader.end >= max(owner.acknowledged for owner in self.owners)
        if not may_stop:
            assert [owner.stopped for owner in self.owners] == [None] * len(self.owners)
            assert self.leader.end == self.goal
