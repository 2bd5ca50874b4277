"""The controller of an embedded cluster: makes the right broker lead each partition, with its files there.

It compares what is registered with what is led, whenever something may have changed and every two seconds besides, and
makes both what they should be.

Source: kafka.controller.KafkaController (0.8.2.2), which it stands in for.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Mapping
from typing import Any, Final

from zkconsumer.testing.embedded.cluster_image import ClusterImage
from zkconsumer.testing.embedded.leadership import PartitionState, decide, moved
from zkconsumer.testing.embedded.leading_broker import LeadingBroker
from zkconsumer.testing.embedded.registries.registry import Registry, RegistryUnavailable, TopicEntry

AUDIT_INTERVAL_S: Final = 2.0
STOP_TIMEOUT_S: Final = 10.0
_log = logging.getLogger(__name__)

Topics = dict[str, dict[int, tuple[tuple[int, ...], PartitionState]]]


class Controller:
    """One for a cluster.

    Threads: every method from any thread; a thread of its own handles changes that others made.

    Attributes:
        registry: where the cluster is registered.
        image: the brokers' metadata of the cluster; replaced as a whole.
        lock: held while something is started, stopped or moved.
    """

    def __init__(self, registry: Registry, brokers: Mapping[int, LeadingBroker[Any]]) -> None:
        self.registry = registry
        self.brokers = brokers
        self.image = ClusterImage()
        self.lock = threading.RLock()
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep_order, name="embedded controller", daemon=True)

    def start(self) -> None:
        """Connect the registry and start to watch it."""
        self.registry.start(self._wake.set)
        self._thread.start()

    def look_again(self) -> None:
        """Have the controller's own thread compare soon."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread; from now on nothing is changed."""
        self._closed.set()
        self._wake.set()
        self._thread.join(STOP_TIMEOUT_S)

    def _keep_order(self) -> None:
        while not self._closed.is_set():
            self._wake.wait(AUDIT_INTERVAL_S)
            self._wake.clear()
            if self._closed.is_set():
                return
            try:
                self.reconcile()
            except RegistryUnavailable as error:
                _log.info("the embedded controller waits: %s", error)
            except Exception:  # noqa: BLE001 - top of the thread; the next look may succeed
                _log.exception("the embedded controller failed")

    def reconcile(
        self, order: Mapping[tuple[str, int], int] | None = None, ends: Mapping[tuple[str, int], int] | None = None
    ) -> bool:
        """Compare what is registered with what is led, and make both what they should be.

        Returns False without doing it while the registry cannot be asked, as under load for a moment: then it is made
        good at the next look, all but `order` and `ends`.

        Args:
            order: leaders to be changed although the old ones run.
            ends: partitions of these that lose everything from an offset on, and get a new epoch in any case.
        """
        with self.lock:
            if self._closed.is_set() or not self.registry.reachable:
                return False
            registry = self.registry
            running = sorted(broker_id for broker_id, broker in self.brokers.items() if broker.running)
            for broker_id in running:
                if registry.needs_registration(broker_id):
                    registry.register(self.brokers[broker_id].registration)
            for topic in registry.doomed_topics():
                self._delete(topic)
            alive = registry.live_brokers()
            entries = registry.topics()
            epoch = registry.controller_epoch(running)
            topics, changed = self._decide(entries, set(alive), epoch, order or {}, ends or {})
            self._apply(topics, entries, ends or {})
            for (topic, partition), state in changed.items():
                registry.set_state(topic, partition, state)
            ids = {topic: entry.topic_id for topic, entry in entries.items() if entry.topic_id is not None}
            self.image = ClusterImage(alive, topics, ids)
            return True

    def _decide(
        self,
        entries: Mapping[str, TopicEntry],
        alive: set[int],
        epoch: int,
        order: Mapping[tuple[str, int], int],
        ends: Mapping[tuple[str, int], int],
    ) -> tuple[Topics, dict[tuple[str, int], PartitionState]]:
        topics: Topics = {}
        changed: dict[tuple[str, int], PartitionState] = {}
        for topic, entry in entries.items():
            known = self.image.topics.get(topic, {})
            for partition, replicas in entry.assignment.items():
                old = known[partition][1] if partition in known else self.registry.state(topic, partition)
                leader = order.get((topic, partition))
                is_new = (topic, partition) in ends
                if old is not None and leader is not None and (is_new or leader != old.leader):
                    new: PartitionState | None = moved(old, replicas, leader, epoch)
                else:
                    new = decide(old, replicas, alive, epoch)
                if new is None:
                    continue
                topics.setdefault(topic, {})[partition] = (replicas, new)
                if new != old:
                    changed[topic, partition] = new
        return topics, changed

    def _apply(
        self, topics: Topics, entries: Mapping[str, TopicEntry], ends: Mapping[tuple[str, int], int]
    ) -> None:
        """Have every partition led by its leader alone, in its epoch, with its files there."""
        states = {(topic, p): state for topic, each in topics.items() for p, (_, state) in each.items()}
        clean = set()
        for broker in self.brokers.values():
            for where in broker.led:
                state = states.get(where)
                if state is None or state.leader != broker.broker_id or where in ends:
                    broker.resign(*where)
                    clean.add(where)
                else:
                    broker.stay_leader(*where, state.leader_epoch)
                    broker.configure(*where, entries[where[0]].config)
        for (topic, partition), state in states.items():
            host = self.brokers.get(state.leader)
            if host is not None and host.running and (topic, partition) not in host.led:
                arrived = self._fetch_files(f"{topic}-{partition}", host)
                safe = (topic, partition) in clean
                host.lead(
                    topic, partition, entries[topic].config, clean=safe if arrived or safe else None,
                    epoch=state.leader_epoch, end_offset=ends.get((topic, partition)),
                )  # fmt: skip

    def _fetch_files(self, name: str, host: LeadingBroker[Any]) -> bool:
        """True if a partition's files lay with another broker; they are with `host` now."""
        for broker in self.brokers.values():
            files = broker.folder / name
            if broker is not host and files.is_dir():
                shutil.rmtree(host.folder / name, ignore_errors=True)
                files.rename(host.folder / name)
                return True
        return False

    def _delete(self, topic: str) -> None:
        partitions = set(self.image.topics.get(topic, {}))
        for broker in self.brokers.values():
            for partition in partitions:
                broker.resign(topic, partition, delete=True)
                shutil.rmtree(broker.folder / f"{topic}-{partition}", ignore_errors=True)
        self.registry.forget_topic(topic)
        topics = {name: each for name, each in self.image.topics.items() if name != topic}
        self.image = ClusterImage(self.image.brokers, topics, self.image.topic_ids)
