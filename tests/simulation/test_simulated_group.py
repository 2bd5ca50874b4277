"""A simulated group without faults: everything is delivered once, and the same seed gives the same history."""

from __future__ import annotations

import subprocess
import sys

from rebalance.loop import Loop
from tests.simulator.actor import MemberSpec
from tests.simulator.plan import Plan
from tests.simulator.stepping import SteppedListener, SteppedLoop
from tests.simulator.world import World
from zkconsumer.member.listening import ListenerThread
from zkconsumer.testing.history.checks import check_history
from zkconsumer.testing.history.events import format_event

PLAN = Plan((MemberSpec("a", topics=(("t", 2),)), MemberSpec("b", topics=(("t", 1),))), (("t", 4),), ())


def two_members(seed: int) -> World:
    """A group in which `b` joins and leaves again."""
    world = World(PLAN, seed)
    world.start()
    world.join("a")
    world.schedule.run(4.0)
    world.join("b")
    world.schedule.run(10.0)
    member = world.living("b")
    assert member is not None
    assert sorted(member.actor.owned()) == [("t", 3)]
    member.actor.leave()
    world.schedule.run(14.0)
    world.finish_producing()
    world.schedule.run(16.0)
    return world


def test_every_message_is_delivered_once_while_a_member_joins_and_leaves() -> None:
    for seed in range(5):
        world = two_members(seed)
        assert check_history(world.history) == []
        delivered = [event.id for event in world.history if event.kind == "deliver"]
        acked = [event.id for event in world.history if event.kind == "acked"]
        assert sorted(delivered) == sorted(acked)
        assert len(acked) > 100
        kinds = {event.kind for event in world.history}
        assert kinds >= {"assigned", "claimed", "commit", "done", "offset_node", "owner_gone", "revoked"}
        assert world.zookeeper.children("/consumers/g/ids") == ["g_a"]


def test_the_same_seed_gives_the_same_history_whatever_python_hashes_to() -> None:
    script = (
        "import sys; sys.path.insert(0, 'tests/simulation'); from test_simulated_group import history_text; "
        "print(history_text(3))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": number, "PYTHONPATH": "."},
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
        ).stdout
        for number in ("0", "1", "77")
    }
    assert len(texts) == 1
    assert texts == {history_text(3) + "\n"}
    assert history_text(3) != history_text(4)


def test_what_a_reset_to_the_end_passes_over_is_waited_for_by_nobody() -> None:
    world = World(PLAN, 0)
    world.write("done", "a", ("t", 0), 35)
    world.write("reset", "a", ("t", 0), 70)
    world.write("done", "a", ("t", 0), 36)
    assert world.done_to(("t", 0)) == 70
    world.write("done", "a", ("t", 0), 70)
    assert world.done_to(("t", 0)) == 71


def history_text(seed: int) -> str:
    """The history of two members, a line for each event."""
    return "\n".join(map(format_event, two_members(seed).history))


def test_the_simulated_listener_and_loop_replace_methods_of_the_production_code() -> None:
    """Else, after a rename there, the production code would use its threads, and the simulation would prove nothing."""
    assert "_notify" in vars(SteppedListener).keys() & vars(ListenerThread).keys()
    replaced = {"post", "call_later", "after_step", "stop"}
    assert replaced <= vars(SteppedLoop).keys() & vars(Loop).keys()
