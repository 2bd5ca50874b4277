"""Judges the topics of a mirror before they are copied: how they are made on the target, and what speaks against it.

Rules, and which failure each prevents:
- What the target would delete at once is refused: records that are older than its `retention.ms` are gone seconds after
  they were copied.
- What the target would refuse is refused before: records without keys in a compacted topic.
- Only a few records of each partition are looked at. What is not seen stops its partition later, with its offset.

Threads: one at a time.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from simpleconsumer.consumer import EARLIEST, LATEST
from simpleconsumer.errors import SimpleConsumerError
from simpleconsumer.types import Message, TopicPartition
from zkconsumer.admin import Admin, BrokerAdmin, TopicRefused
from zkconsumer.admin.topics.topic_nodes import read_brokers
from zkconsumer.mirror.compared_records import record_at
from zkconsumer.mirror.errors import HeadersRefused
from zkconsumer.mirror.sides import Both, MirrorSettings
from zkconsumer.mirror.state_log import read_runs
from zkconsumer.mirror.topics.plan_findings import (
    Sample,
    Way,
    foreign_finding,
    guard_notes,
    is_compacted,
    keyless_findings,
    notes_of,
    offset_findings,
    way_of,
)
from zkconsumer.mirror.topics.source_samples import samples, source_replicas, source_settings, target_settings
from zkconsumer.mirror.topics.topic_settings import (
    COPIED,
    accepted_settings,
    broker_defaults,
    settings_in_force,
    target_takes_zstd,
)

log = logging.getLogger(__name__)

_REPLICAS: Final = 3
"""Where the source does not tell how many it has."""
_MOST_SAMPLES: Final = 8
"""Partitions of a topic that are looked at to say which way it is copied."""
_RETENTION_MS: Final = 7 * 86_400_000
_MARGIN_MS: Final = 600_000
_BY_RECORD_TIMES: Final = 4
"""The registration version of Kafka 0.10.1, see `TopicBrokers`."""


@dataclass(frozen=True)
class TopicPlan:
    """What a mirror does about one topic.

    Attributes:
        source, target: Its names.
        partitions: How many it has at the source.
        has: How many it has on the target; 0: it is made.
        settings: Those with which it is made.
        replication: Replicas of each partition, when it is made.
        findings: What speaks against it, sentences.
        notes: What the operator should know, sentences.
        way: How its records are copied.
        is_foreign: Whether the target has records which this mirror has not written: its partitions refuse to start.
    """

    source: str
    target: str
    partitions: int
    has: int
    settings: Mapping[str, str]
    replication: int
    findings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    way: Way = field(default_factory=Way)
    is_foreign: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return what JSON output has of it."""
        return {
            "topic": self.source, "target_topic": self.target, "partition_count": self.partitions,
            "target_partition_count": self.has, "action": self.action, "config": dict(self.settings),
            "replication": self.replication, "problems": list(self.findings),
            "notes": list(self.notes), "way": self.way.name, "reason": self.way.reason,
        }  # fmt: skip

    @property
    def action(self) -> str:
        """What is done on the target."""
        if not self.has:
            return "create"
        return "grow" if self.has < self.partitions else "write"


@dataclass
class _Facts:
    """What is known of both clusters, for the plans of several topics.

    Attributes:
        describes: As for `Planner.plan`.
        brokers: How many the target has.
        replicas: Topic of the source -> replicas of its partitions.
        target_defaults, source_defaults: Settings of topics that have none of their own.
        takes_zstd: Whether the target takes zstd.
        foreign: Topic of the target -> what says that it has records of others.
        accepted: What the target says to settings of new topics.
    """

    describes: bool
    brokers: int
    replicas: Mapping[str, int]
    target_defaults: Mapping[str, str] = field(default_factory=dict)
    source_defaults: Mapping[str, str] = field(default_factory=dict)
    takes_zstd: bool = True
    foreign: Mapping[str, str] = field(default_factory=dict)
    accepted: dict[Any, tuple[dict[str, str], list[str], str]] = field(default_factory=dict)


