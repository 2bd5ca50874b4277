"""Changes settings of a topic: by requests to the brokers from Kafka 0.11 on, by nodes in ZooKeeper before.

Rules, and which failure each prevents:
- Settings that are not named stay. Before Kafka 2.3 brokers replace all settings of a topic at once, so the ones that
  stand there are read first and sent with the new ones; who changes them at the same moment is overwritten.
- Names and values are checked before anything is written: by the brokers, or by the list of `topic_plans`, as
  brokers of 0.8 and 0.9 that read a value which they cannot parse do not start again.
- In ZooKeeper the settings and the notification are written in one transaction: without it the brokers read the
  settings at their next start.

Source: kafka.admin.AdminUtils.changeTopicConfig (0.8.1 to 1.0), kafka.server.ConfigHandler,
org.apache.kafka.clients.admin.KafkaAdminClient (4.3).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import Create, GetData, SetData, ZooKeeperPort
from rebalance.zookeeper.znodes import format_topic_config
from simpleconsumer.calls.broker_client import BrokerClient
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.types import TopicVerdict
from zkconsumer.admin.topics.controller_calls import ControllerCalls, refusal
from zkconsumer.admin.topics.topic_changes import read_topic, write
from zkconsumer.admin.topics.topic_nodes import CONFIG_CHANGES, TopicBrokers, json_fields, read_brokers
from zkconsumer.admin.topics.topic_plans import check_settings, nearest_setting, texts_of
from zkconsumer.admin.values import JsonValue, NotFound, TopicRefused, nearest
from zkconsumer.cluster.zookeeper_connection import read_all

_BY_NAME: int = 2
"""Registration version from which brokers take an object as a notification (Kafka 0.9)."""
_BY_PATH: int = 4
"""The same, with a path in it (Kafka 0.10.1)."""


@dataclass(frozen=True)
class SettingChange:
    """One setting of a topic.

    Attributes:
        name: Its name in Kafka.
        old_value: The value at the topic before; None if the brokers' own was in force.
        new_value: The value there now; None: the brokers' own is in force.
    """

    name: str
    old_value: str | None
    new_value: str | None


@dataclass(frozen=True)
class TopicSettings(JsonValue):
    """A topic whose settings were changed, or would be.

    Attributes:
        topic: Its name.
        changes: By name; none for settings that stay as they are.
        written: They are written; False with `dry_run`.
    """

    topic: str
    changes: tuple[SettingChange, ...]
    written: bool


def _wanted(topic: str, config: Mapping[str, object], unset: Collection[str]) -> dict[str, str | None]:
    """Return the new value of each setting that is named.

    Raises:
        TopicRefused: None is named, or one twice.
    """
    both = sorted(set(config) & set(unset))
    if both:
        raise TopicRefused(f"topic {topic!r} is not set: {both[0]} is both set and removed")
    if not config and not unset:
        raise TopicRefused(f"topic {topic!r} is not set: no setting is named")
    return {**texts_of(config), **dict.fromkeys(unset)}


def _changes(present: Mapping[str, str], wanted: Mapping[str, str | None]) -> tuple[SettingChange, ...]:
    return tuple(
        SettingChange(name, present.get(name), value)
        for name, value in sorted(wanted.items()) if present.get(name) != value
    )  # fmt: skip


# -- requests to the brokers -------------------------------------------------------------------------------------------


def set_by_brokers(
    calls: ControllerCalls, topic: str, config: Mapping[str, object], unset: Collection[str], dry_run: bool
) -> TopicSettings:
    """Change settings of a topic by a request to the controller.

    Raises:
        NotFound: There is no such topic.
        TopicRefused: The brokers refuse a setting or a value; nothing was written.
        TopicNotAuthorized: They do not let this user see or change the settings.
        ControllerUnavailable: No controller answers in time.
    """
    wanted = _wanted(topic, config, unset)
    known = calls.cluster.topics()
    if topic not in known:  # brokers before 2.0 answer with their own settings
        raise NotFound(f"topic {topic!r} does not exist {calls.where}", nearest(topic, known, "topic"))

    def read(client: BrokerClient) -> tuple[TopicVerdict, dict[str, str]]:
        return client.ask(KAFKA011.topic_overrides(topic))

    verdict, present = calls.ask(read)
    if verdict.error_code:
        raise refusal(verdict, topic, "set", calls.where)
    changes = _changes(present, wanted)
    merged = {name: value for name, value in {**present, **wanted}.items() if value is not None}

    def change(client: BrokerClient) -> TopicVerdict:
        if KAFKA011.serves_changed_settings(client.served_versions()):
            return client.ask(KAFKA011.change_settings(topic, wanted, validate_only=dry_run))
        return client.ask(KAFKA011.replace_settings(topic, merged, validate_only=dry_run))

    verdict = calls.ask(change)
    if verdict.error_code:
        error = refusal(verdict, topic, "set", calls.where)
        hint = next((near for name in wanted if name in error.sentence and (near := nearest_setting(name))), "")
        raise type(error)(error.sentence, error.remedy or hint)
    return TopicSettings(topic, changes, not dry_run)


# -- nodes in ZooKeeper ------------------------------------------------------------------------------------------------


def set_by_nodes(
    port: ZooKeeperPort, zookeeper: str, topic: str, config: Mapping[str, object], unset: Collection[str],
    dry_run: bool,
) -> TopicSettings:  # fmt: skip
    """Change settings of a topic by the nodes that Kafka's own tools write.

    Args:
        zookeeper: The connection string, for the message of an error.

    Raises:
        NotFound: There is no such topic.
        TopicRefused: A setting or a value is not allowed, or somebody else has changed them meanwhile.
        TopicUnfinished: ZooKeeper did not say whether they are written.
    """
    wanted = _wanted(topic, config, unset)
    read_topic(port, zookeeper, topic)
    brokers = read_brokers(port)
    if not brokers.has_settings:
        raise TopicRefused(f"topic {topic!r} is not set: brokers of Kafka 0.8.0 do not support settings of topics",
                           "change log.retention.* in the settings of the brokers, and restart them")  # fmt: skip
    checked = check_settings({name: value for name, value in wanted.items() if value is not None},
                             brokers.registration_version)  # fmt: skip
    path = znodes.topic_config_path(topic)
    [node] = read_all(port, [GetData(path)])
    found = json_fields(None if node is None else node[0]).get("config")
    present = {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}
    for name in unset:
        if name not in present and (hint := nearest_setting(name)):
            raise TopicRefused(f"topic {topic!r} is not set: {name!r} is not a setting of a topic", hint)
    wanted.update(checked)
    changes = _changes(present, wanted)
    if dry_run or not changes:
        return TopicSettings(topic, changes, not dry_run)
    merged = {name: value for name, value in {**present, **wanted}.items() if value is not None}
    data = format_topic_config(merged)
    write(port, topic, [
        Create(path, data) if node is None else SetData(path, data, node[1].version),
        Create(f"{CONFIG_CHANGES}/config_change_", _notification(topic, brokers), sequence=True),
    ])  # fmt: skip
    return TopicSettings(topic, changes, True)


def _notification(topic: str, brokers: TopicBrokers) -> bytes:
    """Return what tells the brokers to read the settings of a topic, as the oldest of them understands it."""
    if brokers.registration_version >= _BY_PATH:
        return json.dumps({"version": 2, "entity_path": f"topics/{topic}"}).encode()
    if brokers.registration_version >= _BY_NAME:
        return json.dumps({"version": 1, "entity_type": "topics", "entity_name": topic}).encode()
    return json.dumps(topic).encode()
