"""The loop: calls in their order, timers when due, and the thread that runs them."""

from __future__ import annotations

import threading

from rebalance.lease import lease_clock
from rebalance.loop import Loop


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_calls_run_in_the_order_in_which_they_were_posted() -> None:
    loop, seen = Loop(Clock()), list[int]()
    for number in range(5):
        loop.post(seen.append, number)
    assert loop.step()
    assert seen == [0, 1, 2, 3, 4]
    assert not loop.step()


def test_timers_run_when_due_in_the_order_of_their_moments() -> None:
    clock = Clock()
    loop, seen = Loop(clock), list[str]()
    loop.call_later(2.0, seen.append, "later")
    loop.call_later(1.0, seen.append, "soon")
    loop.call_later(1.0, seen.append, "soon too")
    loop.step()
    assert seen == []
    clock.now = 2.0
    loop.step()
    assert seen == ["soon", "soon too", "later"]


def test_a_cancelled_timer_never_runs_and_is_not_waited_for() -> None:
    clock = Clock()
    loop, seen = Loop(clock), list[str]()
    loop.call_later(1.0, seen.append, "no").cancel()
    loop.call_later(3.0, seen.append, "yes")
    assert loop.next_due() == 3.0
    clock.now = 4.0
    loop.step()
    assert seen == ["yes"]
    assert loop.next_due() is None


def test_the_end_of_a_step_comes_after_all_that_was_posted_before_it() -> None:
    loop, seen = Loop(Clock()), list[str]()

    def first() -> None:
        loop.after_step(lambda: seen.append("end"))
        seen.append("first")

    loop.post(first)
    loop.post(seen.append, "second")
    loop.step()
    assert seen == ["first", "second", "end"]


def test_a_flood_of_calls_does_not_hold_up_the_timers() -> None:
    clock = Clock()
    loop, seen = Loop(clock), list[str]()

    def flood() -> None:
        clock.now += 1.0
        loop.post(flood)

    loop.post(flood)
    loop.call_later(3.0, seen.append, "timer")
    for _ in range(5):
        loop.step()
    assert seen == ["timer"]


def test_a_call_posted_by_another_thread_wakes_the_loop_and_stop_ends_it() -> None:
    loop = Loop(lease_clock)
    ran = threading.Event()
    thread = threading.Thread(target=loop.run, args=(60.0,), daemon=True)
    thread.start()
    loop.post(ran.set)
    assert ran.wait(5.0)
    loop.post(loop.stop)
    thread.join(5.0)
    assert not thread.is_alive()


def test_a_running_loop_is_in_time_for_its_timers() -> None:
    loop = Loop(lease_clock)
    ran = threading.Event()
    loop.call_later(0.05, ran.set)
    loop.call_later(0.1, loop.stop)
    thread = threading.Thread(target=loop.run, args=(60.0,), daemon=True)
    thread.start()
    thread.join(5.0)
    assert ran.is_set()
    assert not thread.is_alive()
