"""docs/CONFIGURATION.md says what the table of settings says."""

from __future__ import annotations

from pathlib import Path

import pytest

from zkconsumer.config.docs import TABLES, main, markers, with_tables
from zkconsumer.config.tables.kafka_consumer_keys import KAFKA_CONSUMER_KEYS
from zkconsumer.config.tables.keys import KEYS
from zkconsumer.config.tables.producer_keys import PRODUCER_KEYS
from zkconsumer.config.tables.setting_table import Key

DOCUMENT = Path(__file__).parents[2] / "docs" / "CONFIGURATION.md"


def test_the_document_is_up_to_date() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert with_tables(text) == text, f"run: python -m zkconsumer.config.docs {DOCUMENT.name}"


def pages(text: str) -> str:
    return "".join(f"before {name}\n{first}\n{text}{last}\n" for name in TABLES for first, last in [markers(name)])


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("settings", KEYS),
        ("settings of producers", PRODUCER_KEYS),
        ("settings of KafkaConsumer", KAFKA_CONSUMER_KEYS),
    ],
)
def test_every_setting_has_one_row_with_its_default(name: str, keys: tuple[Key, ...]) -> None:
    rows = TABLES[name].splitlines()
    for key in keys:
        if key.section in ("zookeeper", "security") and keys is not KEYS:
            continue  # as those of consumers
        (row,) = [row for row in rows if row.startswith((f"| `{key.name}` ", f"| `{key.name}`<br>"))]
        assert row.count(" | ") == 3
        if key.default is not None and key.default_text is None:
            assert f"`{key.kind.format(key.default)}`" in row


def test_the_command_rewrites_between_the_markers_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(pages("old\n") + "after\n")
    assert main([str(page)]) == 0
    written = "".join(
        f"before {name}\n{first}\n\n{tables}\n{last}\n"
        for name, tables in TABLES.items() for first, last in [markers(name)]
    )  # fmt: skip
    assert page.read_text() == written + "after\n"


def test_a_document_without_markers_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing\n")
    with pytest.raises(ValueError, match="markers"):
        main([str(page)])
    assert page.read_text() == "nothing\n"


def test_the_command_says_how_it_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage" in capsys.readouterr().err
