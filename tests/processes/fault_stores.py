"""Groups that keep their offsets in Kafka, in ZooKeeper or in both, under random faults of the offset manager."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from fault_churn import Churn
from fault_players import Player
from fault_scenarios_servers import REPLICATED
from fault_stage import Stage
from kafka_put_backs import OFFSETS_TOPIC, commits_in_kafka, put_backs

from simpleconsumer import SimpleConsumer, SimpleConsumerError, TopicPartition
from simpleconsumer.types import Broker
from zkconsumer.testing.history import Event, Place
from zkconsumer.testing.history.limits import Trouble
from zkconsumer.testing.kafka import probe as kafka_probe
from zkconsumer.testing.waiting import wait_until

STORAGES: Mapping[str, Mapping[str, object]] = {
    "zookeeper": {"offsets.storage": "zookeeper"},
    "dual": {"offsets.storage": "kafka", "dual.commit.enabled": "true"},
    "kafka": {"offsets.storage": "kafka", "dual.commit.enabled": "false"},
}
CHANNEL: Mapping[str, object] = {
    "offsets.channel.socket.timeout.ms": 2000,
    "offsets.channel.backoff.ms": 200,
    "offsets.commit.max.retries": 5,
}
SETUP = replace(REPLICATED, broker={
    **REPLICATED.broker, "offsets.topic.replication.factor": 2, "offsets.topic.num.partitions": 2,
})  # fmt: skip
GIVES_UP_S = 8.0
"""A commit that failed is not tried for longer."""


@dataclass
class StoresStage(Stage):
    """A group whose members differ in where they keep their offsets; `storages` are taken in turn."""

    storages: tuple[str, ...] = ("dual",)

    def settings_of(self, player: Player) -> dict[str, object]:
        """With the storage whose turn it is."""
        number = self.players.index(player)
        return {**self.setup.member, **CHANNEL, **STORAGES[self.storages[number % len(self.storages)]]}

    def stored(self) -> dict[Place, int]:
        """The stored offsets: those in Kafka, if all members write there."""
        if "zookeeper" in self.storages:
            return super().stored()
        manager = self.manager()
        if manager is None:
            return {}
        try:
            with SimpleConsumer(manager.host, manager.port, 2.0) as consumer:
                rows = consumer.fetch_offsets(self.group, [TopicPartition(*place) for place in self.places], version=1)
        except SimpleConsumerError:
            return {}
        return {(name.topic, int(name.partition)): row.offset for name, row in rows.items() if row.offset >= 0}

    def history(self) -> list[Event]:
        """With the offsets in Kafka that Java members have put back."""
        events = super().history()
        java = {player.name for player in self.java}
        return [*events, *put_backs(commits_in_kafka(self.cluster, self.group), events, java)] if java else events

    def manager(self) -> Broker | None:
        """The broker that manages the group's offsets, None while nobody names it."""
        for broker in self.cluster.brokers.values():
            try:
                with SimpleConsumer("127.0.0.1", broker.port, 2.0) as consumer:
                    return consumer.consumer_metadata(self.group)
            except SimpleConsumerError:
                continue
        return None

    def wait_manager(self) -> None:
        """Return when a broker manages the group's offsets: the topic of offsets is created by the first question."""
        wait_until(lambda: self.manager(), 60.0, "an offset manager")


class StoresChurn(Churn):
    """Random faults, more of them of the offset manager's broker."""

    def __init__(self, stage: StoresStage, seed: int) -> None:
        super().__init__(stage, seed)
        self._stores = stage
        self.unstorable: list[Trouble] = []

    def _are_replicas_in_sync(self) -> bool:
        """Also those of the offsets: the death of a broker must not lose what was committed."""
        brokers = self.stage.cluster.brokers
        try:
            told = [kafka_probe.topic_leaders(broker.port, OFFSETS_TOPIC) for broker in brokers.values()]
        except OSError:
            return False
        return super()._are_replicas_in_sync() and all(
            len(each.isr) == len(brokers) for answer in told for each in answer.values()
        )

    def begin(self) -> None:
        """Kill the offset manager's broker, so that no sequence is without that."""
        wait_until(self._are_replicas_in_sync, 60.0, "replicas in sync")
        self.go_on(self.rng.uniform(0.0, 1.0))
        self._kill_broker()

    def _unstored(self) -> Callable[[], None]:
        began_ns = time.monotonic_ns()

        def over() -> None:
            trouble = Trouble(began_ns, time.monotonic_ns() + int(GIVES_UP_S * 1e9), "")
            self._troubles.append(trouble)
            self.unstorable.append(trouble)

        return over

    def _pause_broker(self) -> None:
        self._hit_manager(self.stage.cluster.pause, self.stage.cluster.resume)

    def _kill_broker(self) -> None:
        self._hit_manager(lambda broker_id: self.stage.cluster.kill(broker_id, expire=True), self.stage.cluster.start)

    def _hit_manager(self, act: Callable[[int], object], undo: Callable[[int], object]) -> None:
        manager = self._stores.manager()
        broker_id = self.rng.choice(list(self.stage.cluster.brokers)) if manager is None else manager.id
        self.steps.append(f"{time.monotonic():.3f} broker {broker_id}, the offset manager")
        over = self._unstored()
        act(broker_id)

        def back() -> None:
            undo(broker_id)
            over()

        self._later(3.0, "", back)

    def end(self) -> None:
        """As for all faults; offsets in Kafka are not fenced, and a release gives up a commit that cannot be stored."""
        super().end()
        self.stage.limits = replace(
            self.stage.limits, unstorable=tuple(self.unstorable), commits_fenced="zookeeper" in self._stores.storages
        )
