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
from collections.abc import Callable, Sequence
from typing import Final

from simpleconsumer.types import TopicPartition
from zkconsumer.admin import AdminError, TopicRefused
from zkconsumer.filters import Whitelist
from zkconsumer.mirror.errors import MirrorRefused
from zkconsumer.mirror.lane_runs import Lane
from zkconsumer.mirror.mirror_loops import TopicOrigins
from zkconsumer.mirror.mirror_plan import Planner, TopicPlan, admin_of
from zkconsumer.mirror.sides import Both, MirrorSettings
from zkconsumer.mirror.source_samples import source_settings

log = logging.getLogger(__name__)

_INTERNAL: Final = "__"


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
        self.compacted: set[str] = set()
        self.slots = 0

    def make_state_topic(self) -> None:
        """Make the state topic if there is none."""
        name, cluster = self._settings.state_topic, self._both.target.cluster
        found = cluster.partitions([name]).get(name, ())
        if not found:
            replication = min(self._settings.rules.replication or 3, len(cluster.brokers()))
            config = {"cleanup.policy": "compact", "unclean.leader.election.enable": "false",
                      "min.insync.replicas": str(2 if replication > 2 else 1)}  # fmt: skip
            self._unless_exists(name, lambda: admin_of(self._settings).create_topic(
                name, self._settings.slots, replication, config=config
            ))  # fmt: skip
            found = cluster.partitions([name]).get(name, ())
        self.slots = len(found) or self._settings.slots

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
        partitions = self._both.source.cluster.partitions(self.names())
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
            Lane(self._both.source_id, TopicPartition(name, number), TopicPartition(rules.name(name), number))
            for name, found in partitions.items() if name in self._made and name not in self._copies
            for number in found[: self._made[name]]
        ]  # fmt: skip

    def _announce(self, plans: Sequence[TopicPlan]) -> None:
        """Tell other mirrors where the records come from, and look again at what they have told meanwhile."""
        is_written = [plan.source for plan in plans if not plan.findings and not plan.is_foreign]
        name = self._settings.rules.name
        self._origins.announce({topic: name(topic) for topic in (*self._made, *is_written)})
        if is_written:
            self._copies = self._origins.look(self._both.source.cluster.topics())

    def plan(self, names: list[str] | None = None, *, describes: bool = False) -> list[TopicPlan]:
        """Return what is done about each topic; arguments as for `Planner.plan`, None for all that are copied."""
        return Planner(self._both, self._settings).plan(self.names() if names is None else names, describes=describes)

    def _make(self, plan: TopicPlan) -> None:
        if "compact" in source_settings(self._both, plan.source).get("cleanup.policy", ""):
            self.compacted.add(plan.source)
        admin = admin_of(self._settings)
        if plan.action == "create":
            self._unless_exists(plan.target, lambda: admin.create_topic(
                plan.target, plan.partitions, plan.replication, config=plan.settings
            ))  # fmt: skip
        elif plan.action == "grow":
            self._unless_exists(plan.target, lambda: admin.grow_topic(plan.target, plan.partitions), plan.partitions)

    def _unless_exists(self, topic: str, make: Callable[[], object], partitions: int = 1) -> None:
        """Make a topic, or its partitions, unless another process of the mirror was first."""
        try:
            make()
        except TopicRefused:
            if len(self._both.target.cluster.partitions([topic]).get(topic, ())) < partitions:
                raise
