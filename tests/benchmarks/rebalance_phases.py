"""The phases of the benchmark `rebalance.py`, whatever the group is made of."""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

PHASES = ("cold", "leave", "die", "roll", "idle", "stagger")
IDLE_S = 60.0
AUDIT_EVERY_S = 30.0
AUDIT_READS = 4
"""Reads of an audit besides the owner nodes of the member's own partitions."""
PROOFS_A_SESSION = 4
"""How often a member asks about its registration within one session time-out."""


class Node(NamedTuple):
    """An owner node: the thread in it, and the transaction that made it."""

    thread_id: str
    czxid: int


class Crowd(Protocol):
    """A group on one topic, one stream each, of whatever kind."""

    partitions: int
    session_s: float
    present: set[str]

    @property
    def now_s(self) -> float:
        """The crowd's clock."""

    def change(self, join: Sequence[str] = (), leave: Sequence[str] = (), kill: Sequence[str] = ()) -> None:
        """Begin a change of the group; the dead die first, then the leavers leave, then the others join."""

    def settle(self) -> tuple[float | None, float]:
        """Wait for the table, then for silence: seconds from the change to both (None: no table)."""

    def rest(self, seconds: float) -> None:
        """Let time pass."""

    def table(self) -> dict[int, Node]:
        """The owner nodes by partition."""

    def forget(self) -> None:
        """Begin to count anew."""

    def requests(self) -> Counter[str]:
        """Counted since then, by kind."""

    def gave_up(self) -> int:
        """How often members used up their tries since then."""


class Row(NamedTuple):
    """What one phase came to."""

    phase: str
    members: int
    seconds: float | None
    requests: Counter[str]
    moved: int
    stopped: int
    members_stopped: int
    gave_up: int
    target: str


def assigned(names: Sequence[str], partitions: int, group: str) -> dict[int, str]:
    """Who should own what: Kafka's range assignment for one stream each."""
    threads = sorted(f"{group}_{name}-0" for name in names)
    share, more = divmod(partitions, len(threads))
    dealt = [thread for n, thread in enumerate(threads) for _ in range(share + (n < more))]
    return dict(enumerate(dealt))


def at_rest_per_s(members: int, partitions: int, session_s: float) -> float:
    """Requests a second of a group that has nothing to do."""
    return members * PROOFS_A_SESSION / session_s + (members * AUDIT_READS + partitions) / AUDIT_EVERY_S


def measured(crowd: Crowd, phase: str, change: Callable[[], None], target: Callable[[Row], str] | None = None) -> Row:
    """Make a change, and see what came of it."""
    before = crowd.table()
    crowd.forget()
    change()
    seconds, _ = crowd.settle()
    after = crowd.table()
    moved = [p for p in before if p in after and before[p].thread_id != after[p].thread_id]
    stayed = [p for p in before if p in after and before[p].thread_id == after[p].thread_id]
    stopped = [p for p in stayed if before[p].czxid != after[p].czxid]
    all_of, lost_of = Counter(before[p].thread_id for p in stayed), Counter(before[p].thread_id for p in stopped)
    whole = sum(all_of[thread] == lost_of[thread] for thread in all_of)
    row = Row(phase, len(crowd.present), seconds, crowd.requests(), len(moved), len(stopped), whole, crowd.gave_up(),
              "")  # fmt: skip
    return row._replace(target=target(row)) if target else row


def kept(row: Row, most: float | None, most_s: float | None = None, most_creates: float | None = None) -> str:
    """A target, and whether it is kept."""
    words, fine = [], True
    if most is not None:
        words.append(f"{most:,.0f} requests")
        fine = row.requests.total() <= most
    if most_creates is not None:
        words.append(f"{most_creates:,.0f} creates")
        fine = fine and row.requests["create"] <= most_creates
    if most_s is not None:
        words.append(f"{most_s:g} s")
        fine = fine and row.seconds is not None and row.seconds <= most_s
    return f"{', '.join(words)}: {'kept' if fine else 'MISSED'}"


def join_all(crowd: Crowd, names: Sequence[str], over_s: float, seed: int) -> None:
    """Start all members: at once, or in any order at moments of their own."""
    if not over_s:
        crowd.change(join=names)
        return
    rng = random.Random(seed)
    moments = sorted(rng.uniform(0.0, over_s) for _ in names)
    began_s = crowd.now_s
    for name, moment_s in zip(rng.sample(names, len(names)), moments, strict=True):
        crowd.rest(max(0.0, began_s + moment_s - crowd.now_s))
        crowd.change(join=[name])


