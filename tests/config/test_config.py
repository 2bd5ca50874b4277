"""Every setting: its default, its names, what it takes and what it refuses."""

from __future__ import annotations

import dataclasses
import logging
import pickle
import re
import typing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simpleconsumer.security.security import ALIASES
from simpleconsumer.security.security import SETTINGS as SECURITY_SETTINGS
from zkconsumer.config import ConsumerConfig
from zkconsumer.config.tables.keys import KEYS, SHARED_KEYS, find_key
from zkconsumer.config.tables.kinds import CREATOR_ACL, OPEN_ACL, Integer, Kind, ZooKeeperAcl, ZooKeeperAuth
from zkconsumer.config.tables.producer_keys import PRODUCER_KEYS
from zkconsumer.config.tables.producer_kinds import BrokerAddress
from zkconsumer.config.tables.security_keys import SECURITY_KEYS
from zkconsumer.config.tables.setting_table import Key
from zkconsumer.config.zookeeper_settings import ZooKeeperAddress
from zkconsumer.errors import ConfigError, UnknownSetting

INT32_MAX = 2**31 - 1


def config(**settings: object) -> ConsumerConfig:
    return ConsumerConfig(**{"zookeeper_connect": "zk:2181", "group_id": "g", **settings})


# (0.8 name, 0.7 name, default of 0.8.2, default under kafka.generation=0.7, a valid text and its value, invalid values)
ROWS: list[tuple[str, str | None, object, object, str, object, tuple[object, ...]]] = [
    ("zookeeper.connect", "zk.connect", "zk:2181", "zk:2181", "a:1,b:2/c", "a:1,b:2/c", ("", "a:0", "a:1/b,c:2")),
    ("bootstrap.servers", None, None, None, "b1:9092,[::1]:9093",
     (BrokerAddress("b1", 9092), BrokerAddress("::1", 9093)), ("", "b1", "b1:0", "1:b1:9092", "b1:9092,", 7)),
    ("group.id", "groupid", "g", "g", "a.B-c_1", "a.B-c_1", ("", "a/b", ".", "x" * 256, b"g", 7)),
    ("consumer.id", "consumerid", None, None, "c1", "c1", ("", "a/b", "..")),
    ("client.id", None, "g", "g", "c-1", "c-1", ("a b", "x" * 256)),
    ("zookeeper.session.timeout.ms", "zk.sessiontimeout.ms", 6000, 6000, "4000", 4000, (0, -1, "6s", 1.5)),
    ("zookeeper.connection.timeout.ms", "zk.connectiontimeout.ms", 6000, 6000, "9000", 9000, (0, "x")),
    ("zookeeper.sync.time.ms", "zk.synctime.ms", 2000, 2000, "3000", 3000, (-1, "")),
    ("auto.offset.reset", "autooffset.reset", "largest", "smallest", "smallest", "smallest", ("earliest", "", 1)),
    ("fetch.message.max.bytes", "fetch.size", 1048576, 1048576, "2097152", 2097152, (0, INT32_MAX + 1, True)),
    ("fetch.min.bytes", None, 1, 1, "0", 0, (-1,)),
    ("fetch.wait.max.ms", None, 100, 100, "500", 500, (-1,)),
    ("socket.timeout.ms", "socket.timeout.ms", 30000, 30000, "100", 100, (0, 99)),
    ("socket.receive.buffer.bytes", "socket.buffersize", -1, -1, "131072", 131072, (-2,)),
    ("num.consumer.fetchers", None, 1, 1, "2", 2, (0,)),
    ("queued.max.message.chunks", "queuedchunks.max", 2, 10, "5", 5, (0,)),
    ("refresh.leader.backoff.ms", None, 200, 200, "0", 0, (-1,)),
    ("consumer.timeout.ms", "consumer.timeout.ms", -1, -1, "5000", 5000, (INT32_MAX + 1, "never")),
    ("client.rack", None, None, None, "eu-1a", "eu-1a", (7,)),
    ("exclude.internal.topics", None, True, True, "false", False, ("no", "True", 0)),
    ("auto.commit.enable", "autocommit.enable", True, True, "false", False, ("FALSE", 1, "")),
    ("auto.commit.interval.ms", "autocommit.interval.ms", 60000, 10000, "1000", 1000, (0,)),
    ("offsets.storage", None, "zookeeper", "zookeeper", "Kafka", "kafka", ("zk",)),
    ("dual.commit.enabled", None, False, False, "true", True, ("yes",)),
    ("offsets.intent", None, "zookeeper", "zookeeper", "refuse", "refuse", ("min", "MAX")),
    ("offsets.channel.backoff.ms", None, 1000, 1000, "10", 10, (-1,)),
    ("offsets.channel.socket.timeout.ms", None, 10000, 10000, "20000", 20000, (0,)),
    ("offsets.commit.max.retries", None, 5, 5, "0", 0, (-1,)),
    ("partition.assignment.strategy", None, "range", "range", "roundrobin", "roundrobin",
     ("sticky", "Range", "range,range", "range,roundrobin", "", 7)),
    ("rebalance.max.retries", "rebalance.retries.max", 4, 4, "10", 10, (0,)),
    ("rebalance.backoff.ms", "rebalance.backoff.ms", 2000, 2000, "5000", 5000, (-1,)),
    ("group.coordination", None, "auto", "auto", "zookeeper", "zookeeper", ("Brokers", "kafka", "")),
    ("session.timeout.ms", None, 10_000, 10_000, "45000", 45_000, (0, -1, "45s")),
    ("heartbeat.interval.ms", None, 3000, 3000, "1000", 1000, (0, -1)),
    ("rebalance.timeout.ms", None, 60_000, 60_000, "300000", 300_000, (0, -1)),
    ("group.instance.id", None, None, None, "a-1", "a-1", ("", "a/b", "..")),
    ("metadata.max.age.ms", None, 30_000, 30_000, "300000", 300_000, (0, -1)),
    ("fetcher.backoff.ms", "fetcher.backoff.ms", 1000, 1000, "10", 10, (-1,)),
    ("shallowiterator.enable", "shallowiterator.enable", False, False, "true", True, ("1",)),
    ("rebalance.drain.timeout.ms", None, 3000, 3000, "0", 0, (-1,)),
    ("rebalance.quiet.ms", None, 100, 100, "0", 0, (-1,)),
    ("rebalance.quiet.max.ms", None, 1500, 1500, "100", 100, (-1, 99)),
    ("queued.max.bytes", None, 67108864, 67108864, "4294967296", 2**32, (0,)),
    ("decoded.max.bytes", None, 67108864, 67108864, "4294967296", 2**32, (0,)),
    ("isolation.level", None, "read_uncommitted", "read_uncommitted", "read_committed", "read_committed",
     ("committed", "READ_COMMITTED")),
    ("on.message.error", None, "raise", "raise", "skip", "skip", ("ignore",)),
    ("roundrobin.order", None, "auto", "auto", "1.0", "1.0", ("0.9", 1)),
    ("max.processing.interval.ms", None, None, None, "300000", 300000, (0, "on")),
    ("statistics.interval.ms", None, None, None, "10000", 10000, (0, "on")),
    ("kafka.generation", None, "auto", "0.7", "0.8", "0.8", ("0.9", "")),
    ("zookeeper.auth", None, (), (), "digest:a:b", (ZooKeeperAuth("digest", "a:b"),), ("digest", ":x", "d:,", 7)),
    ("zookeeper.acl", None, (OPEN_ACL,), (OPEN_ACL,), "creator,world:anyone:r",
     (CREATOR_ACL, ZooKeeperAcl("world", "anyone", "r")), ("", "closed", "world:anyone:x", "world:anyone:", ",open")),
    ("zookeeper.use.ssl", None, False, False, "true", True, ("tls",)),
    ("zookeeper.ssl.cafile", None, None, None, "/ca.pem", "/ca.pem", (7,)),
    ("zookeeper.ssl.certfile", None, None, None, "/c.pem", "/c.pem", (7,)),
    ("zookeeper.ssl.keyfile", None, None, None, "/k.pem", "/k.pem", (7,)),
    ("zookeeper.ssl.keyfile.password", None, None, None, "s3cret", "s3cret", (7,)),
    ("zookeeper.ssl.verify.certs", None, True, True, "false", False, ("off",)),
    ("zookeeper.ssl.check.hostname", None, False, False, "true", True, ("HTTPS",)),
    ("zookeeper.sasl.mechanism", None, None, None, "DIGEST-MD5", "DIGEST-MD5", ("MD5",)),
    ("zookeeper.sasl.username", None, None, None, "kafka", "kafka", (7,)),
    ("zookeeper.sasl.password", None, None, None, "s3cret", "s3cret", (7,)),
    ("security.protocol", None, "PLAINTEXT", "PLAINTEXT", "SSL", "SSL", ("TLS", "")),
    ("ssl.truststore.location", None, None, None, "/ca.pem", "/ca.pem", (7,)),
    ("ssl.truststore.type", None, None, None, "JKS", "JKS", (7,)),
    ("ssl.truststore.password", None, None, None, "s3cret", "s3cret", (7,)),
    ("ssl.truststore.certificates", None, None, None, "-----BEGIN", "-----BEGIN", (7,)),
    ("ssl.keystore.location", None, None, None, "/c.pem", "/c.pem", (7,)),
    ("ssl.keystore.type", None, None, None, "PEM", "PEM", (7,)),
    ("ssl.keystore.certificate.chain", None, None, None, "-----BEGIN", "-----BEGIN", (7,)),
    ("ssl.keystore.key", None, None, None, "s3cret", "s3cret", (7,)),
    ("ssl.key.location", None, None, None, "/k.pem", "/k.pem", (7,)),
    ("ssl.key.password", None, None, None, "s3cret", "s3cret", (7,)),
    ("ssl.endpoint.identification.algorithm", None, "https", "https", "", "", (7,)),
    ("ssl.protocol", None, None, None, "TLSv1.2", "TLSv1.2", (7,)),
    ("ssl.enabled.protocols", None, None, None, "TLSv1.2,TLSv1.3", "TLSv1.2,TLSv1.3", (7,)),
    ("ssl.cipher.suites", None, None, None, "TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384", (7,)),
    ("sasl.mechanism", None, None, None, "SCRAM-SHA-512", "SCRAM-SHA-512", ("GSSAPI",)),
    ("sasl.username", None, None, None, "ann", "ann", (7,)),
    ("sasl.password", None, None, None, "s3cret", "s3cret", (7,)),
    ("sasl.jaas.config", None, None, None, "x required;", "x required;", (7,)),
    ("sasl.oauthbearer.token.callback", None, None, None, "a:b", "a:b", (7,)),
]  # fmt: skip

