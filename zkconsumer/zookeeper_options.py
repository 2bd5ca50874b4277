"""The `zookeeper.*` settings as the ZooKeeper client takes them."""

from __future__ import annotations

from typing import Any

from rebalance.zookeeper import access_list
from zkconsumer.config import ConsumerConfig
from zkconsumer.config_kinds import OPEN_ACL

__all__ = ["zookeeper_options"]


def zookeeper_options(config: ConsumerConfig) -> dict[str, Any]:
    """Keyword arguments of `rebalance.zookeeper.KazooPort` for credentials, SASL, TLS and ACLs."""
    options: dict[str, Any] = {}
    if config.zookeeper_auth:
        options["auth_data"] = [(auth.scheme, auth.credential) for auth in config.zookeeper_auth]
    if config.zookeeper_acl != (OPEN_ACL,):
        options["default_acl"] = access_list(config.zookeeper_acl)
    if config.zookeeper_use_ssl:
        options.update(
            use_ssl=True,
            ca=config.zookeeper_ssl_cafile,
            certfile=config.zookeeper_ssl_certfile,
            keyfile=config.zookeeper_ssl_keyfile,
            keyfile_password=config.zookeeper_ssl_keyfile_password,
            verify_certs=config.zookeeper_ssl_verify_certs,
        )
    if config.zookeeper_sasl_mechanism:
        sasl = {"mechanism": config.zookeeper_sasl_mechanism, "service": "zookeeper"}
        if config.zookeeper_sasl_username:
            sasl["username"] = config.zookeeper_sasl_username
        if config.zookeeper_sasl_password:
            sasl["password"] = config.zookeeper_sasl_password
        options["sasl_options"] = sasl
    return options
