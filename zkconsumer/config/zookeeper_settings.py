"""The `zookeeper.*` settings of a connection, as consumers and producers have them."""

from __future__ import annotations

from typing import Protocol

from zkconsumer.config.kinds import ZooKeeperAcl, ZooKeeperAuth

__all__ = ["ZooKeeperSettings"]


class ZooKeeperSettings(Protocol):
    """A configuration with the settings of the section `zookeeper`; docs/CONFIGURATION.md describes each."""

    @property
    def zookeeper_auth(self) -> tuple[ZooKeeperAuth, ...]: ...

    @property
    def zookeeper_acl(self) -> tuple[ZooKeeperAcl, ...]: ...

    @property
    def zookeeper_use_ssl(self) -> bool: ...

    @property
    def zookeeper_ssl_cafile(self) -> str | None: ...

    @property
    def zookeeper_ssl_certfile(self) -> str | None: ...

    @property
    def zookeeper_ssl_keyfile(self) -> str | None: ...

    @property
    def zookeeper_ssl_keyfile_password(self) -> str | None: ...

    @property
    def zookeeper_ssl_verify_certs(self) -> bool: ...

    @property
    def zookeeper_ssl_check_hostname(self) -> bool: ...

    @property
    def zookeeper_sasl_mechanism(self) -> str | None: ...

    @property
    def zookeeper_sasl_username(self) -> str | None: ...

    @property
    def zookeeper_sasl_password(self) -> str | None: ...
