"""Checks settings against each other, and warns of combinations that are allowed but harmful. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Final

from rebalance.errors import InvalidName
from rebalance.subscription import check_group
from zkconsumer.config.tables.kinds import CREATOR_ACL, ZOOKEEPER_STRATEGIES, AssignorChoice
from zkconsumer.config.tables.security_keys import security_of
from zkconsumer.errors import ConfigError

_JAVA_REBALANCE_BUDGET_MS = 4000
_ONLY_WITH: Final = {
    "brokers": (
        "session.timeout.ms", "heartbeat.interval.ms", "rebalance.timeout.ms", "group.instance.id",
        "metadata.max.age.ms",
    ),
    "zookeeper": (
        "offsets.storage", "dual.commit.enabled", "offsets.intent", "roundrobin.order", "rebalance.quiet.ms",
        "rebalance.quiet.max.ms", "zookeeper.session.timeout.ms", "zookeeper.sync.time.ms",
    ),
}  # fmt: skip
"""Settings that have an effect with one coordination alone."""


def check_settings(values: Mapping[str, Any]) -> None:
    """Check the values of all settings, by their 0.8 names, against each other.

    Raises:
        ConfigError: Two of them contradict each other.
    """
    for error in contradictions(values):
        raise error


def contradictions(values: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Yield an error for every two settings that contradict each other."""
    yield from _of_the_cluster(values)
    yield from _of_the_coordination(values)
    yield from _at_least(values, "socket.timeout.ms", "fetch.wait.max.ms")
    yield from _at_least(values, "rebalance.quiet.max.ms", "rebalance.quiet.ms")
    yield from contradictions_of_connections(values)


