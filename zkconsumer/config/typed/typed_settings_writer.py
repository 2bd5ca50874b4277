"""Writes the typed settings of consumers and producers: `python -m zkconsumer.config.typed.typed_settings_writer`."""

from __future__ import annotations

import keyword
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from zkconsumer.config.tables.kafka_consumer_keys import (
    KAFKA_CONSUMER_KEYS,
    AnyValue,
    DeserializerFunction,
    GroupProtocol,
    InterceptorList,
    ResetPolicy,
)
from zkconsumer.config.tables.keys import KEYS, SHARED_KEYS
from zkconsumer.config.tables.kinds import AclList, AssignorList, AuthList, Boolean, Choice, Integer
from zkconsumer.config.tables.producer_keys import PRODUCER_KEYS
from zkconsumer.config.tables.producer_kinds import BrokerList, Codec, NameList
from zkconsumer.config.tables.setting_table import Key

_HEAD: Final = '''\
"""The settings of consumers and producers as keywords with their types, for type checkers.

Names of Kafka 0.7 are among them, and None counts as not given. Written by
`python -m zkconsumer.config.typed.typed_settings_writer` from the tables in `config.tables`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from rebalance.brokers.assignor import Assignor
from zkconsumer.config.tables.kafka_consumer_keys import Deserializer

__all__ = ["ConsumerSettings", "KafkaConsumerSettings", "OptionalSettings", "ProducerSettings"]
'''
_POSITIONAL: Final = ("zookeeper.connect", "group.id")
"""The parameters of `ConsumerConfig` that are no keywords alone."""


def typed_files() -> Mapping[Path, str]:
    """Return the path of the file with settings for type checkers, and its text."""
    named = [key for key in KEYS if key.name in _POSITIONAL]
    return {Path(__file__).with_name("typed_settings.py"): "".join((
        _HEAD,
        _class("SharedSettings(TypedDict", "Those of connections, which all of them have.", SHARED_KEYS),
        _class("OptionalSettings(SharedSettings", "The keywords of `ConsumerConfig(...)` except `zookeeper_connect` "
               "and `group_id`.", KEYS, named),
        _class("ConsumerSettings(OptionalSettings", "The keywords of `ConsumerConfig.from_properties(...)`, for "
               "functions that pass settings on.", named),
        _class("KafkaConsumerSettings(SharedSettings", "The keywords of `KafkaConsumerConfig(...)` and of its "
               "`from_properties(...)`.", KAFKA_CONSUMER_KEYS),
        _class("ProducerSettings(SharedSettings", "The keywords of `ProducerConfig(...)` and "
               "`ProducerConfig.from_properties(...)`.", PRODUCER_KEYS),
    ))}  # fmt: skip


def _class(head: str, about: str, keys: Sequence[Key], positional: Collection[Key] = ()) -> str:
    """Return a class with the keywords of some settings, without those of the class that it inherits from.

    Args:
        positional: Settings of which only the other names are keywords.
    """
    own = [key for key in keys if keys is SHARED_KEYS or key not in SHARED_KEYS]
    lines = (line for key in own for line in _lines(key, key not in positional))
    return f'\n\nclass {head}, total=False):\n    """{about}"""\n\n' + "".join(lines)


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
