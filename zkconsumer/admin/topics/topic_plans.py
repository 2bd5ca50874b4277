"""Plans a topic before it is created: which brokers keep its partitions, and whether its settings can be right.

Pure.

Chooses the brokers that keep the partitions of a topic, as Kafka's own tools choose them.

The first replicas go round the brokers from a random one. The further replicas follow with a shift that grows by one
with each round, so that the partitions of one broker have their copies on different ones. When every broker names its
rack, the replicas of a partition are spread over as many racks as possible.

Source: kafka.admin.AdminUtils (0.8.0 to 2.0), org.apache.kafka.admin.AdminUtils (3.9).

Checks the settings of a topic before they are written.

A broker of 0.8 or 0.9 that reads a value that it cannot parse does not start again, and a name that it does not know
does nothing. So names and values are checked by the version of the oldest broker.

Source: kafka.log.LogConfig (0.8.1 to 3.9).
"""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, NamedTuple

from zkconsumer.admin.values import TopicRefused, count_of

MAX_PARTITIONS = 200_000
"""More partitions than the largest clusters that coordinate by ZooKeeper have; the limit keeps the work bounded."""


@dataclass(frozen=True)
class Start:
    """Where an assignment starts.

    Attributes:
        first: Place in the list of brokers of the first replica of partition 0.
        shift: Shift of the further replicas.
    """

    first: int
    shift: int


