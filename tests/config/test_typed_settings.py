"""Type checkers see every setting with its type: mypy accepts and refuses what the consumer does."""

from __future__ import annotations

import typing

import pytest

from tests.mypy_snippets import complaints_about
from zkconsumer.config import ConsumerSettings, OptionalSettings
from zkconsumer.config.keys import KEYS
from zkconsumer.config.typed_settings_writer import TARGET, typed_settings

# Each line is checked alone: what stands behind `#!` is in mypy's complaint about it; other lines are fine.
SNIPPETS = '''\
from zkconsumer import ConsumerConfig
from zkconsumer.config import ConsumerSettings, OptionalSettings
ConsumerConfig("zk", "g", auto_offset_reset="smallest", auto_commit_enable=False, fetch_message_max_bytes=1024)
ConsumerConfig(zk_connect="zk", groupid="g", autooffset_reset="largest", zk_sessiontimeout_ms=6000)
ConsumerConfig("zk", "g", consumer_id=None, max_processing_interval_ms="off", zookeeper_acl="creator")
ConsumerConfig("zk", "g", zookeeper_auth=[("digest", "a:b")], zookeeper_acl=[("world", "anyone", "r"), "creator"])
ConsumerConfig.from_properties("consumer.properties", group_id="g", zookeeper_connect="zk", offsets_storage="kafka")
chosen: OptionalSettings = {"auto_commit_enable": False}
ConsumerConfig("zk", "g", **chosen)
every: ConsumerSettings = {"group_id": "g", "rebalance_max_retries": 4}
ConsumerConfig.from_properties("consumer.properties", **every)
ConsumerConfig("zk", "g", auto_ofset_reset="smallest")  #! Unexpected keyword argument "auto_ofset_reset"
ConsumerConfig("zk", "g", enable_auto_commit=False)  #! Unexpected keyword argument "enable_auto_commit"
ConsumerConfig("zk", "g", auto_offset_reset="earliest")  #! expected "Literal['smallest', 'largest'] | None"
ConsumerConfig("zk", "g", auto_commit_enable="false")  #! expected "bool | None"
ConsumerConfig("zk", "g", fetch_message_max_bytes="1MB")  #! expected "int | None"
ConsumerConfig("zk", "g", roundrobin_order="1.1")  #! expected "Literal[
ConsumerConfig("zk", "g", zookeeper_auth=7)  #! expected "str | Sequence[str | tuple[str, str]] | None"
ConsumerConfig("zk", 7)  #! expected "str | None"
ConsumerConfig.from_properties({}, grup_id="g")  #! Unexpected keyword argument "grup_id"
wrong: OptionalSettings = {"auto_comit_enable": False}  #! Extra key "auto_comit_enable"
'''


def test_the_file_is_up_to_date() -> None:
    assert TARGET.read_text(encoding="utf-8") == typed_settings(), (
        "run: python -m zkconsumer.config.typed_settings_writer"
    )


def test_every_name_of_the_table_is_a_keyword() -> None:
    names = {name.replace(".", "_") for key in KEYS for name in (key.name, key.name_07) if name}
    assert set(typing.get_type_hints(ConsumerSettings)) == names
    assert set(typing.get_type_hints(OptionalSettings)) == names - {"zookeeper_connect", "group_id"}


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """Line -> what mypy says about it."""
    return complaints_about(SNIPPETS, tmp_path_factory.mktemp("typed"))


@pytest.mark.parametrize("number", range(1, len(SNIPPETS.splitlines()) + 1))
def test_mypy_sees_the_settings(number: int, complaints: dict[int, str]) -> None:
    line = SNIPPETS.splitlines()[number - 1]
    code, _, expected = line.partition("  #! ")
    if expected:
        assert expected in complaints.get(number, "nothing"), code
    else:
        assert number not in complaints, code
