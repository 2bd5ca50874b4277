"""The catalogue of faults: what goes wrong in consumers that ZooKeeper coordinates, seen in five of them.

Each test that provokes a fault has the marker `@pytest.mark.catalogue("A1")`. `docs/tables.py` writes the table of
docs/FAULTS.md from both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["CATALOGUE", "GROUPS", "Entry"]


class Entry(NamedTuple):
    """One fault.

    Attributes:
        title: What goes wrong.
        suite: Scenarios of the fault suite that show it, by the start of their names.
        simulation: Kinds of faults of the simulation that cause it.
        bugs: Bugs that are planted in the production code, and that the simulation finds.
        note: What else there is to say; all there is, for an entry without tests.
    """

    title: str
    suite: tuple[str, ...] = ()
    simulation: tuple[str, ...] = ()
    bugs: tuple[str, ...] = ()
    note: str = ""


GROUPS: Final[Mapping[str, str]] = {
    "A": "sessions and registrations",
    "B": "rebalances",
    "C": "members that see different states",
    "D": "partitions that nobody reads",
    "E": "offsets and commits",
    "F": "brokers and fetching",
    "G": "messages",
    "H": "topics and partitions that come and go",
    "I": "shutdown",
    "J": "slow applications",
    "K": "outages of ZooKeeper",
    "L": "time and settings",
    "M": "names and paths",
    "N": "filters",
    "O": "growth over time",
}
"""What the faults with this first letter are about."""

_MANUAL: Final = "offsets set manually"

CATALOGUE: Final[Mapping[str, Entry]] = {
    "A1": Entry("the member's own id is still registered by an older session"),
    "A2": Entry("a member does not register again after the end of its session", suite=("session ended",)),
    "A3": Entry("old queues are delivered after a new registration", suite=("session ended: idle",),
                bugs=("outlives its session",)),
    "A4": Entry("a member is cut off from ZooKeeper and does not notice",
                suite=("link to ZooKeeper stalled", "SIGSTOP"),
                bugs=("lease from receipt", "late proof not confirmed", "lease as long as the session")),
    "A5": Entry("the application works in the thread of the ZooKeeper client"),
    "A6": Entry("a member never connects to ZooKeeper again", suite=("ZooKeeper wiped",)),
    "A7": Entry("a registration that cannot be read", suite=("poison registrations",)),
    "A8": Entry("registrations of dead members after many were killed", suite=("kill -9",)),
    "A9": Entry("two members with one consumer id"),
    "A10": Entry("names given as bytes"),
    "A11": Entry("the first members of a new group"),
    "A12": Entry("a process that forks"),
    "A13": Entry("a registration, or another node, that an access list forbids to read", simulation=("closed",),
                 bugs=("closed registration counts as none", "closed nodes never asked for again")),
    "B1": Entry("a member uses up its tries and gives up", suite=("foreign owner node",)),
    "B2": Entry("claims are kept after an attempt that failed", simulation=("membership",),
                bugs=("late create dropped",)),
    "B3": Entry("a member releases what another one owns", bugs=("release by path", "any node is mine")),
    "B4": Entry("a change during a rebalance is lost", bugs=("change while reading is lost", "watch after read")),
    "B5": Entry("a node vanishes between the list and the read"),
    "B6": Entry("two members compute two assignments", bugs=("0.7 partitions sorted as numbers",)),
    "B7": Entry("all members read everything at each change (herd effect)", bugs=("cache not guarded",)),
    "B8": Entry("members of another topic disturb a member"),
    "B9": Entry("members retry in lock-step", bugs=("blocked claim not watched",),
                note="no retry waits a fixed time: a blocked claim waits on a watch"),
    "B10": Entry("the new owner gives up before the former owner has released"),
    "B11": Entry("a blocked reader blocks the rebalance"),
    "B12": Entry("a partition is released before the work on it is over",
                 bugs=("commit after release", "drain ignores the message in hand")),
    "B13": Entry("a member without partitions is forgotten, or uses a whole processor"),
    "B14": Entry("barriers that never open", note="there are no barriers; `rebalance/` agrees by reads alone"),
    "B15": Entry("roundrobin among members with different subscriptions"),
    "B16": Entry("rebalances without need"),
    "B17": Entry("deadlocks between threads", note="`tests/processes/test_random_faults.py`"),
    "B18": Entry("the coordinator fails, and its claims stay", simulation=("fault",),
                 bugs=("session outlives its coordinator",)),
    "C1": Entry("a ZooKeeper follower that lags", simulation=("lag", "isolate")),
    "C2": Entry("a pause longer than the session", suite=("SIGSTOP",)),
    "C3": Entry("two schemes of coordination in one group",
                note="a member of Kafka 0.7 is known by its registration; foreign names of owner nodes are ignored"),
    "C4": Entry("a member continues where a zombie committed", note="see E4"),
    "D1": Entry("a partition that nobody owns goes unnoticed"),
    "D2": Entry("a partition is owned and not fetched"),
    "D3": Entry("an owner node is deleted manually", suite=("owner node deleted",)),
    "D4": Entry(
        "an owner node of a process that is not in the group, or a persistent one", suite=("foreign owner node",)
    ),
    "D5": Entry("the tool that verifies a group is wrong"),
    "E1": Entry("a fetched chunk is lost in a rebalance"),
    "E2": Entry("a commit inside of a compressed message set",
                bugs=("0.7 next message committed", "0.7 begun entry counts as done", "0.7 begun entry not finished",
                      "0.7 position within an entry believed", "0.7 entry around a position skipped")),
    "E3": Entry("the offset is read before the claim", suite=("session ended: between claim and offset read",),
                bugs=("offset before claim",)),
    "E4": Entry("commits of zombies", suite=("SIGSTOP",), bugs=("no fence", "any version will do", "offsets go back")),
    "E5": Entry("fetches before the offset is known"),
    "E6": Entry("zero, minus one, off by one", suite=(_MANUAL,)),
    "E7": Entry("death before the first commit", bugs=("largest for new partitions",)),
    "E8": Entry("commits although auto-commit is off"),
    "E9": Entry("the message in hand counts as done", bugs=("hand counts as done",)),
    "E10": Entry("load on ZooKeeper by commits"),
    "E11": Entry("the last commit is lost", suite=("SIGTERM",)),
    "E12": Entry("offsets go back when a broker comes back"),
    "E13": Entry("two stores of offsets", bugs=("only the first store is written", "the lower of two offsets")),
    "E14": Entry("a member forgets what it has just done", suite=("session ended", "ZooKeeper frozen"),
                 bugs=("own work not remembered",)),
    "F1": Entry("a fetch thread dies"),
    "F2": Entry("a broker restarts, and no event reports it", suite=("broker killed",)),
    "F3": Entry("the leader moves", suite=("leaders moved", "leader killed")),
    "F4": Entry("a broker comes back on another port", suite=("broker killed, back on another port",)),
    "F5": Entry("the first broker does not answer", suite=("broker stalled",)),
    "F6": Entry("an empty list of topics means all topics"),
    "F7": Entry("busy loops"),
    "F8": Entry("offset out of range", suite=("retention under a slow reader",)),
    "F9": Entry("head-of-line blocking"),
    "F10": Entry("a log that was truncated"),
    "F11": Entry("answers after the time-out"),
    "F12": Entry("sockets that are never closed"),
    "F13": Entry("one answer with data of all partitions"),
    "F14": Entry("stale metadata"),
    "F15": Entry("a fetch thread or the leader finder is dead"),
    "G1": Entry("a message larger than the fetch size"),
    "G2": Entry("a corrupt message"),
    "G2a": Entry("a damaged offset, which no checksum covers"),
    "G3": Entry("an iterator that fails for ever after one error"),
    "G4": Entry("a decoder that raises"),
    "G5": Entry("null value, null key"),
    "G6": Entry("a last message that is cut off"),
    "G7": Entry("gaps in the offsets"),
    "G8": Entry("compressed sets in compressed sets"),
    "G9": Entry("unknown magic or codec"),
    "H1": Entry("partitions are added", bugs=("0.7 one partition a broker", "0.7 largest for late partitions")),
    "H2": Entry("a topic is created later"),
    "H3": Entry("a topic is deleted"),
    "H4": Entry("a topic is deleted and created again", bugs=("new life not noticed",)),
    "H5": Entry("streams of a filter", bugs=("0.7 one stream of a filter gets all",)),
    "H6": Entry("0.7: partitions disappear with their broker", simulation=("broker",),
                bugs=("0.7 topic children not watched", "0.7 a log that is back counts as another",
                      "0.7 another log counts as the same", "0.7 last entry forgotten",
                      "0.7 other brokers are another incarnation")),
    "I1": Entry("shutdown hangs", simulation=("leave",), bugs=("leaves in the time of a session",)),
    "I2": Entry("streams do not end"),
    "I3": Entry("shutdown during a rebalance", suite=("session ended: during close",)),
    "I4": Entry("shutdown twice, and from any thread"),
    "I5": Entry("slow shutdown", suite=("SIGTERM",)),
    "I6": Entry("threads, sockets or nodes that are left over"),
    "I7": Entry("the group is deleted while members run"),
    "I8": Entry("the same log line again and again"),
    "I9": Entry("positions are lost silently at the end", simulation=("leave",),
                bugs=("unanswered commit counts as stored",)),
    "I10": Entry("a member leaves without a connection, and its nodes stay", simulation=("cut",)),
    "J1": Entry("a slow reader delays the rebalance", note="see B11"),
    "J2": Entry("memory that chunks take"),
    "J3": Entry("an application that is alive and stuck"),
    "J4": Entry("an application that still works on a revoked partition"),
    "J5": Entry("starvation"),
    "K1": Entry("a short disconnection", suite=("link to ZooKeeper broken six times",)),
    "K2": Entry("a long outage; a ZooKeeper that is frozen and not down",
                suite=("ZooKeeper killed and restarted", "ZooKeeper frozen")),
    "K3": Entry("all sessions end at once", suite=("ZooKeeper frozen",)),
    "K4": Entry("ZooKeeper loses its data", suite=("ZooKeeper wiped",)),
    "K5": Entry("watches are lost with the connection",
                bugs=("watches thought to survive",)),
    "K6": Entry("commits during an outage", suite=("ZooKeeper killed and restarted",)),
    "K7": Entry("the session moves to another server"),
    "L1": Entry("the wall clock jumps", simulation=("wall clock",)),
    "L2": Entry("the server grants another session time-out"),
    "L3": Entry("`consumer.timeout.ms`"),
    "L4": Entry("a back-off shorter than the session", note="see B1"),
    "L5": Entry("commits less often than the session time-out", note="the bound is in SEMANTICS, Delivery"),
    "M1": Entry("chroot"),
    "M2": Entry("two clusters in one ensemble"),
    "M3": Entry("names that are not allowed"),
    "N1": Entry("clean-up of filter texts"),
    "N2": Entry("escapes in registrations"),
    "N3": Entry("two dialects of regular expressions"),
    "N4": Entry("internal topics"),
    "N5": Entry("negative look-ahead"),
    "N6": Entry("0.7: `*` inside of the expression"),
    "O": Entry("watches, threads or sockets that grow in number"),
}  # fmt: skip
