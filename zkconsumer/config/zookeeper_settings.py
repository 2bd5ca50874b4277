"""The `zookeeper.*` settings of a connection, as consumers and producers have them. Pure.

They are converted to arguments of the ZooKeeper client. The connection string is `host:port,host:port/chroot`.

Source: org.apache.zookeeper.client.ConnectStringParser (3.4.14).
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol

from zkconsumer.config.tables.kinds import OPEN_ACL, ZooKeeperAcl, ZooKeeperAuth
from zkconsumer.errors import ConfigError

__all__ = ["ZooKeeperSettings", "zookeeper_options"]


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


_KERBEROS = ("kerberos", "winkerberos")


def zookeeper_options(config: ZooKeeperSettings) -> dict[str, Any]:
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


DEFAULT_PORT = 2181

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+(?:%[0-9A-Za-z_.-]+)?\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")


class ZooKeeperAddress(NamedTuple):
    """The address of an ensemble: (host, port) of each server, and the chroot, empty or `/...`.

    An IPv6 host stands without brackets.
    """

    hosts: tuple[tuple[str, int], ...]
    chroot: str

    def __str__(self) -> str:
        hosts = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        return ",".join(hosts) + self.chroot


def parse_zookeeper_address(text: str) -> ZooKeeperAddress:
    """Return the parts of a connection string; a host without port has port 2181.

    The chroot is given once, after the last host, and applies to all of them. A lone `/` is no chroot.

    Raises:
        ValueError: No host, a port outside 1 to 65535, a chroot in the middle, or one that is no path.
    """
    servers, slash, rest = text.strip().partition("/")
    if "," in rest:
        raise ValueError("the chroot is given once, after the last host")
    hosts = tuple(_parse_host(server.strip()) for server in servers.split(","))
    components = rest.split("/") if rest else []
    for component in components:
        if component in ("", ".", "..") or not component.isprintable():
            raise ValueError(f"the chroot {slash + rest!r} is not a path")
    return ZooKeeperAddress(hosts, slash + rest if rest else "")


def _parse_host(server: str) -> tuple[str, int]:
    found = _HOST.fullmatch(server)
    if not found:
        raise ValueError(f"{server!r} is not host:port" if server else "a host is missing")
    port = int(found[2]) if found[2] else DEFAULT_PORT
    if not 1 <= port <= 65535:
        raise ValueError(f"port {port} of {found[1]} is not from 1 to 65535")
    return found[1].strip("[]"), port
