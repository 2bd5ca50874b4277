"""Sequence numbers of batches: kept for repeats, given back by refusals, and begun again where nobody knows them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from simpleconsumer.dialect import BatchProducer, ProducerId
from simpleconsumer.errors import _CODES
from simpleconsumer.types import ProducedPartition, TopicPartition
from zkconsumer.producer.batching.accumulator import Accumulator, Effect, Finished, Limits
from zkconsumer.producer.batching.batch_queues import Batch, Numbering
from zkconsumer.producer.errors import MessageNotSent
from zkconsumer.producer.sending.produce_codes import DUPLICATE, OUT_OF_STEP, PRODUCE_CODES, Stored, may_be_stored

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FIRST, SECOND = ProducerId(7, 0), ProducerId(8, 0)
LIMITS = Limits(batch_messages=2, linger_s=0.0, retries=3, backoff_s=0.0, acks=-1)


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


@pytest.mark.parametrize(("is_lost", "known_ms"), [(True, -1), (False, 77)])
def test_the_time_in_an_answer_is_that_of_the_append_unless_the_batch_may_have_been_stored_before(
    is_lost: bool, known_ms: int
) -> None:
    """Of a repeat that it knows a broker answers the newest time of the batch, which the producer may have set."""
    sender = Sender()
    sender.put(T0, b"a", b"b")
    sender.lose(sender.take(), may_be_stored=is_lost)
    [done] = sender.accumulator.answered(sender.take(), {T0: ProducedPartition(0, 5, 77)}, sender.now)
    assert isinstance(done, Finished)
    assert (done.error, done.offset, done.append_time_ms) == (None, 5, known_ms)


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


EVERY_CODE = [*sorted({row.code for row in _CODES} - {0}), 997]


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("code", EVERY_CODE)
def test_the_next_batch_takes_the_numbers_of_one_that_failed_only_if_no_broker_can_have_it(
    code: int, acks: int
) -> None:
    """A broker would acknowledge the next batch as a repeat of the one that it has, and not store it."""
    sender = Sender()
    sender.accumulator._limits = replace(LIMITS, acks=acks)
    sender.put(T0, b"a")
    effects: list[Effect] = []
    ids = set()
    while not effects:
        batches = sender.take()
        ids |= {each.numbers.id for each in batches if each.numbers is not None}
        effects = sender.answer(batches, code)
    error = effects[0].error if isinstance(effects[0], Finished) else None
    assert isinstance(error, MessageNotSent)
    row = PRODUCE_CODES.get(code)
    is_open = row is None or row.stored is Stored.MAYBE or (row.stored is Stored.MAYBE_WITH_ALL and acks == -1)
    assert error.may_be_stored is is_open
    sender.put(T0, b"c")
    [(producer, sequence, values)] = numbers_of(sender.take())
    assert (sequence, values) == (0, [b"c"])
    if is_open or code in OUT_OF_STEP:
        assert producer not in ids - {8}, "a new id, which is always 8 here"
    else:
        assert {producer} == ids


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("code", EVERY_CODE)
def test_a_batch_that_may_be_stored_is_not_tried_again_if_repeats_are_not_wanted(code: int, acks: int) -> None:
    accumulator = Accumulator(Limits(retries=3, backoff_s=0.0, acks=acks, repeats=False))
    accumulator.set_partitions("t", {0: 0}, 0.0)
    accumulator.add_batch(T0, [(b"k", b"v")], 30, False, 0.0)
    tries = 0
    effects: list[Effect] = []
    while not effects:
        accumulator.set_partitions("t", {0: 0}, 1.0 + tries)
        effects = accumulator.answered(accumulator.take(0, 1.0 + tries), {T0: ProducedPartition(code, -1)}, 1.0 + tries)
        tries += 1
    [finished] = effects
    assert isinstance(finished, Finished)
    assert isinstance(finished.error, MessageNotSent)
    assert finished.error.may_be_stored is may_be_stored(code, acks)
    if finished.error.may_be_stored:
        assert tries == 1
    assert accumulator.repeated == 0


def test_numbers_that_another_batch_has_are_no_acknowledgement() -> None:
    sender = Sender()
    sender.put(T0, b"a", b"b", b"c")
    sender.answer(sender.take(), 0, 1)
    assert sender.answer(sender.take(), DUPLICATE) == []
    assert numbers_of(sender.take()) == [(8, 0, [b"c"])]


@pytest.mark.parametrize("code", [10, 87])
def test_a_batch_that_may_be_stored_is_not_sent_in_parts_which_no_broker_would_know(code: int) -> None:
    sender = Sender()
    sender.put(T0, b"a", b"b", b"c")
    sender.lose(sender.take(), may_be_stored=True)
    [failed] = sender.answer(sender.take(), code)
    assert isinstance(failed, Finished)
    assert isinstance(failed.error, MessageNotSent)
    assert failed.error.may_be_stored
    assert numbers_of(sender.take()) == [(8, 0, [b"c"])]


def test_a_message_that_is_too_large_now_may_have_been_stored_before() -> None:
    sender = Sender()
    sender.put(T0, b"a")
    sender.lose(sender.take(), may_be_stored=True)
    [failed] = sender.answer(sender.take(), 10)
    assert isinstance(failed, Finished)
    assert isinstance(failed.error, MessageNotSent)
    assert failed.error.may_be_stored


@pytest.mark.parametrize("code", sorted(OUT_OF_STEP - {DUPLICATE}))
def test_a_transactional_producer_that_is_out_of_step_needs_the_id_of_its_coordinator(code: int) -> None:
    sender = Sender(is_transactional=True)
    sender.put(T0, b"a", b"b")
    [failed] = sender.answer(sender.take(), code)
    assert isinstance(failed, Finished)
    assert sender.numbering.producer is None
