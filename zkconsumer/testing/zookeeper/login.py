"""How a cluster, its brokers and the members of its groups authenticate to ZooKeeper: SASL, digest, TLS."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from zkconsumer.testing.errors import NoSession, NotSupported


@dataclass(frozen=True)
class ZooKeeperLogin:
    """A user of ZooKeeper, the certificates of connections to it, or both.

    | | consumers of ours, the kit's own clients | Kafka brokers | Java members |
    |---|---|---|---|
    | SASL with DIGEST-MD5 | all | all whose ZooKeeper client is 3.4 or later (Kafka 0.8.0) | all |
    | digest | all | none: Kafka never sends one | none |
    | TLS | all | those of Kafka 2.5 and later | none |

    SASL needs the package pure-sasl (`pip install 'zkconsumer[sasl]'`). Nobody checks that the name in the server's
    certificate is that of the server.

    Attributes:
        username: Its name; empty for TLS alone.
        password: Its password; in no command line, and only in files that nobody else can read.
        scheme: How the password is shown: `sasl` with DIGEST-MD5, or `digest`.
        authority: A PEM file with the certificates of the authorities that sign the servers'; it turns TLS on.
        certificate: A PEM file with the client's certificate and its private key, for servers that demand one. The key
            of a Kafka broker must be in PKCS #8 (`BEGIN PRIVATE KEY`) and not encrypted.
    """

    username: str = ""
    password: str = field(default="", repr=False)
    _: KW_ONLY
    scheme: Literal["sasl", "digest"] = "sasl"
    authority: str | Path | None = None
    certificate: str | Path | None = None

    def __post_init__(self) -> None:
        if self.scheme not in ("sasl", "digest"):
            raise ValueError(f"scheme is {self.scheme!r}; it must be 'sasl' or 'digest'")
        if self.certificate is not None and self.authority is None:
            raise ValueError("certificate needs authority, the certificates that the servers' are checked against")
        if not self.username and self.authority is None:
            raise ValueError("a login needs a username, an authority, or both")

    @classmethod
    def of_settings(cls, settings: Mapping[str, object]) -> ZooKeeperLogin | None:
        """Return the login that the settings of a consumer describe; None without credentials and TLS."""
        given = {name: str(value) for name, value in settings.items() if value not in (None, "")}
        tls = given.get("zookeeper.use.ssl", "").lower() == "true"
        files: dict[str, Any] = {}
        if tls and given.get("zookeeper.ssl.cafile"):
            files = {"authority": given["zookeeper.ssl.cafile"], "certificate": given.get("zookeeper.ssl.certfile")}
        if given.get("zookeeper.sasl.username"):
            return cls(given["zookeeper.sasl.username"], given.get("zookeeper.sasl.password", ""), **files)
        scheme, _, credential = given.get("zookeeper.auth", "").partition(":")
        if scheme == "digest":
            username, _, password = credential.partition(":")
            return cls(username, password, scheme="digest", **files)
        return cls(**files) if files else None

    def settings(self) -> dict[str, str]:
        """Return the settings of a consumer of ours."""
        found: dict[str, str] = {}
        if self.username and self.scheme == "sasl":
            found = {"zookeeper.sasl.mechanism": "DIGEST-MD5", "zookeeper.sasl.username": self.username,
                     "zookeeper.sasl.password": self.password}  # fmt: skip
        elif self.username:
            found = {"zookeeper.auth": f"digest:{self.username}:{self.password}"}
        if self.authority is not None:
            found |= {"zookeeper.use.ssl": "true", "zookeeper.ssl.cafile": str(self.authority)}
        if self.certificate is not None:
            found["zookeeper.ssl.certfile"] = str(self.certificate)
        return found

    def client_options(self) -> dict[str, Any]:
        """Return the arguments of a `KazooClient`."""
        options: dict[str, Any] = {}
        if self.username and self.scheme == "sasl":
            options["sasl_options"] = {"mechanism": "DIGEST-MD5", "service": "zookeeper", "username": self.username,
                                       "password": self.password}  # fmt: skip
        elif self.username:
            options["auth_data"] = [("digest", f"{self.username}:{self.password}")]
        if self.authority is not None:
            options |= {"use_ssl": True, "ca": str(self.authority)}
        if self.certificate is not None:
            options |= {"certfile": str(self.certificate), "keyfile": str(self.certificate)}
        return options

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context of a connection; None without TLS. Names of hosts are not checked."""
        if self.authority is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(self.authority)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate)
        return context

    def kafka_settings(self) -> dict[str, str]:
        """Return the settings of a Kafka broker of version 2.5 or later; those before have no TLS.

        ZooKeeper's servers from 3.9 on speak TLS 1.3 alone by default, and the clients in Kafka's brokers, of ZooKeeper
        3.5 to 3.8, TLS 1.2 alone: a handshake between them fails with the alert `protocol_version`. So both versions
        are enabled. The type of the files is given, because ZooKeeper concludes it from the end of the file name
        otherwise.
        """
        if self.authority is None:
            return {}
        found = {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",  # the other one has no TLS
            "zookeeper.ssl.protocol": "TLSv1.3",
            "zookeeper.ssl.enabled.protocols": "TLSv1.3,TLSv1.2",
            "zookeeper.ssl.endpoint.identification.algorithm": "",
            "zookeeper.ssl.truststore.location": str(Path(self.authority).absolute()),
            "zookeeper.ssl.truststore.type": "PEM",
        }
        if self.certificate is not None:
            found |= {
                "zookeeper.ssl.keystore.location": str(Path(self.certificate).absolute()),
                "zookeeper.ssl.keystore.type": "PEM",
            }
        return found

    def check_library(self) -> None:
        """Raise if the package that SASL needs is not installed; kazoo's thread would end with a traceback.

        Raises:
            NoSession: It is not installed.
        """
        if self.username and self.scheme == "sasl" and find_spec("puresasl") is None:
            raise NoSession(
                "the kit cannot authenticate by SASL: the package pure-sasl is not installed; "
                "pip install 'zkconsumer[sasl]'"
            )

    def check_java(self, program: str, *, speaks_tls: bool = False) -> None:
        """Raise if a Java program of the kit cannot authenticate in this way.

        Args:
            program: Its name and version, for the error.
            speaks_tls: Whether it can speak TLS with ZooKeeper.

        Raises:
            NotSupported: It cannot.
        """
        if self.username and self.scheme == "digest":
            raise NotSupported(
                f"{program} sends no digest to ZooKeeper: use scheme='sasl', or leave the nodes that it needs open"
            )
        if self.authority is not None and not speaks_tls:
            raise NotSupported(
                f"{program} speaks no TLS with ZooKeeper (of Kafka's programs, brokers do from 2.5 on): let it use the "
                "server's port without TLS, and give the login to an embedded cluster or to members of ours"
            )

    def jvm_flags(self, folder: Path) -> tuple[str, ...]:
        """Write the login configuration of a Java client into a folder, and return the flags that name it."""
        if not self.username:
            return ()
        jaas = folder / "jaas.conf"
        jaas.touch(mode=0o600)
        jaas.write_text(
            "Client {\n  org.apache.zookeeper.server.auth.DigestLoginModule required\n"
            f'  username="{self.username}"\n  password="{self.password}";\n}};\n'
        )
        return (f"-Djava.security.auth.login.config={jaas}",)
