"""Finds settings of a file that have no effect together, or do not fit each other or the servers.

Pure. `zkconsumer check-config` reports these. They are not logged when a consumer starts, because each of them can be
meant; what is logged there (`zkconsumer.config.checks.warnings_about`) is reported as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from zkconsumer.config.checks import warning_about_07, warning_about_empty_auth, warnings_about
from zkconsumer.config.tables.keys import KEYS

__all__ = ["Finding", "implausible", "implausible_for_producers"]

_LEAST_SESSION_MS: Final = 4000
_LARGEST_SESSION_MS: Final = 40_000
"""ZooKeeper grants 2 to 20 times its tickTime, which is 2000 ms in its sample configuration."""
_LONG_WAIT_MS: Final = 60_000
_LARGEST_MESSAGE_BYTES: Final = 1_000_012
"""The default of `message.max.bytes` of brokers."""


class Finding(NamedTuple):
    """What is worth knowing about a file.

    Attributes:
        severity: `error` (the consumer refuses the file), `warning` (something else happens than the file says) or
            `note`.
        line: Number of the line; None when it is about the whole file.
        setting: The 0.8 name of the setting, None for an unknown one and for the whole file.
        sentence: What was found.
    """

    severity: str
    line: int | None
    setting: str | None
    sentence: str


def implausible(values: Mapping[str, Any], given: Collection[str], names_of_07: list[str]) -> Iterator[Finding]:
    """Yield what does not fit together.

    Args:
        values: The values of all settings, by their 0.8 names.
        given: The 0.8 names of those in the file.
        names_of_07: The names in the file that Kafka 0.7 alone has.
    """
    for sentence in warnings_about(values):
        yield Finding("warning", None, None, sentence)
    empty_auth = warning_about_empty_auth({name: values[name] for name in given})
    if empty_auth is not None:
        yield Finding("warning", None, "zookeeper.auth", empty_auth)
    yield from _about_07(values, given, names_of_07)
    for check in (_without_effect, _sessions, _sizes, _times, _credentials):
        for severity, setting, sentence in check(values, given):
            yield Finding(severity, None, setting, sentence)


def implausible_for_producers(
    values: Mapping[str, Any], given: Collection[str], names_of_07: list[str]
) -> Iterator[Finding]:
    """Yield what does not fit together in the settings of a producer; see `implausible`."""
    acks, queue_ms = "request.required.acks", "queue.enqueue.timeout.ms"
    if values[acks] == 0:
        yield Finding("warning", None, acks,
                      f"{acks} is 0: messages that a broker does not accept are lost without an error")  # fmt: skip
    elif acks not in given:
        yield Finding("note", None, acks,
            f"{acks} is not in the file: the default is 1, and was 0 in Kafka 0.8, where messages could be lost "
            f"without an error")  # fmt: skip
    empty_auth = warning_about_empty_auth({name: values[name] for name in given})
    if empty_auth is not None:
        yield Finding("warning", None, "zookeeper.auth", empty_auth)
    linger = "queue.buffering.max.ms"
    if values["producer.type"] == "sync" and linger in given:
        yield Finding("note", None, linger, f"{linger} has no effect: producer.type is sync, and send waits for each "
                      "message")  # fmt: skip
    if names_of_07 and queue_ms not in given and values[queue_ms] < 0:
        yield Finding("note", None, queue_ms,
            f"{queue_ms} is not in the file: send waits while the queue is full; in Kafka 0.7 it raised an error at "
            f"once")  # fmt: skip


Found = Iterator[tuple[str, str, str]]


_ONLY_07 = {"offsets.storage": "zookeeper", "partition.assignment.strategy": "range"}
"""What members of Kafka 0.7 cannot choose."""


def _about_07(values: Mapping[str, Any], given: Collection[str], names: list[str]) -> Iterator[Finding]:
    if values["kafka.generation"] == "0.7":
        for name, only in _ONLY_07.items():
            if values[name] != only:
                yield Finding("error", None, name, f"{name} is {values[name]}, but Kafka 0.7 supports only {only}")
        return
    sentence = warning_about_07(names, given)
    if sentence is not None:
        yield Finding("warning", None, "auto.offset.reset", sentence)
    if names:
        other = [key for key in KEYS if key.default_07 is not None and key.name not in given
                 and key.name != "auto.offset.reset"]  # fmt: skip
        for key in other:
            yield Finding("note", None, key.name, f"{key.name} is not in the file: its default is "
                          f"{values[key.name]}, and was {key.default_07} in Kafka 0.7")  # fmt: skip
        yield Finding("note", None, None, f"Java consumers of 0.8 and later ignore names of 0.7: {', '.join(names)}")


def _without_effect(values: Mapping[str, Any], given: Collection[str]) -> Found:
    if "dual.commit.enabled" in given and values["offsets.storage"] != "kafka" and values["dual.commit.enabled"]:
        yield ("warning", "dual.commit.enabled", "dual.commit.enabled has no effect without offsets.storage=kafka: "
               "offsets are stored only in ZooKeeper")  # fmt: skip
    if values["shallowiterator.enable"]:
        yield ("warning", "shallowiterator.enable", "shallowiterator.enable has no effect: compressed message sets are "
               "always decoded")  # fmt: skip
    if "fetcher.backoff.ms" in given:
        yield ("note", "fetcher.backoff.ms",
            "fetcher.backoff.ms only has an effect with brokers of Kafka 0.7; fetch.wait.max.ms limits the wait of "
            "an empty fetch")  # fmt: skip
    if "auto.commit.interval.ms" in given and not values["auto.commit.enable"]:
        yield ("note", "auto.commit.interval.ms", "auto.commit.interval.ms has no effect with auto.commit.enable=false")
    if "zookeeper.sync.time.ms" in given and "rebalance.backoff.ms" in given:
        yield ("note", "zookeeper.sync.time.ms",
            "zookeeper.sync.time.ms has no effect: it only sets the default of rebalance.backoff.ms, which is "
            "given")  # fmt: skip
    if "roundrobin.order" in given and values["partition.assignment.strategy"] != "roundrobin":
        yield ("note", "roundrobin.order", "roundrobin.order has no effect with "
               f"partition.assignment.strategy={values['partition.assignment.strategy']}")  # fmt: skip
    if values["fetch.min.bytes"] > 1 and values["fetch.wait.max.ms"] == 0:
        yield ("warning", "fetch.min.bytes", "fetch.min.bytes has no effect with fetch.wait.max.ms=0: brokers answer "
               "at once")  # fmt: skip


def _sessions(values: Mapping[str, Any], given: Collection[str]) -> Found:
    session_ms = values["zookeeper.session.timeout.ms"]
    patience_ms = values["rebalance.max.retries"] * values["rebalance.backoff.ms"]
    if session_ms < _LEAST_SESSION_MS:
        waits = ""
        if session_ms <= patience_ms < _LEAST_SESSION_MS:
            waits = (f"; rebalance.max.retries x rebalance.backoff.ms = {patience_ms} ms is less than that: when a "
                     "member dies, its partitions are reported as blocked, and Java members give up, before its "
                     "session can expire")  # fmt: skip
        yield ("warning" if waits else "note", "zookeeper.session.timeout.ms",
               f"zookeeper.session.timeout.ms = {session_ms}: a ZooKeeper server with tickTime=2000 grants at least "
               f"{_LEAST_SESSION_MS} ms{waits}")  # fmt: skip
    if session_ms > _LARGEST_SESSION_MS:
        yield ("note", "zookeeper.session.timeout.ms", f"zookeeper.session.timeout.ms = {session_ms}: a ZooKeeper "
               f"server with tickTime=2000 grants at most {_LARGEST_SESSION_MS} ms")  # fmt: skip
    if values["zookeeper.connection.timeout.ms"] > _LONG_WAIT_MS:
        wait_s = values["zookeeper.connection.timeout.ms"] / 1000
        yield ("note", "zookeeper.connection.timeout.ms", f"it takes {wait_s:g} s until a ZooKeeper that does not "
               "answer is reported (zookeeper.connection.timeout.ms)")  # fmt: skip
    if "consumer.id" in given:
        yield ("note", "consumer.id", "consumer.id is fixed: each member of the group needs its own")


def _sizes(values: Mapping[str, Any], given: Collection[str]) -> Found:
    fetch = values["fetch.message.max.bytes"]
    if fetch > values["queued.max.bytes"]:
        yield ("warning", "fetch.message.max.bytes", f"fetch.message.max.bytes = {fetch} is more than queued.max.bytes "
               f"= {values['queued.max.bytes']}: fetches are as large as queued.max.bytes allows")  # fmt: skip
    if fetch > values["decoded.max.bytes"]:
        yield ("warning", "decoded.max.bytes", f"decoded.max.bytes = {values['decoded.max.bytes']} is less than "
               f"fetch.message.max.bytes = {fetch}: a compressed message set that can be fetched may be too large to "
               "be decoded")  # fmt: skip
    if fetch < _LARGEST_MESSAGE_BYTES:
        yield ("note", "fetch.message.max.bytes", f"fetch.message.max.bytes = {fetch} is less than the largest message "
               f"that brokers accept by default ({_LARGEST_MESSAGE_BYTES}): this consumer fetches a larger message "
               "by itself, but Java members of the group stop at it")  # fmt: skip


def _times(values: Mapping[str, Any], given: Collection[str]) -> Found:
    timeout_ms = values["consumer.timeout.ms"]
    if 0 <= timeout_ms < values["fetch.wait.max.ms"]:
        yield ("warning", "consumer.timeout.ms", f"consumer.timeout.ms = {timeout_ms} is less than fetch.wait.max.ms = "
               f"{values['fetch.wait.max.ms']}: a stream may time out while messages are on their way")  # fmt: skip


def _credentials(values: Mapping[str, Any], given: Collection[str]) -> Found:
    if values["zookeeper.auth"] and not values["zookeeper.use.ssl"]:
        yield ("note", "zookeeper.auth", "zookeeper.auth is sent in clear text without zookeeper.use.ssl=true")
