"""What waits is sent in order, tried again in order, and has one outcome: the accumulator, without a thread."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simpleconsumer.types import ProducedPartition, TopicPartition
from zkconsumer.producer.batching.accumulator import Accumulator
from zkconsumer.producer.batching.batch_queues import Ahead, Batch, Effect, Finished, Limits, Split, message_size
from zkconsumer.producer.errors import MessageNotSent, OversizedMessage

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
LIMITS = Limits(batch_messages=3, batch_bytes=100, request_bytes=200, linger_s=5.0, queue_messages=20, queue_bytes=900,
                retries=2, backoff_s=0.1)  # fmt: skip
OK = ProducedPartition(0, 100)


def made(leaders: dict[int | str, int | None] | None = None, limits: Limits = LIMITS) -> Accumulator:
    """An accumulator that knows the topic `t`, whose partitions brokers 0 and 1 lead."""
    accumulator = Accumulator(limits, random.Random(1))
    accumulator.set_partitions("t", leaders or {0: 0, 1: 1, 2: 0}, 0.0)
    return accumulator


def put(
    accumulator: Accumulator, name: TopicPartition, *values: bytes, at: float = 0.0, movable: bool = False
) -> Batch:
    batch = None
    for value in values:
        batch = accumulator.add(name, (None, value), len(value), movable, at)
    assert batch is not None
    return batch


def values_of(batches: Sequence[Batch]) -> list[bytes | None]:
    return [value for batch in batches for _, value in batch.pairs]


def finished(effects: Sequence[Effect]) -> list[tuple[list[bytes | None], int, str]]:
    return [(values_of([each.batch]), each.offset, str(each.error or "")) for each in effects
            if isinstance(each, Finished)]  # fmt: skip


def test_a_batch_leaves_when_it_is_full_and_no_sooner_than_it_has_lingered_otherwise() -> None:
    accumulator = made()
    put(accumulator, T0, b"a", b"b", at=1.0)
    assert accumulator.take(0, 5.9) == []
    assert accumulator.due_at(0) == 6.0
    assert values_of(accumulator.take(0, 6.0)) == [b"a", b"b"]
    put(accumulator, T1, b"c", b"d", b"e", at=7.0)
    assert accumulator.due_at(1) == 0.0
    assert values_of(accumulator.take(1, 7.0)) == [b"c", b"d", b"e"]
    assert accumulator.due_at(0) is accumulator.due_at(1) is None


def test_while_messages_of_a_partition_are_in_flight_no_others_of_it_leave() -> None:
    accumulator = made()
    put(accumulator, T0, b"a", b"b", b"c")
    first = accumulator.take(0, 0.0)
    put(accumulator, T0, b"d", b"e", b"f")
    put(accumulator, T2, b"g", b"h", b"i")
    assert values_of(accumulator.take(0, 1.0)) == [b"g", b"h", b"i"]
    assert accumulator.take(0, 1.0) == []
    accumulator.answered(first, {T0: OK}, 1.0)
    assert values_of(accumulator.take(0, 1.0)) == [b"d", b"e", b"f"]


def test_a_request_takes_the_batches_that_fit_and_one_that_does_not_fit_alone() -> None:
    accumulator = made()
    put(accumulator, T0, b"a" * 90, b"b" * 90, b"c" * 90)
    accumulator.close_batches()
    assert [batch.size for batch in accumulator.take(0, 0.0)] == [90, 90]
    put(accumulator, T2, b"d" * 500)
    accumulator.close_batches()
    assert [batch.size for batch in accumulator.take(0, 0.0)] == [500]


def test_upcoming_batches_are_those_of_the_next_request_and_stay_where_they_are() -> None:
    accumulator = made()
    put(accumulator, T0, b"a", b"b", b"c")
    first = accumulator.take(0, 0.0)
    put(accumulator, T0, b"d" * 30, b"e" * 30, b"f" * 30)
    put(accumulator, T0, b"g" * 90, b"h" * 90, b"i" * 90)
    put(accumulator, T1, b"j", b"k", b"l")
    put(accumulator, T2, b"m")
    expected = [b"d" * 30, b"e" * 30, b"f" * 30, b"g" * 90]
    assert values_of(accumulator.upcoming(0)) == expected, "bounded by request_bytes; of broker 0; to m more is added"
    assert values_of(accumulator.upcoming(1)) == [b"j", b"k", b"l"]
    assert accumulator.take(0, 0.0) == [], "what is in flight still holds them back"
    accumulator.answered(first, {T0: OK}, 1.0)
    assert values_of(accumulator.take(0, 1.0)) == expected
    assert values_of(accumulator.upcoming(0)) == [b"h" * 90]


def test_of_a_compressed_topic_one_batch_of_each_partition_is_upcoming() -> None:
    accumulator = made(limits=replace(LIMITS, is_compressed=lambda topic: topic == "t"))
    put(accumulator, T0, b"a", b"b", b"c", b"d", b"e", b"f")
    put(accumulator, T2, b"g", b"h", b"i")
    assert values_of(accumulator.upcoming(0)) == [b"a", b"b", b"c", b"g", b"h", b"i"]


def test_a_batch_that_moves_to_another_broker_leaves_behind_what_was_encoded() -> None:
    accumulator = made()
    first = put(accumulator, T0, b"a", b"b", b"c", movable=True)
    accumulator.take(0, 0.0)
    waits = put(accumulator, T0, b"d", b"e", b"f", movable=True)
    waits.encoded = Ahead(b"def", (waits,))
    accumulator.request_failed([first], 0, "lost", True, 1.0)
    assert (waits.name, waits.encoded) == (T1, None)


def test_a_request_has_one_batch_of_each_partition_of_a_compressed_topic() -> None:
    """Brokers from 2.4 on refuse a request that has two compressed sets for a partition."""
    accumulator = made(limits=replace(LIMITS, is_compressed=lambda topic: topic == "t"))
    for value in (b"a", b"b", b"c", b"d"):
        put(accumulator, T0, value * 3)
    accumulator.add_batch(T0, [(None, b"e")], 1, False, 0.0)
    put(accumulator, T2, b"f", b"g", b"h")
    accumulator.close_batches()
    sent = []
    while taken := accumulator.take(0, 10.0):
        assert len({batch.name for batch in taken}) == len(taken)
        sent += values_of([batch for batch in taken if batch.name == T0])
        accumulator.answered(taken, {batch.name: OK for batch in taken}, 10.0)
    assert sent == [b"aaa", b"bbb", b"ccc", b"ddd", b"e"]


def test_the_partitions_of_a_broker_take_turns() -> None:
    accumulator = made(limits=Limits(batch_messages=1, request_bytes=10))
    order = []
    for _ in range(4):
        put(accumulator, T0, b"a" * 9)
        put(accumulator, T2, b"c" * 9)
    while batches := accumulator.take(0, 0.0):
        order += [batch.name.partition for batch in batches]
        accumulator.answered(batches, {batch.name: OK for batch in batches}, 0.0)
    assert order == [0, 2] * 4


def test_offsets_of_the_batches_of_a_request_follow_each_other() -> None:
    accumulator = made()
    put(accumulator, T0, b"a", b"b", b"c", b"d")
    accumulator.close_batches()
    effects = accumulator.answered(accumulator.take(0, 0.0), {T0: ProducedPartition(0, 70)}, 0.0)
    assert finished(effects) == [([b"a", b"b", b"c"], 70, ""), ([b"d"], 73, "")]
    assert (accumulator.messages, accumulator.size) == (0, 0)


def test_a_retry_keeps_the_order_and_comes_after_the_backoff_and_a_look_up() -> None:
    accumulator = made()
    put(accumulator, T0, b"a", b"b", b"c", b"d")
    accumulator.close_batches()
    taken = accumulator.take(0, 0.0)
    put(accumulator, T0, b"e", at=0.5)
    assert accumulator.answered(taken, {T0: ProducedPartition(6, -1)}, 1.0) == []
    assert accumulator.layout.stale == {"t": 1.1}
    assert accumulator.take(0, 2.0) == []
    assert accumulator.set_partitions("t", {0: 1, 1: 1, 2: 0}, 1.1) == []
    assert accumulator.due_at(1) == 1.1
    assert values_of(accumulator.take(1, 1.1)) == [b"a", b"b", b"c", b"d", b"e"]


def test_a_batch_fails_after_its_retries_and_those_behind_it_go_on() -> None:
    accumulator = made()
    put(accumulator, T0, b"a", b"b", b"c")
    for now in (0.0, 1.0, 2.0):
        taken = accumulator.take(0, now)
        put(accumulator, T0, b"%d" % now, at=now)
        effects = accumulator.request_failed(taken, 0, "connection lost", now > 0.5, now)
        accumulator.set_partitions("t", {0: 0, 1: 1, 2: 0}, now + 0.1)
    reason = "a message for t/0 was not acknowledged in 3 attempts: connection lost; it may be stored nevertheless"
    assert finished(effects) == [([b"a", b"b", b"c"], -1, reason)]
    assert values_of(accumulator.take(0, 3.0)) == [b"0", b"1", b"2"]


def test_what_another_request_would_lose_too_fails_at_once_and_others_are_tried() -> None:
    accumulator = made({0: 0, 1: 1})
    put(accumulator, T0, b"refused", movable=True)
    accumulator.close_batches()
    taken = accumulator.take(0, 0.0)
    put(accumulator, T1, b"elsewhere")
    accumulator.close_batches()
    effects = accumulator.request_failed(taken, 0, "no such user", False, 0.0, is_final=True)
    assert finished(effects) == [([b"refused"], -1, "a message for t/0 was not acknowledged: no such user")]
    assert accumulator.messages == 1
    assert values_of(accumulator.take(1, 0.0)) == [b"elsewhere"]
    accumulator.set_partitions("t", {0: 0, 1: 1}, 0.2)
    put(accumulator, T0, b"later", at=0.2)
    accumulator.close_batches()
    assert values_of(accumulator.take(0, 10.0)) == [b"later"]


def test_messages_without_a_place_move_to_another_broker_and_others_stay() -> None:
    accumulator = made({0: 0, 1: 1})
    put(accumulator, T0, b"free", movable=True)
    accumulator.close_batches()
    put(accumulator, T0, b"keyed")
    accumulator.close_batches()
    taken = accumulator.take(0, 0.0)
    assert accumulator.request_failed(taken, 0, "refused", False, 0.0) == []
    assert values_of(accumulator.take(1, 0.0)) == [b"free"]
    accumulator.set_partitions("t", {0: 0, 1: 1}, 0.2)
    assert values_of(accumulator.take(0, 0.2)) == [b"keyed"]


def test_a_batch_that_got_a_message_with_a_key_does_not_move() -> None:
    accumulator = made({0: 0, 1: 1})
    put(accumulator, T0, b"free", movable=True)
    put(accumulator, T0, b"keyed")
    accumulator.close_batches()
    accumulator.request_failed(accumulator.take(0, 0.0), 0, "refused", False, 0.0)
    assert accumulator.take(1, 1.0) == []


def test_a_partition_without_a_leader_fails_after_as_many_searches() -> None:
    accumulator = made({0: None, 1: 1})
    put(accumulator, T0, b"a")
    effects: list[Effect] = []
    for now in (1.0, 2.0, 3.0):
        assert effects == []
        effects = accumulator.set_partitions("t", {0: None, 1: 1}, now)
        assert accumulator.layout.stale == {"t": now + 0.1}
    reason = "a message for t/0 was not acknowledged in 3 attempts: no broker leads it"
    assert finished(effects) == [([b"a"], -1, reason)]


@pytest.mark.parametrize("is_final", [True, False])
def test_a_topic_that_is_gone_fails_what_waits_for_it(is_final: bool) -> None:
    accumulator = made({0: None})
    put(accumulator, T0, b"a")
    accumulator.layout.want("t", 0.0)
    effects: list[Effect] = []
    for _ in range(1 if is_final else 3):
        assert effects == []
        assert accumulator.layout.stale
        effects = accumulator.topic_not_found("t", "no such topic", is_final, 0.0)
    assert [error for _, _, error in finished(effects)] == [
        f"a message for t/0 was not acknowledged{'' if is_final else ' in 3 attempts'}: no such topic"
    ]
    assert accumulator.layout.stale == {}


def test_one_message_that_is_too_large_is_found_and_fails_no_other() -> None:
    accumulator = made(limits=Limits(batch_messages=5))
    put(accumulator, T0, b"a", b"b", b"LARGE", b"d", b"e", b"f")
    accumulator.close_batches()
    done: list[tuple[list[bytes | None], str]] = []
    for _ in range(20):
        taken = accumulator.take(0, 0.0)
        if not taken:
            break
        code = 10 if b"LARGE" in values_of(taken) else 0
        for effect in accumulator.answered(taken, {T0: ProducedPartition(code, 0)}, 0.0):
            assert isinstance(effect, Finished | Split)
            if isinstance(effect, Finished):
                done.append((values_of([effect.batch]), type(effect.error).__name__))
    assert [value for values, _ in done for value in values] == [b"a", b"b", b"LARGE", b"d", b"e", b"f"]
    assert [values for values, error in done if error == OversizedMessage.__name__] == [[b"LARGE"]]
    assert {error for _, error in done} == {"NoneType", "OversizedMessage"}


def test_the_bounds_hold_and_one_message_always_fits() -> None:
    accumulator = made()
    assert accumulator.fullness(1, 10_000) is None
    put(accumulator, T0, *[b"v" * 40] * 20)
    assert accumulator.fullness(1, 1) == "20 messages (queue.buffering.max.messages)"
    accumulator.abandon("over")
    put(accumulator, T0, *[b"v" * 90] * 9)
    assert accumulator.fullness(1, 91) == "900 bytes (queue.buffering.max.bytes)"
    assert accumulator.fullness(1, 90) is None


class World:
    """A cluster that does at random what clusters do, and what it has stored."""

    def __init__(self, rng: random.Random, limits: Limits) -> None:
        self.rng = rng
        self.now = 0.0
        self.accumulator = Accumulator(limits, rng)
        self.stored: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        self.outcomes: dict[bytes, list[str]] = {}
        self.flying: list[tuple[int, list[Batch]]] = []
        self.sent = 0
        self.look_up()

    def look_up(self) -> None:
        leaders: dict[int | str, int | None] = {number: self.rng.choice([0, 1, None]) for number in self.stored}
        self.note(self.accumulator.set_partitions("t", leaders, self.now))

    def note(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Finished):
                for _, value in effect.batch.pairs:
                    assert value is not None
                    self.outcomes.setdefault(value, []).append(type(effect.error).__name__)

    def step(self) -> None:
        self.now += self.rng.choice([0.0, 0.05, 0.2, 6.0])
        what = self.rng.randrange(8)
        if what < 3 and self.accumulator.fullness(1, 30) is None:
            number, is_movable = self.rng.randrange(3), self.rng.random() < 0.5
            value = b"%d" % self.sent
            self.sent += 1
            pair = None, value
            self.accumulator.add(TopicPartition("t", number), pair, message_size(pair), is_movable, self.now)
        elif what < 5:
            broker = self.rng.randrange(2)
            if batches := self.accumulator.take(broker, self.now):
                assert sum(batch.size for batch in batches) <= LIMITS.request_bytes or len(batches) == 1
                self.flying.append((broker, batches))
        elif what < 7 and self.flying:
            self.answer(*self.flying.pop(self.rng.randrange(len(self.flying))))
        else:
            self.look_up()
        assert 0 <= self.accumulator.messages <= LIMITS.queue_messages

    def answer(self, broker: int, batches: list[Batch]) -> None:
        names = {batch.name for batch in batches}
        if self.rng.random() < 0.2:
            is_stored = self.rng.random() < 0.5
            if is_stored:
                self.store(batches)
            self.note(self.accumulator.request_failed(batches, broker, "lost", is_stored, self.now))
            return
        codes = {name: self.rng.choice([0, 0, 0, 6, 10, 29]) for name in names}
        self.store([batch for batch in batches if codes[batch.name] == 0])
        self.note(self.accumulator.answered(
            batches, {name: ProducedPartition(code, 0) for name, code in codes.items()}, self.now
        ))  # fmt: skip

    def store(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            assert isinstance(batch.name.partition, int)
            self.stored[batch.name.partition] += [value for _, value in batch.pairs if value is not None]

    def end(self) -> None:
        for _ in range(1000):
            for broker, batches in self.flying:
                self.answer(broker, batches)
            self.flying.clear()
            self.now += 10.0
            self.look_up()
            for broker in range(2):
                if batches := self.accumulator.take(broker, self.now):
                    self.flying.append((broker, batches))
            if not self.accumulator.messages:
                return
        raise AssertionError(f"{self.accumulator.messages} messages have no outcome")


def first_times(values: Sequence[bytes]) -> Iterator[bytes]:
    return iter(dict.fromkeys(values))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(10, 200))
def test_each_message_has_one_outcome_and_what_is_acknowledged_is_stored(seed: int, steps: int) -> None:
    world = World(random.Random(seed), LIMITS)
    for _ in range(steps):
        world.step()
    world.end()
    assert world.accumulator.size == 0
    assert sorted(world.outcomes) == sorted(b"%d" % number for number in range(world.sent))
    everywhere = {value for values in world.stored.values() for value in values}
    for value, outcomes in world.outcomes.items():
        assert len(outcomes) == 1
        assert outcomes[0] in ("NoneType", MessageNotSent.__name__, OversizedMessage.__name__)
        assert outcomes[0] != "NoneType" or value in everywhere


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_messages_with_a_partition_are_first_stored_in_the_order_in_which_they_came(seed: int) -> None:
    rng = random.Random(seed)
    world = World(rng, LIMITS)
    for number in range(40):
        if world.accumulator.fullness(1, 30) is None:
            pair = None, b"%d" % world.sent
            world.accumulator.add(T0, pair, message_size(pair), False, world.now)
            world.sent += 1
        if batches := world.accumulator.take(rng.randrange(2), world.now):
            world.answer(0, batches)
        world.now += rng.choice([0.0, 0.2, 6.0])
        if number % 3 == 0:
            world.look_up()
    world.end()
    numbers = [int(value) for value in first_times(world.stored[0])]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("as_batch", [False, True])
def test_leaders_are_looked_up_for_what_comes_behind_a_look_up_that_found_none(as_batch: bool) -> None:
    accumulator = made({0: None, 1: 1})
    assert accumulator.layout.lookup_at() is None
    if as_batch:
        accumulator.add_batch(T0, [(None, b"a")], 27, False, 1.0)
    else:
        put(accumulator, T0, b"a", at=1.0)
    assert accumulator.layout.lookup_at() == 1.0
    for tries in range(3):
        assert accumulator.layout.lookup_at() is not None
        effects = accumulator.set_partitions("t", {0: None, 1: 1}, 2.0 + tries)
    assert [(values, "no broker leads it" in error) for values, _, error in finished(effects)] == [([b"a"], True)]
    assert accumulator.messages == 0


def test_a_leader_that_denies_it_may_have_stored_what_waited_for_replicas() -> None:
    for acks, is_open in ((1, False), (-1, True)):
        made = Accumulator(Limits(retries=0, acks=acks))
        name = TopicPartition("t", 0)
        made.set_partitions("t", {0: 1}, 0.0)
        made.add_batch(name, [(None, b"v")], 27, False, 0.0)
        [finished] = made.answered(made.take(1, 0.0), {name: ProducedPartition(6, -1)}, 0.0)
        assert isinstance(finished, Finished)
        assert isinstance(finished.error, MessageNotSent)
        assert finished.error.may_be_stored is is_open
