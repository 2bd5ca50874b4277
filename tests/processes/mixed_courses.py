"""The courses of groups with Java members: every kind of change on both sides, and filters on both sides."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mixed_kafka_node import VERSION, beside_kafka_node
from mixed_stage import MixedStage, open_mixed_stage

from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.kafka.known_versions import is_07
from zkconsumer.testing.kafka.settings import version_tuple
from zkconsumer.testing.zookeeper.group_watch import owners

STREAMS = 2
KAFKA_NODE = f"kafka-node {VERSION}"
KAFKA_NODE_ON = "0.8.2.2"


@dataclass(frozen=True)
class Course:
    """One course: its name, and how it is run through with a cast ("mixed", or "java": none of ours)."""

    name: str
    run: Callable[[KafkaCluster, str], Iterator[MixedStage]]


@contextmanager
def both_sides_change(cluster: KafkaCluster, cast: str, strategy: str) -> Iterator[MixedStage]:
    """Two topics; each side joins, leaves, comes back, loses a session and dies."""
    run = uuid.uuid4().hex[:8]
    # Named so that 12 partitions come before 5; from ten on the orders of numbers and of text differ.
    topics = {f"a-{run}": 12, f"b-{run}": 5}
    asked = {"topics": dict.fromkeys(topics, STREAMS)}
    with open_mixed_stage(cluster, cast, strategy, topics, {}) as stage:
        for name in ("j1", "a", "j2", "b"):
            stage.join(name, asked)
        for name in ("a", "j1"):
            stage.leave(name)
        for name in ("a", "j1"):
            stage.join(name, asked)
        for name in ("a", "j1"):
            stage.end_session(name)
        for name in ("b", "j2"):
            stage.kill(name)
        stage.settle()
        yield stage


@contextmanager
def filters_on_both_sides(cluster: KafkaCluster, cast: str) -> Iterator[MixedStage]:
    r"""White and black lists of both kinds; topics that match come later, those that do not stay alone.

    Two things depend on the version of a Java member. In 0.8.0 and 0.8.1 it writes `\b` raw into JSON, which every
    reader, itself included, takes for a backspace: `other` is not for it. From 1.0 on it writes each backslash twice:
    its white list matches nothing.
    """
    run = f"f{uuid.uuid4().hex[:8]}"
    white = {"whitelist": rf"{run}\.\w+,\b{run}-other", "streams": STREAMS}
    black = {"blacklist": rf"(?!{run}).*,{run}-other,{run}.none.*", "streams": STREAMS}
    topics = {f"{run}.one": 9, f"{run}-other": 4}
    later = {f"{run}.two": 8, f"{run}_black": 5}
    nobodys = f"{run}.none.of.all"
    cluster.create_topic(nobodys, None if is_07(cluster.version) else 1)
    with open_mixed_stage(cluster, cast, "range", topics, later) as stage:
        stage.join("a", white)
        stage.join("j1", white)
        if not stage.is_java_alone:
            assert {topic for topic, _ in stage.owned_by(stage.named("j1"))} == _meant(cluster.version, run)
        stage.come(f"{run}.two", later[f"{run}.two"])
        stage.join("j2", black)
        stage.join("b", black)
        stage.come(f"{run}_black", later[f"{run}_black"])
        for name in ("j1", "b"):
            stage.leave(name)
        for name in ("b", "j1"):
            stage.join(name, black if name == "b" else white)
        stage.leave("j2")
        assert owners(cluster.client, stage.group, [(nobodys, name) for name in cluster.partitions(nobodys)]) == {}
        stage.settle()
        yield stage


def _meant(version: str, run: str) -> set[str]:
    """The topics that the white list of a Java member lets through."""
    if version_tuple(version) >= (1,):
        return set()
    return {f"{run}.one"} if (0, 8) <= version_tuple(version) < (0, 8, 2) else {f"{run}.one", f"{run}-other"}


def courses(version: str) -> list[Course]:
    """What members of a version can go through."""
    strategies = ["range", "roundrobin"] if version_tuple(version) >= (0, 8, 2) else ["range"]
    changes = [
        Course(name, lambda cluster, cast, chosen=name: both_sides_change(cluster, cast, chosen))  # type: ignore[misc]
        for name in strategies
    ]
    node = [Course(KAFKA_NODE, beside_kafka_node)] if version == KAFKA_NODE_ON else []
    return [*changes, Course("filters", filters_on_both_sides), *node]
