"""The model of the Java member sends the requests that were recorded of real ones, in the same order.

The recordings are in `traces/`; `record_java_traces.py` makes them anew, `test_java_recordings.py` compares them with
real members as they are today.
"""

from __future__ import annotations

import pytest
from java_scenes import PARTITIONS, SCENES, SEVERAL_THREADS
from java_traces import FOLDER, Trace, difference, format_scene, is_merge, normalised, parse_scene, recorded
from simulated_java_stage import SimulatedStage

SEEDS = range(5)


def played(scene: str, seed: int) -> SimulatedStage:
    stage = SimulatedStage(seed, PARTITIONS.get(scene, 2))
    SCENES[scene](stage)
    stage.end()
    return stage


def test_every_scene_is_recorded_and_nothing_else() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(SCENES)


@pytest.mark.parametrize("scene", sorted(set(SCENES) - SEVERAL_THREADS))
@pytest.mark.parametrize("seed", SEEDS)
def test_the_model_says_what_a_real_member_says(scene: str, seed: int) -> None:
    assert difference(recorded(scene), played(scene, seed).trace) == ""


@pytest.mark.parametrize("scene", sorted(SEVERAL_THREADS))
@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_real_member_says_is_what_the_threads_of_the_model_say_in_turns(scene: str, seed: int) -> None:
    stage = played(scene, seed)
    real = recorded(scene)
    assert list(stage.trace) == list(real)
    for part, members in real.items():
        assert set(stage.trace[part]) == set(members)
        for member, lines in members.items():
            assert is_merge(lines, stage.threads[part][member]) == "", f"{part}: {member}"


# -- the comparison itself


def test_a_scene_is_read_as_it_was_written() -> None:
    trace: Trace = {"it begins": {"a": ["get /x -> 1", "* /x deleted"], "b": []}, "nothing": {}}
    assert parse_scene(format_scene("About it.\nMore.", trace)) == trace


def test_a_line_more_or_elsewhere_is_a_difference() -> None:
    one: Trace = {"part": {"a": ["delete /x -> ok", "create /x -> ok"]}}
    assert difference(one, one) == ""
    assert "+get /y -> 1" in difference(one, {"part": {"a": ["delete /x -> ok", "get /y -> 1", "create /x -> ok"]}})
    assert difference(one, {"part": {"a": ["create /x -> ok", "delete /x -> ok"]}}) != ""
    assert difference(one, {"part": {"b": ["delete /x -> ok", "create /x -> ok"]}}) != ""


def test_only_what_a_server_listed_is_put_in_order_and_only_while_it_is_read() -> None:
    said = ["get /brokers/ids/1", "get /brokers/ids/0", "get /consumers/g/offsets/t/1", "get /consumers/g/offsets/t/0"]
    assert normalised(said) == [said[1], said[0], said[2], said[3]]
    assert normalised(["get /brokers/ids/1", "exists /x", "get /brokers/ids/0"])[0] == "get /brokers/ids/1"
    assert normalised(["close -> ok", "* /consumers/g/ids children changed"]) == ["close -> ok"]


@pytest.mark.parametrize(
    ("lines", "threads", "said"),
    [
        ("a1 b1 a2", {"a": "a1 a2", "b": "b1"}, ""),
        ("x x a b", {"a": "x a", "b": "x b"}, ""),
        ("a2 a1", {"a": "a1 a2"}, "line 1, 'a2', comes next from no thread: a: 'a1'"),
        ("a1", {"a": "a1", "b": "b1"}, "after 1 lines the threads say more: b: 'b1'"),
        ("a1 a2", {"a": "a1"}, "line 2, 'a2', comes next from no thread: they are at their ends"),
    ],
)
def test_a_merge_keeps_the_order_of_each_thread_and_leaves_nothing_out(
    lines: str, threads: dict[str, str], said: str
) -> None:
    assert is_merge(lines.split(), {name: queue.split() for name, queue in threads.items()}) == said