# Settings that a valid value of another one demands.
COMPANIONS: dict[str, dict[str, object]] = {
    "zookeeper.acl": {"zookeeper.auth": "digest:a:b"},
    "zookeeper.ssl.cafile": {"zookeeper_use_ssl": True},
    "zookeeper.ssl.certfile": {"zookeeper_use_ssl": True},
    "zookeeper.ssl.check.hostname": {"zookeeper_use_ssl": True},
    "zookeeper.ssl.keyfile": {"zookeeper_use_ssl": True, "zookeeper_ssl_certfile": "/c"},
    "zookeeper.ssl.keyfile.password": {
        "zookeeper_use_ssl": True, "zookeeper_ssl_certfile": "/c", "zookeeper_ssl_keyfile": "/k",
    },
    "zookeeper.sasl.mechanism": {"zookeeper_sasl_username": "u", "zookeeper_sasl_password": "p"},
    "zookeeper.sasl.username": {"zookeeper_sasl_mechanism": "PLAIN", "zookeeper_sasl_password": "p"},
    "zookeeper.sasl.password": {"zookeeper_sasl_mechanism": "PLAIN", "zookeeper_sasl_username": "u"},
}  # fmt: skip
BY_NAME = {row[0]: row for row in ROWS}
every_row = pytest.mark.parametrize("row", ROWS, ids=list(BY_NAME))


