"""The files of TLS settings: PEM, and truststores of Java; those that cannot be used are named with their setting."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from simpleconsumer.security.secret import WrongSecuritySetting
from simpleconsumer.security.tls import Tls
from simpleconsumer.security.tls_context import read_jks, tls_context
from zkconsumer.testing.certificates import Authority, Certificate, openssl, write_truststore

PASSWORD = "pass-phrase-4711"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority.make(folder, "authority")


@pytest.fixture(scope="module")
def client(authority: Authority) -> Certificate:
    return authority.sign("client")


@pytest.fixture(scope="module")
def encrypted(client: Certificate, folder: Path) -> Path:
    openssl(folder, "pkcs8", "-topk8", "-in", client.key.name, "-passout", f"pass:{PASSWORD}", "-out", "encrypted.key")
    return folder / "encrypted.key"


@pytest.fixture(scope="module")
def jks(authority: Authority, client: Certificate, folder: Path) -> Path:
    write_truststore(folder / "trust.jks", [authority.certificate, client.certificate], PASSWORD)
    return folder / "trust.jks"


def der(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


def trusted(tls: Tls) -> list[bytes]:
    return tls_context(tls).get_ca_certs(binary_form=True)


def test_authorities_come_from_pem_from_java_and_from_the_setting(authority: Authority, jks: Path) -> None:
    path, wanted = authority.certificate, [der(authority.certificate)]
    assert trusted(Tls(truststore=str(path))) == wanted
    assert trusted(Tls(trusted=path.read_text())) == wanted
    assert wanted[0] in trusted(Tls(truststore=str(jks), truststore_password=PASSWORD))
    assert trusted(Tls(truststore=str(jks))) == trusted(Tls(truststore=str(jks), truststore_password=PASSWORD))


def test_without_authorities_those_of_the_system_count_and_everything_is_checked() -> None:
    context = tls_context(Tls())
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert not tls_context(Tls(checks_host=False)).check_hostname
    assert tls_context(Tls(checks_host=False)).verify_mode is ssl.CERT_REQUIRED


def test_certificate_and_key_come_from_files_and_from_settings(client: Certificate, encrypted: Path) -> None:
    for tls in (
        Tls(keystore=str(client.both)),
        Tls(keystore=str(client.certificate), key_file=str(client.key)),
        Tls(keystore=str(client.certificate), key_file=str(encrypted), key_password=PASSWORD),
        Tls(chain=client.certificate.read_text(), key=client.key.read_text()),
        Tls(chain=client.certificate.read_text(), key=encrypted.read_text(), key_password=PASSWORD),
    ):
        assert tls_context(tls) is tls_context(tls)


def test_a_file_that_has_changed_is_read_again(authority: Authority, client: Certificate, tmp_path: Path) -> None:
    path = tmp_path / "trust.pem"
    path.write_bytes(authority.certificate.read_bytes())
    before = tls_context(Tls(truststore=str(path)))
    path.write_bytes(authority.certificate.read_bytes() * 2)
    assert tls_context(Tls(truststore=str(path))) is not before


def test_versions_and_suites_are_those_that_are_asked_for() -> None:
    context = tls_context(Tls(versions=("TLSv1.2",), cipher_suites=("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",)))
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2,) * 2
    assert "ECDHE-RSA-AES256-GCM-SHA384" in {suite["name"] for suite in context.get_ciphers()}
    assert "ECDHE-RSA-AES128-GCM-SHA256" not in {suite["name"] for suite in context.get_ciphers()}
    for name in ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_RSA_WITH_AES_128_CBC_SHA", "ECDHE-RSA-AES128-SHA"):
        assert tls_context(Tls(cipher_suites=(name,)))
    assert tls_context(Tls(cipher_suites=("TLS_AES_256_GCM_SHA384",))).minimum_version is ssl.TLSVersion.TLSv1_3


def refusal(tls: Tls) -> str:
    with pytest.raises(WrongSecuritySetting) as refused:
        tls_context(tls)
    assert PASSWORD not in str(refused.value)
    return str(refused.value)


def test_files_that_cannot_be_used_are_named_with_their_setting(
    client: Certificate, authority: Authority, encrypted: Path, jks: Path, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("no certificate")
    (tmp_path / "damaged").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    text, certificate = str(tmp_path / "text"), str(client.certificate)
    absent = "ssl.truststore.location: /no/such cannot be read (No such file or directory)"
    assert refusal(Tls(truststore="/no/such")) == absent
    assert refusal(Tls(truststore=text)) == f"ssl.truststore.location: {text}: it is not a PEM file"
    assert "certificates cannot be read" in refusal(Tls(truststore=str(tmp_path / "damaged")))
    assert "ssl.truststore.certificates: its certificates" in refusal(Tls(trusted="x"))
    assert "the password does not open it" in refusal(Tls(truststore=str(jks), truststore_password="x"))
    keystore = str(client.keystore(PASSWORD))
    assert "PKCS12 files are not supported; convert it to PEM with openssl pkcs12" in refusal(Tls(truststore=keystore))
    assert "PKCS12 files are not supported" in refusal(Tls(keystore=keystore))
    assert "private keys are not read from JKS" in refusal(Tls(keystore=str(jks)))
    assert refusal(Tls(keystore=certificate)) == "ssl.key.location: it has no private key"
    assert refusal(Tls(chain="x", key="y")) == "ssl.keystore.key: it has no private key"
    assert "belongs to another certificate" in refusal(Tls(keystore=certificate, key_file=str(authority.key)))
    assert refusal(Tls(keystore=certificate, key_file=str(encrypted))).endswith("and no password is given")
    wrong = Tls(keystore=certificate, key_file=str(encrypted), key_password="x")
    assert refusal(wrong) == "ssl.key.password: it does not open the private key"
    assert refusal(Tls(cipher_suites=("NONE-SUCH",))) == "ssl.cipher.suites: OpenSSL supports none of them"


def test_a_store_of_java_that_is_damaged_is_refused(jks: Path, authority: Authority) -> None:
    data = jks.read_bytes()
    assert read_jks(data, PASSWORD)[0] == der(authority.certificate)
    for end in range(0, len(data), 7):
        with pytest.raises(ValueError, match=r"not a JKS file|truncated|does not open|unknown type|not possible"):
            read_jks(data[:end], PASSWORD)
    for at in range(4, 60):
        changed = data[:at] + bytes([data[at] ^ 0x80]) + data[at + 1 :]
        with pytest.raises(ValueError, match="does not open it, or the file was changed"):
            read_jks(changed, PASSWORD)
        try:
            read_jks(changed, None)
        except ValueError:
            pass  # of all errors, this alone
