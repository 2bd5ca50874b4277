"""The simulated JVM under the Java member: threads that take turns, and the client that asks again and watches on."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from rebalance.zookeeper.port.requests import Create
from tests.simulator.java_threads import Body, BoundedQueue, JavaFailure, Lock, Monitor, Threads
from tests.simulator.java_zkclient import NodeExists, NoNode, ZkClient, java_port
from tests.simulator.port import PortSettings
from tests.simulator.process import Process
from tests.simulator.schedule import Schedule
from tests.simulator.zookeeper import SimulatedZooKeeper


class Jvm:
    """A process with threads, and a client of a ZooKeeper of one server."""

    def __init__(self, seed: int = 1, settings: PortSettings | None = None) -> None:
        rng = random.Random(seed)
        self.schedule = Schedule(rng)
        self.zookeeper = SimulatedZooKeeper(self.schedule, rng)
        self.process = Process(self.schedule, rng, "jvm")
        self.threads = Threads(self.process, rng)
        self.port = self.zookeeper.port(self.process, settings or java_port(6.0))
        self.client = ZkClient(self.port, self.threads, rng)
        self.received: list[Any] = []

    def run(self, *bodies: Body[Any], seconds: float = 10.0) -> list[Any]:
        """Run bodies as threads, each on its own; what they returned, or the failure they ended with."""
        results: list[Any] = [None] * len(bodies)

        def body(number: int, each: Body[Any]) -> Body[None]:
            try:
                results[number] = yield from each
            except JavaFailure as failure:
                results[number] = failure

        for number, each in enumerate(bodies):
            self.threads.start(f"thread {number}", body(number, each))
        self.schedule.run(self.schedule.now + seconds)
        return results

    def connected(self) -> Jvm:
        self.run(self.client.connect(6.0), seconds=1.0)
        assert self.client.is_connected
        return self

    def hear(self, what: Any) -> Body[None]:
        self.received.append(sorted(what) if isinstance(what, list) else what)
        yield from ()

    def break_connection(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.zookeeper.cut(self.port)
        self.schedule.run(self.schedule.now + 0.5)
        meanwhile()
        self.zookeeper.heal(self.port)
        self.schedule.run(self.schedule.now + 5.0)


# -- threads


def test_a_lock_goes_to_who_waits_longest() -> None:
    jvm, lock, order = Jvm(), Lock(), []

    def hold(name: str, start_s: float) -> Body[None]:
        yield jvm.threads.sleep(start_s)
        yield from lock.acquire()
        order.append(name)
        yield jvm.threads.sleep(1.0)
        order.append(name)
        lock.release()

    jvm.run(hold("c", 0.3), hold("a", 0.1), hold("b", 0.2))
    assert order == ["a", "a", "b", "b", "c", "c"]
    assert not lock.is_held


def test_a_full_queue_holds_up_who_puts_and_an_empty_one_who_takes() -> None:
    jvm = Jvm()
    queue: BoundedQueue[int] = BoundedQueue(2)
    put: list[int] = []

    def fill() -> Body[None]:
        for number in range(4):
            yield from queue.put(number)
            put.append(number)

    jvm.run(fill())
    assert (put, len(queue)) == ([0, 1], 2)
    queue.clear()
    jvm.run()
    assert (put, len(queue)) == ([0, 1, 2, 3], 2)
    assert jvm.run(queue.take(), queue.take(), queue.take()) == [2, 3, None] or len(queue) == 0


def test_a_stopped_thread_never_goes_on() -> None:
    jvm, monitor, went = Jvm(), Monitor(), []

    def wait() -> Body[None]:
        yield monitor.wait
        went.append("on")

    thread = jvm.threads.start("waits", wait())
    jvm.run()
    thread.stop()
    monitor.notify_all()
    jvm.run()
    assert went == []
    assert not thread.is_alive


def test_a_step_that_ends_twice_wakes_its_thread_once() -> None:
    jvm, monitor, steps = Jvm(), Monitor(), []

    def twice(go_on: Callable[[Any], None]) -> None:
        go_on("first")
        jvm.process.after(1.0, go_on, "second")

    def body() -> Body[None]:
        steps.append((yield twice))
        steps.append((yield monitor.wait))

    jvm.run(body())
    assert steps == ["first"]


def test_a_failure_that_nobody_catches_ends_its_thread_and_is_kept() -> None:
    jvm = Jvm()

    def fail() -> Body[None]:
        yield jvm.threads.sleep(0.1)
        raise JavaFailure("out of luck")

    thread = jvm.threads.start("unlucky", fail())
    jvm.run()
    assert not thread.is_alive
    assert jvm.threads.failures == ["unlucky: JavaFailure('out of luck')"]


# -- calls


def test_without_a_server_the_connection_times_out() -> None:
    jvm = Jvm()
    jvm.zookeeper.outage()
    [failure] = jvm.run(jvm.client.connect(6.0))
    assert "unable to connect to zookeeper server within timeout: 6 s" in str(failure)


def test_a_call_waits_for_the_connection_and_is_made_then() -> None:
    jvm = Jvm().connected()
    jvm.zookeeper.cut(jvm.port)
    assert jvm.run(jvm.client.exists("/zookeeper"), seconds=2.0) == [None]
    jvm.zookeeper.heal(jvm.port)
    assert jvm.run(jvm.client.exists("/zookeeper")) == [True]


def test_a_create_whose_reply_was_lost_is_made_again_and_meets_its_own_node() -> None:
    jvm = Jvm().connected()
    jvm.zookeeper.lose_reply(jvm.port, lambda request: isinstance(request, Create))
    [failure] = jvm.run(jvm.client.create_ephemeral("/a", b"mine"))
    assert isinstance(failure, NodeExists)


def test_what_was_asked_under_one_session_is_done_under_the_next() -> None:
    jvm = Jvm().connected()
    first = jvm.port.session_id
    jvm.zookeeper.stall(jvm.port)
    jvm.run(jvm.client.create_ephemeral("/a", b"mine"), seconds=0.1)
    jvm.zookeeper.end_session(first)
    jvm.zookeeper.cut(jvm.port)
    jvm.zookeeper.heal(jvm.port)
    jvm.run()
    node = jvm.zookeeper.read("/a")
    assert node is not None
    assert node[1].ephemeral_owner == jvm.port.session_id != first


def test_parents_are_created_from_the_top_and_nobody_minds_those_that_are_there() -> None:
    jvm = Jvm().connected()
    jvm.run(jvm.client.create_with_parents("/a/b/c"))
    jvm.run(jvm.client.create_with_parents("/a/b/c"), jvm.client.create_with_parents("/a/b/d"))
    assert jvm.zookeeper.children("/a/b") == ["c", "d"]


def test_a_missing_node_is_said() -> None:
    jvm = Jvm().connected()
    read, deleted, write = jvm.run(jvm.client.read("/no"), jvm.client.delete("/no"), jvm.client.write("/no", b""))
    assert isinstance(read, NoNode)
    assert deleted is False
    assert isinstance(write, NoNode)


# -- watches


def test_a_listener_hears_of_every_change_and_of_the_end_and_the_beginning() -> None:
    jvm = Jvm().connected()
    jvm.run(jvm.client.subscribe_children("/group", jvm.hear))
    for act in (
        lambda: jvm.zookeeper.create("/group"),
        lambda: jvm.zookeeper.create("/group/a"),
        lambda: jvm.zookeeper.delete("/group/a"),
        lambda: jvm.zookeeper.delete("/group"),
    ):
        act()
        jvm.run(seconds=1.0)
    assert jvm.received == [[], ["a"], [], None]


def test_a_connection_that_comes_back_fires_only_watches_of_what_has_changed() -> None:
    jvm = Jvm().connected()
    jvm.zookeeper.create("/group")
    jvm.zookeeper.create("/topic", b"1")
    jvm.run(jvm.client.subscribe_children("/group", jvm.hear))
    jvm.run(jvm.client.subscribe_data("/topic", jvm.hear))
    jvm.run(jvm.client.subscribe_data("/later", jvm.hear))
    jvm.break_connection()
    assert jvm.received == []
    jvm.break_connection(lambda: jvm.zookeeper.create("/group/a"))
    assert jvm.received == [["a"]]
    jvm.break_connection(lambda: jvm.zookeeper.set_data("/topic", b"2"))
    jvm.break_connection(lambda: jvm.zookeeper.create("/later", b"3"))
    jvm.break_connection(lambda: jvm.zookeeper.delete("/topic"))
    assert jvm.received[1:] == [b"2", b"3", None]


def test_after_a_session_every_listener_is_called_the_session_ones_first() -> None:
    jvm = Jvm().connected()
    jvm.zookeeper.create("/group")
    jvm.zookeeper.create("/topic", b"1")
    jvm.run(jvm.client.subscribe_data("/topic", jvm.hear))
    jvm.run(jvm.client.subscribe_children("/group", jvm.hear))

    def new_session() -> Body[None]:
        yield from jvm.hear("new session")

    jvm.client.subscribe_sessions(new_session)
    jvm.zookeeper.end_session(jvm.port.session_id)
    jvm.run()
    assert jvm.received == ["new session", [], b"1"]


@pytest.mark.parametrize("settings", [java_port(6.0), PortSettings(overtaking=0.7)], ids=["in order", "overtaking"])
@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_to_the_connection_a_listener_knows_the_last_state(seed: int, settings: PortSettings) -> None:
    jvm = Jvm(seed, settings)
    jvm.connected()
    jvm.zookeeper.create("/group")
    jvm.zookeeper.create("/topic", b"0")
    jvm.run(jvm.client.subscribe_children("/group", jvm.hear))
    jvm.run(jvm.client.subscribe_data("/topic", jvm.hear))
    rng = random.Random(seed)
    for number in range(30):
        act = rng.randrange(6)
        if act == 0:
            jvm.zookeeper.cut(jvm.port)
        elif act == 1:
            jvm.zookeeper.heal(jvm.port)
        elif act == 2:
            jvm.zookeeper.create(f"/group/{number}")
        elif act == 3:
            jvm.zookeeper.set_data("/topic", b"%d" % number)
        elif act == 4:
            jvm.process.pause()
        else:
            jvm.process.resume()
        jvm.schedule.run(jvm.schedule.now + rng.expovariate(5.0))
    jvm.process.resume()
    jvm.zookeeper.heal(jvm.port)
    jvm.run(seconds=20.0)
    topic = jvm.zookeeper.read("/topic")
    assert topic is not None
    seen_children = [told for told in jvm.received if isinstance(told, list)] or [[]]
    seen_data = [told for told in jvm.received if isinstance(told, bytes)] or [b"0"]
    assert sorted(seen_children[-1]) == jvm.zookeeper.children("/group")
    assert seen_data[-1] == topic[0]
