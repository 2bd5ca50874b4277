"""Statistics of connectors and producers for Prometheus: a collector to register, or an HTTP endpoint of its own.

    with ConsumerConnector(config) as connector, serve(connector, port=9404):
        ...

`serve` takes producers, too.

Needs the extra: pip install 'zkconsumer[prometheus]'. docs/OPERATIONS.md explains each metric, and what to do about it.
The figures are read when they are asked for; nothing runs in between.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIServer

try:
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ImportError(
        "zkconsumer.prometheus needs the package prometheus_client: pip install 'zkconsumer[prometheus]'"
    ) from error

from simpleconsumer.closing import Closing
from zkconsumer.connector import ConsumerConnector
from zkconsumer.errors import ForkedConnector
from zkconsumer.producer.metrics import ProducerCollector
from zkconsumer.producer.producer import Producer
from zkconsumer.status import ConnectorStatistics, OwnedPartition

if TYPE_CHECKING:
    from zkconsumer.aio import AsyncConsumerConnector

__all__ = ["ConnectorCollector", "MetricsServer", "ProducerCollector", "serve"]

log = logging.getLogger(__name__)

_CLIENT_TIMEOUT_S: Final = 30.0
"""Longest wait for one step of a client that asks for the metrics."""
_MEMBER = ("group", "consumer")
_PARTITION = (*_MEMBER, "topic", "partition")

_Value = float | None

_OF_PARTITION: tuple[tuple[str, str, Callable[[OwnedPartition], _Value]], ...] = (
    ("position_offset", "Next offset that is not done.", lambda each: each.position),
    ("committed_offset", "Offset in ZooKeeper as this member last read or wrote it.", lambda each: each.committed),
    ("log_end_offset", "Log end as the leader last reported it.", lambda each: each.log_end),
    ("lag_messages", "Log end minus position, in Kafka 0.7 in bytes.", lambda each: each.lag),
    ("queued_bytes", "Fetched and not yet read.", lambda each: each.queued_bytes),
    ("fetch_messages_per_second", "Messages fetched lately.", lambda each: each.messages_per_s),
    ("fetch_bytes_per_second", "Bytes fetched lately.", lambda each: each.bytes_per_s),
    ("partition_paused", "1 while the application has paused it.", lambda each: each.paused),
    ("partition_troubled", "1 while an error delays it, which status() names.", lambda each: each.error is not None),
)
_COUNTED_OF_PARTITION: tuple[tuple[str, str, Callable[[OwnedPartition], float]], ...] = (
    ("fetched_messages", "Messages fetched, by their offsets.", lambda each: each.fetched_messages),
    ("fetched_bytes", "Bytes fetched.", lambda each: each.fetched_bytes),
)
_OF_MEMBER: tuple[tuple[str, str, Callable[[ConnectorStatistics], _Value]], ...] = (
    ("uptime_seconds", "Time since the streams were created.", lambda each: each.uptime_s),
    ("state_seconds", "Time since the member entered its current state.", lambda each: each.status.since_s),
    ("owned_partitions", "Partitions held.", lambda each: len(each.status.owned)),
    ("blocked_claims", "Partitions that another member still holds.", lambda each: len(each.status.blocked)),
    ("blocked_claim_age_seconds", "How long the oldest of them has waited; 0 without any.",
     lambda each: max((blocked.since_s for blocked in each.status.blocked), default=0.0)),
    ("group_members", "Registrations in the group as last read.", lambda each: len(each.status.registrations)),
    ("group_warnings", "Warnings about the group, which status() lists.", lambda each: len(each.status.warnings)),
    ("lease_age_seconds", "Time since the request of the newest session proof.", lambda each: each.status.lease_age_s),
    ("session_timeout_seconds", "As ZooKeeper granted it.", lambda each: each.status.session_timeout_s),
    ("connector_queued_bytes", "Fetched and not yet read, of all partitions.", lambda each: each.queued_bytes),
    ("rebalance_last_duration_seconds", "How long the last rebalance took.", lambda each: each.rebalances.last_s),
    ("rebalance_longest_duration_seconds", "How long the longest one took.", lambda each: each.rebalances.longest_s),
)  # fmt: skip
_COUNTED_OF_MEMBER: tuple[tuple[str, str, Callable[[ConnectorStatistics], float]], ...] = (
    ("rebalances", "Rebalances that moved partitions of this member.", lambda each: each.rebalances.count),
    ("rebalance_duration_seconds", "Total time that they took.", lambda each: each.rebalances.total_s),
    ("partitions_taken", "Partitions claimed.", lambda each: each.rebalances.taken),
    ("partitions_released", "Partitions released in order.", lambda each: each.rebalances.released),
    ("partitions_lost", "Partitions lost with a session or an owner node.", lambda each: each.rebalances.lost),
)
_BY_KIND: tuple[tuple[str, str, Callable[[ConnectorStatistics], Any]], ...] = (
    ("zookeeper_requests", "Requests sent to ZooKeeper; a multi is one.", lambda each: each.zookeeper_requests),
    ("broker_requests", "Requests sent to brokers.", lambda each: each.broker_requests),
    ("throttled_requests", "Answers of brokers that throttle this client.", lambda each: each.throttled),
    ("throttle_milliseconds", "Total time of throttling.", lambda each: each.throttle_ms),
    ("errors", "Errors by kind.", lambda each: each.errors),
)


class ConnectorCollector(Collector):
    """Metrics of connectors, to be registered: `REGISTRY.register(ConnectorCollector(connector))`.

    Threads: any.
    """

    def __init__(self, *connectors: ConsumerConnector | AsyncConsumerConnector) -> None:
        self._connectors = [_synchronous(connector) for connector in connectors]

    def describe(self) -> Iterable[Metric]:
        """The metrics, without figures."""
        return list(_metrics([]))

    def collect(self) -> Iterable[Metric]:
        """The metrics with the figures of now; in a forked child the parent's connectors are left out."""
        members = []
        for connector in self._connectors:
            with suppress(ForkedConnector):
                members.append(connector.statistics())
        return list(_metrics(members))


