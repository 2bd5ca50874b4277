"""Print the tables of docs/CONFIGURATION.md: `python -m zkconsumer.config.docs docs/CONFIGURATION.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from zkconsumer.config.tables.kafka_consumer_keys import KAFKA_CONSUMER_KEYS
from zkconsumer.config.tables.keys import KEYS
from zkconsumer.config.tables.producer_keys import PRODUCER_KEYS
from zkconsumer.config.tables.setting_table import Key

_CONSUMER_SECTIONS: Final = {
    "kafka": "Settings of Kafka's consumer",
    "brokers": "Settings of groups that brokers coordinate",
    "0.7": "Settings that only Kafka 0.7 has",
    "own": "Settings of our own",
    "zookeeper": "Connection to ZooKeeper",
    "security": "TLS and SASL to brokers",
}
_PRODUCER_SECTIONS: Final = {
    "kafka": "Settings of Kafka's producer",
    "0.7": "Settings that only producers of Kafka 0.7 have",
    "own": "Settings of our own for producers",
}
_KAFKA_CONSUMER_SECTIONS: Final = {
    "kafka": "Settings of KafkaConsumer",
    "own": "Settings of our own for KafkaConsumer",
    "idle": "Settings of Kafka without effect",
}


def _tables(keys: Iterable[Key], sections: Mapping[str, str]) -> str:
    """Return one Markdown table for each section of the settings."""
    keys = tuple(keys)
    parts = []
    for section, title in sections.items():
        rows = [_row(key) for key in keys if key.section == section]
        head = "| setting | default | allowed | meaning |\n|---|---|---|---|\n"
        parts.append(f"## {title}\n\n{head}" + "".join(rows))
    return "\n".join(parts)


def _row(key: Key) -> str:
    name = f"`{key.name}`" + (f"<br>0.7: `{key.name_07}`" if key.name_07 else "")
    name += "".join(f"<br>also `{alias}`" for alias in key.aliases)
    default = _default(key)
    if key.default_07 is not None:
        default += f"<br>0.7: `{key.kind.format(key.default_07)}`"
    return f"| {name} | {default} | {_cell(key.kind.allowed)} | {_cell(key.meaning)} |\n"


def _default(key: Key) -> str:
    if key.required:
        return f"required, or `{key.unless}`" if key.unless else "required"
    return key.default_text or f"`{key.kind.format(key.default)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


TABLES: Final = {
    "settings": _tables(KEYS, _CONSUMER_SECTIONS),
    "settings of producers": _tables(PRODUCER_KEYS, _PRODUCER_SECTIONS),
    "settings of KafkaConsumer": _tables(KAFKA_CONSUMER_KEYS, _KAFKA_CONSUMER_SECTIONS),
}
"""The tables by the names in their markers; the settings of the connection to ZooKeeper stand among the first ones."""


def markers(name: str) -> tuple[str, str]:
    """Return the lines between which tables stand."""
    return (
        f"<!-- {name}: written by python -m zkconsumer.config.docs docs/CONFIGURATION.md -->",
        f"<!-- {name}: end -->",
    )


def with_tables(document: str) -> str:
    """Return a document whose text between the markers is replaced by the tables.

    Raises:
        ValueError: A marker is missing.
    """
    for name, tables in TABLES.items():
        first, last = markers(name)
        before, begin, rest = document.partition(first)
        _, end, after = rest.partition(last)
        if not begin or not end:
            raise ValueError(f"the markers {first} and {last} are not both there")
        document = f"{before}{first}\n\n{tables}\n{last}{after}"
    return document


def main(arguments: list[str]) -> int:
    """Rewrite the tables of the named document; the exit status is 0 when it could be done."""
    if len(arguments) != 1:
        print("usage: python -m zkconsumer.config.docs docs/CONFIGURATION.md", file=sys.stderr)
        return 2
    path = Path(arguments[0])
    path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
