"""Converts the `zookeeper.*` settings to arguments of the ZooKeeper client."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from zkconsumer.config.consumer_config import ConsumerConfig
from zkconsumer.config.kafka_consumer_config import KafkaConsumerConfig
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.config.tables.kinds import OPEN_ACL
from zkconsumer.errors import ConfigError

__all__ = ["zookeeper_options"]

_KERBEROS = ("kerberos", "winkerberos")


def zookeeper_options(config: ConsumerConfig | KafkaConsumerConfig | ProducerConfig) -> dict[str, Any]:
    """Keyword arguments of `rebalance.zookeeper.port.kazoo_port.KazooPort` for credentials, SASL, TLS and ACLs.

    Raises:
        ConfigError: a file of the TLS settings, or the library of the SASL mechanism, cannot be used.
    """
    options: dict[str, Any] = {}
    if config.zookeeper_auth:
        options["auth_data"] = [(auth.scheme, auth.credential) for auth in config.zookeeper_auth]
    if config.zookeeper_acl != (OPEN_ACL,):
        from rebalance.zookeeper.port.kazoo_client import access_list  # kazoo is loaded when it is used

        options["default_acl"] = access_list(config.zookeeper_acl)
    if config.zookeeper_use_ssl:
        from zkconsumer.config.zookeeper_tls import ZooKeeperTls  # the ssl module is large

        tls = ZooKeeperTls.of(config)
        tls()  # report a problem with the files at once, not at the first connection
        options["tls"] = tls
    if config.zookeeper_sasl_mechanism:
        _check_sasl_library(config.zookeeper_sasl_mechanism)
        sasl = {"mechanism": config.zookeeper_sasl_mechanism, "service": "zookeeper"}
        if config.zookeeper_sasl_username:
            sasl["username"] = config.zookeeper_sasl_username
        if config.zookeeper_sasl_password:
            sasl["password"] = config.zookeeper_sasl_password
        options["sasl_options"] = sasl
    return options


def _check_sasl_library(mechanism: str) -> None:
    if find_spec("puresasl") is None:
        raise ConfigError("zookeeper.sasl.mechanism", mechanism,
                          "left out while the package pure-sasl is not installed (pip install 'zkconsumer[sasl]')")
    if mechanism == "GSSAPI" and not any(find_spec(name) for name in _KERBEROS):
        raise ConfigError("zookeeper.sasl.mechanism", mechanism,
                          "left out while the package kerberos is not installed (pip install kerberos)")
