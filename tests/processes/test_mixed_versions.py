"""Groups of our members and Java's, of every version from 0.8.0 to 1.1.1, each on its own brokers, go through it all.

Slow; `tests/run -m slow tests/processes/test_mixed_versions.py`. The figures of the same courses, beside those of Java
members alone, are written into docs/COMPATIBILITY.md by `python tests/processes/mixed_versions.py --write`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from mixed_courses import KAFKA_NODE, Course, courses
from mixed_kafka_node import missing_tools
from mixed_outcome import given_up_for_us, run
from mixed_versions import VERSIONS

from zkconsumer.testing.kafka import KafkaCluster

pytestmark = [pytest.mark.real, pytest.mark.slow]
CASES = [pytest.param(version, course, id=f"{version}-{course.name}") for version in VERSIONS
         for course in courses(version)]  # fmt: skip


@pytest.fixture(scope="module")
def cluster_of() -> Iterator[Callable[[str], KafkaCluster]]:
    """A broker of a version; the one of another version is ended first, for a machine has only so much room."""
    with ExitStack() as stack:
        running: dict[str, KafkaCluster] = {}

        def of(version: str) -> KafkaCluster:
            if version not in running:
                stack.close()
                running.clear()
                running[version] = stack.enter_context(KafkaCluster(version))
            return running[version]

        yield of


@pytest.mark.parametrize(("version", "course"), CASES)
def test_members_of_both_kinds_agree_after_every_change(
    cluster_of: Callable[[str], KafkaCluster], version: str, course: Course
) -> None:
    if course.name == KAFKA_NODE and missing_tools():
        pytest.skip(f"{KAFKA_NODE} needs {', '.join(missing_tools())}")
    cluster = cluster_of(version)
    mixed = run(cluster, course, "mixed")
    print(mixed)
    assert mixed.wrong == ()
    assert mixed.lost == 0
    if mixed.gave_up:  # would it have happened among Java members, too?
        alone = run(cluster, course, "java")
        print(alone)
        assert given_up_for_us(mixed, alone) is None
