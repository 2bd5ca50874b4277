"""How connections to brokers are secured: TLS, SASL, both, or neither, from settings under Kafka's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, cast

from simpleconsumer.imported_names import NotImported, imported, is_place
from simpleconsumer.security.sasl import HASHES, MECHANISMS, JaasEntry, Sasl, parse_jaas
from simpleconsumer.security.secret import WrongSecuritySetting
from simpleconsumer.security.tls import TLS_VERSIONS, Tls

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
ALIASES: Final = {
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.certificate.location": "ssl.keystore.location",
    "sasl.mechanisms": "sasl.mechanism",
}
"""Names of librdkafka -> those of Kafka."""
SETTINGS: Final = (
    "security.protocol",
    "ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.password", "ssl.truststore.certificates",
    "ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.certificate.chain", "ssl.keystore.key",
    "ssl.key.location", "ssl.key.password", "ssl.endpoint.identification.algorithm", "ssl.protocol",
    "ssl.enabled.protocols", "ssl.cipher.suites",
    "sasl.mechanism", "sasl.username", "sasl.password", "sasl.jaas.config", "sasl.oauthbearer.token.callback",
)  # fmt: skip
"""All names that `Security.of` accepts in addition to `ALIASES`."""

_STORE_TYPES: Final = {"ssl.truststore.type": ("PEM", "JKS"), "ssl.keystore.type": ("PEM",)}
_MODULES: Final = {"PLAIN": "PlainLoginModule", **dict.fromkeys(HASHES, "ScramLoginModule")}


@dataclass(frozen=True)
class Security:
    """How connections to brokers are secured. Its text has no secrets; a pickle of it has them.

    Attributes:
        protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        tls: None without TLS.
        sasl: None without SASL.
    """

    protocol: str = "PLAINTEXT"
    tls: Tls | None = None
    sasl: Sasl | None = None

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise WrongSecuritySetting("security.protocol", f"it must be one of {', '.join(PROTOCOLS)}")
        for name, is_wanted, given in (
            ("tls", self.protocol.endswith("SSL"), self.tls), ("sasl", self.protocol.startswith("SASL"), self.sasl)
        ):  # fmt: skip
            if is_wanted != (given is not None):
                verb = "needs" if is_wanted else "does not use"
                raise WrongSecuritySetting("security.protocol", f"{self.protocol} {verb} {name}")

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Return what settings under Kafka's names describe; those of librdkafka in `ALIASES` are taken, too.

        `Security.of({"security.protocol": "SASL_SSL", "ssl.ca.location": "ca.pem", "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice", "sasl.password": password})`. None is as a setting that is not there.

        Raises:
            WrongSecuritySetting: A setting is unknown, or cannot be used with the others. Files are not read yet.
        """
        given = _known(settings)
        protocol = str(given.get("security.protocol", "PLAINTEXT")).upper()
        if protocol not in PROTOCOLS:
            raise WrongSecuritySetting("security.protocol", f"it must be one of {', '.join(PROTOCOLS)}")
        tls = _tls(given) if protocol.endswith("SSL") else None
        return cls(protocol, tls, _sasl(given) if protocol.startswith("SASL") else None)


