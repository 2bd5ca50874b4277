"""Virtual time, pipes and processes of the simulation."""

from __future__ import annotations

import random

import pytest

from tests.simulator import Latency, Process, Schedule
from tests.simulator import schedule as schedule_module
from tests.simulator.pipe import Pipe


def test_events_run_in_the_order_of_their_moments_and_time_is_theirs() -> None:
    schedule, seen = Schedule(), []
    for moment in (3.0, 1.0, 2.0):
        schedule.at(moment, lambda moment=moment: seen.append((moment, schedule.now)))
    assert schedule.next_time == 1.0
    while schedule.step():
        pass
    assert seen == [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]
    assert (schedule.now, schedule.steps, schedule.next_time) == (3.0, 3, None)


def test_a_moment_that_is_past_counts_as_now() -> None:
    schedule, seen = Schedule(start_s=10.0), []
    schedule.at(1.0, lambda: seen.append(schedule.now))
    schedule.after(-5.0, lambda: seen.append(schedule.now))
    schedule.run(10.0)
    assert seen == [10.0, 10.0]


@pytest.mark.parametrize("moment", [float("inf"), float("nan")])
def test_a_moment_is_a_finite_number(moment: float) -> None:
    with pytest.raises(ValueError, match="finite number of seconds"):
        Schedule().at(moment, print)


def test_at_one_moment_the_order_is_that_of_the_calls_or_drawn_from_the_rng() -> None:
    def order(rng: random.Random | None) -> list[int]:
        schedule, seen = Schedule(rng), []
        for number in range(20):
            schedule.at(1.0, seen.append, number)
        schedule.run(1.0)
        return seen

    assert order(None) == list(range(20))
    assert order(random.Random(1)) == order(random.Random(1))
    assert order(random.Random(1)) != order(random.Random(2))
    assert sorted(order(random.Random(1))) == list(range(20))


def test_a_cancelled_event_does_not_run() -> None:
    schedule, seen = Schedule(), []
    event = schedule.at(1.0, seen.append, 1)
    schedule.at(2.0, seen.append, 2)
    schedule.cancel(event)
    schedule.cancel(event)
    schedule.cancel(None)
    assert schedule.next_time == 2.0
    schedule.run(5.0)
    assert seen == [2]
    schedule.cancel(event)


def test_running_until_a_condition_or_a_deadline() -> None:
    schedule, seen = Schedule(), []
    for moment in range(1, 10):
        schedule.at(float(moment), seen.append, moment)
    assert schedule.run_until(lambda: 3 in seen, 5.0)
    assert (seen, schedule.now) == ([1, 2, 3], 3.0)
    assert not schedule.run_until(lambda: False, 5.5)
    assert (seen, schedule.now) == ([1, 2, 3, 4, 5], 5.5)
    assert schedule.run_until(lambda: schedule.now == 6.5, 6.5), "asked once more at the deadline"
    schedule.run(100.0)
    assert (seen[-1], schedule.now) == (9, 100.0)


def test_a_trace_is_shown_every_event() -> None:
    schedule, seen = Schedule(), []
    schedule.trace = lambda now, call, arguments: seen.append((now, arguments))
    schedule.at(1.0, len, "a")
    schedule.cancel(schedule.at(1.5, len, "b"))
    schedule.at(2.0, len, "c")
    schedule.run(3.0)
    assert seen == [(1.0, ("a",)), (2.0, ("c",))]


def test_events_that_never_let_time_go_on_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_module, "BURST_LIMIT", 100)
    schedule = Schedule()

    def again() -> None:
        schedule.after(0.0, again)

    again()
    with pytest.raises(schedule_module.SimulationStuck, match="100 events at 0 s"):
        schedule.run(1.0)


# -- pipes ----------------------------------------------------------------------------------------------------------


def made(seed: int = 1) -> tuple[Schedule, Pipe, list[int]]:
    rng = random.Random(seed)
    schedule = Schedule(rng)
    return schedule, Pipe(schedule, rng, Latency(0.1, 0.9)), []


@pytest.mark.parametrize("seed", range(5))
def test_what_is_sent_arrives_in_its_order_whatever_the_latencies(seed: int) -> None:
    schedule, pipe, seen = made(seed)
    for number in range(100):
        schedule.at(number / 50, pipe.send, seen.append, number)
    schedule.run(10.0)
    assert seen == list(range(100))


