"""A delivery with streams, and one scripted broker that leads everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rebalance.lease import lease_clock
from simpleconsumer.types import TopicPartition
from tests.fetching.feeding import HeldLease, ScriptedBroker, ScriptedLog, config_of
from zkconsumer.cluster.leaders import BrokerDirectory
from zkconsumer.member.delivery import Delivery
from zkconsumer.streams.stream import KafkaStream, StreamParts

DEADLINE_S = 15.0
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Rig:
    """What a connector wires, without ZooKeeper and without a group."""

    def __init__(
        self,
        broker: ScriptedBroker,
        log: ScriptedLog,
        streams: int,
        partitions: int,
        settings: dict[str, object],
        clock: Callable[[], float],
    ) -> None:
        decoder = settings.pop("value_decoder", None)
        out_of_range: Any = settings.pop("out_of_range", lambda partition, gone, restart: None)
        died: Any = settings.pop("died", lambda name, error: None)
        settings = {
            "consumer_timeout_ms": int(DEADLINE_S * 1000),
            "fetch_message_max_bytes": 64 * 1024,
            "refresh_leader_backoff_ms": 20,
            **settings,
        }
        config = config_of(**settings)
        self.broker = broker
        self.log = log
        self.lease = HeldLease()
        self.streams = [
            KafkaStream(StreamParts(f"thread-{index}", config, self.lease, lease_clock, None, decoder))  # type: ignore[arg-type]
            for index in range(streams)
        ]
        by_thread = {("t", stream.thread_id): stream for stream in self.streams}

        broker.on_fetch, broker.on_offsets = log.fetch, log.offsets
        broker.on_metadata = lambda topics: broker.metadata(
            {name: dict.fromkeys(range(partitions), (0, broker.broker.id)) for name in topics}
        )
        self.directory = BrokerDirectory(
            config.client_id,
            config.socket_timeout_ms / 1000,
            lambda: [broker.broker],
            set,
            lambda names: dict.fromkeys(names, broker.broker.id),
        )
        self.delivery = Delivery(config, by_thread, self.directory, clock, out_of_range, died=died)


@contextmanager
def rigged(
    log: ScriptedLog,
    streams: int = 1,
    partitions: int = 8,
    clock: Callable[[], float] = lease_clock,
    **settings: object,
) -> Iterator[Rig]:
    with ScriptedBroker() as broker:
        rig = Rig(broker, log, streams, partitions, settings, clock)
        try:
            yield rig
        finally:
            rig.delivery.stop(None, lease_clock())
            rig.delivery.close(lease_clock() + DEADLINE_S)
