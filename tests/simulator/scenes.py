"""Short sequences of steps that bring a member into situations that are rare by chance. Pure values.

`SCENES` are written for two members, `a` and `b`, with two streams for the four partitions of `t`, and a limit of two
seconds for the work on a message; times count from the start of the scene.
"""

from __future__ import annotations

from typing import Final

from tests.simulator.plan import Step

__all__ = ["LATE_PROOFS", "LONG_DRAINS", "OTHER_LOGS", "SCENES", "WITHIN_ENTRIES"]

_STUCK: Final = Step(0.0, "stuck", "a", for_s=9.0)

SCENES: Final[tuple[tuple[Step, ...], ...]] = (
    # Its credentials are refused, its session ends, or it gets no reply, while it unregisters.
    (_STUCK, Step(0.0, "stall", "a", for_s=1.0, when="unregistering"), Step(0.0, "refused", "a", when="unregistering")),
    (_STUCK, Step(0.0, "old requests", "a", for_s=3.0, when="unregistering")),
    (_STUCK, Step(0.0, "lost reply", "a", word="delete", when="unregistering")),
    # Out of the group for so long that its periodic check runs.
    (Step(0.0, "stuck", "a", for_s=25.0),),
    # Stuck while the group is read, or settles, under a new session.
    (_STUCK, Step(1.6, "end session", "a")),
    (_STUCK, Step(1.2, "end session", "a"), Step(1.2, "stall", "a", for_s=2.5, when="reading")),
    # Registered, and the connection is lost before the reply comes.
    tuple(
        step for at_s in (0.0, 3.0, 6.0, 9.0)
        for step in (Step(at_s, "end session", "a"),
                     Step(at_s, "late answers", "a", for_s=0.1, word="cut", when="registering"))
    ),
    # Its name is taken while changes that do not end keep it from settling.
    (Step(0.0, "name taken", "a", for_s=4.0, when="settling"),
     *(Step(0.15 * number, "poison", number=number % 2, for_s=0.1, word="ghost") for number in range(14))),
    # Its node is deleted while the partition moves between two threads of it.
    (Step(-1.0, "leave", "b"), Step(3.0, "owner deleted", "t", 1, when="draining"), Step(4.0, "join", "b")),
)  # fmt: skip

LATE_PROOFS: Final[tuple[tuple[Step, ...], ...]] = tuple(
    (Step(0.0, "pause", "a", for_s=pause_s), Step(pause_s + later_s, "stall", "a", for_s=4.0))
    for pause_s in (3.5, 4.0, 4.5, 5.0, 5.5)
    for later_s in (0.03, 0.1, 0.3)
)
"""Paused until about the end of its session of four seconds, and without a link again when it has asked once."""

LONG_DRAINS: Final[tuple[tuple[Step, ...], ...]] = (
    (),
    *(
        (Step(-2.0, "leave", joins), *(Step(0.0, "slow", name, for_s=6.0, amount=work_ms) for name in "abcd"), *changes)
        for work_ms in (3000, 6000)
        for joins in "abcab"
        for changes in ((Step(2.0, "join", joins),), (Step(1.0, "join", joins), Step(3.0, "leave", "d")))
    ),
)  # fmt: skip
"""A member comes back while all others work on a message for long, so that their drains take long; or nothing."""

WITHIN_ENTRIES: Final[tuple[tuple[Step, ...], ...]] = (
    (),
    *(
        (
            Step(0.0, "crash", name, for_s=9.0),
            *(Step(0.5, "offset set", "t", number, amount=amount, word="inside") for number in range(3)),
        )
        for name in "ab"
        for amount in (1, 5, 12)
    ),
)
"""Of Kafka 0.7: after the crash of a member its positions are set within entries, where others start; or nothing."""

OTHER_LOGS: Final[tuple[tuple[Step, ...], ...]] = (
    (),
    *(
        (Step(0.0, "pause", "a", for_s=9.0), Step(0.1, "broker", number=number, for_s=0.3, word="replaced"))
        for number in (0, 0, 1, 2)
    ),
)
"""Of Kafka 0.7: while a member is paused, a broker comes back with other logs, which are soon as long as those before;
or nothing."""
