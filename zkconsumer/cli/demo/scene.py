"""The content of a demonstration: one moment as values, its picture, counts, and the outcome. Pure.

One moment of a demonstration, as values: members, owners, counts, events.

Counts the messages of a demonstration, from the events that producer and members record.

The outcome of a demonstration: counts of its whole history, and violations of the promises.

Draws a scene for a terminal. Pure: takes a scene, returns what `rich` can print.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from zkconsumer.testing.history import Event
from zkconsumer.testing.history.checks import Finding, Limits, check_history, count_allowed_repeats


@dataclass(frozen=True)
class Happening:
    """One event, `at_s` seconds after the start."""

    at_s: float
    text: str


@dataclass(frozen=True)
class Actor:
    """One member.

    Attributes:
        state: Joining, consuming, leaving, left, killed.
        delivered: Messages that it has got.
        rates: Messages in each of the last seconds, the newest last.
    """

    name: str
    state: str
    delivered: int
    rates: tuple[int, ...]


@dataclass(frozen=True)
class Scene:
    """One moment.

    Attributes:
        length_s: About how long the demonstration takes, in seconds.
        rate: Messages produced in a second.
        elapsed_s: Seconds since the start.
        cluster: Addresses; empty while it starts.
        partitions: Their names.
        owners: The owner of each partition, as ZooKeeper has it; None for no owner.
        lag: Messages of each partition that are acknowledged and not delivered.
        happenings: Events, the oldest first.
    """

    length_s: float
    rate: int
    elapsed_s: float = 0.0
    cluster: str = ""
    partitions: tuple[str, ...] = ()
    owners: tuple[str | None, ...] = ()
    lag: tuple[int, ...] = ()
    actors: tuple[Actor, ...] = ()
    produced: int = 0
    delivered: int = 0
    repeated: int = 0
    happenings: tuple[Happening, ...] = ()


def shares(owners: Mapping[str, str | None]) -> str:
    """Return who owns which partitions, in one line.

    >>> shares({"0": "ann", "1": "ann", "2": "bob", "3": None})
    'ann 0 1, bob 2, nobody 3'
    """
    found: dict[str, list[str]] = {}
    for partition, owner in owners.items():
        found.setdefault(owner or "nobody", []).append(partition)
    return ", ".join(f"{owner} {' '.join(partitions)}" for owner, partitions in sorted(found.items(), key=_last))


def _last(entry: tuple[str, list[str]]) -> tuple[bool, str]:
    return entry[0] == "nobody", entry[0]


NS = 1_000_000_000


class Counters:
    """Counts of a history so far.

    Args:
        start_ns: The moment from which seconds are counted.

    Attributes:
        produced: Messages that a broker has acknowledged.
        repeated: Deliveries beyond the first one of each message.
        delivered_by: Member -> number of its deliveries.
    """

    def __init__(self, start_ns: int) -> None:
        self.produced = 0
        self.repeated = 0
        self.delivered_by: Counter[str] = Counter()
        self._start_ns = start_ns
        self._acked: Counter[int | str] = Counter()
        self._seen: defaultdict[int | str, set[int]] = defaultdict(set)
        self._each_second: defaultdict[str, Counter[int]] = defaultdict(Counter)

    def take(self, events: Iterable[Event]) -> None:
        """Count more events; only acknowledged and delivered messages count."""
        for event in events:
            if event.kind == "acked":
                self.produced += 1
                self._acked[event.partition] += 1
            elif event.kind == "deliver":
                self._deliver(event)

    def _deliver(self, event: Event) -> None:
        seen = self._seen[event.partition]
        if event.offset in seen:
            self.repeated += 1
        seen.add(event.offset)
        self.delivered_by[event.member] += 1
        self._each_second[event.member][(event.time_ns - self._start_ns) // NS] += 1

    @property
    def delivered(self) -> int:
        """Number of different messages that were delivered."""
        return sum(map(len, self._seen.values()))

    def lag(self, partition: int | str) -> int:
        """Return the number of messages of a partition that were acknowledged and not delivered yet."""
        # A delivery can be known before its acknowledgement is.
        return max(0, self._acked[partition] - len(self._seen[partition]))

    def rates(self, member: str, now_s: float, seconds: int) -> tuple[int, ...]:
        """Return the deliveries of a member in each of the last whole seconds, the newest last."""
        now = int(now_s)
        return tuple(self._each_second[member][second] for second in range(now - seconds, now))


@dataclass(frozen=True)
class Outcome:
    """The end of a demonstration.

    Attributes:
        produced: Messages that a broker has acknowledged.
        delivered: How many of them were delivered.
        lost: How many were not.
        repeated: Deliveries beyond the first, for whatever reason.
        explained: Those of them that have an explanation: their first owner was killed, or lost the partition.
        findings: The violations, as sentences.
    """

    produced: int
    delivered: int
    lost: int
    repeated: int
    explained: int
    findings: tuple[Finding, ...]

    @property
    def last_line(self) -> str:
        """`produced=N delivered=N lost=N repeated=N`."""
        return f"produced={self.produced} delivered={self.delivered} lost={self.lost} repeated={self.repeated}"

    @property
    def failed(self) -> bool:
        """Whether something happened that must not happen."""
        return bool(self.findings) or self.lost > 0 or self.repeated > self.explained

    def sentences(self, start_ns: int) -> list[str]:
        """Return the findings, each once, with the events that prove it and their seconds since `start_ns`."""
        found: dict[tuple[str, str], str] = {}
        for finding in self.findings:
            events = (replace(event, time_ns=event.time_ns - start_ns) for event in finding.events)
            found.setdefault((finding.check, finding.sentence), str(replace(finding, events=tuple(events))))
        return list(found.values())


def outcome_of(events: Iterable[Event], auto_commit_s: float) -> Outcome:
    """Return the outcome of a history.

    Args:
        auto_commit_s: How often members commit, in seconds. A death may repeat the deliveries since the last commit,
            and those of one more second, for the commit that was under way.
    """
    history = list(events)
    limits = Limits(repeat_before_end_s=auto_commit_s + 1.0)
    produced = {(event.place, event.offset) for event in history if event.kind == "acked"}
    deliveries = [(event.place, event.offset) for event in history if event.kind == "deliver"]
    delivered = set(deliveries)
    return Outcome(
        produced=len(produced),
        delivered=len(produced & delivered),
        lost=len(produced - delivered),
        repeated=len(deliveries) - len(delivered),
        explained=count_allowed_repeats(history, limits),
        findings=tuple(check_history(history, limits)),
    )


COLOURS = {"ann": "cyan", "bob": "yellow", "cleo": "magenta"}
WIDTH, HEIGHT = 78, 24
"""Size of the picture, in columns and lines."""
_SHOWN_HAPPENINGS = 8
_BARS = "▁▂▃▄▅▆▇█"
_STATES = {"joining": "dim", "leaving": "dim", "left": "dim", "killed": "bold red"}


def draw(scene: Scene) -> RenderableType:
    """Return the whole picture, `WIDTH` columns by `HEIGHT` lines."""
    return Padding(
        Group(
            _title(scene),
            Text(),
            _partitions(scene),
            Text(),
            _members(scene),
            Text(),
            _counts(scene),
            Text(),
            *(_happening(each) for each in _padded(scene.happenings)),
        ),
        (0, 1),
    )


def _title(scene: Scene) -> RenderableType:
    line = Table.grid(expand=True)
    line.add_column()
    line.add_column(justify="right")
    line.add_row(
        Text.assemble(("zkconsumer demo", "bold"), "  ", (scene.cluster or "starting the cluster ...", "dim")),
        Text(f"{scene.elapsed_s:.0f} s of about {scene.length_s:.0f}", "dim"),
    )
    return line


def _partitions(scene: Scene) -> RenderableType:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(width=10)
    for _ in scene.owners:
        table.add_column(width=6, justify="center")
    numbers = [Text(partition, "bold") for partition in scene.partitions]
    owners = [_owner(owner) for owner in scene.owners]
    lag = [Text(str(lag) if lag else "·", "bold yellow" if lag > 20 else "dim") for lag in scene.lag]
    table.add_row(Text("partition", "dim"), *numbers)
    table.add_row(Text("owner", "dim"), *owners)
    table.add_row(Text("lag", "dim"), *lag)
    return table


def _owner(owner: str | None) -> Text:
    if owner is None:
        return Text("—", "dim")
    return Text(f"{owner:^6}", f"bold #16181d on {COLOURS.get(owner, 'white')}")


def _members(scene: Scene) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("member", width=9)
    table.add_column("", width=9)
    table.add_column("partitions", justify="right", width=10)
    table.add_column("messages", justify="right", width=8)
    table.add_column("each second", justify="right", width=11)
    table.add_column("", width=12)
    for actor in scene.actors:
        owned = scene.owners.count(actor.name)
        table.add_row(
            Text(actor.name, f"bold {COLOURS.get(actor.name, '')}"),
            Text(actor.state, _STATES.get(actor.state, "")),
            str(owned) if owned else "·",
            f"{actor.delivered:,}",
            str(actor.rates[-1]) if any(actor.rates) else "·",
            Text(_bars(actor.rates, scene.rate), COLOURS.get(actor.name, "")),
        )
    for _ in range(len(COLOURS) - len(scene.actors)):
        table.add_row("")
    return table


def _bars(rates: Sequence[int], full: int) -> str:
    """Return a bar for each second, full when the member got every message produced, a blank when it got none.

    >>> _bars([0, 1, 50, 200], 100)
    ' ▁▄█'
    """
    levels = [min(len(_BARS), max(1, rate * len(_BARS) // full)) for rate in rates]
    return "".join(_BARS[level - 1] if rate else " " for level, rate in zip(levels, rates, strict=True))


def _counts(scene: Scene) -> RenderableType:
    under_way = scene.produced - scene.delivered
    return Text.assemble(
        ("produced ", "dim"),
        (f"{scene.produced:,}", "bold"),
        ("   delivered ", "dim"),
        (f"{scene.delivered:,}", "bold green"),
        ("   under way ", "dim"),
        f"{max(0, under_way):,}",
        ("   repeated ", "dim"),
        (f"{scene.repeated:,}", "bold yellow" if scene.repeated else ""),
    )


def _padded(happenings: Sequence[Happening]) -> list[Happening | None]:
    shown: list[Happening | None] = list(happenings[-_SHOWN_HAPPENINGS:])
    return shown + [None] * (_SHOWN_HAPPENINGS - len(shown))


def _happening(happening: Happening | None) -> Text:
    if happening is None:
        return Text(" ")
    line = Text.assemble((f"{happening.at_s:5.1f} s  ", "dim"), happening.text, no_wrap=True, overflow="ellipsis")
    for name, colour in COLOURS.items():
        line.highlight_words([name], f"bold {colour}")
    return line
