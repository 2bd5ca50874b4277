"""Checks the settings of KafkaConsumer against each other, and warns of combinations that are harmful. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from zkconsumer.config.checks import contradictions_of_connections, group_of_zookeeper, warnings_about_zookeeper
from zkconsumer.config.tables.kafka_consumer_keys import WITHOUT_EFFECT
from zkconsumer.errors import ConfigError

BROKERS: Final = "brokers"
ZOOKEEPER: Final = "zookeeper"

_LEAST_SESSION_MS: Final = 6000
_LARGEST_SESSION_MS: Final = 1_800_000
"""Defaults of `group.min.session.timeout.ms` and `group.max.session.timeout.ms` of brokers."""
_HEARTBEATS_IN_A_SESSION: Final = 3
_OF_ZOOKEEPER_GROUPS: Final = ("dual.commit.enabled", "offsets.intent", "offsets.storage")
_OF_BROKER_GROUPS: Final = ("heartbeat.interval.ms", "session.timeout.ms")
_OF_ZOOKEEPER: Final = ("zookeeper.connection.timeout.ms", "zookeeper.session.timeout.ms")


def coordination_of(values: Mapping[str, Any]) -> str:
    """Return who coordinates the group: `BROKERS` or `ZOOKEEPER`."""
    said = str(values["group.coordination"])
    if said != "auto":
        return said
    return BROKERS if values["zookeeper.connect"] is None else ZOOKEEPER


def contradictions(values: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Yield an error for every two settings that contradict each other.

    Args:
        values: The values of all settings, by their names.
    """
    yield from _of_the_cluster(values)
    yield from _of_the_group(values)
    if values["request.timeout.ms"] < values["fetch.max.wait.ms"]:
        yield ConfigError("request.timeout.ms", values["request.timeout.ms"],
                          f"at least fetch.max.wait.ms, which is {values['fetch.max.wait.ms']}")  # fmt: skip
    yield from contradictions_of_connections(values)


def _of_the_cluster(values: Mapping[str, Any]) -> Iterator[ConfigError]:
    brokers, zookeeper, said = values["bootstrap.servers"], values["zookeeper.connect"], values["group.coordination"]
    if brokers is None and zookeeper is None:
        yield ConfigError("bootstrap.servers", None, "given, unless zookeeper.connect is")
    elif said == "auto" and brokers is not None and zookeeper is not None:
        yield ConfigError("group.coordination", said,
                          "brokers or zookeeper, because both bootstrap.servers and zookeeper.connect are "
                          "given")  # fmt: skip
    elif said == ZOOKEEPER and zookeeper is None:
        yield ConfigError("zookeeper.connect", None, "given, because group.coordination is zookeeper")


def _of_the_group(values: Mapping[str, Any]) -> Iterator[ConfigError]:
    if values["group.id"] is None:
        if values["enable.auto.commit"]:
            yield ConfigError("enable.auto.commit", True,
                              "false, because group.id is not given: there is no group to commit for")  # fmt: skip
        if values["group.instance.id"] is not None:
            yield ConfigError(
                "group.instance.id", values["group.instance.id"], "left out, because group.id is not given"
            )
    elif coordination_of(values) == ZOOKEEPER:
        yield from group_of_zookeeper(values["group.id"])
    heartbeat_ms, session_ms = values["heartbeat.interval.ms"], values["session.timeout.ms"]
    if heartbeat_ms >= session_ms:
        yield ConfigError("heartbeat.interval.ms", heartbeat_ms,
                          f"less than session.timeout.ms, which is {session_ms}")  # fmt: skip
    first = values["partition.assignment.strategy"][0]
    if coordination_of(values) == ZOOKEEPER and first not in ("range", "roundrobin"):
        name = first if isinstance(first, str) else first.name
        yield ConfigError("partition.assignment.strategy", name,
                          "range or roundrobin for a group in ZooKeeper, which supports no others")  # fmt: skip


def warnings_about(given: Mapping[str, object], values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for every combination that is allowed and harmful, and for settings without effect.

    Args:
        given: The given settings, by their names.
        values: The values of all settings, by their names.
    """
    idle = [name for name in WITHOUT_EFFECT if name in given]
    if idle:
        yield f"{', '.join(idle)}: no effect in this client"
    yield from _without_effect(given, values)
    if values["group.id"] is not None and coordination_of(values) == BROKERS:
        yield from _of_sessions(values)
    if values["default.api.timeout.ms"] < values["request.timeout.ms"]:
        yield (
            f"default.api.timeout.ms = {values['default.api.timeout.ms']} is less than request.timeout.ms = "
            f"{values['request.timeout.ms']}: calls time out before a single request does"
        )
    for first, longest in (("retry.backoff.ms", "retry.backoff.max.ms"),
                           ("reconnect.backoff.ms", "reconnect.backoff.max.ms")):  # fmt: skip
        if values[first] > values[longest]:
            yield (
                f"{first} = {values[first]} is more than {longest} = {values[longest]}: each wait is "
                f"{values[longest]} ms"
            )
    yield from warnings_about_zookeeper(values)


def _without_effect(given: Mapping[str, object], values: Mapping[str, Any]) -> Iterator[str]:
    if not values["check.crcs"]:
        yield "check.crcs is false, which has no effect: checksums are always checked"
    if "auto.commit.interval.ms" in given and not values["enable.auto.commit"]:
        yield "auto.commit.interval.ms has no effect: enable.auto.commit is false"
    if values["zookeeper.connect"] is None:
        for name in _OF_ZOOKEEPER:
            if name in given:
                yield f"{name} has no effect: zookeeper.connect is not given"
    if coordination_of(values) == ZOOKEEPER:
        for name in _OF_BROKER_GROUPS:
            if name in given:
                yield f"{name} has no effect on a group in ZooKeeper: zookeeper.session.timeout.ms applies instead"
        if values["group.instance.id"] is not None:
            yield "group.instance.id has no effect on a group in ZooKeeper, which cannot have static members"
    else:
        for name in _OF_ZOOKEEPER_GROUPS:
            if name in given:
                yield f"{name} has no effect on a group that brokers coordinate: its offsets are in Kafka"


def _of_sessions(values: Mapping[str, Any]) -> Iterator[str]:
    session_ms, heartbeat_ms = values["session.timeout.ms"], values["heartbeat.interval.ms"]
    if not _LEAST_SESSION_MS <= session_ms <= _LARGEST_SESSION_MS:
        yield (
            f"session.timeout.ms = {session_ms}: by default brokers reject less than {_LEAST_SESSION_MS} and more "
            f"than {_LARGEST_SESSION_MS}"
        )
    if heartbeat_ms * _HEARTBEATS_IN_A_SESSION > session_ms:
        yield (
            f"heartbeat.interval.ms = {heartbeat_ms} is more than a third of session.timeout.ms = {session_ms}: the "
            "coordinator removes the member after one or two lost heartbeats"
        )
    if values["request.timeout.ms"] > session_ms:
        yield (
            f"request.timeout.ms = {values['request.timeout.ms']} is more than session.timeout.ms = {session_ms}: "
            "the member waits for a coordinator that does not answer until its session is over"
        )
