"""Sequence numbers of batches: kept for repeats, given back by refusals, and begun again where nobody knows them."""

from __future__ import annotations

import random

import pytest

from simpleconsumer.producer_batches import BatchProducer, ProducerId
from simpleconsumer.types import ProducedPartition, TopicPartition
from zkconsumer.producer.accumulator import Accumulator, Effect, Finished, Limits
from zkconsumer.producer.batch import Batch, undecided_codes
from zkconsumer.producer.errors import MessageNotSent
from zkconsumer.producer.numbering import DUPLICATE, Numbering

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FIRST, SECOND = ProducerId(7, 0), ProducerId(8, 0)
LIMITS = Limits(batch_messages=2, linger_s=0.0, retries=3, backoff_s=0.0, undecided=undecided_codes(-1))


class Sender:
    """An accumulator with numbers, and a broker whose answers the test gives."""

    def __init__(self, is_transactional: bool = False) -> None:
        self.numbering = Numbering(is_transactional)
        self.numbering.start(FIRST)
        self.accumulator = Accumulator(LIMITS, random.Random(1), self.numbering)
        self.accumulator.set_partitions("t", {0: 0, 1: 0}, 0.0)
        self.now = 0.0

    def put(self, name: TopicPartition, *values: bytes, is_movable: bool = False) -> None:
        for value in values:
            self.accumulator.add(name, (None, value), 30, is_movable, self.now)

    def take(self) -> list[Batch]:
        self.now += 1.0
        self.accumulator.set_partitions("t", {0: 0, 1: 0}, self.now)
        taken = self.accumulator.take(0, self.now)
        for batch in taken:
            if self.numbering.needs_id(batch):
                self.numbering.start(SECOND)
            self.numbering.number(batch)
        return taken

    def answer(self, batches: list[Batch], code: int, offset: int = -1) -> list[Effect]:
        results = {batch.name: ProducedPartition(code, offset) for batch in batches}
        return self.accumulator.answered(batches, results, self.now)

    def lose(self, batches: list[Batch], may_be_stored: bool) -> list[Effect]:
        return self.accumulator.request_failed(batches, 0, "lost", may_be_stored, self.now)


def numbers_of(batches: list[Batch]) -> list[tuple[int, int, list[bytes | None]]]:
    found = []
    for batch in batches:
        assert batch.numbers is not None
        found.append((batch.numbers.id, batch.numbers.base_sequence, [pair[1] for pair in batch.pairs]))
    return found


def test_each_partition_counts_its_messages_and_has_one_batch_under_way() -> None:
    sender = Sender()
    sender.put(T0, b"a", b"b", b"c")
    sender.put(T1, b"x")
    first = sender.take()
    assert numbers_of(first) == [(7, 0, [b"a", b"b"]), (7, 0, [b"x"])]
    assert sender.take() == []
    sender.answer(first, 0, 100)
    assert numbers_of(sender.take()) == [(7, 2, [b"c"])]


def test_a_batch_that_may_be_stored_is_repeated_under_its_numbers_and_nowhere_else() -> None:
    sender = Sender()
    sender.put(T0, b"a", b"b", is_movable=True)
    batches = sender.take()
    assert sender.lose(batches, may_be_stored=True) == []
    sender.accumulator.set_partitions("t", {0: None, 1: 0}, sender.now)
    again = sender.take()
    assert (again, numbers_of(again)) == (batches, [(7, 0, [b"a", b"b"])])
    assert again[0].name == T0, "another partition would store it a second time"


def test_a_duplicate_is_a_success_without_an_offset() -> None:
    sender = Sender()
    sender.put(T0, b"a", b"b", b"c")
    sender.lose(sender.take(), may_be_stored=True)
    [done] = sender.answer(sender.take(), DUPLICATE)
    assert isinstance(done, Finished)
    assert (done.error, done.offset) == (None, -1)
    assert numbers_of(sender.take()) == [(7, 2, [b"c"])]


def test_a_batch_that_was_never_sent_gives_its_numbers_back_and_may_go_elsewhere() -> None:
    sender = Sender()
    sender.put(T0, b"a", b"b")
    sender.put(T0, b"c", b"d")
    first = sender.take()
    sender.lose(first, may_be_stored=False)
    assert first[0].numbers is None
    assert numbers_of(sender.take()) == [(7, 0, [b"a", b"b"])]


def test_the_parts_of_a_batch_that_is_too_large_go_on_without_a_gap() -> None:
    sender = Sender()
    sender.put(T0, b"a", b"b", b"c")
    sender.answer(sender.take(), 10)
    seen = []
    while batches := sender.take():
        seen += numbers_of(batches)
        sender.answer(batches, 0, 5)
    assert seen == [(7, 0, [b"a"]), (7, 1, [b"b"]), (7, 2, [b"c"])]


def test_behind_a_failure_that_may_be_stored_a_partition_begins_again_with_a_new_id_and_others_go_on() -> None:
    sender = Sender()
    sender.put(T0, b"a", b"b", b"c")
    sender.put(T1, b"x", b"y", b"z")
    for _ in range(LIMITS.retries):
        batches = sender.take()
        sender.answer([each for each in batches if each.name == T1], 0, 9)
        sender.lose([each for each in batches if each.name == T0], may_be_stored=True)
    [failed] = sender.lose(sender.take(), may_be_stored=True)
    assert isinstance(failed, Finished)
    assert isinstance(failed.error, MessageNotSent)
    assert failed.error.may_be_stored
    sender.put(T1, b"w")
    assert numbers_of(sender.take()) == [(8, 0, [b"c"]), (7, 3, [b"w"])]


@pytest.mark.parametrize("code", [45, 59])
def test_a_broker_that_is_out_of_step_gets_the_batch_under_a_new_id_if_nobody_can_have_it(code: int) -> None:
    sender = Sender()
    sender.put(T0, b"a", b"b", b"c")
    sender.answer(sender.take(), 0, 1)
    assert sender.answer(sender.take(), code) == []
    assert numbers_of(sender.take()) == [(8, 0, [b"c"])]


@pytest.mark.parametrize("code", [45, 59])
def test_a_batch_that_may_be_stored_fails_where_the_broker_is_out_of_step(code: int) -> None:
    sender = Sender()
    sender.put(T0, b"a", b"b", b"c")
    sender.lose(sender.take(), may_be_stored=True)
    [failed] = sender.answer(sender.take(), code)
    assert isinstance(failed, Finished)
    assert isinstance(failed.error, MessageNotSent)
    assert failed.error.may_be_stored
    assert numbers_of(sender.take()) == [(8, 0, [b"c"])]


def test_behind_a_failure_a_transactional_producer_waits_for_the_id_of_its_coordinator() -> None:
    sender = Sender(is_transactional=True)
    sender.put(T0, b"a", b"b", b"c")
    [_] = sender.answer(sender.take(), 17)
    [waiting] = sender.accumulator.take(0, sender.now + 1)
    assert sender.numbering.needs_id(waiting) is False, "it was refused, so the next number is known"
    sender.numbering.number(waiting)
    assert waiting.numbers == BatchProducer(7, 0, 0, True)
    waiting.may_be_stored = True
    sender.numbering.lose(waiting)
    assert sender.numbering.needs_id(waiting)
    sender.numbering.start(ProducerId(7, 1))
    sender.numbering.number(waiting)
    assert waiting.numbers == BatchProducer(7, 1, 0, True)
