"""Settings of topics on both sides of a mirror: those that are copied, and those that are in force.

Rules, and which failure each prevents:
- A topic is made with what the source says about keeping records, and about their size. The number of replicas in sync
  is not copied: a target with fewer brokers would refuse every batch.
- The time of records is not copied as a setting: `message.timestamp.type=LogAppendTime` would replace their times.
- A setting that the target does not know is left out and named: a topic that cannot be made is not copied at all.

Threads: any.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from simpleconsumer.dialect import KAFKA011, takes_zstd
from simpleconsumer.dialect_types import Request, VersionedRequest
from simpleconsumer.errors import SimpleConsumerError
from simpleconsumer.messages.topics import DESCRIBE_CONFIGS
from zkconsumer.admin import AdminError, TopicRefused
from zkconsumer.mirror.compared_records import Side

log = logging.getLogger(__name__)

COPIED: Final = (
    "cleanup.policy", "compression.type", "delete.retention.ms", "max.compaction.lag.ms", "max.message.bytes",
    "min.cleanable.dirty.ratio", "min.compaction.lag.ms", "retention.bytes", "retention.ms",
    "segment.bytes", "segment.jitter.ms", "segment.ms",
)  # fmt: skip
"""Settings that say what of a topic is kept, and how large it may be. All others are the target's own."""
_TOPIC: Final = 2
_BROKER: Final = 4
_OF_BROKERS: Final[tuple[tuple[str, str, int], ...]] = (
    ("cleanup.policy", "log.cleanup.policy", 0),
    ("compression.type", "compression.type", 0),
    ("max.message.bytes", "message.max.bytes", 0),
    ("message.timestamp.type", "log.message.timestamp.type", 0),
    ("retention.ms", "log.retention.hours", 3_600_000),
    ("retention.ms", "log.retention.minutes", 60_000),
    ("retention.ms", "log.retention.ms", 1),
)
"""The setting of a topic, that of brokers which is its default, and by what a number is multiplied; later ones win."""

Settings = Mapping[str, str]


def _described(kind: int, name: str) -> VersionedRequest[dict[str, str]]:
    """Return the request for all settings of a topic or a broker that are in force: Kafka 0.11 and later."""
    api = DESCRIBE_CONFIGS
    row = {"resource_type": kind, "resource_name": name, "configuration_keys": None}

    def result(answer: Mapping[str, Any]) -> dict[str, str]:
        return {
            each["name"]: each["value"]
            for found in answer["results"] if not found["error_code"]
            for each in found["configs"] if each["value"] is not None
        }  # fmt: skip

    def at(version: int) -> Request[dict[str, str]]:
        body = api.request.encode(version, {"resources": [row]})
        return Request(api.key, version, body, lambda answer: result(api.decode(version, answer)), True)

    return VersionedRequest(api.key, api.name, api.versions, at, True)


def settings_in_force(side: Side, topic: str) -> dict[str, str]:
    """Return the settings of a topic, defaults included; none where brokers do not tell, as those before 0.11."""
    return _asked(side, lambda broker: _described(_TOPIC, topic))


def broker_defaults(side: Side) -> dict[str, str]:
    """Return the settings of topics that have none of their own, as far as brokers tell."""
    found = _asked(side, lambda broker: _described(_BROKER, str(broker)))
    defaults: dict[str, str] = {}
    for name, of_brokers, factor in _OF_BROKERS:
        value = found.get(of_brokers, "")
        if value.lstrip("-").isdigit() and factor:
            defaults[name] = value if int(value) < 0 else str(int(value) * factor)
        elif value:
            defaults[name] = value
    return defaults


def _asked(side: Side, request: Callable[[int], VersionedRequest[dict[str, str]]]) -> dict[str, str]:
    for broker in side.cluster.brokers():
        try:
            with side.connect(broker) as client:
                return client.ask(request(int(broker.id)))
        except SimpleConsumerError as error:
            log.info("mirror: broker %s does not tell settings: %s", broker.id, error)
    return {}


def target_takes_zstd(side: Side) -> bool:
    """Return whether the first broker that answers takes zstd."""
    for broker in side.cluster.brokers():
        try:
            with side.connect(broker) as client:
                return takes_zstd(client.served_versions())
        except SimpleConsumerError as error:
            log.info("mirror: broker %s does not tell what it takes: %s", broker.id, error)
    return False


def overrides(side: Side, topic: str) -> dict[str, str]:
    """Return the settings that stand at a topic; none where the brokers do not tell (before Kafka 0.11)."""
    for broker in side.cluster.brokers():
        try:
            with side.connect(broker) as client:
                verdict, found = client.ask(KAFKA011.topic_overrides(topic))
                return dict(found) if not verdict.error_code else {}
        except SimpleConsumerError:
            continue
    return {}


def accepted_settings(
    check: Callable[[Settings], object], copied: Settings, given: Settings
) -> tuple[dict[str, str], list[str], str]:
    """Return the settings with which a topic can be made, which of the copied ones are left out, and what refuses it.

    Args:
        check: Has the brokers check a new topic with these settings, and make nothing; raises AdminError.
        copied: Those of the source.
        given: Those of the user, which are never left out.
    """
    everything = {**copied, **given}
    try:
        check(everything)
        return everything, [], ""
    except TopicRefused as error:
        refused = str(error)
    except AdminError as error:  # no controller now, or no right to see it; the creation will tell
        log.info("mirror: a new topic cannot be checked now: %s", error)
        return everything, [], ""
    try:
        check(given)
    except AdminError as error:
        return everything, [], str(error)
    left_out = [
        name for name in sorted(copied) if name not in given and _is_refused(check, {**given, name: copied[name]})
    ]  # fmt: skip
    if not left_out:  # they are refused together
        return everything, [], refused
    return {name: value for name, value in everything.items() if name not in left_out}, left_out, ""


def _is_refused(check: Callable[[Settings], object], settings: Settings) -> bool:
    try:
        check(settings)
    except TopicRefused:
        return True
    except AdminError:
        return False
    return False
