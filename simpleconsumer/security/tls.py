"""The `ssl.*` settings of connections to brokers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from simpleconsumer.security.secret import NOT_UTF8, WrongSecuritySetting, is_utf8, secret

TLS_VERSIONS: Final = ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
"""Java's name of each version, the oldest first."""

_SECRETS: Final = {
    "ssl.truststore.password": "truststore_password", "ssl.keystore.key": "key", "ssl.key.password": "key_password"
}  # fmt: skip
"""Setting -> attribute."""


@dataclass(frozen=True)
class Tls:
    """The `ssl.*` settings.

    Attributes:
        truststore: File with the certificates of authorities, PEM or JKS; None: the system's, or `trusted`.
        truststore_password: Shows that a JKS file is unchanged.
        trusted: The certificates themselves, as PEM.
        keystore: PEM file with the client's certificate, and its key if `key` and `key_file` are None.
        chain: The client's certificate itself, as PEM.
        key_file: PEM file with its private key.
        key: The private key itself, as PEM.
        key_password: Of the private key.
        checks_host: Whether the certificate must be that of the host.
        versions: Names of the versions of TLS that are spoken; empty: the ones that Python takes for safe.
        cipher_suites: Names as Java or OpenSSL has them; empty: the ones that Python takes for safe.
    """

    truststore: str | None = None
    truststore_password: str | None = field(default=None, repr=False)
    trusted: str | None = None
    keystore: str | None = None
    chain: str | None = None
    key_file: str | None = None
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    checks_host: bool = True
    versions: tuple[str, ...] = ()
    cipher_suites: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for setting, name in _SECRETS.items():
            text = getattr(self, name)
            if text is not None:
                object.__setattr__(self, name, secret(setting, text))
        for setting, text in (("ssl.truststore.certificates", self.trusted),
                              ("ssl.keystore.certificate.chain", self.chain)):  # fmt: skip
            if text is not None and not is_utf8(text):
                raise WrongSecuritySetting(setting, NOT_UTF8)
