"""Listeners of brokers with TLS and SASL, in addition to the plain one that brokers use among themselves.

Users of SASL's mechanism SCRAM, as brokers with ZooKeeper keep them there.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kazoo.client import KazooClient

from simpleconsumer.security.sasl import HASHES
from zkconsumer.testing.certificates import LOCAL, Authority, Certificate, write_truststore
from zkconsumer.testing.errors import refused, require, version_tuple
from zkconsumer.testing.kafka.settings import PROTOCOLS

PLAINTEXT = "PLAINTEXT"
SECURED = PROTOCOLS[1:]
FIRST_WITH = {"SSL": (0, 9), "SASL_PLAINTEXT": (0, 10), "SASL_SSL": (0, 10)}
"""Protocol -> the first version of Kafka whose brokers the kit starts with it; SASL of 0.9 is Kerberos alone."""
MECHANISMS = {"PLAIN": (0, 10), "SCRAM-SHA-256": (0, 10, 2), "SCRAM-SHA-512": (0, 10, 2), "OAUTHBEARER": (2, 0)}
"""Mechanism of SASL -> the first version of Kafka that has it."""
FIRST_WITH_LISTENER_JAAS = (2, 0)
"""The first version of Kafka whose settings name the users of each listener; before, a file of the JVM does."""
FIRST_WITH_REAUTHENTICATION = (2, 2)
_STORE_PASSWORD = "store-password"
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}


@dataclass(frozen=True)
class BrokerCertificates:
    """The certificates of brokers and clients, good ones and bad ones.

    Attributes:
        authority: signs those of brokers and of clients that brokers trust.
        untrusted: an authority that no broker trusts.
        broker: of a broker on this machine.
        elsewhere: of a broker on another host.
        client: of a client.
        stranger: of a client, signed by the other authority.
        truststore: the authority as Java has it.
        truststore_password: of that file.
    """

    authority: Authority
    untrusted: Authority
    broker: Certificate
    elsewhere: Certificate
    client: Certificate
    stranger: Certificate
    truststore: Path
    truststore_password: str = field(default=_STORE_PASSWORD, repr=False)

    @classmethod
    def make(cls, folder: Path) -> BrokerCertificates:
        """Make them all in a folder; takes a second."""
        folder.mkdir(parents=True, exist_ok=True)
        authority, untrusted = (Authority.make(folder, name) for name in ("authority", "untrusted"))
        truststore = folder / "truststore.jks"
        write_truststore(truststore, [authority.certificate], _STORE_PASSWORD)
        return cls(
            authority, untrusted, authority.sign("broker", LOCAL), authority.sign("elsewhere", "DNS:kafka.example.org"),
            authority.sign("client", "DNS:client"), untrusted.sign("stranger", "DNS:stranger"), truststore,
        )  # fmt: skip


@dataclass(frozen=True)
class BrokerSecurity:
    """Which listeners the brokers of a `KafkaCluster` have in addition to the plain one, and whom they let in.

    Attributes:
        protocols: of SSL, SASL_PLAINTEXT and SASL_SSL; None: all that the version has.
        mechanisms: of SASL; None: all that the version has of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER
            (with tokens that nobody signs).
        users: password by name, for PLAIN and SCRAM.
        client_auth: whether clients of SSL show a certificate.
        certificate: `broker`, or `elsewhere`: of another host.
        max_reauth_ms: `connections.max.reauth.ms`: when clients have to authenticate again; None: never.
        certificates: None makes new ones.
    """

    protocols: Sequence[str] | None = None
    mechanisms: Sequence[str] | None = None
    users: Mapping[str, str] = field(default_factory=lambda: {"alice": "secret-of-alice"}, repr=False)
    client_auth: Literal["none", "requested", "required"] = "none"
    certificate: Literal["broker", "elsewhere"] = "broker"
    max_reauth_ms: int | None = None
    certificates: BrokerCertificates | None = None

    def check(self, version: str) -> None:
        """Return if brokers of this version have these listeners.

        Raises:
            NotSupported: they have not.
            ValueError: there is no such protocol or mechanism.
        """
        for asked, known, what in (
            (self.protocols, FIRST_WITH, "protocol"), (self.mechanisms, MECHANISMS, "mechanism")
        ):  # fmt: skip
            for each in asked or ():
                if each not in known:
                    raise ValueError(f"{what} {each!r}: known are {', '.join(known)}")
                require(version, known[each], f"{what} {each}")
        if not protocols_of(version):
            raise refused(version, FIRST_WITH["SSL"], "TLS")
        if self.max_reauth_ms is not None:
            require(version, FIRST_WITH_REAUTHENTICATION, "connections.max.reauth.ms")

    def protocols_of(self, version: str) -> list[str]:
        """The protocols of the listeners of brokers of a version."""
        return protocols_of(version) if self.protocols is None else list(self.protocols)

    def mechanisms_of(self, version: str) -> list[str]:
        """The mechanisms of SASL on brokers of a version."""
        return mechanisms_of(version) if self.mechanisms is None else list(self.mechanisms)

    def settings(self, version: str, certificates: BrokerCertificates) -> dict[str, object]:
        """Properties of a broker."""
        shown: Certificate = getattr(certificates, self.certificate)
        found: dict[str, object] = {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": shown.keystore(_STORE_PASSWORD),
            "ssl.keystore.password": _STORE_PASSWORD,
            "ssl.key.password": _STORE_PASSWORD,
            "ssl.truststore.type": "JKS",
            "ssl.truststore.location": certificates.truststore,
            "ssl.truststore.password": certificates.truststore_password,
            "ssl.client.auth": self.client_auth,
        }
        sasl = [name for name in self.protocols_of(version) if name.startswith("SASL")]
        mechanisms = self.mechanisms_of(version)
        if not sasl or not mechanisms:
            return found
        found["sasl.enabled.mechanisms"] = ",".join(mechanisms)
        if self.max_reauth_ms is not None:
            found["connections.max.reauth.ms"] = self.max_reauth_ms
        if version_tuple(version) >= FIRST_WITH_LISTENER_JAAS:
            for protocol in sasl:
                for mechanism in mechanisms:
                    key = f"listener.name.{protocol.lower()}.{mechanism.lower()}.sasl.jaas.config"
                    found[key] = self._login_module(mechanism)
        return found

    def jvm_flags(self, version: str, folder: Path) -> tuple[str, ...]:
        """Write the file that names users, where a version needs one, and return the flags that name it."""
        mechanisms = self.mechanisms_of(version)
        if version_tuple(version) >= FIRST_WITH_LISTENER_JAAS or not mechanisms:
            return ()
        path = folder / "kafka-jaas.conf"
        path.touch(mode=0o600)
        modules = dict.fromkeys(self._login_module(mechanism) for mechanism in mechanisms)
        path.write_text("KafkaServer {\n" + "".join(f"  {module}\n" for module in modules) + "};\n")
        return (f"-Djava.security.auth.login.config={path}",)

    def _login_module(self, mechanism: str) -> str:
        line = f"{_LOGIN_MODULES[mechanism]} required"
        if mechanism == "PLAIN":
            line += "".join(f' user_{name}="{password}"' for name, password in self.users.items())
        if mechanism == "OAUTHBEARER":
            line += ' unsecuredLoginStringClaim_sub="broker"'
        return f"{line};"

    def scram_users(self, version: str) -> dict[str, dict[str, str]]:
        """Mechanism -> password, by user, of the mechanisms of SCRAM on brokers of a version."""
        scram = [each for each in self.mechanisms_of(version) if each in HASHES]
        return {name: dict.fromkeys(scram, password) for name, password in self.users.items()} if scram else {}


def protocols_of(version: str) -> list[str]:
    """The secured protocols that the kit starts brokers of a version with."""
    return [name for name in SECURED if version_tuple(version) >= FIRST_WITH[name]]


def mechanisms_of(version: str) -> list[str]:
    """The mechanisms of SASL that the kit starts brokers of a version with."""
    return [name for name, first in MECHANISMS.items() if version_tuple(version) >= first]


_ITERATIONS = 4096


def write(client: KazooClient, name: str, passwords: Mapping[str, str]) -> None:
    """Write a user, whom brokers find when they start.

    Args:
        passwords: by mechanism.
    """
    config = {mechanism: _credential(mechanism, password) for mechanism, password in passwords.items()}
    path, data = f"/config/users/{name}", json.dumps({"version": 1, "config": config}).encode()
    client.ensure_path(path)
    client.set(path, data)


def _credential(mechanism: str, password: str) -> str:
    """The form in which brokers with ZooKeeper keep a password: salt, keys, and iterations, and not the password.

    Source: Kafka 2.8.2, ScramCredentialUtils.credentialToString.
    """
    name, salt = HASHES[mechanism], os.urandom(16)
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, _ITERATIONS)
    stored = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    parts = (("salt", salt), ("stored_key", stored), ("server_key", hmac.digest(salted, b"Server Key", name)))
    texts = [f"{key}={base64.b64encode(value).decode()}" for key, value in parts]
    return ",".join([*texts, f"iterations={_ITERATIONS}"])
