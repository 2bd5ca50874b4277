"""Writes `typed_settings.py`, the settings for type checkers: `python -m zkconsumer.config.typed_settings_writer`."""

from __future__ import annotations

import keyword
from pathlib import Path
from typing import Final

from zkconsumer.config.keys import KEYS
from zkconsumer.config.kinds import AclList, AuthList, Boolean, Choice, Integer
from zkconsumer.config.setting_table import Key

__all__ = ["TARGET", "typed_settings"]

TARGET: Final = Path(__file__).with_name("typed_settings.py")
_HEAD: Final = '''\
"""The settings as keywords with their types, as type checkers see them; the names of Kafka 0.7 are among them.

Written by `python -m zkconsumer.config.typed_settings_writer` from the table in `zkconsumer.config.keys`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

__all__ = ["ConsumerSettings", "OptionalSettings"]


class OptionalSettings(TypedDict, total=False):
    """The keywords of `ConsumerConfig(...)` beside `zookeeper_connect` and `group_id`; None counts as not given."""

'''
_SECOND: Final = '''

class ConsumerSettings(OptionalSettings, total=False):
    """The keywords of `ConsumerConfig.from_properties(...)`, for functions that pass settings on."""

'''


def typed_settings() -> str:
    """Return the text of `typed_settings.py`."""
    named = [key for key in KEYS if key.required]
    optional = [line for key in KEYS for line in _lines(key, key not in named)]
    return _HEAD + "".join(optional) + _SECOND + "".join(f"    {key.attribute}: {_type(key)}\n" for key in named)


def _lines(key: Key, with_own_name: bool) -> list[str]:
    names = [key.attribute] if with_own_name else []
    if key.name_07 is not None:
        names.append(key.name_07.replace(".", "_"))
    assert not any(keyword.iskeyword(name) for name in names)
    return [f"    {name}: {_type(key)}\n" for name in names]


def _type(key: Key) -> str:
    kind = key.kind
    if isinstance(kind, Integer):
        return 'int | Literal["off"] | None' if kind.off else "int | None"
    if isinstance(kind, Boolean):
        return "bool | None"
    if isinstance(kind, Choice):
        words = ", ".join(f'"{word}"' for word in kind.words)
        return f"Literal[{words}] | None"
    if isinstance(kind, AuthList):
        return "str | Sequence[str | tuple[str, str]] | None"
    if isinstance(kind, AclList):
        return "str | Sequence[str | tuple[str, str, str]] | None"
    return "str | None"


if __name__ == "__main__":
    TARGET.write_text(typed_settings(), encoding="utf-8")
