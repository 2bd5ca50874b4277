"""Every setting of KafkaConsumer: its default, what it takes and what it refuses; and what they do together."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import pickle
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rebalance.brokers.assignor import RangeAssignor, RebalanceProtocol
from zkconsumer.config import ConsumerConfig, KafkaConsumerConfig
from zkconsumer.config.tables.kafka_consumer_keys import (
    DESERIALIZERS,
    KAFKA_CONSUMER_KEYS,
    KAFKA_CONSUMER_SETTINGS,
    WITHOUT_EFFECT,
)
from zkconsumer.config.tables.keys import SHARED_KEYS, ZOOKEEPER_KEYS
from zkconsumer.config.tables.kinds import Integer
from zkconsumer.config.tables.producer_kinds import BrokerAddress
from zkconsumer.config.tables.security_keys import SECURITY_KEYS
from zkconsumer.config.tables.setting_table import Key
from zkconsumer.config.zookeeper_settings import ZooKeeperAddress
from zkconsumer.errors import ConfigError, UnknownSetting

INT32_MAX = 2**31 - 1
CLIENTS = "org.apache.kafka.clients.consumer."
SERIALIZATION = "org.apache.kafka.common.serialization."


class Assignor:
    """An assignor of an application."""

    name = "own"
    supported_protocols = (RebalanceProtocol.EAGER,)

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        return None

    def assign(self, partitions_per_topic: Mapping[str, int], subscriptions: Any) -> dict[str, list[tuple[str, int]]]:
        return {}

    def on_assignment(self, assignment: Any, generation: int) -> None:
        pass


class Interceptor:
    def on_consume(self, records: Any) -> Any:
        return records

    def on_commit(self, offsets: Any) -> None:
        pass


def upper(data: bytes) -> object:
    return data.upper()


OWN, INTERCEPTOR = Assignor(), Interceptor()
BASE = {"bootstrap.servers": "b:9092", "group.id": "g"}


def config(**settings: Any) -> KafkaConsumerConfig:
    return KafkaConsumerConfig(**{**{name.replace(".", "_"): value for name, value in BASE.items()}, **settings})


# name, default with a group, a valid text and its value, invalid values
ROWS: list[tuple[str, object, object, object, tuple[object, ...]]] = [
    ("bootstrap.servers", (BrokerAddress("b", 9092),), "a:1,[::1]:2", (BrokerAddress("a", 1), BrokerAddress("::1", 2)),
     ("", "a", "a:0", "1:a:9092", 7)),
    ("group.id", "g", "a.B-c_1", "a.B-c_1", ("", " a", "'a'", "\ud800", "x" * 2**15, 7)),
    ("group.instance.id", None, "i-1", "i-1", ("", "a/b", "..")),
    ("group.protocol", "classic", "CLASSIC", "classic", ("consumer", "streams", "")),
    ("client.id", "g", "c-1", "c-1", ("a b", "x" * 256)),
    ("client.rack", None, "eu-1a", "eu-1a", (7,)),
    ("session.timeout.ms", 45000, "10000", 10000, (0, "45s", True)),
    ("heartbeat.interval.ms", 3000, "1000", 1000, (0, -1)),
    ("max.poll.interval.ms", 300000, "600000", 600000, (0, INT32_MAX + 1)),
    ("partition.assignment.strategy", ("range", "cooperative-sticky"), "sticky, roundrobin", ("sticky", "roundrobin"),
     ("", "even", "range,range", (), 7, Assignor)),
    ("auto.offset.reset", "latest", "earliest", "earliest", ("", "first", "by_duration:PT1H", 1)),
    ("enable.auto.commit", True, "false", False, ("no", 0)),
    ("auto.commit.interval.ms", 5000, "1000", 1000, (0,)),
    ("max.poll.records", 500, "1", 1, (0, -1, "all")),
    ("key.deserializer", None, SERIALIZATION + "StringDeserializer", DESERIALIZERS["StringDeserializer"],
     ("com.example.OrderDeserializer", "", 7)),
    ("value.deserializer", None, "LongDeserializer", DESERIALIZERS["LongDeserializer"], ("Avro", 7)),
    ("interceptor.classes", (), "", (), ("com.example.Audit", Interceptor, 7, [OWN])),
    ("isolation.level", "read_uncommitted", "read_committed", "read_committed", ("committed",)),
    ("exclude.internal.topics", True, "false", False, ("no",)),
    ("allow.auto.create.topics", True, "false", False, ("no",)),
    ("fetch.min.bytes", 1, "0", 0, (-1,)),
    ("fetch.max.bytes", 52428800, "1048576", 1048576, (0,)),
    ("fetch.max.wait.ms", 500, "0", 0, (-1, 30001)),
    ("max.partition.fetch.bytes", 1048576, "2097152", 2097152, (0, INT32_MAX + 1)),
    ("check.crcs", True, "false", False, (1,)),
    ("request.timeout.ms", 30000, "40000", 40000, (0, 499)),
    ("default.api.timeout.ms", 60000, "90000", 90000, (0,)),
    ("retry.backoff.ms", 100, "50", 50, (-1,)),
    ("retry.backoff.max.ms", 1000, "5000", 5000, (-1,)),
    ("reconnect.backoff.ms", 50, "100", 100, (-1,)),
    ("reconnect.backoff.max.ms", 1000, "5000", 5000, (-1,)),
    ("connections.max.idle.ms", 540000, "-1", -1, (-2,)),
    ("metadata.max.age.ms", 300000, "1000", 1000, (-1,)),
    ("receive.buffer.bytes", -1, "65536", 65536, (-2,)),
    ("send.buffer.bytes", 131072, "-1", -1, (-2,)),
    ("zookeeper.connect", None, "a:1,b:2/c", "a:1,b:2/c", ("", "a:0")),
    ("group.coordination", "auto", "brokers", "brokers", ("kafka", "")),
    ("zookeeper.session.timeout.ms", 6000, "4000", 4000, (0,)),
    ("zookeeper.connection.timeout.ms", 6000, "9000", 9000, (0,)),
    ("offsets.storage", "zookeeper", "kafka", "kafka", ("zk",)),
    ("dual.commit.enabled", False, "true", True, ("yes",)),
    ("offsets.intent", "zookeeper", "refuse", "refuse", ("min",)),
    ("decoded.max.bytes", 67108864, "1024", 1024, (0,)),
]  # fmt: skip
every_row = pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
ELSEWHERE = {key.name for key in (*ZOOKEEPER_KEYS, *SECURITY_KEYS)}
"""Settings of connections, which are those of `ConsumerConfig` and tested there."""


def key(name: str) -> Key:
    found = KAFKA_CONSUMER_SETTINGS.find(name)
    assert found is not None
    return found


def with_setting(name: str, value: object) -> KafkaConsumerConfig:
    others = {each: given for each, given in BASE.items() if key(each) is not key(name)}
    if key(name).name == "zookeeper.connect":
        del others["bootstrap.servers"]
    return KafkaConsumerConfig(**{**others, name: value})


# Each setting by itself


def test_every_setting_of_the_table_is_tested_here() -> None:
    assert {known.name for known in KAFKA_CONSUMER_KEYS} == {row[0] for row in ROWS} | set(WITHOUT_EFFECT) | ELSEWHERE


def test_every_setting_is_an_attribute_of_its_type() -> None:
    other = {"_given", "settings_table"}
    hints = {name: hint for name, hint in typing.get_type_hints(KafkaConsumerConfig).items() if name not in other}
    in_order = [*SHARED_KEYS, *(known for known in KAFKA_CONSUMER_KEYS if known not in SHARED_KEYS)]
    assert list(hints) == [known.attribute for known in in_order]
    for known in KAFKA_CONSUMER_KEYS:
        is_optional = known.default is None and known.derive is None
        value_type = typing.get_type_hints(known.kind.convert)["return"]
        if isinstance(known.kind, Integer):
            value_type = int
        expected = value_type | None if is_optional else value_type
        assert hints[known.attribute] == expected


@every_row
def test_default(row: tuple[str, object, object, object, tuple[object, ...]]) -> None:
    assert getattr(config(), key(row[0]).attribute) == row[1]


@every_row
def test_valid_text_and_value_under_both_spellings(row: tuple[str, object, object, object, tuple[object, ...]]) -> None:
    name, _, text, value, _ = row
    for spelling in (name, name.replace(".", "_")):
        for given in (text, value):
            assert getattr(with_setting(spelling, given), key(name).attribute) == value


@every_row
def test_invalid_values_are_named_with_what_is_allowed(
    row: tuple[str, object, object, object, tuple[object, ...]],
) -> None:
    name, *_, invalid = row
    for value in invalid:
        with pytest.raises(ConfigError) as refused:
            with_setting(name, value)
        assert refused.value.key in (name, "request.timeout.ms")
        assert refused.value.allowed


def test_no_setting_has_a_name_of_kafka_07() -> None:
    assert [known.name for known in KAFKA_CONSUMER_KEYS if known.name_07 is not None] == []


@pytest.mark.parametrize(
    ("word", "policy"), [("smallest", "earliest"), ("largest", "latest"), ("none", "none"), (" latest ", "latest")]
)
def test_words_of_reset_policies(word: Any, policy: str) -> None:
    assert config(auto_offset_reset=word).auto_offset_reset == policy


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"group_protocol": "consumer"}, "group.protocol is 'consumer'; it must be classic (the protocol of KIP-848 "
                                         "is not supported; brokers of Kafka 4 also serve classic members)"),
        ({"auto_offset_reset": "by_duration:PT1H"}, "use offsets_for_times and seek"),
        ({"partition_assignment_strategy": "range,sticky,range"}, "range is named twice"),
        ({"partition_assignment_strategy": [Assignor]}, "Assignor is a class; give an instance"),
        ({"partition_assignment_strategy": "com.example.OwnAssignor"}, "'com.example.OwnAssignor' is not one of them"),
        ({"partition_assignment_strategy": INTERCEPTOR}, "Interceptor has no name"),
        ({"interceptor_classes": OWN}, "Assignor has no method on_consume"),
        ({"interceptor_classes": [Interceptor]}, "Interceptor is a class; give an instance"),
        ({"interceptor_classes": "com.example.Audit"}, "give Python objects as a keyword argument"),
        ({"value_deserializer": "com.example.Avro"}, "give a Python function as a keyword argument"),
        ({"heartbeat_interval_ms": 45000}, "heartbeat.interval.ms is 45000; it must be less than session.timeout.ms, "
         "which is 45000"),
        ({"max_poll_records": 0}, "max.poll.records is 0; it must be an integer from 1 to 2147483647"),
    ],
)  # fmt: skip
def test_what_is_refused_is_said_in_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        config(**settings)


# Assignors, deserializers, interceptors


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (f"{CLIENTS}RangeAssignor,{CLIENTS}CooperativeStickyAssignor", ("range", "cooperative-sticky")),
        ("RoundRobinAssignor", ("roundrobin",)),
        ([f"{CLIENTS}StickyAssignor", OWN], ("sticky", OWN)),
        (OWN, (OWN,)),
    ],
)
def test_assignors_are_names_classes_of_java_and_objects(given: Any, expected: Sequence[object]) -> None:
    assert config(partition_assignment_strategy=given).partition_assignment_strategy == expected


def test_an_assignor_of_the_library_is_an_object_as_any_other() -> None:
    [found] = config(partition_assignment_strategy=RangeAssignor()).partition_assignment_strategy
    assert isinstance(found, RangeAssignor)


@pytest.mark.parametrize(
    ("name", "data", "value"),
    [
        ("StringDeserializer", "grüße".encode(), "grüße"),
        ("StringDeserializer", b"\xff", "�"),
        ("ByteArrayDeserializer", b"ab", b"ab"),
        ("BytesDeserializer", b"ab", b"ab"),
        ("ShortDeserializer", b"\xff\xff", -1),
        ("IntegerDeserializer", b"\0\0\1\0", 256),
        ("LongDeserializer", b"\0\0\0\0\0\0\1\0", 256),
        ("FloatDeserializer", b"\x3f\xc0\0\0", 1.5),
        ("DoubleDeserializer", b"\x3f\xf8\0\0\0\0\0\0", 1.5),
    ],
)
def test_deserializers_of_kafka(name: str, data: bytes, value: object) -> None:
    found = config(value_deserializer=SERIALIZATION + name).value_deserializer
    assert found is not None
    assert found(data) == value


def test_a_number_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="3 bytes, not 4"):
        DESERIALIZERS["IntegerDeserializer"](b"abc")


def test_functions_and_interceptors_are_kept_as_they_are() -> None:
    found = config(key_deserializer=upper, interceptor_classes=[INTERCEPTOR])
    assert found.key_deserializer is upper
    assert found.interceptor_classes == (INTERCEPTOR,)
    assert config(interceptor_classes=INTERCEPTOR) == config(interceptor_classes=(INTERCEPTOR,))


# Which cluster, and who coordinates the group


@pytest.mark.parametrize(
    ("settings", "coordination", "where"),
    [
        ({"bootstrap_servers": "b:1"}, "brokers", "at the brokers b:1"),
        ({"zookeeper_connect": "zk:2181/c"}, "zookeeper", "in ZooKeeper at zk:2181/c"),
        ({"zookeeper_connect": "zk", "group_coordination": "brokers"}, "brokers", "in ZooKeeper at zk"),
        ({"zookeeper_connect": "zk", "bootstrap_servers": "b:1", "group_coordination": "zookeeper"}, "zookeeper",
         "at the brokers b:1"),
        ({"zookeeper_connect": "zk", "bootstrap_servers": "b:1", "group_coordination": "brokers"}, "brokers",
         "at the brokers b:1"),
    ],
)  # fmt: skip
def test_who_coordinates_the_group(settings: dict[str, Any], coordination: str, where: str) -> None:
    found = KafkaConsumerConfig(group_id="g", **settings)
    assert found.coordination == coordination
    assert found.where == where


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "bootstrap.servers is not set; it must be given, unless zookeeper.connect is"),
        ({"zookeeper_connect": "zk", "bootstrap_servers": "b:1"}, "group.coordination is 'auto'; it must be brokers "
                                                                  "or zookeeper, because both bootstrap.servers and "
                                                                  "zookeeper.connect are given"),
        ({"bootstrap_servers": "b:1", "group_coordination": "zookeeper"}, "zookeeper.connect is not set; it must be "
         "given, because group.coordination is zookeeper"),
        ({"zookeeper_connect": "zk", "partition_assignment_strategy": "sticky"}, "partition.assignment.strategy is "
         "'sticky'; it must be range or roundrobin for a group in ZooKeeper"),
        ({"zookeeper_connect": "zk", "partition_assignment_strategy": OWN}, "is 'own'; it must be range or roundrobin"),
        ({"zookeeper_connect": "zk", "zookeeper_ssl_cafile": "/ca"}, "zookeeper.use.ssl"),
        ({"bootstrap_servers": "b:1", "security_protocol": "SASL_SSL"}, "sasl.mechanism"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        KafkaConsumerConfig(group_id="g", **settings)


def test_what_needs_zookeeper_says_so() -> None:
    found = KafkaConsumerConfig(zookeeper_connect="a:1,b:2/c")
    assert (found.zookeeper, found.zookeeper_address) == ("a:1,b:2/c", ZooKeeperAddress((("a", 1), ("b", 2)), "/c"))
    with pytest.raises(ConfigError, match=r"zookeeper.connect is not set; .* this call needs the cluster's ZooKeeper"):
        _ = config().zookeeper


# Without a group


def test_without_a_group_nothing_is_committed() -> None:
    found = KafkaConsumerConfig(bootstrap_servers="b:1")
    assert (found.group_id, found.enable_auto_commit, found.client_id) == (None, False, "zkconsumer")


@pytest.mark.parametrize("settings", [{"enable_auto_commit": True}, {"group_instance_id": "i"}])
def test_what_needs_a_group_is_refused_without_one(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"because group\.id is not given"):
        KafkaConsumerConfig(bootstrap_servers="b:1", **settings)


# What is logged


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"session_timeout_ms": 5000, "heartbeat_interval_ms": 1000, "request_timeout_ms": 5000}, "less than 6000"),
        ({"session_timeout_ms": 1800001}, "more than 1800000"),
        ({"heartbeat_interval_ms": 15001}, "more than a third of session.timeout.ms = 45000"),
        ({"request_timeout_ms": 45001}, "is more than session.timeout.ms = 45000"),
        ({"default_api_timeout_ms": 29999}, "calls time out before a single request does"),
        ({"retry_backoff_ms": 1001}, "is more than retry.backoff.max.ms = 1000: each wait is 1000 ms"),
        ({"reconnect_backoff_ms": 1001}, "reconnect.backoff.ms = 1001 is more than reconnect.backoff.max.ms = 1000"),
        ({"check_crcs": False}, "checksums are always checked"),
        ({"enable_auto_commit": False, "auto_commit_interval_ms": 1}, "enable.auto.commit is false"),
        ({"zookeeper_session_timeout_ms": 1}, "has no effect: zookeeper.connect is not given"),
        ({"offsets_storage": "kafka"}, "offsets.storage has no effect on a group that brokers coordinate"),
        ({"metric_reporters": [], "metrics_num_samples": 2}, "metric.reporters, metrics.num.samples: no effect in "
                                                             "this client"),
        ({"ssl_key_location": "/k"}, "ssl.key.location has no effect: security.protocol is PLAINTEXT"),
        ({"zookeeper_connect": "zk", "group_coordination": "zookeeper", "session_timeout_ms": 9000},
         "session.timeout.ms has no effect on a group in ZooKeeper"),
        ({"zookeeper_connect": "zk", "group_coordination": "zookeeper", "group_instance_id": "one"},
         "group.instance.id has no effect on a group in ZooKeeper, which cannot have static members"),
        ({"zookeeper_auth": ""}, "no credentials are sent to ZooKeeper"),
        ({"zookeeper_use_ssl": True, "zookeeper_ssl_verify_certs": False}, "any server can pretend to be ZooKeeper"),
    ],
)  # fmt: skip
def test_warnings(settings: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        config(**settings)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("zkconsumer.config", logging.WARNING)
    assert said in record.getMessage()


@pytest.mark.parametrize("settings", [BASE, {"zookeeper.connect": "zk"}, {"bootstrap.servers": "b:1"}])
def test_defaults_are_not_warned_of(settings: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    KafkaConsumerConfig(**settings)
    assert caplog.records == []


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_names_without_effect_are_accepted(name: str, caplog: pytest.LogCaptureFixture) -> None:
    KafkaConsumerConfig(**{**BASE, name: "x"})
    assert caplog.messages == [f"{name}: no effect in this client"]


# Unknown names


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("auto.ofset.reset", "did you mean 'auto.offset.reset'?"),
        ("max_pol_records", "did you mean 'max_poll_records'?"),
        ("auto.commit.enable", "here it is called 'enable.auto.commit'"),
        ("auto_commit_enable", "here it is called 'enable_auto_commit'"),
        ("fetch.message.max.bytes", "here it is called 'max.partition.fetch.bytes'"),
        ("zk.connect", "here it is called 'zookeeper.connect'"),
        ("consumer_timeout_ms", "poll() has a time-out"),
        ("enable.partition.eof", "it is a setting of librdkafka"),
        ("metadata.broker.list", "here it is called 'bootstrap.servers'"),
        ("rebalance.drain.timeout.ms", "it is a setting of ConsumerConfig"),
        ("producer.type", "it is a setting of producers"),
        ("acks", "it is a setting of producers"),
        ("log.dirs", "it is a setting of brokers"),
        ("ssl.keystore.password", "certificates are read from PEM files"),
        ("spring.kafka.group.id", "it ends with the known name 'group.id'"),
        ("qqqq", ""),
        ("rebalance_timeout_ms", "here 'max_poll_interval_ms' applies"),
        ("value_decoder", "here the function is called 'value_deserializer'"),
    ],
)
def test_an_unknown_name_is_refused_with_what_to_use_instead(
    name: str, hint: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UnknownSetting, match=f"unknown setting '{re.escape(name)}'") as refused:
        config(**{name: "hunter2"})
    assert hint in str(refused.value)
    assert "hunter2" not in str(refused.value)
    read = KafkaConsumerConfig.from_properties({**BASE, name: "hunter2"})
    assert read == config()
    assert caplog.messages[0].startswith(f"unknown setting {name!r} is ignored")


# Files, copies, text


def test_a_file_of_a_java_consumer_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text(
        "bootstrap.servers=b1:9092,b2:9092\ngroup.id=billing\nenable.auto.commit=false\nauto.offset.reset=earliest\n"
        f"key.deserializer={SERIALIZATION}StringDeserializer\nvalue.deserializer={SERIALIZATION}ByteArrayDeserializer\n"
        f"partition.assignment.strategy={CLIENTS}CooperativeStickyAssignor\nmax.poll.records=100\n"
        "isolation.level=read_committed\nsecurity.protocol=PLAINTEXT\n"
    )
    found = KafkaConsumerConfig.from_properties(file, value_deserializer=upper)
    assert found.bootstrap_servers == (BrokerAddress("b1", 9092), BrokerAddress("b2", 9092))
    assert (found.group_id, found.enable_auto_commit, found.auto_offset_reset) == ("billing", False, "earliest")
    assert found.key_deserializer is DESERIALIZERS["StringDeserializer"]
    assert found.value_deserializer is upper
    assert found.partition_assignment_strategy == ("cooperative-sticky",)
    assert (found.max_poll_records, found.isolation_level) == (100, "read_committed")
    assert caplog.messages == []


def test_a_bad_value_of_a_file_names_the_line(tmp_path: Path) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text("bootstrap.servers=b:1\nmax.poll.records=0\n")
    with pytest.raises(ConfigError, match=f"max.poll.records is '0' \\({re.escape(str(file))}, line 2\\)"):
        KafkaConsumerConfig.from_properties(file)


def test_text_of_all_settings_makes_the_same_value() -> None:
    found = config(key_deserializer="LongDeserializer", partition_assignment_strategy="sticky", metric_reporters="x",
                   zookeeper_auth="digest:a:b", dual_commit_enabled=True)  # fmt: skip
    text = found.to_properties()
    assert text["key.deserializer"] == SERIALIZATION + "LongDeserializer"
    assert text["bootstrap.servers"] == "b:9092"
    assert all(isinstance(value, str) for value in text.values())
    assert KafkaConsumerConfig.from_properties(text) == found


def test_objects_of_python_have_no_text() -> None:
    found = config(key_deserializer=upper, interceptor_classes=[INTERCEPTOR],
                   partition_assignment_strategy=[OWN, "range"])  # fmt: skip
    left_out = {"key.deserializer", "interceptor.classes", "partition.assignment.strategy"}
    assert not left_out & found.to_properties().keys()


def test_a_configuration_is_frozen_copied_and_sent_to_another_process() -> None:
    found = config(value_deserializer=upper)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.max_poll_records = 1  # type: ignore[misc]
    assert dataclasses.replace(found, max_poll_records=1).max_poll_records == 1
    assert pickle.loads(pickle.dumps(found)) == found


def test_the_repr_shows_no_password() -> None:
    sasl = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "u"}
    shown = repr(config(**sasl, sasl_password="hunter2"))
    assert "hunter2" not in shown
    assert "sasl_password='***'" in shown


def test_settings_are_keywords_alone() -> None:
    assert all(each.kind is inspect.Parameter.VAR_KEYWORD
               for name, each in inspect.signature(KafkaConsumerConfig.__init__).parameters.items()
               if name != "self")  # fmt: skip


@pytest.mark.parametrize("group", ["team/app: orders", "a", "größe", ".", "x" * 256])
def test_a_group_that_brokers_coordinate_may_have_any_name(group: str) -> None:
    found = KafkaConsumerConfig(bootstrap_servers="b:9092", group_id=group)
    assert found.group_id == ConsumerConfig(bootstrap_servers="b:9092", group_id=group).group_id == group
    assert re.fullmatch("[a-zA-Z0-9._-]{1,255}", found.client_id)


@pytest.mark.parametrize("group", ["team/app", "größe", ".", "x" * 256])
def test_a_group_in_zookeeper_has_a_name_that_a_node_may_have(group: str) -> None:
    for kind in (KafkaConsumerConfig, ConsumerConfig):
        with pytest.raises(ConfigError, match=r"group.id is .* it must be 1 to 255 of"):
            kind(zookeeper_connect="zk", group_id=group)