def key(name: str) -> Key:
    found = find_key(name)
    assert found is not None
    return found


def with_setting(name: str, value: object) -> ConsumerConfig:
    base = {"zookeeper.connect": "zk:2181", "group.id": "g"}
    own = key(name).name
    kept = {given: text for given, text in base.items() if given != own and key(given).unless != own}
    return ConsumerConfig(**{**kept, **COMPANIONS.get(own, {}), name: value})


def test_every_setting_of_the_table_is_tested_here() -> None:
    assert [known.name for known in KEYS] == [row[0] for row in ROWS]


def type_of(kind: Kind) -> typing.Any:
    """The type of a converted value."""
    if isinstance(kind, Integer) and not kind.off:
        return int
    return typing.get_type_hints(kind.convert)["return"]


def test_every_setting_is_an_attribute_of_its_type() -> None:
    other = {"_given", "settings_table"}
    hints = {name: hint for name, hint in typing.get_type_hints(ConsumerConfig).items() if name not in other}
    optional = {
        known.attribute
        for known in KEYS
        if known.default is None and not known.derive and (not known.required or known.unless)
    }
    expected = {
        known.attribute: type_of(known.kind) | None if known.attribute in optional else type_of(known.kind)
        for known in KEYS
    }
    assert hints == expected
    in_order = [*SHARED_KEYS, *(known for known in KEYS if known not in SHARED_KEYS)]
    assert list(hints) == [known.attribute for known in in_order]