@pytest.mark.parametrize("seed", range(5))
def test_a_held_pipe_loses_nothing_and_keeps_the_order(seed: int) -> None:
    schedule, pipe, seen = made(seed)
    for number in range(100):
        schedule.at(number / 50, pipe.send, seen.append, number)
    schedule.run(0.5)
    pipe.hold()
    pipe.hold()
    arrived = len(seen)
    schedule.run(1.5)
    pipe.release()
    schedule.run(2.0)
    assert len(seen) == arrived
    pipe.release()
    schedule.run(10.0)
    assert seen == list(range(100))


def test_what_is_under_way_can_be_lost() -> None:
    schedule, pipe, seen = made()
    pipe.send(seen.append, 1)
    pipe.clear()
    pipe.send(seen.append, 2)
    schedule.run(10.0)
    assert seen == [2]


def test_a_delay_holds_up_what_follows_too() -> None:
    schedule, pipe, seen = made()
    pipe.send(seen.append, 1)
    pipe.delay(5.0)
    pipe.send(seen.append, 2)
    pipe.send(seen.append, 3)
    schedule.run(4.9)
    assert seen == [1]
    schedule.run(7.0)
    assert seen == [1, 2, 3]


# -- processes ------------------------------------------------------------------------------------------------------


class Part:
    def __init__(self) -> None:
        self.received: list[str] = []

    def paused(self) -> None:
        self.received.append("paused")

    def resumed(self) -> None:
        self.received.append("resumed")

    def killed(self) -> None:
        self.received.append("killed")


def test_timers_of_a_paused_process_wait_and_its_clock_does_not() -> None:
    schedule, seen = Schedule(), []
    process = Process(schedule, random.Random(1), wake=Latency(0.5, 0.5))
    process.after(1.0, lambda: seen.append(process.clock()))
    process.after(9.0, lambda: seen.append(process.clock()))
    process.pause()
    schedule.run(5.0)
    assert (seen, process.clock()) == ([], 5.0)
    process.resume()
    schedule.run(20.0)
    assert seen == [5.5, 9.0]


def test_a_timer_that_comes_due_while_it_is_paused_again_waits_again() -> None:
    schedule, seen = Schedule(), []
    process = Process(schedule, random.Random(1), wake=Latency(0.5, 0.5))
    process.after(1.0, seen.append, 1)
    process.pause()
    schedule.run(2.0)
    process.resume()
    process.pause()
    schedule.run(5.0)
    assert seen == []
    process.resume()
    schedule.run(6.0)
    assert seen == [1]


def test_an_overdue_timer_can_be_cancelled_before_it_runs() -> None:
    schedule, seen = Schedule(), []
    process = Process(schedule, random.Random(1), wake=Latency(0.5, 0.5))
    events = [process.after(1.0, seen.append, number) for number in range(3)]
    process.pause()
    schedule.run(2.0)
    schedule.cancel(events[0])
    process.resume()
    schedule.cancel(events[1])
    schedule.run(5.0)
    assert seen == [2]


def test_a_process_that_is_gone_runs_nothing_and_its_parts_are_told_once() -> None:
    schedule, seen, part = Schedule(), [], Part()
    process = Process(schedule, random.Random(1))
    process.attach(part)
    process.after(1.0, seen.append, 1)
    process.pause()
    process.pause()
    schedule.run(2.0)
    process.resume()
    process.resume()
    process.kill()
    process.kill()
    process.pause()
    process.after(1.0, seen.append, 2)
    schedule.run(10.0)
    assert seen == []
    assert part.received == ["paused", "resumed", "killed"]


def test_clocks_differ_in_offset_and_rate() -> None:
    schedule, seen = Schedule(), []
    fast = Process(schedule, random.Random(1), clock_offset_s=100.0, clock_rate=2.0)
    fast.after(4.0, lambda: seen.append(schedule.now))
    schedule.run(3.0)
    assert (fast.clock(), seen) == (106.0, [2.0])
    with pytest.raises(ValueError, match="rate 0"):
        Process(schedule, random.Random(1), clock_rate=0)
