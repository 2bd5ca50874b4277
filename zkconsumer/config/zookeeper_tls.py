"""Makes the TLS context of a connection to ZooKeeper from the `zookeeper.ssl.*` settings and their files.

A file that cannot be used is a `ConfigError` that names its setting. The context is made anew for each connection:
certificates are replaced while a consumer runs.

Converts the `zookeeper.*` settings to arguments of the ZooKeeper client.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from zkconsumer.config.consumer_config import ConsumerConfig
from zkconsumer.config.kafka_consumer_config import KafkaConsumerConfig
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.config.properties import FrozenSettings
from zkconsumer.config.tables.kinds import OPEN_ACL
from zkconsumer.errors import ConfigError

_CAFILE = "zookeeper.ssl.cafile"
_CERTFILE = "zookeeper.ssl.certfile"
_KEYFILE = "zookeeper.ssl.keyfile"
_PASSWORD = "zookeeper.ssl.keyfile.password"
_FROM_JAVA = "openssl pkcs12 converts a PKCS12 keystore"


@dataclass(frozen=True)
class ZooKeeperTls:
    """The `zookeeper.ssl.*` settings; called, it makes a context for a connection.

    Raises:
        ConfigError: a file cannot be read, is no PEM file, or does not go with the others.
    """

    cafile: str | None
    certfile: str | None
    keyfile: str | None
    keyfile_password: str | None = field(repr=False)
    verify_certs: bool = True
    check_hostname: bool = False

    @classmethod
    def of(cls, config: FrozenSettings) -> ZooKeeperTls:
        """Those of a configuration."""
        return cls(
            config.zookeeper_ssl_cafile,
            config.zookeeper_ssl_certfile,
            config.zookeeper_ssl_keyfile,
            config.zookeeper_ssl_keyfile_password,
            config.zookeeper_ssl_verify_certs,
            config.zookeeper_ssl_check_hostname,
        )

    def __call__(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.check_hostname
        context.verify_mode = ssl.CERT_REQUIRED if self.verify_certs else ssl.CERT_NONE
        if self.cafile is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        else:
            _check_certificates(_CAFILE, self.cafile)
            context.load_verify_locations(self.cafile)
        if self.certfile is not None:
            _check_certificates(_CERTFILE, self.certfile)
            self._load_certificate(context, self.certfile)
        return context

    def _load_certificate(self, context: ssl.SSLContext, certfile: str) -> None:
        keyfile = self.keyfile or certfile
        if b"PRIVATE KEY-----" not in _read(_KEYFILE, keyfile):
            if self.keyfile is None:
                raise ConfigError(_KEYFILE, None, f"given, because {certfile!r} has no private key")
            raise ConfigError(_KEYFILE, keyfile, f"a PEM file with a private key, but it has none ({_FROM_JAVA})")
        is_encrypted = False

        def password() -> str:
            # Without this OpenSSL would ask on the terminal, and wait.
            nonlocal is_encrypted
            is_encrypted = True
            return self.keyfile_password or ""

        try:
            context.load_cert_chain(certfile, keyfile, password)
        except (ssl.SSLError, ValueError) as error:
            raise self._key_error(certfile, keyfile, is_encrypted, error) from None

    def _key_error(
        self, certfile: str, keyfile: str, is_encrypted: bool, error: ssl.SSLError | ValueError
    ) -> ConfigError:
        reason = str(getattr(error, "reason", None) or "")
        if reason == "KEY_VALUES_MISMATCH":
            return ConfigError(_KEYFILE, keyfile, f"the key of the certificate in {certfile!r}, and it is another key")
        if is_encrypted and self.keyfile_password is None:
            return ConfigError(_PASSWORD, None, f"given, because the key in {keyfile!r} is encrypted")
        if is_encrypted:
            return ConfigError(_PASSWORD, "***", f"the password of the key in {keyfile!r}, and it does not open it")
        said = f" ({reason.replace('_', ' ').lower()})" if reason else ""
        return ConfigError(_KEYFILE, keyfile, f"a PEM file with a private key that can be used{said}")


def _check_certificates(setting: str, path: str) -> None:
    """Raise unless the file holds certificates that can be read, all of them."""
    data = _read(setting, path)
    if b"-----BEGIN CERTIFICATE-----" not in data and b"-----BEGIN TRUSTED CERTIFICATE-----" not in data:
        raise ConfigError(setting, path, f"a PEM file with certificates, but it has none ({_FROM_JAVA})")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError as error:
        said = str(error.reason or error).replace("_", " ").lower()
        raise ConfigError(setting, path, f"a PEM file whose certificates can be read ({said})") from None


def _read(setting: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(setting, path, f"a file that can be read ({reason})") from None


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
        raise ConfigError(
            "zookeeper.sasl.mechanism",
            mechanism,
            "left out while the package pure-sasl is not installed (pip install 'zkconsumer[sasl]')",
        )
    if mechanism == "GSSAPI" and not any(find_spec(name) for name in _KERBEROS):
        raise ConfigError(
            "zookeeper.sasl.mechanism",
            mechanism,
            "left out while the package kerberos is not installed (pip install kerberos)",
        )
