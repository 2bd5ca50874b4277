"""The byte budget with streams that are read and streams that nobody reads: memory, progress, and wake-ups."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simpleconsumer.types import TopicPartition
from zkconsumer.fetching.byte_budget import ByteBudget, Charge
from zkconsumer.fetching.byte_shares import SMALLEST_SHARE_BYTES, Candidate
from zkconsumer.fetching.fetch_state import FetchState

MIB = 1024 * 1024
SMALL = SMALLEST_SHARE_BYTES


def charged(budget: ByteBudget, stream: object, size: int) -> Charge:
    one = Charge()
    budget.charge(one, size, stream)
    return one


class Woken:
    """Counts how often a fetcher is woken."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


# -- one after the other -----------------------------------------------------------------------------------------------


def test_what_is_asked_for_is_reserved_until_it_is_answered() -> None:
    budget = ByteBudget(10 * MIB)
    assert budget.ask("a", [Candidate("s", 6 * MIB)]) == [6 * MIB]
    assert budget.ask("b", [Candidate("s", 6 * MIB)]) == [4 * MIB]
    budget.answered("a")
    budget.answered("b")
    assert budget.ask("b", [Candidate("s", 10 * MIB)]) == [10 * MIB]


def test_each_fetcher_asks_for_its_part_so_that_a_long_poll_of_one_leaves_room_for_the_others() -> None:
    budget = ByteBudget(9 * MIB)
    asking = [Candidate("s", 2 * MIB)] * 6
    assert sum(budget.ask("a", asking, askers=3)) == 3 * MIB
    assert sum(budget.ask("b", asking, askers=3)) == 3 * MIB


def test_an_unread_stream_takes_nothing_of_the_share_of_another() -> None:
    budget = ByteBudget(64 * MIB, streams=2)
    taken = 0
    while size := sum(budget.ask("a", [Candidate("still", MIB)] * 24)):
        budget.answered("a")
        taken += size
        charged(budget, "still", size)
    assert 31 * MIB <= taken <= 32 * MIB
    assert sum(budget.ask("a", [Candidate("still", MIB)] * 24 + [Candidate("read", MIB)] * 24)) == 24 * MIB


def test_one_chunk_more_for_a_stream_for_which_none_is_queued_and_only_one() -> None:
    budget = ByteBudget(MIB, streams=2)
    large = Candidate("s", 3 * MIB, 3 * MIB)
    assert budget.ask("a", [large, large]) == [3 * MIB, 0]
    assert budget.ask("b", [large]) == [0]
    budget.answered("a")
    one = charged(budget, "s", 3 * MIB)
    assert budget.ask("b", [large]) == [0]
    budget.release(one)
    assert budget.ask("b", [large]) == [3 * MIB]