def test_the_settings_of_security_are_those_that_connections_read() -> None:
    assert [known.name for known in SECURITY_KEYS] == list(SECURITY_SETTINGS)
    assert {alias: known.name for known in SECURITY_KEYS for alias in known.aliases} == ALIASES


@every_row
def test_default(row) -> None:  # type: ignore[no-untyped-def]
    assert getattr(config(), key(row[0]).attribute) == row[2]
    assert getattr(config(kafka_generation="0.7"), key(row[0]).attribute) == row[3]


@every_row
def test_valid_text_and_value_under_every_spelling(row) -> None:  # type: ignore[no-untyped-def]
    name, name_07, _, _, text, value, _ = row
    spellings = [spelling for dotted in (name, name_07) if dotted for spelling in (dotted, dotted.replace(".", "_"))]
    assert key(name).name_07 in (name_07, None)
    for spelling in spellings:
        assert getattr(with_setting(spelling, text), key(name).attribute) == value
        assert getattr(with_setting(spelling, value), key(name).attribute) == value


@every_row
def test_invalid_values_are_named_with_what_is_allowed(row) -> None:  # type: ignore[no-untyped-def]
    name, *_, invalid = row
    for value in invalid:
        with pytest.raises(ConfigError) as refused:
            with_setting(name, value)
        assert refused.value.key == name
        assert refused.value.value == ("***" if key(name).secret else value)
        assert refused.value.allowed
        assert str(refused.value).startswith(f"{name} is ")


@pytest.mark.parametrize(("missing", "given"), [("zookeeper.connect", "group_id"), ("group.id", "zookeeper_connect")])
def test_what_is_required(missing: str, given: str) -> None:
    with pytest.raises(ConfigError, match=f"{missing} is not set"):
        ConsumerConfig(**{given: "x"})


def test_positional_arguments_and_names_of_07() -> None:
    assert ConsumerConfig("zk:2181", "g") == ConsumerConfig(zk_connect="zk:2181", groupid="g")


def test_a_name_of_07_brings_no_default_of_07() -> None:
    assert config(autocommit_enable=True).auto_offset_reset == "largest"


def test_any_word_means_raise_to_07_alone() -> None:
    assert config(kafka_generation="0.7", autooffset_reset="raise").auto_offset_reset == "raise"
    with pytest.raises(ConfigError):
        config(kafka_generation="0.8", auto_offset_reset="raise")


