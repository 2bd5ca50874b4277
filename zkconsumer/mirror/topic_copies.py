"""Finds the topics of a mirror, and makes them on the target before the first record is copied.

Rules, and which failure each prevents:
- The target's topics are made with the settings of the source: a topic that the brokers make on their own has other
  partitions, and a compacted one would be deleted by time.
- What the target would delete at once is refused: records that are older than its `retention.ms` are gone seconds after
  they were copied.
- Topics that a mirror has written are no source for one back: records would go round for ever.
- Partitions are added where the source has more; nothing is ever deleted.

Threads: one at a time.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rebalance.zookeeper.port.requests import GetData
from simpleconsumer.consumer import EARLIEST
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.errors import SimpleConsumerError
from simpleconsumer.types import Message, TopicPartition
from zkconsumer.admin import AdminError, BrokerAdmin, TopicRefused
from zkconsumer.cluster.zookeeper_connection import read_all
from zkconsumer.filters import Whitelist
from zkconsumer.mirror.compared_records import Side, record_at
from zkconsumer.mirror.errors import MirrorRefused
from zkconsumer.mirror.lane_runs import Lane
from zkconsumer.mirror.partition_numbers import PartitionNumbers
from zkconsumer.mirror.sides import Both, MirrorSettings
from zkconsumer.mirror.state_log import read_runs

log = logging.getLogger(__name__)

_INTERNAL: Final = "__"
_COPIED: Final = (
    "cleanup.policy", "max.message.bytes", "retention.ms", "retention.bytes", "segment.bytes", "segment.ms",
    "min.cleanable.dirty.ratio", "delete.retention.ms", "min.compaction.lag.ms", "max.compaction.lag.ms",
)  # fmt: skip
"""Settings that say what of a topic is kept. Those that name a format, or how replicas are kept, are the target's."""
_STATE_SEGMENT_BYTES: Final = str(16 << 20)
"""The open segment is not compacted, and each process reads the state topic when it starts."""
_RETENTION_MS: Final = 7 * 86_400_000
_MARGIN_MS: Final = 600_000
_STORE_S: Final = 30.0
_KNOWN_S: Final = 15.0
_LOOK_AGAIN_S: Final = 0.1


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
    """

    source: str
    target: str
    partitions: int
    has: int
    settings: Mapping[str, str]
    replication: int
    findings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return what JSON output has of it."""
        return {
            "topic": self.source, "target_topic": self.target, "partition_count": self.partitions,
            "target_partition_count": self.has, "action": self.action, "config": dict(self.settings),
            "replication": self.replication, "problems": list(self.findings),
        }  # fmt: skip

    @property
    def action(self) -> str:
        """What is done on the target."""
        if not self.has:
            return "create"
        return "grow" if self.has < self.partitions else "write"


