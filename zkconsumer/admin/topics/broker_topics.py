"""Changes topics by requests to the brokers: Kafka 0.10.1 and later, with ZooKeeper or without.

Rules, and which failure each prevents:
- Names, numbers of replicas and assignments are checked against what the brokers say, before they are asked to change
  anything: an error then names the topic that collides, or the brokers that run.
- The controller chooses the replicas, unless an assignment is given or racks shall not count.
- A change is done when each broker that answers knows of it: the next command may ask any of them.

Source: org.apache.kafka.clients.admin.KafkaAdminClient, org.apache.kafka.tools.TopicCommand (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from simpleconsumer.dialect import KAFKA011
from simpleconsumer.types import TopicMetadata
from zkconsumer.admin.topics.controller_calls import (
    ControllerCalls,
    create_by_brokers,
    delete_by_brokers,
    grow_by_brokers,
)
from zkconsumer.admin.topics.record_deletion import TopicCut, cut_topic
from zkconsumer.admin.topics.setting_changes import TopicSettings, set_by_brokers
from zkconsumer.admin.topics.topic_changes import Progress, TopicChange, assigned, check_not_internal, poll
from zkconsumer.admin.topics.topic_creation import (
    KEYS_MOVE,
    Growth,
    NewTopic,
    added_replicas,
    check_new_name,
    chosen_replicas,
)
from zkconsumer.admin.topics.topic_plans import MAX_PARTITIONS, check_count, check_settings, texts_of
from zkconsumer.admin.topics.topic_producers import TopicProducers, topic_producers
from zkconsumer.admin.values import NotFound, TopicUnfinished, count_of, nearest

_BEFORE_BROKERS_CHECK = 4
"""Registration version of the brokers that say nothing of a setting that they refuse: Kafka 0.10.1."""
_INSTEAD = "give --zookeeper, or use Admin: it changes topics in ZooKeeper"


class BrokerTopicStore:
    """Creates, grows and deletes topics by requests to the controller.

    Args:
        calls: To the brokers of the cluster.
    """

    def __init__(self, calls: ControllerCalls) -> None:
        self._calls = calls

    def create(self, new: NewTopic, dry_run: bool, wait_s: float, progress: Progress | None) -> TopicChange:
        """Create a topic; see `TopicAdministration.create_topic`."""
        calls = self._calls
        check_new_name(new.name, calls.cluster.topics(), f" {calls.where}")
        calls.require("create", new.name, "created", _INSTEAD)
        racks = dict.fromkeys(broker.id for broker in calls.cluster.brokers())
        chosen = chosen_replicas(new, racks)
        checks = calls.serves("check")
        settings = texts_of(new.config) if checks else check_settings(new.config, _BEFORE_BROKERS_CHECK)
        are_fixed = new.assignment is not None or not new.rack_aware
        if checks or not dry_run:
            create_by_brokers(
                calls, new.name, chosen if are_fixed else len(chosen), new.replication, settings, wait_s, dry_run
            )
        replicas = chosen if are_fixed else dict.fromkeys(chosen, ())
        change = TopicChange(new.name, assigned(replicas), settings, (), not dry_run, False)
        return change if dry_run else self._led(change, wait_s, progress)

    def grow(self, growth: Growth, dry_run: bool, wait_s: float, progress: Progress | None) -> TopicChange:
        """Add partitions to a topic; see `TopicAdministration.grow_topic`."""
        calls, topic = self._calls, growth.topic
        check_not_internal(topic, "grown")
        check_count("the number of partitions", growth.partitions, MAX_PARTITIONS)
        present = {row.partition: tuple(row.replicas) for row in self._known(topic).partitions}
        calls.require("grow", topic, "grown", _INSTEAD)
        racks = dict.fromkeys(broker.id for broker in calls.cluster.brokers())
        added = added_replicas(dict(sorted(present.items())), growth, racks)
        are_fixed = growth.assignment is not None or not growth.rack_aware
        grow_by_brokers(calls, topic, growth.partitions, added if are_fixed else None, wait_s, dry_run)
        replicas = added if are_fixed else dict.fromkeys(added, ())
        change = TopicChange(topic, assigned(replicas), {}, (KEYS_MOVE,), not dry_run, False)
        return change if dry_run else self._led(change, wait_s, progress)

    def delete(self, topic: str, dry_run: bool, wait_s: float, progress: Progress | None) -> TopicChange:
        """Delete a topic; see `TopicAdministration.delete_topic`."""
        calls = self._calls
        check_not_internal(topic, "deleted")
        found = self._known(topic)
        calls.require("delete", topic, "deleted", _INSTEAD)
        replicas = {row.partition: tuple(row.replicas) for row in found.partitions}
        change = TopicChange(topic, assigned(replicas), {}, tuple(self._obstacles(found)), not dry_run, False)
        if dry_run:
            return change
        delete_by_brokers(calls, topic, wait_s)
        if wait_s <= 0:
            return change
        if progress is not None:
            progress(f"the brokers delete {count_of(len(replicas), 'partition')}")

        def is_gone() -> bool:
            # A client that asks for the deleted topic may have created it again already, under another id.
            return not any(view.error_code == 0 and view.topic_id == found.topic_id for view in calls.views(topic))

        if not poll(is_gone, wait_s):
            why = "; ".join(self._obstacles(found)) or "a client may have created it again, or the controller is busy"
            raise TopicUnfinished(
                f"topic {topic!r} is marked for deletion {calls.where}, but still exists after {wait_s:g} s: {why}",
                f"check again with `zkconsumer topics {topic}`; the controller continues",
            )
        return replace(change, done=True)

    def set(self, topic: str, config: Mapping[str, object], unset: Collection[str], dry_run: bool) -> TopicSettings:
        """Change settings of a topic; see `TopicAdministration.set_topic`."""
        self._calls.require("set", topic, "set", _INSTEAD)
        return set_by_brokers(self._calls, topic, config, unset, dry_run)

    def cut(self, topic: str, before: str | int, partitions: Sequence[int], dry_run: bool) -> TopicCut:
        """Delete messages of a topic; see `TopicAdministration.cut_topic`."""
        return cut_topic(self._calls, topic, before, partitions, dry_run)

    def producers(self, topic: str, partitions: Sequence[int]) -> TopicProducers:
        """Return who has written to a topic; see `TopicAdministration.topic_producers`."""
        return topic_producers(self._calls, topic, partitions)

    def _known(self, topic: str) -> TopicMetadata:
        """Return what the brokers know of a topic; NotFound if it does not exist."""
        calls = self._calls
        known = calls.cluster.topics()
        found = calls.ask(lambda client: client.ask(KAFKA011.cluster_metadata([topic]))).topics[topic]
        if topic not in known or not found.partitions:
            raise NotFound(f"topic {topic!r} does not exist {calls.where}", nearest(topic, known, "topic"))
        return found

    def _obstacles(self, topic: TopicMetadata) -> list[str]:
        """Return what keeps the controller from deleting a topic, a sentence each."""
        keepers = {broker for row in topic.partitions for broker in row.replicas}
        dead = sorted(keepers - {broker.id for broker in self._calls.cluster.brokers()})
        if not dead:
            return []
        noun, verb = ("broker", "is") if len(dead) == 1 else ("brokers", "are")
        return [f"{noun} {', '.join(map(str, dead))} with replicas of it {verb} not alive; these replicas are deleted "
                "later"]  # fmt: skip

    def _led(self, change: TopicChange, wait_s: float, progress: Progress | None) -> TopicChange:
        """Return a change with the replicas and leaders of its partitions, once every broker knows the leaders.

        Raises:
            TopicUnfinished: A partition has no leader in time.
        """
        if wait_s <= 0:
            return change
        numbers = [each.partition for each in change.partitions]
        found: dict[int, tuple[tuple[int, ...], int | None]] = {}
        said = [0]

        def all_led() -> bool:
            alive = {broker.id for broker in self._calls.cluster.brokers()}
            views = [_rows(view, alive) for view in self._calls.views(change.topic)]
            if not views:
                return False
            least = min(views, key=_led_count(numbers))
            found.clear()
            found.update(least)
            led = _led_count(numbers)(least)
            if progress is not None and led != said[0]:
                progress(f"{led} of {count_of(len(numbers), 'partition')} {'has' if led == 1 else 'have'} a leader")
            said[0] = led
            return led == len(numbers)

        if not poll(all_led, wait_s):
            lacking = [number for number in numbers if found.get(number, ((), None))[1] is None]
            raise TopicUnfinished(
                f"the controller {self._calls.where} has accepted topic {change.topic!r}, but {len(lacking)} of "
                f"{count_of(len(numbers), 'partition')} have no leader after {wait_s:g} s",
                f"check again with `zkconsumer topics {change.topic}`; the controller continues",
            )
        rows = [
            replace(each, replicas=found[each.partition][0], leader=found[each.partition][1])
            for each in change.partitions
        ]
        return replace(change, partitions=tuple(rows), done=True)


def _rows(view: TopicMetadata, alive: set[int]) -> dict[int, tuple[tuple[int, ...], int | None]]:
    return {
        row.partition: (tuple(row.replicas), row.leader if row.leader in alive else None) for row in view.partitions
    }


def _led_count(numbers: list[int]) -> Callable[[Mapping[int, tuple[tuple[int, ...], int | None]]], int]:
    return lambda rows: sum(rows.get(number, ((), None))[1] is not None for number in numbers)
