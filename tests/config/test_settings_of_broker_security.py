"""The settings of TLS and SASL to brokers, as consumers and producers have them."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from simpleconsumer.security import Security
from simpleconsumer.security.sasl import Sasl
from simpleconsumer.security.tls import Tls
from zkconsumer.config import ConsumerConfig
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.errors import ConfigError

SECRET = "s3cret"
JAAS = f'x.ScramLoginModule required username="ann" password="{SECRET}";'


def consumer(**settings: Any) -> ConsumerConfig:
    return ConsumerConfig("zk", "g", **settings)


def producer(**settings: Any) -> ProducerConfig:
    return ProducerConfig(metadata_broker_list="b:9093", **settings)


both = pytest.mark.parametrize("make", [consumer, producer])


@both
def test_a_configuration_says_how_brokers_are_spoken_to(make: Any) -> None:
    assert make().security == Security()
    config = make(
        security_protocol="SASL_SSL", ssl_truststore_location="ca.pem", sasl_mechanism="SCRAM-SHA-256",
        sasl_jaas_config=JAAS,
    )  # fmt: skip
    assert config.security == Security("SASL_SSL", Tls(truststore="ca.pem"), Sasl("SCRAM-SHA-256", "ann", SECRET))
    assert pickle.loads(pickle.dumps(config)).security == config.security
    assert type(config).from_properties(config.to_properties()).security == config.security
    assert SECRET not in repr(config)
    assert "ann" not in repr(config)


@both
def test_names_of_librdkafka_are_taken(make: Any) -> None:
    config = make(**{"security.protocol": "SASL_SSL", "ssl.ca.location": "ca.pem", "sasl.mechanisms": "PLAIN",
                     "sasl.username": "ann", "sasl.password": SECRET})  # fmt: skip
    assert config.security == Security("SASL_SSL", Tls(truststore="ca.pem"), Sasl("PLAIN", "ann", SECRET))
    with pytest.raises(ConfigError, match="given once"):
        make(**{"ssl.ca.location": "a", "ssl.truststore.location": "b"})


@both
@pytest.mark.parametrize(
    ("settings", "key", "said"),
    [
        ({"security_protocol": "SASL_SSL"}, "sasl.mechanism", "it must be set with SASL"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, "sasl.username", "PLAIN needs it"),
        ({"security_protocol": "SSL", "ssl_truststore_type": "PKCS12"}, "ssl.truststore.type", "openssl pkcs12"),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_jaas_config": JAAS[:-1]},
         "sasl.jaas.config", "semicolon"),
    ],
)  # fmt: skip
def test_settings_that_contradict_each_other_are_named(
    make: Any, settings: dict[str, str], key: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        make(**settings)
    assert refused.value.key == key
    assert SECRET not in str(refused.value)


@both
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ssl_truststore_location": "ca.pem"}, "ssl.truststore.location has no effect: security.protocol"),
        ({"security_protocol": "SSL", "sasl_password": SECRET}, "sasl.password has no effect: security.protocol"),
        ({"security_protocol": "SSL", "ssl_endpoint_identification_algorithm": ""}, "another host with a trusted"),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "a", "sasl_password": "b"},
         "the password is sent in clear text"),
        ({"security_protocol": "SSL"}, ""),
    ],
)  # fmt: skip
def test_what_is_allowed_and_harmful_is_logged(
    make: Any, settings: dict[str, str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    make(**settings)
    assert said in caplog.text
    assert bool(said) == bool(caplog.text)
    assert SECRET not in caplog.text