class TopicCopies:
    """The topics of a mirror.

    Args:
        both: The clusters.
        settings: Of the mirror.

    Attributes:
        slots: Partitions of the state topic; 0 before `make_state_topic`.
        compacted: Topics of the source that are compacted.
    """

    def __init__(self, both: Both, settings: MirrorSettings) -> None:
        self._both = both
        self._settings = settings
        self._subscription = Whitelist(settings.whitelist).subscription(1)
        self._made: dict[str, int] = {}
        self._refused: dict[str, str] = {}
        self._has_begun = False
        self._seen: set[str] = set()
        self._copies: set[str] = set()
        self._numbers = PartitionNumbers(both.source_id, settings.state_topic, both.target, dict(settings.target))
        self.compacted: set[str] = set()
        self.slots = 0

    def make_state_topic(self) -> None:
        """Make the state topic if there is none."""
        name, cluster = self._settings.state_topic, self._both.target.cluster
        found = cluster.partitions([name]).get(name, ())
        if not found:
            replication = min(self._settings.rules.replication or 3, len(cluster.brokers()))
            config = {"cleanup.policy": "compact", "unclean.leader.election.enable": "false",
                      "segment.bytes": _STATE_SEGMENT_BYTES,
                      "min.insync.replicas": str(2 if replication > 2 else 1)}  # fmt: skip
            self._unless_exists(name, lambda: self._admin().create_topic(
                name, self._settings.slots, replication, config=config
            ))  # fmt: skip
        self.slots = self._wait_known(name, 1)
        if not self.slots:
            raise MirrorRefused(f"the state topic {name} was made, and no broker of the target knows it",
                                "look at the brokers of the target, and start again")  # fmt: skip

    def names(self) -> list[str]:
        """Return the topics of the source that are copied."""
        topics = self._both.source.cluster.topics()
        chosen = [name for name in topics if not name.startswith(_INTERNAL) and self._subscription.matches(name)]
        if not set(chosen) <= self._seen:
            self._seen, self._copies = set(chosen), self._copies_of_the_target(topics)
        if self._both.source_id == self._both.target_id:
            made = {self._settings.rules.name(name) for name in chosen}
            chosen = [name for name in chosen if name not in made or self._settings.rules.name(name) == name]
        return [name for name in chosen if name not in self._copies]

    def _copies_of_the_target(self, topics: list[str]) -> set[str]:
        """Return the topics of the source that a mirror has written there out of this target: they are no source."""
        properties = dict(self._settings.source)
        found: set[str] = set()
        for name in topics:
            if name.startswith(MirrorSettings.STATE_PREFIX):
                for lane in read_runs(self._settings.source_zookeeper, properties, name):
                    if lane.cluster == self._both.target_id:
                        found.add(lane.target.topic)
        for name in sorted(found):
            log.info("mirror: topic %s is a copy of the target's, and is not copied back", name)
        return found

    def count(self) -> int:
        """Return how many partitions are copied now."""
        return sum(map(len, self._both.source.cluster.partitions(self.names()).values()))

    def lanes(self) -> list[Lane]:
        """Return all lanes, after their topics were made or grown on the target.

        Raises:
            MirrorRefused: A topic cannot be copied; names it.
        """
        partitions = {name: self._in_order(name, found, stores=True)
                      for name, found in self._both.source.cluster.partitions(self.names()).items()}  # fmt: skip
        new = [name for name, found in partitions.items() if self._made.get(name) != len(found)]
        for plan in self.plan(new):
            try:
                if plan.findings:
                    raise MirrorRefused("; ".join(plan.findings), "see `zkconsumer mirror plan`")
                self._make(plan)
            except (MirrorRefused, AdminError) as error:  # no controller now, for example: the next look tries again
                if not self._has_begun:
                    raise
                if self._refused.get(plan.source) != str(error):  # the others go on
                    log.error("mirror: topic %s is not copied: %s", plan.source, error)
                self._refused[plan.source] = str(error)
                continue
            self._made[plan.source] = plan.partitions
        self._has_begun = True
        rules = self._settings.rules
        return [
            Lane(self._both.source_id, TopicPartition(name, each),
                 TopicPartition(rules.name(name), index if isinstance(each, str) else each))
            for name, found in partitions.items() if name in self._made
            for index, each in enumerate(found[: self._made[name]])
        ]  # fmt: skip

    def _in_order(self, topic: str, found: Sequence[int | str], *, stores: bool = False) -> list[int | str]:
        """Return the partitions of a topic in the order of their numbers on the target.

        Args:
            stores: Whether partitions of Kafka 0.7 that have no number yet get one for ever.
        """
        of_07 = [each for each in found if isinstance(each, str)]
        if not of_07:
            return list(found)
        return [*(self._numbers.assigned(topic, of_07, _STORE_S) if stores else self._numbers.known(topic, of_07))]

    def plan(self, names: list[str] | None = None) -> list[TopicPlan]:
        """Return what is done about each topic."""
        chosen = self.names() if names is None else names
        if names is None and self._both.target.cluster.partitions([self._settings.state_topic]):
            self._numbers.refresh()
        source = self._both.source.cluster.partitions(chosen)
        rules = self._settings.rules
        targets = [rules.name(name) for name in chosen]
        twice = {name for name in targets if targets.count(name) > 1}
        existing = self._both.target.cluster.partitions(targets)
        brokers = len(self._both.target.cluster.brokers())
        plans = []
        for name in chosen:
            if name not in source:  # deleted meanwhile
                continue
            target = rules.name(name)
            has = len(existing.get(target, ()))
            settings = _overrides(self._both.target, target) if has else self._new_settings(name)
            findings = []
            if target in twice:
                findings.append(f"topic {target} is the copy of several topics: give other names by --rename")
            if self._settings.preserves_offsets:
                findings += self._without_offsets(name, source[name], settings)
            findings += self._obstacles(name, target)
            if not has:
                findings += self._too_old(name, source[name], settings)
            replication = min(rules.replication or 3, brokers)
            partitions = len(self._in_order(name, source[name]))
            plans.append(TopicPlan(name, target, partitions, has, settings, replication, tuple(findings)))
        return plans

    def _without_offsets(
        self, topic: str, partitions: Sequence[int | str], settings: Mapping[str, str]
    ) -> Iterator[str]:  # fmt: skip
        """Yield why records cannot keep their offsets."""
        if any(isinstance(each, str) for each in partitions):
            yield f"topic {topic} is of Kafka 0.7, whose positions are bytes: no record can keep its offset"
        if "compact" in settings.get("cleanup.policy", ""):
            yield f"topic {topic} is compacted: its records cannot keep their offsets, as holes there may grow"

    def _obstacles(self, name: str, target: str) -> Iterator[str]:
        source_id = self._both.source_id
        if source_id == self._both.target_id and target == name:
            yield f"topic {name} would be copied into itself: both sides are cluster {source_id}"

    def _make(self, plan: TopicPlan) -> None:
        if "compact" in source_settings(self._both, plan.source).get("cleanup.policy", ""):
            self.compacted.add(plan.source)
        admin = self._admin()
        if plan.action == "create":
            self._unless_exists(plan.target, lambda: admin.create_topic(
                plan.target, plan.partitions, plan.replication, config=plan.settings
            ))  # fmt: skip
        elif plan.action == "grow":
            self._unless_exists(plan.target, lambda: admin.grow_topic(plan.target, plan.partitions), plan.partitions)

    def cut(self, name: TopicPartition, offset: int) -> None:
        """Have the log of a partition of the target start at an offset.

        Raises:
            AdminError: The brokers refuse.
        """
        assert isinstance(name.partition, int)
        self._admin().cut_topic(name.topic, offset, partitions=[name.partition])

    def _unless_exists(self, topic: str, make: Callable[[], object], partitions: int = 1) -> None:
        """Make a topic, or its partitions, unless another process of the mirror was first."""
        try:
            make()
        except TopicRefused:
            if self._wait_known(topic, partitions) < partitions:
                raise

    def _wait_known(self, topic: str, partitions: int) -> int:
        """Return how many partitions brokers know, after a wait: what was just made they do not all know yet."""
        deadline = time.monotonic() + _KNOWN_S
        while True:
            found = len(self._both.target.cluster.partitions([topic]).get(topic, ()))
            if found >= partitions or time.monotonic() > deadline:
                return found
            time.sleep(_LOOK_AGAIN_S)

    def _admin(self) -> BrokerAdmin:
        servers = self._settings.target["bootstrap.servers"]
        return BrokerAdmin(servers, properties=self._settings.target, client_id=f"mirror-{self._settings.name}")

    # -- settings ------------------------------------------------------------------------------------------------------

    def _new_settings(self, topic: str) -> dict[str, str]:
        found = {name: value for name, value in source_settings(self._both, topic).items() if name in _COPIED}
        return {**found, **self._settings.rules.settings}

    def _too_old(self, topic: str, partitions: Any, settings: Mapping[str, str]) -> list[str]:
        """Return what says that the target would delete records at once."""
        try:
            retention_ms = int(settings.get("retention.ms", _RETENTION_MS))
        except ValueError:
            return [f"retention.ms={settings['retention.ms']} of topic {topic} is no number"]
        if retention_ms < 0 or self._settings.sets_times or settings.get("cleanup.policy", "delete") == "compact":
            return []
        side = self._both.source
        names = [TopicPartition(topic, number) for number in partitions if isinstance(number, int)]
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