def _synchronous(connector: object) -> ConsumerConnector:
    """Return the connector that can be asked on any thread; one for asyncio has it inside."""
    inner = getattr(connector, "_connector", connector)
    if not isinstance(inner, ConsumerConnector):
        raise TypeError(f"{connector!r} is not a ConsumerConnector")
    return inner


def _metrics(members: list[ConnectorStatistics]) -> Iterator[Metric]:
    yield _state(members)
    for name, meaning, value in _OF_MEMBER:
        gauge = GaugeMetricFamily(f"zkconsumer_{name}", meaning, labels=_MEMBER)
        _fill(gauge, ((_labels(each), value(each)) for each in members))
        yield gauge
    for name, meaning, count in _COUNTED_OF_MEMBER:
        counter = CounterMetricFamily(f"zkconsumer_{name}", meaning, labels=_MEMBER)
        _fill(counter, ((_labels(each), count(each)) for each in members))
        yield counter
    for name, meaning, counts in _BY_KIND:
        counter = CounterMetricFamily(f"zkconsumer_{name}", meaning, labels=(*_MEMBER, "kind"))
        _fill(counter, (([*_labels(each), kind], n) for each in members for kind, n in counts(each).items()))
        yield counter
    partitions = [(_partition_labels(each, owned), owned) for each in members for owned in each.status.owned]
    for name, meaning, of_one in _OF_PARTITION:
        gauge = GaugeMetricFamily(f"zkconsumer_{name}", meaning, labels=_PARTITION)
        _fill(gauge, ((labels, of_one(owned)) for labels, owned in partitions))
        yield gauge
    for name, meaning, counted in _COUNTED_OF_PARTITION:
        counter = CounterMetricFamily(f"zkconsumer_{name}", meaning, labels=_PARTITION)
        _fill(counter, ((labels, counted(owned)) for labels, owned in partitions))
        yield counter


def _state(members: list[ConnectorStatistics]) -> Metric:
    gauge = GaugeMetricFamily("zkconsumer_state", "1 for the state of the member.", labels=(*_MEMBER, "state"))
    _fill(gauge, (([*_labels(each), each.status.state], 1.0) for each in members))
    return gauge


def _fill(family: Any, rows: Iterable[tuple[list[str], _Value]]) -> None:
    """Add the rows that have a value."""
    for labels, value in rows:
        if value is not None:
            family.add_metric(labels, float(value))


def _labels(member: ConnectorStatistics) -> list[str]:
    return [member.group, member.status.consumer_id]


def _partition_labels(member: ConnectorStatistics, owned: OwnedPartition) -> list[str]:
    return [*_labels(member), owned.topic, str(owned.partition)]


class MetricsServer(Closing):
    """A running endpoint; `close`, or the end of a `with` block, stops it.

    Attributes:
        port: the port that it listens on.
    """

    def __init__(self, server: WSGIServer, thread: Thread) -> None:
        self._server = server
        self._thread = thread
        self.port: int = server.server_port

    def close(self) -> None:
        """Stop serving; a second call does nothing."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5.0)


def serve(
    *members: ConsumerConnector | AsyncConsumerConnector | Producer, port: int, host: str = "127.0.0.1"
) -> MetricsServer:
    """A server of the metrics of connectors and producers at `http://host:port/metrics`, on a thread of its own.

    Args:
        members: Connectors, those of `zkconsumer.aio`, too, and producers.
        port: 0 takes a free one; see `MetricsServer.port`.
        host: what to listen on; "0.0.0.0" for all addresses.

    Raises:
        OSError: the port is taken, or may not be used.
    """
    producers = [each for each in members if isinstance(each, Producer)]
    connectors = [each for each in members if not isinstance(each, Producer)]
    collectors: list[Collector] = [ProducerCollector(*producers)] if producers else []
    if connectors or not producers:
        collectors.append(ConnectorCollector(*connectors))
    return serve_collectors(collectors, port, host)


def serve_collectors(collectors: Iterable[Collector], port: int, host: str) -> MetricsServer:
    """A server of the metrics of collectors; arguments and errors as for `serve`."""
    registry = CollectorRegistry(auto_describe=False)
    for collector in collectors:
        registry.register(collector)
    try:
        server, thread = start_http_server(port, host, registry)
    except UnicodeError:  # of the encoding of host names
        raise OSError(errno.EINVAL, f"metrics cannot be served at {host}:{port}: {host!r} is not a host name") from None
    except OSError as error:
        raise OSError(error.errno, f"metrics cannot be served at {host}:{port}: {error.strerror or error}") from error
    # Each connection has a thread: one over which nothing is asked, or read, must not keep it for ever.
    handler: Any = server.RequestHandlerClass
    server.RequestHandlerClass = type("_Handler", (handler,), {"timeout": _CLIENT_TIMEOUT_S})
    server.handle_error = _client_failed  # type: ignore[method-assign, assignment]
    return MetricsServer(server, thread)


def _client_failed(request: object, address: object) -> None:
    """Log what `socketserver` would print with a traceback: a client that went away, or asked nothing in time."""
    log.debug("the connection of %s ended before its answer", address, exc_info=True)