def contradictions_of_connections(values: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Yield an error for every two settings of connections to ZooKeeper and to brokers that contradict each other."""
    yield from _of_tls(values)
    yield from _of_sasl(values)
    yield from _of_access_list(values)
    yield from _of_brokers(values)


def warnings_about(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for every combination that is allowed and harmful."""
    by_zookeeper = coordinates(values["group.coordination"], values["zookeeper.connect"]) == "zookeeper"
    if by_zookeeper and values["zookeeper.connect"] is not None and values["bootstrap.servers"] is not None:
        yield (
            "bootstrap.servers has no effect: zookeeper.connect is given, so the brokers are found in ZooKeeper; set "
            "group.coordination=brokers for a group that brokers coordinate"
        )
    patience_ms = values["rebalance.max.retries"] * values["rebalance.backoff.ms"]
    if by_zookeeper and patience_ms < values["zookeeper.session.timeout.ms"]:
        yield (
            f"rebalance.max.retries x rebalance.backoff.ms = {patience_ms} ms is less than "
            f"zookeeper.session.timeout.ms = {values['zookeeper.session.timeout.ms']}: a partition of a member "
            "that died is reported as blocked before its session can expire"
        )
    if by_zookeeper and values["rebalance.drain.timeout.ms"] >= _JAVA_REBALANCE_BUDGET_MS:
        yield (
            f"rebalance.drain.timeout.ms = {values['rebalance.drain.timeout.ms']} is {_JAVA_REBALANCE_BUDGET_MS} or "
            "more: Java members of the group may use up their rebalance attempts before a partition is released"
        )
    yield from warnings_about_zookeeper(values)


def warnings_about_zookeeper(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for settings of the connection to ZooKeeper that are allowed and harmful."""
    if values["zookeeper.use.ssl"] and not values["zookeeper.ssl.verify.certs"]:
        yield "zookeeper.ssl.verify.certs is false: any server can pretend to be ZooKeeper"
    if values["zookeeper.sasl.mechanism"] == "PLAIN":
        yield (
            "zookeeper.sasl.mechanism is PLAIN, which ZooKeeper's own servers do not support: they read the password "
            "and treat the session as unauthenticated"
        )


def coordinates(group_coordination: str, zookeeper_connect: object) -> str:
    """Return what coordinates a group with these settings: `zookeeper` or `brokers`."""
    if group_coordination != "auto":
        return group_coordination
    return "brokers" if zookeeper_connect is None else "zookeeper"


def warning_about_coordination(given: Container[str], values: Mapping[str, Any]) -> str | None:
    """Return which of the given settings have no effect, as something else coordinates the group; else None.

    Args:
        given: The 0.8 names of the settings that are given, with other values than their defaults.
    """
    coordination = coordinates(values["group.coordination"], values["zookeeper.connect"])
    names = [name for name in _ONLY_WITH["brokers" if coordination == "zookeeper" else "zookeeper"] if name in given]
    if not names:
        return None
    verb = "has" if len(names) == 1 else "have"
    if coordination == "zookeeper":
        return (
            f"{', '.join(names)} {verb} no effect: ZooKeeper coordinates the group, and ends a membership "
            "after zookeeper.session.timeout.ms"
        )
    return f"{', '.join(names)} {verb} no effect: the brokers coordinate the group and store its offsets"


def warning_about_empty_auth(given: Mapping[str, object]) -> str | None:
    """Return what an empty `zookeeper.auth` does, such as that of a template that was not filled in; None without one.

    Args:
        given: The 0.8 names of the settings that are given -> their converted values.
    """
    if given.get("zookeeper.auth") != ():
        return None
    return "zookeeper.auth is empty: no credentials are sent to ZooKeeper"


def warning_about_07(names: Sequence[str], given: Container[str]) -> str | None:
    """Return what happens if settings have names of Kafka 0.7 and leave the reset policy out; else None.

    0.8 changed its default. Messages would be skipped without a word.

    Args:
        names: The names that 0.7 alone has.
        given: The 0.8 names of all settings that are given.
    """
    if not names or "auto.offset.reset" in given or "kafka.generation" in given:
        return None
    return (
        f"settings have names of Kafka 0.7 ({', '.join(names)}) and auto.offset.reset is not given: without a stored "
        "offset, Kafka 0.7 started at the oldest message (smallest), and this consumer, like 0.8, starts after the "
        "newest message (largest) and skips the existing messages; set auto.offset.reset"
    )


def _of_the_cluster(values: Mapping[str, Any]) -> Iterator[ConfigError]:
    if values["zookeeper.connect"] is None and values["kafka.generation"] == "0.7":
        yield ConfigError("kafka.generation", "0.7", "left out: brokers of Kafka 0.7 are only found through ZooKeeper")


def group_of_zookeeper(group: object) -> Iterator[ConfigError]:
    """Yield that a name is none of a group in ZooKeeper."""
    try:
        if group is not None:
            check_group(str(group))
    except InvalidName:
        yield ConfigError("group.id", group, "1 to 255 of [a-zA-Z0-9._-], not '.' or '..'")


def _of_the_coordination(values: Mapping[str, Any]) -> Iterator[ConfigError]:
    strategy = values["partition.assignment.strategy"]
    if coordinates(values["group.coordination"], values["zookeeper.connect"]) == "zookeeper":
        if values["zookeeper.connect"] is None:
            yield ConfigError("zookeeper.connect", None, "given, because group.coordination is zookeeper")
        yield from group_of_zookeeper(values["group.id"])
        if strategy not in ZOOKEEPER_STRATEGIES:
            yield ConfigError("partition.assignment.strategy", AssignorChoice().format(strategy),
                              "range or roundrobin, because ZooKeeper coordinates the group")  # fmt: skip
        return
    if values["bootstrap.servers"] is None and values["group.coordination"] == "brokers":
        yield ConfigError("bootstrap.servers", None, "given, because group.coordination is brokers")
    if values["kafka.generation"] == "0.7":
        yield ConfigError(
            "group.coordination", "brokers", "zookeeper, because brokers of Kafka 0.7 coordinate no groups"
        )
    session_ms, heartbeat_ms = values["session.timeout.ms"], values["heartbeat.interval.ms"]
    if 2 * heartbeat_ms > session_ms:
        yield ConfigError("heartbeat.interval.ms", heartbeat_ms,
                          f"at most half of session.timeout.ms, which is {session_ms}: one lost heartbeat would end "
                          "the membership")  # fmt: skip


def _at_least(values: Mapping[str, Any], larger: str, smaller: str) -> Iterator[ConfigError]:
    if values[larger] < values[smaller]:
        yield ConfigError(larger, values[larger], f"at least {smaller}, which is {values[smaller]}")


def _of_tls(values: Mapping[str, Any]) -> Iterator[ConfigError]:
    for name in ("zookeeper.ssl.cafile", "zookeeper.ssl.certfile", "zookeeper.ssl.keyfile"):
        # Without this check a forgotten setting would send credentials unencrypted.
        if values[name] is not None and not values["zookeeper.use.ssl"]:
            yield ConfigError("zookeeper.use.ssl", False, f"true, because {name} is given")
    if values["zookeeper.ssl.check.hostname"] and not values["zookeeper.use.ssl"]:
        yield ConfigError("zookeeper.use.ssl", False, "true, because zookeeper.ssl.check.hostname is")
    if values["zookeeper.ssl.check.hostname"] and not values["zookeeper.ssl.verify.certs"]:
        yield ConfigError("zookeeper.ssl.verify.certs", False, "true, because zookeeper.ssl.check.hostname is")
    if values["zookeeper.ssl.keyfile"] is not None and values["zookeeper.ssl.certfile"] is None:
        yield ConfigError("zookeeper.ssl.certfile", None, "given, because zookeeper.ssl.keyfile is")
    if values["zookeeper.ssl.keyfile.password"] is not None and values["zookeeper.ssl.certfile"] is None:
        yield ConfigError("zookeeper.ssl.keyfile", None, "given, because zookeeper.ssl.keyfile.password is")


def _of_sasl(values: Mapping[str, Any]) -> Iterator[ConfigError]:
    mechanism = values["zookeeper.sasl.mechanism"]
    for name in ("zookeeper.sasl.username", "zookeeper.sasl.password"):
        if mechanism is None and values[name] is not None:
            yield ConfigError("zookeeper.sasl.mechanism", None, f"given, because {name} is")
        if mechanism in ("DIGEST-MD5", "PLAIN") and not values[name]:
            yield ConfigError(name, values[name], f"given, because zookeeper.sasl.mechanism is {mechanism}")


def _of_brokers(values: Mapping[str, Any]) -> Iterator[ConfigError]:
    try:
        security_of(values)
    except ConfigError as error:
        yield error


def _of_access_list(values: Mapping[str, Any]) -> Iterator[ConfigError]:
    """`creator` stands for the credentials of the session: ZooKeeper creates no node for a session without any."""
    identities = ("zookeeper.auth", "zookeeper.sasl.mechanism", "zookeeper.ssl.certfile")
    wanted = [entry for entry in values["zookeeper.acl"] if entry.scheme == "auth"]
    if wanted and not any(values[name] for name in identities):
        yield ConfigError("zookeeper.acl", "creator" if wanted[0] == CREATOR_ACL else ":".join(wanted[0]),
                          "open, unless zookeeper.auth or zookeeper.sasl.* is given: it means the credentials of the "
                          "session, and the session has none")  # fmt: skip