def test_derived_defaults_follow_their_source_and_yield_to_a_value() -> None:
    derived = config(zookeeper_session_timeout_ms=9000, zookeeper_sync_time_ms=5000, offsets_storage="KAFKA")
    assert derived.zookeeper_connection_timeout_ms == 9000
    assert derived.rebalance_backoff_ms == 5000
    assert derived.dual_commit_enabled is True
    assert derived.client_id == "g"
    given = config(
        zookeeper_sync_time_ms=5000, rebalance_backoff_ms=6000, offsets_storage="kafka", dual_commit_enabled=False
    )
    assert given.rebalance_backoff_ms == 6000
    assert given.dual_commit_enabled is False


@pytest.mark.parametrize(
    ("settings", "intent"),
    [
        ({}, "zookeeper"),
        ({"dual_commit_enabled": True}, "zookeeper"),
        ({"offsets_storage": "kafka"}, "max"),
        ({"offsets_storage": "kafka", "dual_commit_enabled": False}, "kafka"),
        ({"offsets_storage": "kafka", "offsets_intent": "zookeeper"}, "zookeeper"),
    ],
)
def test_the_intent_follows_what_java_members_do(settings: dict[str, object], intent: str) -> None:
    assert config(**settings).offsets_intent == intent


def test_storage_in_kafka_and_dual_commit_are_legal() -> None:
    assert config(offsets_storage="kafka", dual_commit_enabled=True).offsets_storage == "kafka"


def test_two_spellings_with_two_values_are_refused_with_one_value_taken() -> None:
    assert config(**{"fetch.size": "5", "fetch_message_max_bytes": 5}).fetch_message_max_bytes == 5
    with pytest.raises(ConfigError, match=r"fetch\.message\.max\.bytes.*two names"):
        config(**{"fetch.size": "5", "fetch.message.max.bytes": 6})


def test_off_switches_the_processing_interval_off() -> None:
    assert config(max_processing_interval_ms="off").max_processing_interval_ms is None


@pytest.mark.parametrize(
    ("settings", "refused_key"),
    [
        ({"socket_timeout_ms": 100, "fetch_wait_max_ms": 101}, "socket.timeout.ms"),
        ({"rebalance_quiet_ms": 500, "rebalance_quiet_max_ms": 499}, "rebalance.quiet.max.ms"),
        ({"zookeeper_ssl_cafile": "/ca"}, "zookeeper.use.ssl"),
        ({"zookeeper_use_ssl": True, "zookeeper_ssl_keyfile": "/k"}, "zookeeper.ssl.certfile"),
        ({"zookeeper_ssl_keyfile_password": "p"}, "zookeeper.ssl.keyfile"),
        ({"zookeeper_ssl_check_hostname": True}, "zookeeper.use.ssl"),
        (
            {"zookeeper_use_ssl": True, "zookeeper_ssl_check_hostname": True, "zookeeper_ssl_verify_certs": False},
            "zookeeper.ssl.verify.certs",
        ),
        ({"zookeeper_sasl_username": "u"}, "zookeeper.sasl.mechanism"),
        ({"zookeeper_sasl_mechanism": "PLAIN", "zookeeper_sasl_username": "u"}, "zookeeper.sasl.password"),
    ],
)
def test_contradictions_are_refused(settings: dict[str, object], refused_key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config(**settings)
    assert refused.value.key == refused_key


def test_a_configuration_is_copied_with_another_value() -> None:
    first = config(fetch_min_bytes=7, zookeeper_auth="digest:me:secret")
    second = dataclasses.replace(first, group_id="h")
    assert (second.group_id, second.fetch_min_bytes, second.zookeeper_auth) == ("h", 7, first.zookeeper_auth)
    assert dataclasses.replace(second, group_id=first.group_id) == first


# Unknown names


UNKNOWN = [
    ("auto.ofset.reset", "did you mean 'auto.offset.reset'?"),
    ("zookeeperConnect", "did you mean 'zookeeper.connect'?"),
    ("autooffsetreset", "did you mean 'auto.offset.reset'?"),
    ("auto_ofset_reset", "did you mean 'auto_offset_reset'?"),
    ("enable.auto.commit", "here it is called 'auto.commit.enable'"),
    ("max.poll.interval.ms", "here it is called 'max.processing.interval.ms'"),
    ("max.poll.records", "a stream delivers one message at a time"),
    ("key.deserializer", "'key_decoder' and 'value_decoder'"),
    ("sasl.kerberos.service.name", "SASL is PLAIN, SCRAM or OAUTHBEARER"),
    ("ssl.keystore.password", "certificates are read from PEM files"),
    ("ssl.crl.location", "certificates are read from PEM files"),
    ("sasl.mechanims", "did you mean 'sasl.mechanisms'?"),
    ("ssl.truststore.locaton", "did you mean 'ssl.truststore.location'?"),
    ("zookeeper.ssl.keyStore.location", "openssl pkcs12"),
    ("request.required.acks", "a setting of producers"),
    ("log.dirs", "a setting of brokers"),
    ("tier1.sources.source1.kafka.consumer.timeout.ms", "ends with the known name 'consumer.timeout.ms'"),
    ("group", "did you mean 'group.id'?"),
    ("qqqq", ""),
]


@pytest.mark.parametrize(("name", "hint"), UNKNOWN)
def test_an_unknown_keyword_is_refused_with_what_to_use_instead(name: str, hint: str) -> None:
    with pytest.raises(UnknownSetting, match=f"unknown setting '{re.escape(name)}'") as refused:
        config(**{name: "hunter2"})
    assert hint in str(refused.value)
    assert hint in refused.value.remedy
    assert refused.value.remedy
    assert "hunter2" not in str(refused.value)
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)
    with pytest.raises(UnknownSetting):
        ConsumerConfig.from_properties({"zk.connect": "zk", "group.id": "g"}, **{name: "x"})
    with pytest.raises(UnknownSetting):
        config(**{name: None})


