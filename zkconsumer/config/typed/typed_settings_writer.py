"""Writes the typed settings of consumers and producers: `python -m zkconsumer.config.typed.typed_settings_writer`."""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from zkconsumer.config.tables.assignor_kind import AssignorList
from zkconsumer.config.tables.kafka_consumer_keys import KAFKA_CONSUMER_KEYS
from zkconsumer.config.tables.kafka_consumer_kinds import (
    AnyValue,
    DeserializerFunction,
    GroupProtocol,
    InterceptorList,
    ResetPolicy,
)
from zkconsumer.config.tables.keys import KEYS
from zkconsumer.config.tables.kinds import AclList, AuthList, Boolean, Choice, Integer
from zkconsumer.config.tables.producer_keys import PRODUCER_KEYS
from zkconsumer.config.tables.producer_kinds import BrokerList, Codec, NameList
from zkconsumer.config.tables.setting_table import Key

__all__ = ["typed_files"]

_HEAD: Final = '''\
"""The settings of a {kind} as keywords with their types, for type checkers{also}.

Written by `python -m zkconsumer.config.typed.typed_settings_writer` from `config.tables.{table}`.
"""

from __future__ import annotations

{imports}
__all__ = [{names}]


class {first}(TypedDict, total=False):
    """{about}; None counts as not given."""

'''
_OF_07: Final = "; names of Kafka 0.7 are among them"
_IMPORTS: Final = """\
from collections.abc import Sequence
from typing import Literal, TypedDict
"""
_KAFKA_CONSUMER_IMPORTS: Final = """\
from collections.abc import Sequence
from typing import Literal, TypedDict

from rebalance.brokers.assignors.assignor import Assignor
from zkconsumer.config.deserializers import Deserializer
"""
_POSITIONAL: Final = ("zookeeper.connect", "group.id")
"""The parameters of `ConsumerConfig` that are no keywords alone."""
_SECOND: Final = '''

class ConsumerSettings(OptionalSettings, total=False):
    """The keywords of `ConsumerConfig.from_properties(...)`, for functions that pass settings on."""

'''


def typed_files() -> Mapping[Path, str]:
    """Return the path of each file with settings for type checkers, and its text."""
    folder = Path(__file__).parent
    return {
        folder / "typed_settings.py": _consumer_settings(),
        folder / "typed_producer_settings.py": _producer_settings(),
        folder / "typed_kafka_consumer_settings.py": _kafka_consumer_settings(),
    }


def _consumer_settings() -> str:
    named = [key for key in KEYS if key.name in _POSITIONAL]
    head = _HEAD.format(
        kind="consumer", table="keys", names='"ConsumerSettings", "OptionalSettings"', first="OptionalSettings",
        about="The keywords of `ConsumerConfig(...)` beside `zookeeper_connect` and `group_id`", also=_OF_07,
        imports=f"{_IMPORTS}\nfrom rebalance.brokers.assignors.assignor import Assignor\n",
    )  # fmt: skip
    body = "".join(line for key in KEYS for line in _lines(key, key not in named))
    return head + body + _SECOND + "".join(f"    {key.attribute}: {_type(key)}\n" for key in named)


def _producer_settings() -> str:
    head = _HEAD.format(
        kind="producer", table="producer_keys", names='"ProducerSettings"', first="ProducerSettings",
        about="The keywords of `ProducerConfig(...)` and `ProducerConfig.from_properties(...)`", also=_OF_07,
        imports=_IMPORTS,
    )  # fmt: skip
    return head + "".join(line for key in PRODUCER_KEYS for line in _lines(key, True))


def _kafka_consumer_settings() -> str:
    head = _HEAD.format(
        kind="KafkaConsumer", table="kafka_consumer_keys", names='"KafkaConsumerSettings"',
        first="KafkaConsumerSettings", also="", imports=_KAFKA_CONSUMER_IMPORTS,
        about="The keywords of `KafkaConsumerConfig(...)` and of its `from_properties(...)`",
    )  # fmt: skip
    head = head.replace("of a KafkaConsumer", "of KafkaConsumer")
    return head + "".join(line for key in KAFKA_CONSUMER_KEYS for line in _lines(key, True))


def _lines(key: Key, with_own_name: bool) -> Iterable[str]:
    names = [key.attribute] if with_own_name else []
    if key.name_07 is not None:
        names.append(key.name_07.replace(".", "_"))
    names += [alias.replace(".", "_") for alias in key.aliases]
    assert not any(keyword.iskeyword(name) for name in names)
    return [f"    {name}: {_type(key)}\n" for name in names]


def _type(key: Key) -> str:
    kind = key.kind
    if isinstance(kind, Integer):
        return 'int | Literal["off"] | None' if kind.off else "int | None"
    if isinstance(kind, Boolean):
        return "bool | None"
    if isinstance(kind, Choice):
        return f"Literal[{_quoted(kind.words)}] | None"
    if isinstance(kind, AnyValue):
        return "object"
    if isinstance(kind, ResetPolicy):
        return f"Literal[{_quoted(kind.words)}] | None"
    if isinstance(kind, GroupProtocol):
        return 'Literal["classic"] | None'
    if isinstance(kind, AssignorList):
        return "str | Assignor | Sequence[str | Assignor] | None"
    if isinstance(kind, DeserializerFunction):
        return "str | Deserializer | None"
    if isinstance(kind, InterceptorList):
        return "Sequence[object] | None"
    if isinstance(kind, Codec):
        return f"Literal[{_quoted(kind.names)}] | int | None"
    if isinstance(kind, BrokerList | NameList):
        return "str | Sequence[str] | None"
    if isinstance(kind, AuthList):
        return "str | Sequence[str | tuple[str, str]] | None"
    if isinstance(kind, AclList):
        return "str | Sequence[str | tuple[str, str, str]] | None"
    return "str | None"


def _quoted(words: Iterable[str]) -> str:
    return ", ".join(f'"{word}"' for word in words)


if __name__ == "__main__":
    for path, text in typed_files().items():
        path.write_text(text, encoding="utf-8")