def run(crowd: Crowd, names: Sequence[str], phases: Sequence[str], join_s: float, seed: int) -> Iterator[Row]:
    """The phases one after the other; the group is whole again behind each."""
    size = len(names)

    def leave_budget(row: Row) -> str:
        return kept(row, 5 * size + 6 * row.moved + 50, most_creates=1.2 * row.moved)

    def return_budget(row: Row) -> str:
        # The registration is made, each other member reads it, and who comes back reads theirs.
        return kept(row, 7 * size + 6 * row.moved + 50, most_creates=1.2 * row.moved + 1)

    if "cold" in phases:
        cold_most = 35_000 if (size, crowd.partitions) == (50, 500) else None
        when = f"within {join_s:g} s" if join_s else "at once"
        yield measured(crowd, f"{size} start {when}", lambda: join_all(crowd, names, join_s, seed),
                       lambda row: kept(row, cold_most, 10.0))  # fmt: skip
    elif "stagger" not in phases:
        crowd.change(join=names)
        crowd.settle()
    if "stagger" in phases:
        for number, name in enumerate(names, 1):
            yield measured(crowd, f"number {number} joins", lambda name=name: crowd.change(join=[name]))  # type: ignore[misc]
    if "leave" in phases:
        for word, name in (("first", names[0]), ("middle", names[size // 2]), ("last", names[-1])):
            leaving = [name]
            yield measured(crowd, f"the {word} leaves", lambda who=leaving: crowd.change(leave=who), leave_budget)  # type: ignore[misc]
            yield measured(crowd, f"the {word} comes back", lambda who=leaving: crowd.change(join=who), return_budget)  # type: ignore[misc]
    if "die" in phases:
        dead = names[1 :: max(1, size // 10)][:10]
        yield measured(crowd, f"{len(dead)} die", lambda: crowd.change(kill=dead),
                       lambda row: kept(row, None, crowd.session_s + 3.0))  # fmt: skip
        yield measured(crowd, f"{len(dead)} come back", lambda: crowd.change(join=dead))
    if "roll" in phases:
        yield rolled(crowd, names)
    if "idle" in phases:
        yield idle(crowd)


def rolled(crowd: Crowd, names: Sequence[str]) -> Row:
    """Each member leaves and comes back, one after the other; the sum of all."""
    rows = [
        row for name in names
        for row in (measured(crowd, "", lambda who=[name]: crowd.change(leave=who)),  # type: ignore[misc]
                    measured(crowd, "", lambda who=[name]: crowd.change(join=who)))  # type: ignore[misc]
    ]  # fmt: skip
    total: Counter[str] = sum((row.requests for row in rows), Counter())
    moved = sum(row.moved for row in rows)
    seconds = None if any(row.seconds is None for row in rows) else sum(row.seconds or 0.0 for row in rows)
    row = Row("rolling restart", len(names), seconds, total, moved, sum(row.stopped for row in rows),
              sum(row.members_stopped for row in rows), sum(row.gave_up for row in rows), "")  # fmt: skip
    return row._replace(target=kept(row, (6 * len(names) + 50) * len(rows) + 6 * moved))


def idle(crowd: Crowd) -> Row:
    """What a group asks that has nothing to do: proofs of sessions, one audit every 30 s a member, no writes."""
    crowd.rest(AUDIT_EVERY_S)
    crowd.forget()
    crowd.rest(IDLE_S)
    asked = crowd.requests()
    size = len(crowd.present)
    writes = sum(count for kind, count in asked.items() if kind in ("create", "set", "delete"))
    # One proof and one audit more of each member, which may lie just inside at both ends.
    most = at_rest_per_s(size, crowd.partitions, crowd.session_s) * (IDLE_S + AUDIT_EVERY_S)
    row = Row(f"{IDLE_S:.0f} s of nothing", size, 0.0, asked, 0, 0, 0, crowd.gave_up(), "")
    return row._replace(target=f"{kept(row, most)}, no writes: {'kept' if not writes else 'MISSED'}")


def told(row: Row) -> str:
    """A row of the table."""
    kinds = " ".join(f"{kind}={count}" for kind, count in row.requests.most_common())
    seconds = "never" if row.seconds is None else f"{row.seconds:.1f}"
    return (f"{row.phase:<22}{row.members:>8}{seconds:>9}{row.requests.total():>10,}{row.moved:>7}{row.stopped:>9}"
            f"{row.members_stopped:>9}{row.gave_up:>9}  {row.target or '-'}\n{'':<22}  {kinds}")  # fmt: skip


def main(description: str | None) -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(
        prog="rebalance.py", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cast", choices=("ours", "java"), default="ours")
    parser.add_argument("--world", choices=("real", "simulated"), default="real")
    parser.add_argument("--members", type=int, default=50)
    parser.add_argument("--partitions", type=int, default=500)
    parser.add_argument("--processes", type=int, default=5, help="that real members of ours share")
    parser.add_argument("--join-s", type=float, default=0.0, help="in which all start, each at a moment of its own")
    parser.add_argument("--session-s", type=float, default=30.0)
    parser.add_argument("--quiet-max-ms", type=int, default=1500, help="rebalance.quiet.max.ms of real members of ours")
    parser.add_argument("--phases", default="cold,leave,die,roll,idle", help=f"of {','.join(PHASES)}")
    parser.add_argument("--seed", type=int, default=0, help="of the simulation, and of the moments")
    arguments = parser.parse_args()
    phases = arguments.phases.split(",")
    if unknown := set(phases) - set(PHASES):
        parser.error(f"--phases {','.join(sorted(unknown))}: there are {', '.join(PHASES)}")
    names = [f"m{number:03}" for number in range(arguments.members)]
    if arguments.world == "simulated":
        from tests.benchmarks.rebalance_simulated import simulated_crowd as crowd_of
    else:
        from tests.benchmarks.rebalance_real import real_crowd as crowd_of
    print(f"{arguments.cast}, {arguments.world}: {len(names)} members, {arguments.partitions} partitions, sessions of "
          f"{arguments.session_s:g} s")  # fmt: skip
    print(f"{'phase':<22}{'members':>8}{'seconds':>9}{'requests':>10}{'moved':>7}{'stopped':>9}{'whole':>9}"
          f"{'gave up':>9}  target")  # fmt: skip
    with crowd_of(arguments, names) as crowd:
        for row in run(crowd, names, phases, arguments.join_s, arguments.seed):
            print(told(row), flush=True)