def test_partitions_at_their_end_do_not_take_the_one_chunk_more_from_one_that_has_messages() -> None:
    at_end, large = Candidate("s", MIB, 0, True), Candidate("s", MIB, MIB)
    budget = ByteBudget(SMALL)
    assert budget.ask("a", [at_end]) == [SMALL // 2]
    assert budget.ask("b", [large]) == [MIB]
    budget = ByteBudget(SMALL)
    assert budget.ask("a", [Candidate("s", SMALL)]) == [SMALL]
    assert budget.ask("b", [at_end, large]) == [0, MIB]


def test_a_request_asks_for_no_more_in_all_than_it_may() -> None:
    budget = ByteBudget(64 * MIB, streams=2)
    asking = [Candidate("s", 8 * MIB), Candidate("t", 8 * MIB)]
    assert budget.ask("a", asking, most_bytes=10 * MIB) == [8 * MIB, 2 * MIB]
    large = Candidate("t", 8 * MIB, 8 * MIB)
    assert budget.ask("a", [asking[0], large], most_bytes=10 * MIB) == [8 * MIB, 0]


def test_a_fetcher_that_asks_again_has_given_back_what_was_reserved_before() -> None:
    budget = ByteBudget(MIB)
    for _ in range(3):
        assert budget.ask("a", [Candidate("s", MIB)]) == [MIB]


def test_while_a_stream_has_something_to_read_room_is_not_given_out_in_crumbs() -> None:
    budget = ByteBudget(8 * MIB)
    chunks = [charged(budget, "s", MIB // 2) for _ in range(16)]
    asking = [Candidate("s", MIB)] * 20
    budget.release(chunks.pop())
    assert not any(budget.ask("a", asking))
    budget.release(chunks.pop())
    assert sum(budget.ask("a", asking)) > 0


def test_what_a_large_message_waits_for_is_not_taken_by_another_fetcher() -> None:
    budget = ByteBudget(8 * MIB)
    chunks = [charged(budget, "s", MIB) for _ in range(8)]
    large, small = Candidate("s", 4 * MIB, 4 * MIB), Candidate("s", MIB)
    for _ in range(3):
        assert budget.ask("a", [large]) == [0]
        assert budget.ask("b", [small]) == [0]
        budget.release(chunks.pop())
    assert budget.ask("b", [small]) == [0]
    budget.release(chunks.pop())
    assert budget.ask("a", [large]) == [4 * MIB]


@settings(max_examples=300, derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_who_asks_again_for_the_same_gets_what_a_first_call_would_get(seed: int) -> None:
    """One budget sees the same list each time, the other an equal one; all they grant is equal."""
    chance = random.Random(seed)
    streams = chance.randint(1, 3)
    pair = [ByteBudget(chance.choice([MIB, 4 * MIB]), streams)]
    pair.append(ByteBudget(pair[0]._shares.own_bytes * streams + pair[0]._shares.common_bytes, streams))
    lists = [
        [Candidate(chance.randrange(streams), chance.choice([1000, SMALL, MIB]), chance.choice([0, MIB]),
                   chance.random() < 0.3)
         for _ in range(chance.randint(1, 5))]
        for _ in range(4)
    ]  # fmt: skip
    charges: list[list[Charge]] = []
    for _ in range(60):
        asker = chance.choice("ab")
        match chance.randrange(5):
            case 0:
                stream, size = chance.randrange(streams), chance.choice([1000, SMALL, MIB // 2])
                charges.append([charged(budget, stream, size) for budget in pair])
            case 1 if charges:
                for budget, charge in zip(pair, charges.pop(0), strict=True):
                    budget.release(charge)
            case 2:
                for budget in pair:
                    budget.answered(asker)
            case _:
                asking, askers = chance.choice(lists), chance.choice([1, 2, 2])
                assert pair[0].ask(asker, asking, askers) == pair[1].ask(asker, list(asking), askers)


def test_a_fetcher_that_has_ended_holds_nothing_up() -> None:
    budget = ByteBudget(8 * MIB)
    chunks = [charged(budget, "s", MIB) for _ in range(8)]
    woken = Woken()
    assert budget.ask("a", [Candidate("s", 4 * MIB, 4 * MIB), Candidate("t", MIB)], wake=woken) == [0, MIB]
    budget.leave("a")
    budget.leave("a")
    budget.release(chunks.pop())
    assert woken.times == 0
    assert budget.ask("b", [Candidate("s", MIB)]) == [MIB]


# -- giving back -------------------------------------------------------------------------------------------------------


def test_a_chunk_is_given_back_once_however_often_it_is_released() -> None:
    budget = ByteBudget(MIB)
    one, _ = charged(budget, "s", 1000), charged(budget, "s", 500)
    for _ in range(3):
        budget.release(one)
        assert budget.charged_bytes() == 500
    assert budget.ask("a", [Candidate("s", 2 * MIB)]) == [MIB - 500]


def test_who_was_refused_is_woken_when_a_chunk_of_that_stream_is_read_and_by_no_other() -> None:
    budget, woken = ByteBudget(2 * MIB, streams=2), Woken()
    mine, other = charged(budget, "s", MIB), charged(budget, "t", 1000)
    assert budget.ask("a", [Candidate("s", MIB)], wake=woken) == [0]
    budget.release(other)
    assert woken.times == 0
    budget.release(mine)
    assert woken.times == 1
    assert budget.ask("a", [Candidate("s", MIB)], wake=woken) == [MIB]
    budget.release(mine)
    assert woken.times == 1


def test_who_was_refused_is_woken_when_another_request_brought_less_than_it_asked_for() -> None:
    budget, woken = ByteBudget(2 * MIB), Woken()
    charged(budget, "s", 1000)
    assert budget.ask("a", [Candidate("s", 2 * MIB - 1000)]) == [2 * MIB - 1000]
    assert budget.ask("b", [Candidate("s", MIB)], wake=woken) == [0]
    budget.answered("a")
    assert woken.times == 1


def test_a_chunk_that_is_read_just_before_the_refusal_is_noted_is_not_missed() -> None:
    class ReadMeanwhile(ByteBudget):
        def _refuse(self, *arguments: Any) -> None:
            if chunks:
                self.release(chunks.pop())
            super()._refuse(*arguments)

    budget, chunks = ReadMeanwhile(MIB), list[Charge]()
    chunks.append(charged(budget, "s", MIB))
    assert budget.ask("a", [Candidate("s", MIB)]) == [MIB]


# -- all of it together ------------------------------------------------------------------------------------------------


@dataclass
class Partition:
    """One partition: what its log still holds, and the state of its fetch."""

    stream: str
    fetcher: int
    log: deque[int]
    state: FetchState
    queued: int = 0


@dataclass
class Fetcher:
    """One fetcher: awake, asleep until it is woken, or in the middle of a request."""

    is_awake: bool = True
    asked: list[tuple[Partition, int]] = field(default_factory=list)

    def wake(self) -> None:
        self.is_awake = True


class World:
    """Fetchers and readers around one budget, in any order; a fetcher that waits continues only when it is woken."""

    def __init__(
        self, limit: int, streams: dict[str, bool], places: list[tuple[str, int]], logs: list[list[int]], size: int
    ) -> None:
        self.limit = limit
        self.budget = ByteBudget(limit, len(streams))
        self.is_read = streams
        self.queues: dict[str, deque[tuple[Partition, Charge]]] = {name: deque() for name in streams}
        self.fetchers = [Fetcher() for _ in range(max(fetcher for _, fetcher in places) + 1)]
        self.partitions = [
            Partition(stream, fetcher, deque(log), FetchState(TopicPartition("t", number), 0, size))
            for number, ((stream, fetcher), log) in enumerate(zip(places, logs, strict=True))
        ]
        self.now = 0.0
        self.largest = max([size, *(message for log in logs for message in log)])

    def step(self, choice: random.Random) -> None:
        """Let a fetcher ask, a broker answer, or a stream read."""
        self.now += 1.0
        what = choice.randrange(3)
        if what == 0:
            self.plan(choice.randrange(len(self.fetchers)))
        elif what == 1:
            self.answer(choice.choice(self.fetchers))
        else:
            self.read(choice.choice(list(self.is_read)))
        self.check()

    def plan(self, number: int) -> None:
        fetcher = self.fetchers[number]
        if fetcher.asked or not fetcher.is_awake:
            return
        fetcher.is_awake = False
        ready = sorted(
            (one for one in self.partitions if one.fetcher == number and one.queued < 3),
            key=lambda one: one.state.asked_at,
        )
        candidates = [one.state.candidate(one.stream) for one in ready]
        sizes = self.budget.ask(number, candidates, len(self.fetchers), wake=fetcher.wake)
        for one, size in zip(ready, sizes, strict=True):
            if size:
                one.state.asked(self.now)
                fetcher.asked.append((one, size))

    def answer(self, fetcher: Fetcher) -> None:
        for one, size in fetcher.asked:
            count = taken = 0
            while count < len(one.log) and taken + one.log[count] <= size:
                taken += one.log[count]
                count += 1
            if count:
                charge = Charge()
                self.budget.charge(charge, taken, one.stream)
                self.queues[one.stream].append((one, charge))
                one.queued += 1
                for _ in range(count):
                    one.log.popleft()
                one.state.moved_on(one.state.offset + count, taken)
                one.state.answered(self.now, one.state.offset + len(one.log))
            elif one.log:
                one.state.grow(one.log[0])
            else:
                one.state.answered(self.now, one.state.offset)
        if fetcher.asked:
            self.budget.answered(self.fetchers.index(fetcher))
            fetcher.asked = []
            fetcher.is_awake = True

    def read(self, stream: str) -> None:
        if self.is_read[stream] and self.queues[stream]:
            one, charge = self.queues[stream].popleft()
            self.budget.release(charge)
            one.queued -= 1
            self.fetchers[one.fetcher].wake()  # there is room in the queue of the partition

    def check(self) -> None:
        queued = sum(charge.size_bytes for queue in self.queues.values() for _, charge in queue)
        under_way = sum(size for fetcher in self.fetchers for _, size in fetcher.asked)
        assert queued + under_way <= self.limit + len(self.is_read) * self.largest
        for stream in self.is_read:
            in_flight = any(one.stream == stream for fetcher in self.fetchers for one, _ in fetcher.asked)
            waits = [
                fetcher
                for number, fetcher in enumerate(self.fetchers)
                if not fetcher.asked and any((one.stream, one.fetcher) == (stream, number) for one in self.partitions)
            ]
            if waits and not in_flight and not self.queues[stream]:
                assert any(fetcher.is_awake for fetcher in waits), f"nobody will ever ask for {stream} again"

    def is_done(self) -> bool:
        return not any(one.log or one.queued for one in self.partitions if self.is_read[one.stream])


MESSAGES = st.lists(st.one_of(st.integers(50, 1500), st.integers(20_000, 200_000)), max_size=12)


@pytest.mark.catalogue("J2")
@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([40_000, 200_000, 1_000_000]),
    st.lists(st.booleans(), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), MESSAGES), min_size=1, max_size=12),
    st.integers(0, 2**32),
)
def test_the_budget_holds_and_every_stream_that_is_read_gets_all_its_messages_whatever_the_others_do(
    limit: int, read: list[bool], rows: list[tuple[int, int, list[int]]], seed: int
) -> None:
    streams = {f"stream {number}": is_read for number, is_read in enumerate(read)}
    places = [(f"stream {stream % len(read)}", fetcher) for stream, fetcher, _ in rows]
    choice = random.Random(seed)
    world = World(limit, streams, places, [messages for *_, messages in rows], size=64 * 1024)
    steps = 0
    while not world.is_done():
        world.step(choice)
        steps += 1
        assert steps < 20_000, "a stream that is read starves"
