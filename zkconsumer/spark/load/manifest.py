"""The manifest of a run: the files that it wrote, and where the next run starts. Pure.

A run is published atomically, by the creation of `_zkconsumer/runs/<number>.json`. Offsets and data cannot disagree,
because both are in that file. The data files are moved to their places afterwards; if the load dies meanwhile, the next
run completes that.

The keys of the JSON never change, whatever the code calls their values: `ends`, `births` and `cluster_ms` are the
offsets of the state, `tails` are the last messages, and `epochs` the epochs of the leaders whose logs reached the ends
(Kafka 2.1 and later). The names of the fields of `Manifest` are keys, too. A load that
asks the brokers alone writes `ids` and `cluster_id` instead of `births` and `cluster_ms`.

Source: docs/SPARK_LOADING.md, "Files of a load".

The JSON of manifests: a head of named values, then lists with one line for each row, so that files can be compared.

Also the state that a run passes on to the next run: offsets, last messages, and partitions without a leader.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, NamedTuple, TypeVar

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.load.failures import LoadRefused
from zkconsumer.spark.options.offsets_json import parse_partition
from zkconsumer.spark.streaming.log_changes import Loss
from zkconsumer.spark.streaming.stream_offsets import (
    StreamOffsets,
    cluster_id_of,
    is_id,
    number_of_cluster,
    number_of_topic,
)


class LastMessage(NamedTuple):
    """The last message that was read of a partition. If another one has its offset now, the log was truncated.

    Attributes:
        offset: its offset.
        key_crc, value_crc: CRC-32 of its key and value, `None` for null.
    """

    offset: int
    key_crc: int | None
    value_crc: int | None


@dataclass(frozen=True)
class LoadState:
    """The state of a folder after the runs so far.

    Attributes:
        offsets: where the next run starts, for everything that was ever loaded into the folder.
        last_messages: the last message of each partition of which messages were read.
        waiting: partitions that no run has reached yet, because they had no leader.
        topics_seen: the last transaction that had changed the list of topics when it was read; `None` before the first
            run, and if the last run was that of a release that did not store it. 0 where the brokers alone are known.
        by_brokers: topics are known again by what brokers say of them, and not by ZooKeeper.
    """

    offsets: StreamOffsets = field(default_factory=lambda: StreamOffsets({}))
    last_messages: Mapping[TopicPartition, LastMessage] = field(default_factory=dict)
    waiting: frozenset[TopicPartition] = frozenset()
    topics_seen: int | None = None
    by_brokers: bool = False

    @property
    def is_new(self) -> bool:
        """Whether no run has read the state of a cluster yet."""
        offsets = self.offsets
        return not (offsets.offsets or offsets.created_zxids or self.waiting) and self.topics_seen is None

    def equals(self, other: LoadState) -> bool:
        """Whether the next run would start from the same offsets, last messages and waiting partitions."""
        return (self.offsets, self.last_messages, self.waiting) == (other.offsets, other.last_messages, other.waiting)

    def starts_at_latest(self, name: TopicPartition, created_zxid: int | None) -> bool:
        """Whether a partition that was never loaded existed at the last run, so that `latest` applies to it.

        A topic that was created since the last run, or was given another partition, has messages that no run has seen.
        Brokers do not tell when a topic was created: there, `latest` applies to the first run alone.

        Args:
            created_zxid: the transaction that created its topic, or the number of its id, which is larger than any;
                `None` if neither is known.
        """
        known = name.topic in self.offsets.created_zxids or name in self.offsets.offsets
        is_older = created_zxid is not None and created_zxid <= (self.topics_seen or 0)
        return not known and (self.topics_seen is None or is_older)


T = TypeVar("T")


def manifest_text(head: Mapping[str, Any], lists: Mapping[str, Sequence[Sequence[Any]]]) -> str:
    """Return the content of a manifest.

    Args:
        head: Its single values, among them `version`.
        lists: The rows of each list.
    """
    lines = [
        f' "{name}": [' + ",".join(f"\n  {json.dumps(row, ensure_ascii=False)}" for row in rows) + "]"
        for name, rows in lists.items()
    ]
    return json.dumps(head, indent=1, ensure_ascii=False)[:-2] + ",\n" + ",\n".join(lines) + "\n}\n"


def parse_manifest(
    path: str, text: str, kind: str, versions: Collection[int], build: Callable[[dict[str, Any]], T], remedy: str
) -> T:
    """Return what `build` makes of the values in a manifest.

    Args:
        path: Where it is, for errors.
        kind: The kind of manifest that it should be, for errors.
        versions: The versions of the format that can be read.
        build: Called with all values except `version`.
        remedy: The advice if it cannot be read.

    Raises:
        LoadRefused: It is no such manifest, or of another version.
    """
    try:
        found = json.loads(text)
        version = found.pop("version")
        if version not in versions:
            known = ", ".join(map(str, versions))
            raise LoadRefused(f"{path} has version {version!r}; this release supports {known}")
        return build(found)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise LoadRefused(f"{path} is not a manifest of {kind} ({reason})", remedy=remedy) from error


VERSION: Final = 4
"""Of the format; other versions are refused. The first one had no `tails`, no `waiting`, and no `cluster_ms`. The
second one has none of `_NEW_KEYS`, the third one no `epochs`. Each is written as long as no later one is needed, so
that earlier releases can read it."""
_KNOWN: Final = (1, 2, 3, VERSION)
_NEW_KEYS: Final = ("ids", "cluster_id", "bootstrap_servers", "headers")
_EPOCHS: Final = "epochs"
_STATE_KEYS: Final = ("ends", "births", "cluster_ms", "topics_seen", "tails", "waiting", "ids", "cluster_id", _EPOCHS)
_LEFT_OUT_EMPTY: Final = ("history_id", "bootstrap_servers", "headers")
"""Fields that are no keys while they are empty."""
_DIGITS: Final = 9
_NAME = re.compile(rf"([0-9]{{{_DIGITS},}})\.json")


class StagedFile(NamedTuple):
    """One file of a run, by paths within the folder of the load.

    Attributes:
        staged: where the run wrote it.
        final: the place to which it is moved; empty if its rows are appended to the table.
    """

    staged: str
    final: str


@dataclass(frozen=True)
class LoadedPartition:
    """The range of one partition that a run loaded.

    Attributes:
        start: first offset of the run.
        end: the offset after the last one; the next run starts there.
        messages: rows that were written.
        bytes: of their keys and values.
        bad: messages in the side output.
        missing: offsets that no message has: a compacted log, or transaction markers; on Kafka 0.7, where offsets
            count bytes, those of entries that were not written, next to bad messages.
    """

    topic: str
    partition: int | str
    start: int
    end: int
    messages: int
    bytes: int
    bad: int = 0
    missing: int = 0


@dataclass(frozen=True)
class Manifest:
    """The result of one run, and the start of the next one.

    Attributes:
        run: number, from 1.
        run_id: distinguishes this run from another one that tried to publish the same number.
        began_at: when it started; UTC, ISO 8601.
        state: where the next run starts.
        partitions: what this run loaded.
        files: the files that it wrote.
        lost: the offsets that it skipped.
        history_id: distinguishes the runs of this folder from those of all others; only for a table.
        zookeeper, bootstrap_servers: where the cluster was found, for people; one of them is empty.
        headers: the rows have the column `headers`.
    """

    run: int
    run_id: str
    began_at: str
    zookeeper: str
    format: str
    partition_by: str
    state: LoadState
    partitions: tuple[LoadedPartition, ...] = ()
    files: tuple[StagedFile, ...] = ()
    text: bool = field(default=False)
    history_id: str = ""
    lost: tuple[Loss, ...] = ()
    bootstrap_servers: str = ""
    headers: bool = False

    def to_json(self) -> str:
        """The content of the file."""
        state = self.state
        lists: dict[str, list[list[Any]]] = {
            "tails": [[*name, *last] for name, last in sorted(state.last_messages.items())],
            "waiting": [[*name] for name in sorted(state.waiting)],
            "lost": [[*each.partition, each.begin, each.end, each.reason] for each in self.lost],
            "partitions": [[*asdict(each).values()] for each in self.partitions],
            "files": [[*file] for file in self.files],
        }
        named = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in (*lists, "state")}
        left_out = {name for name in _LEFT_OUT_EMPTY if not named[name]}
        head = {name: value for name, value in named.items() if name not in left_out} | _state_fields(state)
        version = VERSION if _EPOCHS in head else 3 if any(name in head for name in _NEW_KEYS) else 2
        return manifest_text({"version": version, **head}, lists)

    @classmethod
    def from_json(cls, path: str, text: str) -> Manifest:
        """The manifest in a file.

        Raises:
            LoadRefused: it is none, or of a version that is not known.
        """
        remedy = "restore it from a copy, or load into another folder"
        return parse_manifest(path, text, "a load", _KNOWN, cls._of_fields, remedy)

    @classmethod
    def _of_fields(cls, found: dict[str, Any]) -> Manifest:
        state = _state({name: found.pop(name) for name in _STATE_KEYS if name in found})
        manifest = cls(**{**found, **_parsed(found), "state": state})
        manifest._check()
        return manifest

    def _check(self) -> None:
        """Raise ValueError for a value that no run writes."""
        state = self.state
        numbers = {
            "run": [self.run],
            "ends": state.offsets.offsets.values(),
            "tails": [last_message.offset for last_message in state.last_messages.values()],
            "waiting": [_number(name.partition) for name in state.waiting],
            "cluster_ms": [state.offsets.cluster_ms or 0],
            "topics_seen": [state.topics_seen or 0],
            _EPOCHS: state.offsets.epochs.values(),
        }
        for field_name, values in numbers.items():
            for value in values:
                if type(value) is not int or value < 0:
                    raise ValueError(f"{field_name}: {value!r} is not a number from 0")


def _parsed(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "partitions": tuple(LoadedPartition(*row) for row in fields["partitions"]),
        "files": tuple(StagedFile(*row) for row in fields["files"]),
        "lost": tuple(
            Loss(TopicPartition(topic, partition), *loss) for topic, partition, *loss in fields.get("lost", ())
        ),
    }


def _state_fields(state: LoadState) -> dict[str, Any]:
    offsets, marks = state.offsets, dict(sorted(state.offsets.created_zxids.items()))
    if state.by_brokers:
        cluster = None if offsets.cluster_ms is None else cluster_id_of(offsets.cluster_ms)
        known: dict[str, Any] = {
            "ids": {topic: f"{number:032x}" for topic, number in marks.items()},
            "cluster_id": cluster,
        }
    else:
        known = {"births": marks, "cluster_ms": offsets.cluster_ms}
    epochs = {_EPOCHS: _nested(offsets.epochs)} if offsets.epochs else {}
    return {"ends": _nested(offsets.offsets), **epochs, **known, "topics_seen": state.topics_seen}


def _state(fields: Mapping[str, Any]) -> LoadState:
    by_brokers = "ids" in fields
    if by_brokers:
        marks = {topic: number_of_topic(each) for topic, each in fields["ids"].items()}
        if not all(map(is_id, marks.values())):
            raise ValueError("ids: one of them is not the id of a topic")
        name = fields["cluster_id"]
        cluster = None if name is None else number_of_cluster(name)
    else:
        marks = {topic: int(created_zxid) for topic, created_zxid in fields["births"].items()}
        cluster = fields.get("cluster_ms")
    offsets = {name: int(end) for name, end in _flat(fields["ends"]).items()}
    return LoadState(
        StreamOffsets(offsets, marks, cluster, _flat(fields.get(_EPOCHS, {}))),
        {TopicPartition(topic, number): LastMessage(*last) for topic, number, *last in fields.get("tails", ())},
        frozenset(TopicPartition(*name) for name in fields.get("waiting", ())),
        fields.get("topics_seen"),
        by_brokers,
    )


def _nested(values: Mapping[TopicPartition, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, value in sorted(values.items()):
        found.setdefault(name.topic, {})[str(name.partition)] = value
    return found


def _flat(topics: Mapping[str, Mapping[str, Any]]) -> dict[TopicPartition, Any]:
    return {
        TopicPartition(topic, _partition(number)): value
        for topic, values in topics.items()
        for number, value in values.items()
    }


def _partition(text: str) -> int | str:
    found = parse_partition(text)
    if found is None:
        raise ValueError(f"{text!r} is not the name of a partition")
    return found


def _number(partition: int | str) -> int | str:
    """Return 0 for a partition of Kafka 0.7, and everything else as it is."""
    return 0 if isinstance(partition, str) and isinstance(parse_partition(partition), str) else partition


def run_name(run: int) -> str:
    """The name of a run in paths.

    >>> run_name(12)
    '000000012'
    """
    return f"{run:0{_DIGITS}}"


def run_number(name: str) -> int | None:
    """The number of a run by the name of its manifest, `None` for other files.

    >>> run_number("000000012.json"), run_number(".000000012.json.tmp")
    (12, None)
    """
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None
