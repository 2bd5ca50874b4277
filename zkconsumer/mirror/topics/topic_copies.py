"""Finds the topics of a mirror, and makes them on the target before the first record is copied.

Rules, and which failure each prevents:
- The target's topics are made with the settings of the source: a topic that the brokers make on their own has other
  partitions, and a compacted one would be deleted by time.
- Topics that a mirror has written are no source for one back: records would go round for ever.
- Partitions are added where the source has more; nothing is ever deleted.

Threads: one at a time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from simpleconsumer.types import TopicPartition
from zkconsumer.admin import AdminError, TopicRefused
from zkconsumer.filters import Whitelist
from zkconsumer.mirror.errors import MirrorRefused
from zkconsumer.mirror.lane_runs import Lane
from zkconsumer.mirror.sides import Both, MirrorSettings
from zkconsumer.mirror.topics.mirror_loops import TopicOrigins
from zkconsumer.mirror.topics.mirror_plan import Planner, TopicPlan, admin_of
from zkconsumer.mirror.topics.partition_numbers import PartitionNumbers
from zkconsumer.mirror.topics.source_samples import source_settings

log = logging.getLogger(__name__)

_INTERNAL: Final = "__"
_STATE_SEGMENT_BYTES: Final = str(16 << 20)
"""The open segment is not compacted, and each process reads the state topic when it starts."""
_STORE_S: Final = 30.0
_KNOWN_S: Final = 15.0
_LOOK_AGAIN_S: Final = 0.1


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
        self._origins = TopicOrigins(both, settings)
        self._copies: set[str] = set()
        self._numbers = PartitionNumbers(both.source_id, settings.state_topic, both.target, dict(both.settings.target))
        self.compacted: set[str] = set()
        self.slots = 0

    def make_state_topic(self) -> None:
        """Make the state topic if there is none."""
        name = self._settings.state_topic
        found = self._both.target_partitions([name]).get(name, ())
        if not found:
            replication = min(self._settings.rules.replication or 3, len(self._both.target_brokers()))
            config = {"cleanup.policy": "compact", "unclean.leader.election.enable": "false",
                      "segment.bytes": _STATE_SEGMENT_BYTES,
                      "min.insync.replicas": str(2 if replication > 2 else 1)}  # fmt: skip
            with admin_of(self._both.settings) as admin:
                self._unless_exists(name, lambda: admin.create_topic(
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
        self._copies = self._origins.look(topics)
        if self._both.source_id == self._both.target_id:
            made = {self._settings.rules.name(name) for name in chosen}
            chosen = [name for name in chosen if name not in made or self._settings.rules.name(name) == name]
        return [name for name in chosen if name not in self._copies]

    def why_refused(self, topic: str) -> str:
        """Return why a topic of the source must not be copied, by the last look, a clause; empty if it may."""
        return self._origins.reason(topic) if topic in self._copies else ""

    def count(self) -> int:
        """Return how many partitions are copied now."""
        return sum(map(len, self._both.source.cluster.partitions(self.names()).values()))

    def lanes(self) -> list[Lane]:
        """Return all lanes, after their topics were made or grown on the target.

        Raises:
            MirrorRefused: A topic cannot be copied; names it.
        """
        rules = self._settings.rules
        partitions = {name: self._in_order(name, found, stores=True)
                      for name, found in self._both.source.cluster.partitions(self.names()).items()}  # fmt: skip
        new = [name for name, found in partitions.items() if self._made.get(name) != len(found)]
        plans = self.plan(new)
        self._announce(plans)
        for plan in plans:
            if plan.source in self._copies:  # as another mirror has told just now
                continue
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
        return [
            Lane(self._both.source_id, TopicPartition(name, each),
                 TopicPartition(rules.name(name), index if isinstance(each, str) else each))
            for name, found in partitions.items() if name in self._made and name not in self._copies
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

    def _announce(self, plans: Sequence[TopicPlan]) -> None:
        """Tell other mirrors where the records come from, and look again at what they have told meanwhile."""
        is_written = [plan.source for plan in plans if not plan.findings and not plan.is_foreign]
        name = self._settings.rules.name
        self._origins.announce({topic: name(topic) for topic in (*self._made, *is_written)})
        if is_written:
            self._copies = self._origins.look(self._both.source.cluster.topics())

    def plan(self, names: list[str] | None = None, *, describes: bool = False) -> list[TopicPlan]:
        """Return what is done about each topic; arguments as for `Planner.plan`, None for all that are copied."""
        if names is None and self._both.target_partitions([self._settings.state_topic]):
            self._numbers.refresh()
        planner = Planner(self._both, self._settings, self._in_order)
        return planner.plan(self.names() if names is None else names, describes=describes)

    def _make(self, plan: TopicPlan) -> None:
        if "compact" in source_settings(self._both, plan.source).get("cleanup.policy", ""):
            self.compacted.add(plan.source)
        if plan.action == "write":
            return
        with admin_of(self._both.settings) as admin:
            if plan.action == "create":
                self._unless_exists(plan.target, lambda: admin.create_topic(
                    plan.target, plan.partitions, plan.replication, config=plan.settings
                ))  # fmt: skip
            else:
                self._unless_exists(
                    plan.target, lambda: admin.grow_topic(plan.target, plan.partitions), plan.partitions
                )

    def cut(self, name: TopicPartition, offset: int) -> None:
        """Have the log of a partition of the target start at an offset.

        Raises:
            AdminError: The brokers refuse.
        """
        assert isinstance(name.partition, int)
        with admin_of(self._both.settings) as admin:
            admin.cut_topic(name.topic, offset, partitions=[name.partition])

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
            found = len(self._both.target_partitions([topic]).get(topic, ()))
            if found >= partitions or time.monotonic() > deadline:
                return found
            time.sleep(_LOOK_AGAIN_S)
