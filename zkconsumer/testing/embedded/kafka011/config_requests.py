"""The requests about settings of topics: AlterConfigs, IncrementalAlterConfigs and DescribeConfigs.

Messages are those of Kafka's brokers, so far as a client can tell anything by them.

Source: kafka.server.AdminManager (1.1), ZkAdminManager (2.8), ConfigHelper, ConfigurationControlManager (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from simpleconsumer.kafka011.batch_head import MAGIC
from simpleconsumer.messages import apis
from simpleconsumer.messages.schema import Values
from zkconsumer.testing.embedded.disk.log import refused_setting, settings_in_force
from zkconsumer.testing.embedded.disk.messages import Refusal
from zkconsumer.testing.embedded.kafka011.api import Asked, ServedApi, refuse
from zkconsumer.testing.embedded.protocol import TopicPartition
from zkconsumer_error import ErrorCode

_TOPIC: Final = 2
_SET, _DELETE = 0, 1
_UNKNOWN_NAME: Final = "Unknown topic config name"


class Said(NamedTuple):
    """Error code and message of a change."""

    code: int
    message: str | None = None


class Denied(Refusal):
    """A change that is refused, with the words of a broker."""

    def __init__(self, code: int, message: str | None) -> None:
        super().__init__(code, message or "")
        self.said = Said(code, message)


def as_it_is(values: Values, version: int) -> Values:
    """Return the values of a request as its body."""
    return values


def verdict(asked: Asked[Any], topic: str, change: Callable[[], None]) -> Said:
    """Return what is answered about one topic."""
    try:
        refuse(asked.errors, (topic, -1))
        change()
    except Denied as no:
        return no.said
    except Refusal as refusal:
        return Said(refusal.code)
    return Said(0)


def check_config(asked: Asked[Values], config: Mapping[str, str | None]) -> None:
    """Raise for a setting that no topic can have; brokers before 2.0 have no code for a value that they cannot read."""
    habits = asked.host.habits
    for name, value in config.items():
        why = refused_setting(name, value)
        if why is not None and why.startswith(_UNKNOWN_NAME):
            is_old = habits.log_magic < MAGIC
            raise Denied(ErrorCode.INVALID_CONFIG, f"Unknown Log configuration {name}." if is_old else why)
        if why is not None:
            raise Denied(ErrorCode.UNKNOWN_SERVER_ERROR if habits.is_before_2 else ErrorCode.INVALID_CONFIG, why)


# -- AlterConfigs replaces all settings of a topic, IncrementalAlterConfigs changes some -------------------------------


def _answer_configs(asked: Asked[Values]) -> Values:
    rows = []
    for row in asked.body["resources"]:
        said = verdict(asked, row["resource_name"], lambda row=row: _set_config(asked, row))  # type: ignore[misc]
        rows.append({
            "error_code": said.code, "error_message": said.message, "resource_type": row["resource_type"],
            "resource_name": row["resource_name"],
        })  # fmt: skip
    return {"responses": rows}


def _set_config(asked: Asked[Values], row: Values) -> None:
    if row["resource_type"] != _TOPIC:
        raise Denied(ErrorCode.INVALID_REQUEST, "Embedded brokers have settings of topics alone.")
    cluster, name = asked.host.cluster, row["resource_name"]
    entry = cluster.registry.topics().get(name)
    if entry is None:
        if asked.host.habits.is_before_2:
            raise Denied(ErrorCode.UNKNOWN_SERVER_ERROR, f'Topic "{name}" does not exist.')
        raise Denied(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    config = {name: str(value) for name, value in entry.config.items()}
    is_whole = row["configs"] and "config_operation" not in row["configs"][0]
    wanted: dict[str, str] = {} if is_whole or not row["configs"] else config
    for each in row["configs"]:
        operation = each.get("config_operation", _SET)
        if operation == _SET:
            _check_value(asked, row, each)
            wanted[each["name"]] = each["value"]
        elif operation == _DELETE:
            wanted.pop(each["name"], None)
        else:
            raise Denied(ErrorCode.INVALID_REQUEST, "Embedded brokers append to no list, nor subtract from one.")
    if not asked.body["validate_only"]:
        cluster.registry.set_config(name, wanted)
        cluster.look_again()


def _check_value(asked: Asked[Values], row: Values, each: Values) -> None:
    try:
        check_config(asked, {each["name"]: each["value"]})
    except Denied as no:
        is_name = (no.said.message or "").startswith(_UNKNOWN_NAME)
        if is_name or asked.host.habits.forwards_changes or "config_operation" not in each:
            raise
        resource = f"ConfigResource(type=TOPIC, name='{row['resource_name']}')"
        raise Denied(
            ErrorCode.INVALID_REQUEST, f"Invalid config value for resource {resource}: {no.said.message}"
        ) from None


def _topics_of_resources(body: Values) -> list[TopicPartition]:
    return [(row["resource_name"], -1) for row in body["resources"]]


ALTER_CONFIGS: Final = ServedApi(
    apis.ALTER_CONFIGS, "alter_configs", range(3), as_it_is, _answer_configs, _topics_of_resources
)
INCREMENTAL_ALTER_CONFIGS: Final = ServedApi(
    apis.INCREMENTAL_ALTER_CONFIGS, "incremental_alter_configs", range(2), as_it_is, _answer_configs,
    _topics_of_resources,
)  # fmt: skip


# -- DescribeConfigs ---------------------------------------------------------------------------------------------------


_OF_TOPIC, _BY_KAFKA = 1, 5
_IS_TEXT: Final = 2


def _answer_described(asked: Asked[Values]) -> Values:
    return {"results": [_described(asked, row) for row in asked.body["resources"]]}


def _described(asked: Asked[Values], row: Values) -> Values:
    configs: list[Values] = []
    said = verdict(asked, row["resource_name"], lambda: configs.extend(_configs(asked, row)))
    return {
        "error_code": said.code, "error_message": None if asked.host.habits.is_before_2 else "",
        "resource_type": row["resource_type"], "resource_name": row["resource_name"], "configs": configs,
    }  # fmt: skip


def _configs(asked: Asked[Values], row: Values) -> list[Values]:
    entry = asked.host.cluster.registry.topics().get(row["resource_name"])
    if row["resource_type"] != _TOPIC or (entry is None and not asked.host.habits.is_before_2):
        raise Denied(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    own = {} if entry is None else entry.config
    found = settings_in_force(asked.host.log_settings, own)
    names = row["configuration_keys"]
    return [
        {"name": name, "value": value, "read_only": False, "is_default": name not in own,
         "config_source": _OF_TOPIC if name in own else _BY_KAFKA, "is_sensitive": False, "synonyms": [],
         "config_type": _IS_TEXT, "documentation": None}
        for name, value in found.items() if names is None or name in names
    ]  # fmt: skip


DESCRIBE_CONFIGS: Final = ServedApi(
    apis.DESCRIBE_CONFIGS, "describe_configs", range(5), as_it_is, _answer_described, _topics_of_resources
)
