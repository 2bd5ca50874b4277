"""The settings of TLS and SASL to brokers, which consumers and producers share, and what they describe together.

Source: org.apache.kafka.clients.CommonClientConfigs, SslConfigs, SaslConfigs (4.3.1); CONFIGURATION.md of librdkafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from simpleconsumer.security.sasl import MECHANISMS
from simpleconsumer.security.secret import WrongSecuritySetting
from simpleconsumer.security.security import PROTOCOLS, Security
from zkconsumer.config.tables.kinds import PATH, Choice, Text
from zkconsumer.config.tables.setting_table import Key
from zkconsumer.errors import ConfigError

_PLAINTEXT: Final = "PLAINTEXT"


def _key(
    name: str, allowed: str, meaning: str, *, alias: str | None = None, secret: bool = False, default: str = "none"
) -> Key:
    return Key(name, Text(allowed), None, meaning, default_text=default, secret=secret, section="security",
               aliases=() if alias is None else (alias,))  # fmt: skip


# fmt: off
SECURITY_KEYS: Final = (
    Key("security.protocol", Choice(PROTOCOLS), _PLAINTEXT,
        "The protocol of connections to brokers. Of the addresses that a broker registers in ZooKeeper, the one with "
        "this protocol is used.",
        section="security"),
    _key("ssl.truststore.location", PATH, "Certificates of the trusted authorities, PEM or JKS.",
         alias="ssl.ca.location", default="the system's"),
    _key("ssl.truststore.type", "PEM or JKS", "Format of that file.", default="what the file is"),
    _key("ssl.truststore.password", "text", "Password of a JKS file; without it, the file is not checked for changes.",
         secret=True),
    _key("ssl.truststore.certificates", "PEM", "The certificates themselves, instead of a file."),
    _key("ssl.keystore.location", PATH, "The client's certificate, PEM.", alias="ssl.certificate.location"),
    _key("ssl.keystore.type", "PEM", "Format of that file.", default="`PEM`"),
    _key("ssl.keystore.certificate.chain", "PEM", "The client's certificate itself, instead of a file."),
    _key("ssl.keystore.key", "PEM", "The private key itself, instead of a file.", secret=True),
    _key("ssl.key.location", PATH, "The private key, PEM.", default="in the file of the certificate"),
    _key("ssl.key.password", "text", "Password of the private key.", secret=True),
    Key("ssl.endpoint.identification.algorithm", Text("https, or empty"), "https",
        "Whether the certificate of a broker must have its host name; empty: host names are not checked.",
        section="security"),
    _key("ssl.protocol", "TLSv1.2 or TLSv1.3", "The newest version of TLS that is used.", default="the newest"),
    _key("ssl.enabled.protocols", "names separated by commas", "The versions of TLS that are used.",
         default="`TLSv1.2,TLSv1.3`"),
    _key("ssl.cipher.suites", "names separated by commas", "The cipher suites, as Java or OpenSSL names them.",
         default="Python's"),
    Key("sasl.mechanism", Choice(MECHANISMS), None, "SASL mechanism; required with SASL.",
        default_text="none", section="security", aliases=("sasl.mechanisms",)),
    _key("sasl.username", "text", "User name, for PLAIN and SCRAM."),
    _key("sasl.password", "text", "Password, for PLAIN and SCRAM.", secret=True),
    _key("sasl.jaas.config", "a login module of Java", "User name and password in the form of Java's clients.",
         secret=True),
    _key("sasl.oauthbearer.token.callback", "module:name of a function",
         "The function that returns a token, for OAUTHBEARER."),
)
# fmt: on

_NAMES: Final = tuple(key.name for key in SECURITY_KEYS)
_DEFAULTS: Final = {key.name: key.default for key in SECURITY_KEYS}
_SECRET: Final = frozenset(key.name for key in SECURITY_KEYS if key.secret)


def security_of(values: Mapping[str, Any]) -> Security:
    """Return what settings describe.

    Args:
        values: By their names; others are not looked at.

    Raises:
        ConfigError: Two of them contradict each other, or one is missing.
    """
    try:
        return Security.of({name: values[name] for name in _NAMES})
    except WrongSecuritySetting as error:
        value = values.get(error.setting)
        shown = "***" if value is not None and error.setting in _SECRET else value
        wanted = "given" if value is None else "one that can be used"
        raise ConfigError(error.setting, shown, f"{wanted}: {error.reason}") from None


def warning_about_security(given: Mapping[str, object], values: Mapping[str, Any]) -> str | None:
    """Return a sentence if settings of TLS or SASL have no effect, or check less than they should; else None."""
    protocol = values["security.protocol"]
    for prefix, is_used in (("ssl.", protocol.endswith("SSL")), ("sasl.", protocol.startswith("SASL"))):
        idle = sorted(name for name in given if name.startswith(prefix) and given[name] != _DEFAULTS.get(name, given))
        if idle and not is_used:
            return f"{idle[0]} has no effect: security.protocol is {protocol}"
    if protocol.endswith("SSL") and not values["ssl.endpoint.identification.algorithm"]:
        return "ssl.endpoint.identification.algorithm is empty: another host with a trusted certificate can pretend " \
               "to be a broker"  # fmt: skip
    if protocol == "SASL_PLAINTEXT" and values["sasl.mechanism"] == "PLAIN":
        return "sasl.mechanism is PLAIN and security.protocol SASL_PLAINTEXT: the password is sent in clear text"
    return None