def _known(settings: Mapping[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, value in settings.items():
        kafka_name = ALIASES.get(name, name)
        if kafka_name not in SETTINGS:
            raise WrongSecuritySetting(name, "it is not a setting of TLS or SASL")
        if value is None:
            continue
        if given.setdefault(kafka_name, value) != value:
            raise WrongSecuritySetting(name, f"it is another name of {kafka_name}, and both are given")
    return given


def _tls(given: Mapping[str, Any]) -> Tls:
    for setting, types in _STORE_TYPES.items():
        if given.get(setting, types[0]).upper() not in types:
            said = f"{' and '.join(types)} can be read; openssl pkcs12 converts PKCS12 to PEM"
            raise WrongSecuritySetting(setting, said)
    for one, other in (("ssl.truststore.location", "ssl.truststore.certificates"),
                       ("ssl.keystore.location", "ssl.keystore.certificate.chain"),
                       ("ssl.key.location", "ssl.keystore.key")):  # fmt: skip
        if one in given and other in given:
            raise WrongSecuritySetting(other, f"{one} is also given; leave one of them out")
    has_certificate = "ssl.keystore.location" in given or "ssl.keystore.certificate.chain" in given
    for key in ("ssl.key.location", "ssl.keystore.key"):
        if key in given and not has_certificate:
            raise WrongSecuritySetting(key, "its certificate is missing; give ssl.keystore.location")
    return Tls(
        truststore=given.get("ssl.truststore.location"), truststore_password=given.get("ssl.truststore.password"),
        trusted=given.get("ssl.truststore.certificates"), keystore=given.get("ssl.keystore.location"),
        chain=given.get("ssl.keystore.certificate.chain"), key_file=given.get("ssl.key.location"),
        key=given.get("ssl.keystore.key"), key_password=given.get("ssl.key.password"),
        checks_host=_checks_host(given), versions=_versions(given), cipher_suites=_list(given, "ssl.cipher.suites"),
    )  # fmt: skip


def _checks_host(given: Mapping[str, Any]) -> bool:
    value = str(given.get("ssl.endpoint.identification.algorithm", "https"))
    if value.lower() not in ("https", "", "none"):
        raise WrongSecuritySetting(
            "ssl.endpoint.identification.algorithm", "it must be https, or empty to check no host names"
        )
    return value.lower() == "https"


def _versions(given: Mapping[str, Any]) -> tuple[str, ...]:
    names = _list(given, "ssl.enabled.protocols")
    newest = given.get("ssl.protocol")
    for setting, chosen in (("ssl.enabled.protocols", names), ("ssl.protocol", (newest,) if newest else ())):
        for name in chosen:
            if name not in TLS_VERSIONS and (setting, name) != ("ssl.protocol", "TLS"):
                raise WrongSecuritySetting(setting, f"{name!r} is not one of {', '.join(TLS_VERSIONS)}")
    order = list(TLS_VERSIONS)
    places = sorted(map(order.index, names))
    if places and places != list(range(places[0], places[-1] + 1)):
        raise WrongSecuritySetting("ssl.enabled.protocols", "a version between them is missing")
    if newest in TLS_VERSIONS:
        places = [each for each in places or range(order.index("TLSv1.2"), len(order)) if each <= order.index(newest)]
        if not places:
            places = [order.index(newest)]
    return tuple(order[each] for each in places)


def _list(given: Mapping[str, Any], setting: str) -> tuple[str, ...]:
    value = given.get(setting, ())
    parts = value.split(",") if isinstance(value, str) else value
    return tuple(part.strip() for part in parts if part.strip())


def _sasl(given: Mapping[str, Any]) -> Sasl:
    entry = _jaas(given)
    mechanism = given.get("sasl.mechanism")
    if mechanism not in MECHANISMS:
        said = "it must be set with SASL" if mechanism is None else "it is not supported"
        raise WrongSecuritySetting("sasl.mechanism", f"{said}; it must be one of {', '.join(MECHANISMS)}")
    if mechanism == "OAUTHBEARER":
        return Sasl(mechanism, token=_callback(given))
    options = {} if entry is None else entry.options
    if entry is not None and entry.module != _MODULES[mechanism]:
        said = f"{entry.module} is not {_MODULES[mechanism]}, the login module of {mechanism}"
        raise WrongSecuritySetting("sasl.jaas.config", said)
    found = {}
    for name in ("username", "password"):
        found[name] = given.get(f"sasl.{name}", options.get(name))
        if found[name] is None:
            raise WrongSecuritySetting(f"sasl.{name}", f"{mechanism} needs it, here or in sasl.jaas.config")
        if "\0" in found[name]:
            raise WrongSecuritySetting(f"sasl.{name}", "it has a zero byte")
    return Sasl(mechanism, found["username"], found["password"])


def _jaas(given: Mapping[str, Any]) -> JaasEntry | None:
    text = given.get("sasl.jaas.config")
    if text is None:
        return None
    try:
        return parse_jaas(text)
    except ValueError as error:
        raise WrongSecuritySetting("sasl.jaas.config", str(error)) from None


def _callback(given: Mapping[str, Any]) -> Callable[[], str]:
    callback = given.get("sasl.oauthbearer.token.callback")
    if isinstance(callback, str):
        return ImportedCallback(callback)
    if not callable(callback):
        raise WrongSecuritySetting(
            "sasl.oauthbearer.token.callback", "OAUTHBEARER needs it: a function that returns a token, or module:name"
        )
    return cast(Callable[[], str], callback)


@dataclass(frozen=True)
class ImportedCallback:
    """A function by its place, `package.module:name`, imported when it is first called."""

    place: str

    def __post_init__(self) -> None:
        if not is_place(self.place):
            raise WrongSecuritySetting("sasl.oauthbearer.token.callback", f"{self.place!r} is not module:function")

    def __call__(self) -> str:
        try:
            callback = imported(self.place)
        except NotImported as error:
            raise WrongSecuritySetting("sasl.oauthbearer.token.callback", str(error)) from error
        if not callable(callback):
            reason = f"{self.place} is a {type(callback).__name__}, not a function"
            raise WrongSecuritySetting("sasl.oauthbearer.token.callback", reason)
        token: str = callback()
        return token