@pytest.mark.parametrize(("name", "hint"), UNKNOWN)
def test_an_unknown_name_in_properties_is_a_warning_once(
    name: str, hint: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        read = ConsumerConfig.from_properties({"zookeeper.connect": "zk", "group.id": "g", name: "hunter2"})
    assert read == ConsumerConfig("zk", "g")
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("zkconsumer.config", logging.WARNING)
    assert record.getMessage().startswith(f"unknown setting {name!r} is ignored")
    assert hint in record.getMessage()
    assert "hunter2" not in record.getMessage()


def test_names_that_are_arguments_of_python_are_unknown_in_properties_too() -> None:
    read = ConsumerConfig.from_properties({"zookeeper.connect": "zk", "group.id": "g", "self": "1", "cls": "2"})
    assert read == ConsumerConfig("zk", "g")


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("auto.offset.reset", "earliest", "'earliest' of other consumers is 'smallest' here"),
        ("auto.offset.reset", "latest", "'latest' of other consumers is 'largest' here"),
        ("auto.offset.reset", "none", "'none' of newer consumers does not exist here"),
        ("partition.assignment.strategy", "com.acme.WeightedAssignor", "you can give an assignor object"),
        ("kafka.generation", "2.8", "0.8 stands for all brokers of 0.8 to 4.3"),
        ("kafka.generation", "4.3", "0.8 stands for all brokers of 0.8 to 4.3"),
        ("group.id", '"billing"', "the quotes are part of the value"),
        ("group.id", "billing ", "white space at its end is part of the value"),
        ("auto.commit.interval.ms", "60000 # a minute", "a comment has a line of its own"),
    ],
)
def test_a_refused_value_says_what_it_would_be_here(name: str, value: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(hint)) as refused:
        ConsumerConfig.from_properties({"zookeeper.connect": "zk", "group.id": "g", name: value})
    assert refused.value.key == name


# Names of 0.7