def check_count(name: str, value: int, most: int) -> int:
    """Return a number of partitions or replicas.

    Raises:
        TopicRefused: It is below 1 or above the limit.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise TopicRefused(f"{name} is {value!r}; it must be 1 to {most}")
    return value


def _uses_racks(racks: Mapping[int, str | None], rack_aware: bool) -> bool:
    """Return whether replicas are spread over racks.

    Args:
        racks: Broker id -> its rack, None if it names none.
        rack_aware: Whether racks count at all.

    Raises:
        TopicRefused: Some brokers name their rack and others do not.
    """
    without = sorted(broker for broker, rack in racks.items() if rack is None)
    if not rack_aware or len(without) == len(racks):
        return False
    if without:
        raise TopicRefused(
            f"some brokers have a rack, but {count_of(len(without), 'broker')} "
            f"({', '.join(map(str, without))}) do not, so replicas cannot be spread over racks",
            "set broker.rack on all of them, or give --disable-rack-aware (rack_aware=False)",
        )
    return True


def assign_replicas(
    racks: Mapping[int, str | None], numbers: Sequence[int], replication: int, start: Start, rack_aware: bool = True
) -> dict[int, tuple[int, ...]]:
    """Return partition -> ids of the brokers that shall keep it, the preferred leader first.

    Args:
        racks: Broker id -> its rack, None if it names none; of all brokers that are registered.
        numbers: Consecutive numbers of partitions.
        replication: Replicas of each partition.
        start: Chosen at random for a new topic; from the replicas of partition 0 for a topic that grows.
        rack_aware: Whether racks count at all.

    Raises:
        TopicRefused: There are too few brokers, or only some of them name their rack.
    """
    if not racks:
        raise TopicRefused("no broker is registered that could store a topic", "start a broker, and try again")
    if replication > len(racks):
        raise TopicRefused(
            f"{count_of(replication, 'replica')} of each partition need as many brokers, and "
            f"{count_of(len(racks), 'broker')} {'is' if len(racks) == 1 else 'are'} registered "
            f"({', '.join(map(str, sorted(racks)))})",
            "ask for fewer replicas, or start more brokers",
        )
    by_rack = _uses_racks(racks, rack_aware)
    brokers = _alternating(racks) if by_rack else sorted(racks)
    found = {}
    shift = start.shift
    for number in numbers:
        if number > 0 and number % len(brokers) == 0:
            shift += 1
        first = (number + start.first) % len(brokers)
        if by_rack:
            found[number] = _over_racks(brokers, racks, first, shift, replication)
        else:
            others = (brokers[_place(first, shift, copy, len(brokers))] for copy in range(replication - 1))
            found[number] = (brokers[first], *others)
    return found


def _place(first: int, shift: int, copy: int, brokers: int) -> int:
    return (first + 1 + (shift + copy) % (brokers - 1)) % brokers


def _alternating(racks: Mapping[int, str | None]) -> list[int]:
    """Return the brokers, one of each rack in turn: racks a: 0, 1 and b: 2, 3 give 0, 2, 1, 3."""
    by_rack: defaultdict[str, list[int]] = defaultdict(list)
    for broker in sorted(racks):
        by_rack[racks[broker] or ""].append(broker)
    turns = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for turn in turns for broker in turn if broker is not None]


def _over_racks(
    brokers: Sequence[int], racks: Mapping[int, str | None], first: int, shift: int, replication: int
) -> tuple[int, ...]:
    """Return the replicas of one partition: a rack takes a second one when every rack has one."""
    rack_count = len(set(racks.values()))
    chosen = [brokers[first]]
    used = {racks[brokers[first]]}
    copy = 0
    while len(chosen) < replication:
        broker = brokers[_place(first, shift * rack_count, copy, len(brokers))]
        if broker not in chosen and (racks[broker] not in used or len(used) == rack_count):
            chosen.append(broker)
            used.add(racks[broker])
        copy += 1
    return tuple(chosen)


def parse_assignment(text: str) -> dict[int, tuple[int, ...]]:
    """Return the replicas that a text such as `0:1,1:2,2:0` names: those of partition 0, of partition 1, ...

    Raises:
        ValueError: The text is of another form.
    """
    found = {}
    for number, part in enumerate(text.split(",")):
        ids = [each.strip() for each in part.split(":")]
        if not all(each.isascii() and each.isdigit() and len(each) <= 10 for each in ids):
            raise ValueError(
                f"{text!r}: partition {number} has {part.strip()!r}; write broker ids with `:` between replicas and "
                "`,` between partitions, such as 0:1,1:2"
            )
        found[number] = tuple(map(int, ids))
    return found


def check_assignment(
    assignment: Mapping[int, Sequence[int]], brokers: Mapping[int, str | None], replication: int | None = None
) -> dict[int, tuple[int, ...]]:
    """Return the replicas of an assignment that was given.

    Args:
        assignment: Partition -> ids of brokers, the preferred leader first.
        brokers: The registered brokers, by id.
        replication: How many replicas each partition must have; None: as many as the first one.

    Raises:
        TopicRefused: The numbers of replicas differ, or a broker stands twice for a partition or is not registered.
    """
    found = {number: tuple(assignment[number]) for number in sorted(assignment)}
    for number, replicas in found.items():
        unknown = sorted(set(replicas) - set(brokers))
        if not replicas or len(set(replicas)) < len(replicas):
            shown = ":".join(map(str, replicas)) or "none"
            raise TopicRefused(f"partition {number} has the replicas {shown}; name each broker once")
        if unknown:
            raise TopicRefused(
                f"partition {number} names {'broker' if len(unknown) == 1 else 'brokers'} "
                f"{', '.join(map(str, unknown))}, not registered; registered are "
                f"{', '.join(map(str, sorted(brokers))) or 'none'}",
                "name running brokers",
            )
        expected = replication or len(next(iter(found.values())))
        if len(replicas) != expected:
            raise TopicRefused(
                f"partition {number} has {count_of(len(replicas), 'replica')}, and the others have {expected}; all "
                "partitions need the same number"
            )
    return found


def check_numbers(assignment: Mapping[int, Sequence[int]]) -> None:
    """Raise unless an assignment names the partitions 0, 1, 2, ...

    Raises:
        TopicRefused: It does not.
    """
    if not assignment or sorted(assignment) != list(range(len(assignment))):
        shown = ", ".join(map(str, sorted(assignment)[:10]))
        raise TopicRefused(f"the replica assignment names the partitions {shown or 'none'}; they must be 0, 1, 2, ...")


_INT: Final = 2**31 - 1
_LONG: Final = 2**63 - 1
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
_Check = Callable[[str], bool]


def _integer(least: int, most: int) -> _Check:
    return lambda text: _NUMBER.fullmatch(text) is not None and least <= int(text) <= most


def _word(*words: str) -> _Check:
    return lambda text: text in words


def _policy(text: str) -> bool:
    return all(word.strip() in ("delete", "compact") for word in text.split(","))


def _ratio(text: str) -> bool:
    return re.fullmatch(r"[0-9]*\.?[0-9]+", text) is not None and 0 <= float(text) <= 1


def _throttled(text: str) -> bool:
    return text == "*" or re.fullmatch(r"([0-9]+:[0-9]+)?(,[0-9]+:[0-9]+)*", text) is not None


class _Setting(NamedTuple):
    """Since which registration version of brokers it is known, whether a value is allowed, and which values are."""

    since: int
    allows: _Check
    values: str


_08, _09, _010, _0101, _27 = 1, 2, 3, 4, 5
_RELEASES: Final = {_09: "0.9", _010: "0.10", _0101: "0.10.1", _27: "2.7"}


def _whole(since: int, least: int, most: int) -> _Setting:
    return _Setting(since, _integer(least, most), f"an integer from {least} to {most}")


def _choice(since: int, *words: str) -> _Setting:
    return _Setting(since, _word(*words), " or ".join(words))


_SETTINGS: Final[Mapping[str, _Setting]] = {
    "segment.bytes": _whole(_08, 14, _INT),
    "segment.ms": _whole(_08, 1, _LONG),
    "segment.jitter.ms": _whole(_08, 0, _LONG),
    "segment.index.bytes": _whole(_08, 0, _INT),
    "flush.messages": _whole(_08, 1, _LONG),
    "flush.ms": _whole(_08, 0, _LONG),
    "retention.bytes": _whole(_08, -1, _LONG),
    "retention.ms": _whole(_08, -1, _LONG),
    "max.message.bytes": _whole(_08, 0, _INT),
    "index.interval.bytes": _whole(_08, 0, _INT),
    "delete.retention.ms": _whole(_08, 0, _LONG),
    "file.delete.delay.ms": _whole(_08, 0, _INT),
    "min.cleanable.dirty.ratio": _Setting(_08, _ratio, "a number from 0 to 1"),
    "cleanup.policy": _Setting(_08, _policy, "delete or compact (both, with a comma, from Kafka 0.10.1 on)"),
    "unclean.leader.election.enable": _choice(_08, "true", "false"),
    "min.insync.replicas": _whole(_08, 1, _INT),
    "compression.type": _choice(_09, "uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "preallocate": _choice(_09, "true", "false"),
    "message.format.version": _Setting(
        _010, lambda text: re.fullmatch(r"[0-9]+\.[0-9]+(\.[0-9]+)*(-IV[0-9]+)?", text) is not None,
        "a version of Kafka such as 0.10.0",
    ),
    "message.timestamp.type": _choice(_010, "CreateTime", "LogAppendTime"),
    "message.timestamp.difference.max.ms": _whole(_010, 0, _LONG),
    "min.compaction.lag.ms": _whole(_0101, 0, _LONG),
    "max.compaction.lag.ms": _whole(_0101, 1, _LONG),
    "leader.replication.throttled.replicas": _Setting(_0101, _throttled, "* or partition:broker, ..."),
    "follower.replication.throttled.replicas": _Setting(_0101, _throttled, "* or partition:broker, ..."),
    "message.downconversion.enable": _choice(_0101, "true", "false"),
    "message.timestamp.before.max.ms": _whole(_27, 0, _LONG),
    "message.timestamp.after.max.ms": _whole(_27, 0, _LONG),
    "remote.storage.enable": _choice(_27, "true", "false"),
    "local.retention.bytes": _whole(_27, -2, _LONG),
    "local.retention.ms": _whole(_27, -2, _LONG),
}  # fmt: skip


def _as_text(value: object) -> str:
    """Return a value as brokers read it."""
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


def texts_of(settings: Mapping[str, object]) -> dict[str, str]:
    """Return settings as brokers read them, unchecked."""
    return {name: _as_text(value) for name, value in settings.items()}


def nearest_setting(name: str) -> str:
    """Return a clause with the setting that was probably meant; empty for one that is known, or like none."""
    near = [] if name in _SETTINGS else difflib.get_close_matches(name, _SETTINGS, n=1)
    return f"did you mean {near[0]!r}?" if near else ""


def check_settings(settings: Mapping[str, object], registration_version: int) -> dict[str, str]:
    """Return the settings of a topic as texts.

    Args:
        settings: By their names in Kafka.
        registration_version: That of the oldest broker: 1 up to 0.8.2, 2 in 0.9, 3 in 0.10.0, 4 up to 2.6, then 5.

    Raises:
        TopicRefused: A name is unknown, to the brokers or altogether, or a value is not allowed.
    """
    found = {}
    for name, value in settings.items():
        text = _as_text(value)
        setting = _SETTINGS.get(name)
        if setting is None:
            remedy = nearest_setting(name) or f"known are {', '.join(_SETTINGS)}"
            raise TopicRefused(f"{name!r} is not a setting of a topic", remedy)
        if setting.since > registration_version:
            release = _RELEASES[setting.since]
            raise TopicRefused(
                f"{name} is a setting of Kafka {release} and later, and an older broker is registered", "leave it out"
            )
        mixed = name == "cleanup.policy" and "," in text and registration_version < _0101
        if mixed or not setting.allows(text):
            raise TopicRefused(f"{name} is {text!r}; it must be {setting.values}")
        found[name] = text
    return found
