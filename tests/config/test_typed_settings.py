"""Type checkers see every setting with its type: mypy accepts and refuses what the consumer does."""

from __future__ import annotations

import typing

import pytest

from tests.mypy_snippets import complaints_about
from zkconsumer.config import ConsumerSettings, KafkaConsumerSettings, OptionalSettings, ProducerSettings
from zkconsumer.config.tables.kafka_consumer_keys import KAFKA_CONSUMER_KEYS
from zkconsumer.config.tables.keys import KEYS
from zkconsumer.config.tables.producer_keys import PRODUCER_KEYS
from zkconsumer.config.tables.setting_table import Key
from zkconsumer.config.typed.typed_settings_writer import typed_files

# Each line is checked alone: what stands behind `#!` is in mypy's complaint about it; other lines are fine.
SNIPPETS = """\
from zkconsumer import ConsumerConfig, ProducerConfig
from zkconsumer.config import ConsumerSettings, OptionalSettings, ProducerSettings
from zkconsumer.config import KafkaConsumerConfig, KafkaConsumerSettings
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
ProducerConfig(metadata_broker_list="a:1,b:2", request_required_acks=-1, compression_codec="snappy", queue_time=7)
ProducerConfig(broker_list=["1:a:1", "2:b:2"], compressed_topics=["t"], compression_codec=2, producer_type="async")
ProducerConfig.from_properties("producer.properties", zk_connect="zk", partitioner_class="mine:choose")
some: ProducerSettings = {"batch_size": 10}
ProducerConfig(**some)
ProducerConfig(acks="all")  #! Unexpected keyword argument "acks"
ProducerConfig(producer_type="quick")  #! expected "Literal['sync', 'async'] | None"
ProducerConfig(compression_codec="brotli")  #! expected "Literal[
ProducerConfig(metadata_broker_list=7)  #! expected "str | Sequence[str] | None"
KafkaConsumerConfig(bootstrap_servers=["a:1", "b:2"], group_id="g", enable_auto_commit=False, max_poll_records=10)
KafkaConsumerConfig(zookeeper_connect="zk", auto_offset_reset="smallest", value_deserializer=bytes.decode)
KafkaConsumerConfig.from_properties("consumer.properties", partition_assignment_strategy=["range", "sticky"])
polled: KafkaConsumerSettings = {"group_coordination": "brokers", "value_deserializer": lambda data: len(data)}
KafkaConsumerConfig(**polled)
KafkaConsumerConfig(group_protocol="consumer")  #! expected "Literal['classic'] | None"
KafkaConsumerConfig(auto_commit_enable=False)  #! Unexpected keyword argument "auto_commit_enable"
KafkaConsumerConfig(value_deserializer=7)  #! expected "str | Callable[[bytes], object] | None"
KafkaConsumerConfig(auto_offset_reset="first")  #! expected "Literal[
wrong: OptionalSettings = {"auto_comit_enable": False}  #! Extra key "auto_comit_enable"
"""


def test_the_files_are_up_to_date() -> None:
    for path, text in typed_files().items():
        assert path.read_text(encoding="utf-8") == text, "run: python -m zkconsumer.config.typed.typed_settings_writer"


def names_of(keys: tuple[Key, ...]) -> set[str]:
    return {name.replace(".", "_") for key in keys for name in (key.name, key.name_07, *key.aliases) if name}


def test_every_name_of_the_table_is_a_keyword() -> None:
    assert set(typing.get_type_hints(ConsumerSettings)) == names_of(KEYS)
    assert set(typing.get_type_hints(OptionalSettings)) == names_of(KEYS) - {"zookeeper_connect", "group_id"}
    assert set(typing.get_type_hints(ProducerSettings)) == names_of(PRODUCER_KEYS)
    assert set(typing.get_type_hints(KafkaConsumerSettings)) == names_of(KAFKA_CONSUMER_KEYS)


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