@pytest.mark.parametrize(
    ("properties", "names"),
    [
        ({"zk.connect": "zk", "groupid": "g"}, "zk.connect, groupid"),
        ({"zookeeper.connect": "zk", "group.id": "g", "fetch.size": "5"}, "fetch.size"),
        ({"zk.connect": "zk", "groupid": "g", "autooffset.reset": "smallest"}, None),
        ({"zk.connect": "zk", "groupid": "g", "auto.offset.reset": "largest"}, None),
        ({"zk.connect": "zk", "groupid": "g", "kafka.generation": "0.7"}, None),
        ({"zookeeper.connect": "zk", "group.id": "g"}, None),
    ],
)
def test_names_of_07_without_a_reset_policy_say_that_the_default_differs(
    properties: dict[str, str], names: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    ConsumerConfig.from_properties(properties)
    said = [record.getMessage() for record in caplog.records]
    assert bool(said) == bool(names)
    if names:
        assert f"names of Kafka 0.7 ({names}) and auto.offset.reset is not given" in said[0]
    caplog.clear()
    ConsumerConfig.from_properties(properties, auto_offset_reset="largest")
    assert caplog.records == []


# What is logged


@pytest.mark.catalogue("L5")
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"fetch_size": 7}, ["fetch_size", "largest", "set auto.offset.reset"]),
        ({"rebalance_max_retries": 1}, ["2000 ms", "6000"]),
        ({"rebalance_drain_timeout_ms": 4000}, ["rebalance.drain.timeout.ms = 4000"]),
        ({"zookeeper_use_ssl": True, "zookeeper_ssl_verify_certs": False}, ["verify.certs"]),
    ],
)
def test_warnings(settings: dict[str, object], said: list[str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        config(**settings)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("zkconsumer.config", logging.WARNING)
    for words in said:
        assert words in record.getMessage()


def test_good_settings_under_any_name_log_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        ConsumerConfig(**{"zk.connect": "zk", "groupid": "g", "autooffset.reset": "smallest", "zk_synctime_ms": 3000})
    assert caplog.records == []


# The value


def test_it_is_frozen_comparable_and_hashable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().group_id = "other"  # type: ignore[misc]
    assert config(fetch_size=5) == config(fetch_message_max_bytes="5")
    assert hash(config()) == hash(config(fetch_message_max_bytes=1048576))
    assert config() != config(group_id="h")


def test_no_secret_is_shown() -> None:
    secret = config(
        zookeeper_auth="digest:me:hidden1",
        zookeeper_sasl_mechanism="PLAIN",
        zookeeper_sasl_username="me",
        zookeeper_sasl_password="hidden2",
        zookeeper_use_ssl=True,
        zookeeper_ssl_certfile="/c",
        zookeeper_ssl_keyfile="/k",
        zookeeper_ssl_keyfile_password="hidden3",
    )
    assert "hidden" not in repr(secret)
    assert "hidden" not in repr(secret.zookeeper_auth)
    assert "zookeeper_sasl_username='me'" in repr(secret)
    with pytest.raises(ConfigError) as refused:
        config(**{"zookeeper.auth": "digest:a:hidden", "zookeeper_auth": "digest:b:hidden"})
    assert "hidden" not in str(refused.value)
    assert secret.to_properties()["zookeeper.sasl.password"] == "hidden2"


def test_the_address_in_parts() -> None:
    assert config(zookeeper_connect="a:1,b/c/d").zookeeper_address == ZooKeeperAddress((("a", 1), ("b", 2181)), "/c/d")


def test_a_list_of_pairs_is_as_good_as_text() -> None:
    assert config(zookeeper_auth=[("digest", "a:b")]) == config(zookeeper_auth="digest:a:b")
    assert config(zookeeper_acl=[("world", "anyone", "cdrwa")]) == config(zookeeper_acl="open")


def test_commas_inside_a_credential() -> None:
    auth = config(zookeeper_auth=r"digest:a:x\,y\\z, sasl:b").zookeeper_auth
    assert auth == (ZooKeeperAuth("digest", "a:x,y\\z"), ZooKeeperAuth("sasl", "b"))


# Properties


def test_a_properties_file_of_java(tmp_path: Path) -> None:
    path = tmp_path / "consumer.properties"
    path.write_bytes(
        b"# a consumer\nzookeeper.connect = zk1:2181,\\\n    zk2:2181/kafka\n! old\ngroupid:billing\n"
        b"auto.commit.enable false\nzookeeper.sasl.mechanism=PLAIN\nzookeeper.sasl.username=me\n"
        b"zookeeper.sasl.password=gr\\u00fc\xc3\x9fe\n"
    )
    read = ConsumerConfig.from_properties(path, fetch_size=7)
    assert read.zookeeper_connect == "zk1:2181,zk2:2181/kafka"
    assert read.group_id == "billing"
    assert read.auto_commit_enable is False
    assert read.zookeeper_sasl_password == "grüße"
    assert read.fetch_message_max_bytes == 7
    assert ConsumerConfig.from_properties(str(path), fetch_size=7) == read


def test_settings_override_properties_under_whatever_name() -> None:
    base = {"zk.connect": "zk:1", "groupid": "g", "fetch.size": "5"}
    assert ConsumerConfig.from_properties(base, fetch_message_max_bytes=6).fetch_message_max_bytes == 6


@pytest.mark.parametrize("generation", ["auto", "0.7", "0.8"])
def test_defaults_survive_a_round_trip(generation: str) -> None:
    plain = config(kafka_generation=generation)
    assert ConsumerConfig.from_properties(plain.to_properties()) == plain


one_line = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
SETTINGS = {
    "group_id": st.text(st.sampled_from("aZ0._-"), min_size=3, max_size=9),
    "fetch_message_max_bytes": st.integers(1, INT32_MAX),
    "consumer_timeout_ms": st.integers(-INT32_MAX - 1, INT32_MAX),
    "auto_commit_enable": st.booleans(),
    "offsets_storage": st.sampled_from(["zookeeper", "kafka"]),
    "max_processing_interval_ms": st.integers(1, INT32_MAX),
    "statistics_interval_ms": st.integers(1, INT32_MAX),
    "zookeeper_sync_time_ms": st.integers(0, INT32_MAX),
    "zookeeper_auth": st.lists(st.tuples(st.sampled_from(["digest", "ip"]), one_line), max_size=3),
    "zookeeper_acl": st.lists(
        st.tuples(st.sampled_from(["ip", "world"]), one_line, st.sampled_from(["r", "cdrwa"]))
        | st.tuples(st.just("digest"), st.just("a,b:1iz7jz8rBcwVLRWmGLAqTD9F1cE="), st.just("cdrwa")),
        min_size=1, max_size=3,
    ),
}  # fmt: skip


@given(st.fixed_dictionaries({}, optional=SETTINGS))
def test_settings_survive_a_round_trip(settings: dict[str, object]) -> None:
    written = config(**settings)
    properties = written.to_properties()
    assert all(isinstance(value, str) and key(name).name == name for name, value in properties.items())
    assert ConsumerConfig.from_properties(properties) == written


WITHOUT_EFFECT = {"shallowiterator.enable"}
"""Those of Kafka 0.7: docs/CONFIGURATION.md names them."""
DEFAULTS_OF_OTHERS = {"zookeeper.sync.time.ms"}


def test_every_setting_has_an_effect_but_those_that_the_documentation_names() -> None:
    root = Path(__file__).resolve().parents[2] / "zkconsumer"
    tables = (
        "consumer_config.py", "keys.py", "typed_settings.py", "producer_config.py", "producer_keys.py",
        "frozen_settings.py", "kafka_consumer_config.py", "security_keys.py",
    )  # fmt: skip
    sources = [path for path in root.rglob("*.py") if path.name not in tables]
    words = set(re.findall(r"\w+", "\n".join(path.read_text(encoding="utf-8") for path in sources)))
    words |= {name.replace(".", "_") for name in SECURITY_SETTINGS}  # `Security.of` reads these
    assert {key.name for key in KEYS if key.attribute not in words} == WITHOUT_EFFECT | DEFAULTS_OF_OTHERS
    assert {key.name for key in PRODUCER_KEYS if key.attribute not in words} == {
        key.name for key in PRODUCER_KEYS if key.meaning.startswith("No effect")
    }