def source_settings(both: Both, topic: str) -> dict[str, str]:
    """Return the settings that stand at a topic of the source, as far as it tells."""
    if both.port is None:
        return _overrides(both.source, topic)
    [reply] = read_all(both.port, [GetData(f"/config/topics/{topic}")])
    data: Any = reply[0] if isinstance(reply, tuple) else None
    return dict(json.loads(data).get("config", {})) if data else {}


def target_settings(side: Side, topic: str) -> dict[str, str]:
    """Return the settings that stand at a topic of the target."""
    return _overrides(side, topic)


def _first(both: Both, name: TopicPartition, found: Any) -> Message | None:
    if isinstance(found, str) or found[0] is None:
        return None
    try:
        return record_at(both.source, name, int(found[0]))
    except SimpleConsumerError as error:
        log.info("mirror: the first record of %s/%s cannot be read: %s", *name, error)
        return None


def _overrides(side: Any, topic: str) -> dict[str, str]:
    """Return the settings that stand at a topic; none where the brokers do not tell (before Kafka 0.11)."""
    for broker in side.cluster.brokers():
        try:
            with side.connect(broker) as client:
                verdict, found = client.ask(KAFKA011.topic_overrides(topic))
                return dict(found) if not verdict.error_code else {}
        except SimpleConsumerError:
            continue
    return {}
