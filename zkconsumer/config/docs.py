"""Print the tables of docs/CONFIGURATION.md: `python -m zkconsumer.config.docs docs/CONFIGURATION.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from zkconsumer.config.keys import KEYS
from zkconsumer.config.setting_table import Key

BEGIN = "<!-- settings: written by python -m zkconsumer.config.docs docs/CONFIGURATION.md -->"
END = "<!-- settings: end -->"

_SECTIONS = {
    "kafka": "Settings of Kafka's consumer",
    "0.7": "Settings that only Kafka 0.7 has",
    "own": "Settings of our own",
    "zookeeper": "Connection to ZooKeeper",
}


def settings_tables() -> str:
    """Return one Markdown table for each section of the settings."""
    parts = []
    for section, title in _SECTIONS.items():
        rows = [_row(key) for key in KEYS if key.section == section]
        head = "| setting | default | allowed | meaning |\n|---|---|---|---|\n"
        parts.append(f"## {title}\n\n{head}" + "".join(rows))
    return "\n".join(parts)


def with_tables(document: str) -> str:
    """Return a document whose text between the two markers is replaced by the tables.

    Raises:
        ValueError: A marker is missing.
    """
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the markers {BEGIN} and {END} are not both there")
    return f"{before}{BEGIN}\n\n{settings_tables()}\n{END}{after}"


def _row(key: Key) -> str:
    name = f"`{key.name}`" + (f"<br>0.7: `{key.name_07}`" if key.name_07 else "")
    default = _default(key) + (f"<br>0.7: `{key.kind.format(key.default_07)}`" if key.default_07 else "")
    return f"| {name} | {default} | {_cell(key.kind.allowed)} | {_cell(key.meaning)} |\n"


def _default(key: Key) -> str:
    if key.required:
        return "required"
    return key.default_text or f"`{key.kind.format(key.default)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


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
