"""The outcome of a course, and its row in the table of versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fault_verdict import java_zombies
from mixed_courses import Course
from mixed_handovers import Handover, between, handovers, in_numbers, wrong_handovers
from mixed_stage import Change, MixedStage

from zkconsumer.testing.history.checks import figures_of
from zkconsumer.testing.kafka import KafkaCluster


@dataclass(frozen=True)
class Outcome:
    """A course in figures.

    repeated: deliveries beyond the first of each message; those of them that no death and no Java member explains
        are `repeated_by_ours`.
    exact, all handovers: orderly ones, (ours to Java, Java to ours).
    wrong: the violations of our members; none of a group of Java members alone.
    """

    course: str
    cast: str
    changes: tuple[Change, ...]
    gave_up: int
    failed_tries: int
    acked: int
    lost: int
    repeated: int
    repeated_by_ours: int
    exact: tuple[int, int]
    handed: tuple[int, int]
    wrong: tuple[str, ...]

    def slowest(self) -> str:
        """The slowest common table, and the slowest after a death, which waits for the end of a session."""
        living = [change.took_s for change in self.changes if not change.is_death]
        deaths = [change.took_s for change in self.changes if change.is_death]
        return f"{_slowest(living)}, {_slowest(deaths)}" if deaths else _slowest(living)

    def __str__(self) -> str:
        steps = ", ".join(f"{each.what} {each.took_s and round(each.took_s, 2)}" for each in self.changes)
        return (
            f"{self.course} {self.cast}: {self.acked} acked, {self.lost} lost, {self.repeated} again, gave up "
            f"{self.gave_up}, failed tries {self.failed_tries}, exact {self.exact} of {self.handed}; {steps}"
        )


def _slowest(took_s: Sequence[float | None]) -> str:
    known = [each for each in took_s if each is not None]
    return "never" if len(known) < len(took_s) else f"{max(known):.1f} s"


def outcome_of(course: str, stage: MixedStage) -> Outcome:
    """The figures of a course that has been run."""
    events, java = stage.history(), stage.java_names
    ours = {player.name for player in stage.players} - java
    orderly = _orderly(stage)
    there, back = between(orderly, ours, java), between(orderly, java, ours)
    figures = figures_of(events, stage.begun_ns)
    blamed = [] if stage.is_java_alone else stage.blamed()
    return Outcome(
        course=course,
        cast=stage.cast,
        changes=tuple(stage.changes),
        gave_up=stage.gave_up,
        failed_tries=stage.failed_tries,
        acked=figures.acked,
        lost=figures.lost,
        repeated=figures.repeated,
        repeated_by_ours=sum(each.check == "repeated" for each in blamed),
        exact=(sum(each.is_exact for each in there), sum(each.is_exact for each in back)),
        handed=(len(there), len(back)),
        wrong=() if stage.is_java_alone else (*map(str, blamed), *_late(stage), *map(_inexact, _unkept(stage))),
    )


def _late(stage: MixedStage) -> list[str]:
    return [
        f"{each.what}: a common table after {each.took_s} s, {each.allowed_s:g} s are allowed"
        for each in stage.changes
        if each.took_s is None or each.took_s > each.allowed_s
    ]


def _inexact(wrong: Handover) -> str:
    return f"handed over at another message: {wrong}"


def _orderly(stage: MixedStage) -> list[Handover]:
    """The handovers before the first death; what others go on delivering while one of ours is the owner is none."""
    events = in_numbers(stage.history())
    late = java_zombies(events, stage.java_names)
    return handovers([event for event in events if id(event) not in late], stage.first_death_ns or 2**63)


def _unkept(stage: MixedStage) -> list[Handover]:
    return wrong_handovers(_orderly(stage), in_numbers(stage.history()), stage.java_names, stage.most_again)


def run(cluster: KafkaCluster, course: Course, cast: str) -> Outcome:
    """The figures of a course, run now."""
    with course.run(cluster, cast) as stage:
        return outcome_of(course.name, stage)


def given_up_for_us(mixed: Outcome, alone: Outcome) -> str | None:
    """The sentence about Java members that gave up beside ours more often than among themselves."""
    if mixed.gave_up <= alone.gave_up:
        return None
    return f"Java members gave up {mixed.gave_up} times beside ours, {alone.gave_up} times among themselves"