class Planner:
    """Judges topics.

    Args:
        both: The clusters.
        settings: Of the mirror.
        in_order: Returns the partitions of a topic of the source in the order of their numbers on the target.
    """

    def __init__(
        self,
        both: Both,
        settings: MirrorSettings,
        in_order: Callable[[str, Sequence[int | str]], Sequence[int | str]],
    ) -> None:
        self._both = both
        self._settings = settings
        self._in_order = in_order

    def plan(self, chosen: Sequence[str], *, describes: bool = False) -> list[TopicPlan]:
        """Return what is done about each topic.

        Args:
            chosen: The topics of the source.
            describes: Also look at what an operator should know before the start, and at topics that exist.
        """
        source = self._both.source.cluster.partitions(chosen)
        rules = self._settings.rules
        targets = [rules.name(name) for name in chosen]
        twice = {name for name in targets if targets.count(name) > 1}
        existing = self._both.target_partitions(targets)
        facts = self._facts(list(source), existing, describes)
        plans = []
        for name in chosen:
            if name not in source:  # deleted meanwhile
                continue
            target = rules.name(name)
            has = len(existing.get(target, ()))
            replication = min(rules.replication or facts.replicas.get(name, _REPLICAS), max(1, facts.brokers))
            new = TopicPlan(name, target, len(self._in_order(name, source[name])), has, {}, replication)
            if target in twice:
                findings = (f"topic {target} is the copy of several topics: give other names by --rename",)
                new = dataclasses.replace(new, findings=findings)
            plans.append(self._judged(new, source[name], facts))
        return plans

    def _facts(self, names: list[str], existing: Mapping[str, Sequence[int | str]], describes: bool) -> _Facts:
        """Return what the plans of several topics have in common."""
        found = _Facts(describes, len(self._both.target_brokers()), source_replicas(self._both, names))
        if names:
            found.target_defaults = broker_defaults(self._both.target)
            found.foreign = self._foreign(existing)
        if describes:
            found.source_defaults = broker_defaults(self._both.source)
            found.takes_zstd = target_takes_zstd(self._both.target)
        return found

    def _foreign(self, existing: Mapping[str, Sequence[int | str]]) -> dict[str, str]:
        """Return the topics of the target that have records which this mirror has not written, each with a sentence."""
        names = [TopicPartition(topic, number) for topic, numbers in existing.items() for number in numbers]
        cluster = self._both.target.cluster
        bounds = cluster.log_ends(names, [EARLIEST, LATEST])  # before the runs, which are stored before their records
        filled: dict[TopicPartition, tuple[int, int]] = {}
        for name, found in bounds.items():
            start, end = (0, 0) if isinstance(found, str) else (int(each or 0) for each in found)
            if end > start:
                filled[name] = (start, end)
        known = set()
        if filled and self._both.target_partitions([self._settings.state_topic]):
            known = {lane.target for lane in read_runs(None, self._both.settings.target, self._settings.state_topic)}
        foreign = sorted(set(filled) - known, reverse=True)  # the first one of a topic is named
        return {name.topic: foreign_finding(*name, *filled[name]) for name in foreign}

    def _judged(self, plan: TopicPlan, partitions: Sequence[int | str], facts: _Facts) -> TopicPlan:
        """Return the plan of a topic with its settings, and with what speaks against it."""
        plan = dataclasses.replace(plan, is_foreign=plan.target in facts.foreign)
        findings, notes = [*plan.findings, *self._obstacles(plan.source, plan.target)], list[str]()
        names = [TopicPartition(plan.source, number) for number in partitions if isinstance(number, int)]
        if plan.has:
            settings = target_settings(self._both, plan.target)
            in_force = {**facts.target_defaults, **settings}
            if facts.describes:
                in_force.update(settings_in_force(self._both.target, plan.target))
        else:
            settings, left_out, refused = self._new_settings(plan, facts)
            in_force = {**facts.target_defaults, **settings}
            notes += [f"topic {plan.target} is made without {name}, which the target refuses" for name in left_out]
            findings += [refused] if refused else self._too_old(plan.source, names, in_force)
            findings += self._with_headers(names)
        if self._settings.preserves_offsets:
            findings += offset_findings(plan.source, partitions, in_force)
        last: list[Sample] = []
        if is_compacted(in_force) and (facts.describes or not plan.has):
            last = samples(self._both.source, names)
            both_ends = [*samples(self._both.source, names, None), *samples(self._both.source, names, 1)]
            findings += keyless_findings(plan.target, in_force, [*both_ends, *last])
        elif facts.describes:
            last = samples(self._both.source, names[:_MOST_SAMPLES])
        if not facts.describes:
            return dataclasses.replace(plan, settings=settings, findings=tuple(findings), notes=tuple(notes))
        findings += [facts.foreign[plan.target]] if plan.is_foreign else []
        of_source = {**facts.source_defaults, **source_settings(self._both, plan.source)}
        sets_times = self._settings.sets_times
        notes += notes_of(plan.source, plan.target, of_source, in_force, last, sets_times=sets_times)
        if self._both.has_numbers and not (sets_times or self._settings.pins_producers):
            first = samples(self._both.source, names[:_MOST_SAMPLES], None)
            notes += guard_notes(plan.source, first, int(time.time() * 1000) - self._settings.forgotten_after_ms)
        way = way_of(last, sets_times=sets_times, takes_zstd=facts.takes_zstd)
        return dataclasses.replace(plan, settings=settings, findings=tuple(findings), notes=tuple(notes), way=way)

    def _obstacles(self, name: str, target: str) -> Iterator[str]:
        source_id = self._both.source_id
        if source_id == self._both.target_id and target == name:
            yield f"topic {name} would be copied into itself: both sides are cluster {source_id}"

    def _with_headers(self, names: Sequence[TopicPartition]) -> Iterator[str]:
        """Yield what says that records have headers, which the target has not: of the first and last records alone."""
        if self._both.has_numbers:
            return
        for name, found in self._both.source.cluster.log_ends(names, [EARLIEST, LATEST]).items():
            if isinstance(found, str) or found[0] is None or found[1] is None or found[0] >= found[1]:
                continue
            for offset in sorted({found[0], found[1] - 1}):
                record = _read(self._both, name, int(offset))
                if record is not None and record.headers:
                    yield str(HeadersRefused(name, record.offset, [key for key, _ in record.headers]))
                    return

    def _ages_by_files(self) -> bool:
        """Return whether the target deletes by the times of its files, and not of the records: before Kafka 0.10.1."""
        port = self._both.target_port
        return port is not None and read_brokers(port).registration_version < _BY_RECORD_TIMES

    # -- settings ------------------------------------------------------------------------------------------------------

    def _new_settings(self, plan: TopicPlan, facts: _Facts) -> tuple[dict[str, str], list[str], str]:
        """Return the settings of a new topic, which of the source are left out, and why it cannot be made at all."""
        copied = {name: value for name, value in source_settings(self._both, plan.source).items() if name in COPIED}
        if facts.target_defaults.get("message.timestamp.type") == "LogAppendTime" and not self._settings.sets_times:
            copied["message.timestamp.type"] = "CreateTime"
        given = self._settings.rules.settings

        def check(settings: Mapping[str, str]) -> None:
            with admin_of(self._both.settings) as admin:
                try:
                    admin.create_topic(plan.target, plan.partitions, plan.replication, config=settings, dry_run=True)
                except TopicRefused:  # maybe another process of the mirror has just made it
                    if plan.target not in self._both.target_partitions([plan.target]):
                        raise

        key = tuple(sorted({**copied, **given}.items()))
        found = facts.accepted.get(key) or accepted_settings(check, copied, given)
        if not found[2]:  # a refusal may be about the topic, and not about its settings
            facts.accepted[key] = found
        return found

    def _too_old(self, topic: str, names: Sequence[TopicPartition], settings: Mapping[str, str]) -> list[str]:
        """Return what says that the target would delete records at once."""
        try:
            retention_ms = int(settings.get("retention.ms", _RETENTION_MS))
        except ValueError:
            return [f"retention.ms={settings['retention.ms']} of topic {topic} is no number"]
        if self._ages_by_files():
            return []
        if retention_ms < 0 or self._settings.sets_times or settings.get("cleanup.policy", "delete") == "compact":
            return []
        side = self._both.source
        oldest: list[tuple[int, TopicPartition]] = []
        for name, found in side.cluster.log_ends(names, [EARLIEST]).items():
            first = _first(self._both, name, found)
            if first is not None and first.timestamp_ms is not None and first.timestamp_ms >= 0:
                oldest.append((first.timestamp_ms, name))
        if not oldest:
            return []
        time_ms, name = min(oldest)
        age_ms = int(time.time() * 1000) - time_ms
        if age_ms < retention_ms - _MARGIN_MS:
            return []
        return [
            f"{name.topic}/{name.partition} has a record that is {age_ms // 3_600_000} hours old, and the target keeps "
            f"{retention_ms // 3_600_000} hours (retention.ms={retention_ms}): it would be deleted at once; give "
            "--topic-config retention.ms=-1, or --timestamps target"
        ]


def _first(both: Both, name: TopicPartition, found: Any) -> Message | None:
    return None if isinstance(found, str) or found[0] is None else _read(both, name, int(found[0]))


def _read(both: Both, name: TopicPartition, offset: int) -> Message | None:
    try:
        return record_at(both.source, name, offset)
    except SimpleConsumerError as error:
        log.info("mirror: the record at offset %d of %s/%s cannot be read: %s", offset, *name, error)
        return None


def admin_of(settings: MirrorSettings) -> Admin | BrokerAdmin:
    """Return what makes topics on the target: by its ZooKeeper, if the mirror names that.

    Args:
        settings: Those of `Both`.
    """
    zookeeper = settings.target_zookeeper
    if zookeeper is not None:
        given = {name: value for name, value in settings.target.items() if name != "bootstrap.servers"}
        return Admin(zookeeper, properties=given, client_id=f"mirror-{settings.name}")
    servers = settings.target["bootstrap.servers"]
    return BrokerAdmin(servers, properties=settings.target, client_id=f"mirror-{settings.name}")
