"""Secrets are in no text: neither of a configuration, nor of what holds it, nor of an error."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

from simpleconsumer.security import Security
from simpleconsumer.security.sasl import Sasl
from simpleconsumer.security.secret import WrongSecuritySetting
from simpleconsumer.security.tls import Tls
from zkconsumer import ConsumerConfig, ProducerConfig
from zkconsumer.config.kafka_consumer_config import KafkaConsumerConfig
from zkconsumer.errors import ConfigError

WORD = "tr0ub4dor"
NOT_UTF8 = WORD + "\udcff"
"""As `os.environ` has a byte that is not UTF-8."""
SECURED = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "alice"}
OF_ZOOKEEPER = {
    "zookeeper_use_ssl": True, "zookeeper_ssl_certfile": "c.pem", "zookeeper_ssl_keyfile": "k.pem",
    "zookeeper_sasl_mechanism": "PLAIN", "zookeeper_sasl_username": "alice",
}  # fmt: skip
SASL_PLAIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="{WORD}";'

CONFIGS: dict[str, Callable[..., Any]] = {
    "consumer": lambda **given: ConsumerConfig("zk:2181", "g", **given),
    "producer": lambda **given: ProducerConfig(zookeeper_connect="zk:2181", **given),
    "KafkaConsumer": lambda **given: KafkaConsumerConfig(bootstrap_servers="b:9092", **given),
}
SECRETS = {
    "sasl_password": WORD, "ssl_key_password": WORD, "ssl_truststore_password": WORD, "ssl_keystore_key": WORD,
    "zookeeper_auth": f"digest:alice:{WORD}", "zookeeper_sasl_password": WORD, "zookeeper_ssl_keyfile_password": WORD,
}  # fmt: skip
each_config = pytest.mark.parametrize("config_of", CONFIGS.values(), ids=CONFIGS)


def shown_in(value: Any) -> list[str]:
    """Return all texts in which Python shows what an object holds."""
    return [repr(value), str(value), repr(vars(value)), str(value.__dict__), repr(asdict(value)), f"{value!r} {value}"]


@each_config
def test_no_text_of_a_configuration_has_its_secrets(config_of: Callable[..., Any]) -> None:
    given = {name: value for name, value in SECRETS.items() if name != "ssl_keystore_key"}
    config = config_of(**SECURED, **given, **OF_ZOOKEEPER)
    for one in (config, copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert WORD not in "".join(shown_in(one))
        assert one == config
        assert one.sasl_password == WORD
        assert f"{one.sasl_password}" == WORD
        assert one.security.sasl.password.encode() == WORD.encode()
        assert WORD in one.to_properties()["zookeeper.auth"]
        assert "***" in repr(vars(one))


@each_config
def test_nor_have_those_of_what_secures_connections(config_of: Callable[..., Any]) -> None:
    given = {**SECURED, "sasl_jaas_config": JAAS, "ssl_key_password": WORD, "ssl_truststore_password": WORD}
    del given["sasl_username"]
    security = config_of(**given, ssl_keystore_location="c.pem").security
    for one in (security, pickle.loads(pickle.dumps(security))):
        assert WORD not in "".join([*shown_in(one), *shown_in(one.sasl), *shown_in(one.tls)])
        assert one.sasl.password == one.tls.key_password == WORD
    tls = Tls(key=WORD, chain="c")
    assert WORD not in "".join(shown_in(tls))


@pytest.mark.parametrize("name", SECRETS)
@each_config
def test_a_secret_that_is_not_utf8_is_refused_at_its_setting(config_of: Callable[..., Any], name: str) -> None:
    """Or the error of whoever encodes it would show it, wherever that is raised or logged."""
    with pytest.raises(ConfigError) as caught:
        config_of(**{**SECURED, "sasl_password": "x", name: SECRETS[name] + "\udcff"})
    assert caught.value.key == name.replace("_", ".")
    assert "UTF-8" in str(caught.value)
    assert WORD not in f"{caught.value} {caught.value!r} {vars(caught.value)}"
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("name", ["sasl_username", "group_id"])
def test_so_is_any_other_text_that_is_sent(name: str) -> None:
    with pytest.raises(ConfigError, match="UTF-8"):
        KafkaConsumerConfig(bootstrap_servers="b:9092", **{name: "name\udcff"})


def test_the_name_of_a_file_may_be_any_bytes() -> None:
    path = "ca\udcff.pem"
    config = KafkaConsumerConfig(bootstrap_servers="b:9092", security_protocol="SSL", ssl_truststore_location=path)
    assert config.security.tls is not None
    assert config.security.tls.truststore == path


@pytest.mark.parametrize(
    ("setting", "make"),
    [
        ("sasl.password", lambda: Sasl("PLAIN", "alice", NOT_UTF8)),
        ("sasl.username", lambda: Sasl("PLAIN", NOT_UTF8, "x")),
        ("ssl.key.password", lambda: Tls(key_password=NOT_UTF8)),
        ("ssl.keystore.key", lambda: Tls(key=NOT_UTF8, chain="c")),
        ("ssl.keystore.certificate.chain", lambda: Tls(chain=NOT_UTF8)),
        (
            "sasl.password",
            lambda: Security.of({**SASL_PLAIN, "sasl.jaas.config": JAAS.replace(WORD, NOT_UTF8)}),
        ),
    ],
)
def test_without_a_configuration_it_is_refused_as_well(setting: str, make: Callable[[], object]) -> None:
    with pytest.raises(WrongSecuritySetting) as caught:
        make()
    assert (caught.value.setting, WORD in f"{caught.value!r} {caught.value}") == (setting, False)
