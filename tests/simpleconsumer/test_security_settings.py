"""Security: what settings under Kafka's names describe, and which ones cannot be used together."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from simpleconsumer.security import Security, WrongSecuritySetting
from simpleconsumer.security.sasl import Sasl, parse_jaas
from simpleconsumer.security.tls import Tls

SECRET = "s3cret"
JAAS = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="{SECRET}";'
PLAIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
SSL = {"security.protocol": "SSL"}


def token() -> str:
    return "t0ken"


def test_without_settings_nothing_is_secured() -> None:
    assert Security.of({}) == Security() == Security.of({"security.protocol": None})
    assert (Security().tls, Security().sasl) == (None, None)


def test_protocols_say_what_there_is() -> None:
    assert Security.of(SSL) == Security("SSL", Tls())
    both = Security.of({**PLAIN, "security.protocol": "sasl_ssl", "sasl.username": "ann", "sasl.password": SECRET})
    assert both == Security("SASL_SSL", Tls(), Sasl("PLAIN", "ann", SECRET))


def test_users_of_java_and_of_librdkafka_find_their_names() -> None:
    java = Security.of({"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": JAAS,
                        "ssl.truststore.location": "ca.pem", "ssl.keystore.location": "me.pem",
                        "ssl.key.password": SECRET})  # fmt: skip
    librdkafka = Security.of({"security.protocol": "SASL_SSL", "sasl.mechanisms": "SCRAM-SHA-512",
                              "sasl.username": "ann", "sasl.password": SECRET, "ssl.ca.location": "ca.pem",
                              "ssl.certificate.location": "me.pem", "ssl.key.password": SECRET})  # fmt: skip
    assert java == librdkafka
    assert java.sasl == Sasl("SCRAM-SHA-512", "ann", SECRET)
    assert java.tls == Tls(truststore="ca.pem", keystore="me.pem", key_password=SECRET)


def test_a_token_comes_from_a_function_or_from_the_name_of_one() -> None:
    bearer = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    for callback in (token, f"{__name__}:token"):
        sasl = Security.of({**bearer, "sasl.oauthbearer.token.callback": callback}).sasl
        assert sasl is not None
        assert sasl.token is not None
        if callback is token or __name__ != "__main__":
            assert pickle.loads(pickle.dumps(sasl)) == sasl
    found = Security.of({**bearer, "sasl.oauthbearer.token.callback": "tempfile:gettempdir"}).sasl
    assert found is not None
    assert found.token is not None
    assert found.token().startswith("/")


@pytest.mark.parametrize(
    ("settings", "versions"),
    [
        ({"ssl.enabled.protocols": "TLSv1.2"}, ("TLSv1.2",)),
        ({"ssl.enabled.protocols": "TLSv1.3, TLSv1.2"}, ("TLSv1.2", "TLSv1.3")),
        ({"ssl.protocol": "TLSv1.2"}, ("TLSv1.2",)),
        ({"ssl.protocol": "TLS"}, ()),
        ({"ssl.protocol": "TLSv1.3"}, ("TLSv1.2", "TLSv1.3")),
        ({"ssl.protocol": "TLSv1.2", "ssl.enabled.protocols": "TLSv1.2,TLSv1.3"}, ("TLSv1.2",)),
    ],
)
def test_versions_of_tls(settings: dict[str, str], versions: tuple[str, ...]) -> None:
    tls = Security.of({**SSL, **settings}).tls
    assert tls is not None
    assert tls.versions == versions


def test_names_of_hosts_are_checked_unless_an_empty_setting_says_no() -> None:
    for value, checks in (("https", True), ("HTTPS", True), ("", False)):
        tls = Security.of({**SSL, "ssl.endpoint.identification.algorithm": value}).tls
        assert tls is not None
        assert tls.checks_host is checks


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"security.protocol": "TLS"}, "security.protocol: it must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"ssl.trustore.location": "x"}, "ssl.trustore.location: it is not a setting of TLS or SASL"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism: it must be set with SASL; it must be one of PLAIN, SCRAM"),
        ({**PLAIN, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism: it is not supported; it must be one of PLAIN"),
        (PLAIN, "sasl.username: PLAIN needs it, here or in sasl.jaas.config"),
        ({**PLAIN, "sasl.username": "ann"}, "sasl.password: PLAIN needs it"),
        ({**PLAIN, "sasl.username": "a\0b", "sasl.password": SECRET}, "sasl.username: it has a zero byte"),
        ({**PLAIN, "sasl.jaas.config": JAAS}, "sasl.jaas.config: ScramLoginModule is not PlainLoginModule"),
        ({**PLAIN, "sasl.jaas.config": JAAS[:-1]}, "sasl.jaas.config: it must end with a semicolon"),
        ({**PLAIN, "sasl.mechanism": "OAUTHBEARER"}, "sasl.oauthbearer.token.callback: OAUTHBEARER needs it"),
        ({**PLAIN, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.callback": "x"}, "'x' is not module:func"),
        ({**SSL, "ssl.truststore.type": "PKCS12"}, "ssl.truststore.type: PEM and JKS can be read; openssl"),
        ({**SSL, "ssl.keystore.type": "JKS"}, "ssl.keystore.type: PEM can be read; openssl pkcs12"),
        ({**SSL, "ssl.ca.location": "a", "ssl.truststore.location": "b"}, "is another name"),
        ({**SSL, "ssl.truststore.location": "a", "ssl.truststore.certificates": "b"}, "location is also given"),
        ({**SSL, "ssl.key.location": "a"}, "ssl.key.location: its certificate is missing"),
        ({**SSL, "ssl.enabled.protocols": "SSLv3"}, "ssl.enabled.protocols: 'SSLv3' is not one of TLSv1,"),
        ({**SSL, "ssl.enabled.protocols": "TLSv1.1,TLSv1.3"}, "enabled.protocols: a version between them"),
        ({**SSL, "ssl.protocol": "x"}, "ssl.protocol: 'x' is not one of"),
        ({**SSL, "ssl.endpoint.identification.algorithm": "LDAPS"}, "it must be https, or empty to check no host"),
    ],
)
def test_settings_that_cannot_be_are_named(settings: dict[str, str], said: str) -> None:
    with pytest.raises(WrongSecuritySetting, match=said) as refused:
        Security.of(settings)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(("protocol", "tls", "sasl"), [("SSL", None, None), ("PLAINTEXT", Tls(), None),
                                                       ("SASL_SSL", Tls(), None), ("TLS", None, None)])  # fmt: skip
def test_a_value_says_what_its_protocol_says(protocol: str, tls: Tls | None, sasl: Sasl | None) -> None:
    with pytest.raises(WrongSecuritySetting, match=r"security\.protocol"):
        Security(protocol, tls, sasl)


def test_no_text_has_a_secret() -> None:
    names = ("ssl.truststore.password", "ssl.key.password", "ssl.keystore.key", "sasl.password", "sasl.jaas.config")
    settings = {**dict.fromkeys(names, SECRET), "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": "ann", "sasl.jaas.config": JAAS, "ssl.keystore.location": "x"}  # fmt: skip
    security = Security.of(settings)
    assert security.tls is not None
    assert SECRET in (security.tls.key or "")
    for text in (repr(security), str(security), f"{security!s:>5}"):
        assert SECRET not in text
        assert "ann" in text


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (JAAS, {"username": "ann", "password": SECRET}),
        ("a.b.Module required;", {}),
        ("Module REQUIRED  a='b c' ;\n", {"a": "b c"}),
        ('Module required a="=" b=";" c="\\"\\\\";', {"a": "=", "b": ";", "c": '"\\'}),
        ("Module required debug=true;", {"debug": "true"}),
    ],
)
def test_jaas_is_read_as_java_reads_it(text: str, options: dict[str, str]) -> None:
    assert parse_jaas(text).options == options


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "class of a login module"),
        ("Module;", "class of a login module"),
        ("= required a=b;", "class of a login module"),
        (f"Module required password={SECRET}", "semicolon"),
        (f'Module required password="{SECRET};', "character 26 starts neither a word"),
        (f"Module required password {SECRET};", "options must follow"),
        (f"Module required password=;{SECRET}=x;", "more than one login module"),
        (f"{JAAS} {JAAS}", "more than one login module"),
    ],
)
def test_jaas_that_cannot_be_read_is_not_shown(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        parse_jaas(text)
    assert SECRET not in str(refused.value)


def test_a_file_that_is_not_there_is_no_matter_of_the_settings(tmp_path: Path) -> None:
    assert Security.of({**SSL, "ssl.truststore.location": str(tmp_path / "none")}).tls is not None
