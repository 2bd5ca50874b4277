"""Makes the TLS context of connections to brokers, from the `ssl.*` settings and their files.

Files are read again when they have changed: certificates are replaced while a consumer runs.

Threads: any.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

from simpleconsumer.security.java_stores import JKS_MAGIC, read_jks
from simpleconsumer.security.tls import TLS_VERSIONS, Tls
from simpleconsumer.security.wrong_setting import WrongSecuritySetting

__all__ = ["tls_context"]

_VERSIONS: Final = dict(zip(TLS_VERSIONS, (
    ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
), strict=True))  # fmt: skip
_PKCS12: Final = b"\x30"
_TO_PEM: Final = "convert it to PEM with openssl pkcs12"
_SUITE = re.compile(r"TLS_(ECDHE_RSA|ECDHE_ECDSA|DHE_RSA|RSA)_WITH_(\w+)_(SHA\d*)")


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Return the context of a new connection.

    Raises:
        WrongSecuritySetting: A file cannot be read or used; names its setting.
    """
    files = (("ssl.truststore.location", tls.truststore), ("ssl.keystore.location", tls.keystore),
             ("ssl.key.location", tls.key_file))  # fmt: skip
    return _context(tls, tuple(_stamp(setting, path) for setting, path in files))


def _stamp(setting: str, path: str | None) -> tuple[int, int] | None:
    if path is None:
        return None
    try:
        found = os.stat(path)
    except (OSError, ValueError) as error:
        raise _unreadable(setting, path, error) from None
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=16)
def _context(tls: Tls, stamps: Sequence[object]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.checks_host
    if tls.versions:
        found = sorted(_VERSIONS[name] for name in tls.versions)
        context.minimum_version, context.maximum_version = found[0], found[-1]
    if tls.cipher_suites:
        _choose_suites(context, tls.cipher_suites)
    _trust(context, tls)
    if tls.keystore is not None or tls.chain is not None:
        _show(context, tls)
    return context


def _choose_suites(context: ssl.SSLContext, names: Sequence[str]) -> None:
    older = [_openssl_name(name) for name in names if "_WITH_" in name or not name.startswith("TLS_")]
    if not older:  # those of TLS 1.3, which are always there
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    try:
        context.set_ciphers(":".join(older))
    except ssl.SSLError:
        raise WrongSecuritySetting("ssl.cipher.suites", "OpenSSL supports none of them") from None


def _openssl_name(name: str) -> str:
    """OpenSSL's name of a cipher suite before TLS 1.3, of Java's."""
    match = _SUITE.fullmatch(name)
    if match is None:
        return name
    exchange, cipher, digest = match.groups()
    cipher = cipher.removesuffix("_CBC").replace("AES_", "AES").replace("_", "-")
    if cipher == "CHACHA20-POLY1305":
        return f"{exchange.replace('_', '-')}-{cipher}"
    return "-".join([*([] if exchange == "RSA" else [exchange.replace("_", "-")]), cipher, digest])


def _trust(context: ssl.SSLContext, tls: Tls) -> None:
    if tls.trusted is not None:
        setting, certificates = "ssl.truststore.certificates", tls.trusted
    elif tls.truststore is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        return
    else:
        setting = "ssl.truststore.location"
        certificates = _authorities(tls.truststore, tls.truststore_password)
    try:
        context.load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError) as error:
        said = str(getattr(error, "reason", None) or "no certificate").replace("_", " ").lower()
        raise WrongSecuritySetting(setting, f"its certificates cannot be read ({said})") from None


def _authorities(path: str, password: str | None) -> str:
    """The certificates of a truststore, as PEM."""
    setting, data = "ssl.truststore.location", _read("ssl.truststore.location", path)
    if data.startswith(JKS_MAGIC):
        try:
            return "".join(ssl.DER_cert_to_PEM_cert(each) for each in read_jks(data, password))
        except ValueError as error:
            raise WrongSecuritySetting(setting, f"{path}: {error}") from None
    return _pem(setting, path, data)


def _pem(setting: str, path: str, data: bytes) -> str:
    """The text of a PEM file, with something in it."""
    if b"-----BEGIN " in data:
        return data.decode("ascii", "replace")
    kind = f"PKCS12 files are not supported; {_TO_PEM}" if data.startswith(_PKCS12) else "it is not a PEM file"
    if data.startswith(JKS_MAGIC):
        kind = "private keys are not read from JKS files; convert it to PEM with keytool and openssl"
    raise WrongSecuritySetting(setting, f"{path}: {kind}")


def _show(context: ssl.SSLContext, tls: Tls) -> None:
    """Have the context show the client's certificate."""
    chain = tls.chain if tls.chain is not None else _read_pem("ssl.keystore.location", tls.keystore or "")
    key = tls.key
    if key is None:
        key = chain if tls.key_file is None else _read_pem("ssl.key.location", tls.key_file)
    if "PRIVATE KEY-----" not in key:
        raise WrongSecuritySetting("ssl.keystore.key" if tls.key else "ssl.key.location", "it has no private key")
    is_encrypted = False

    def password() -> str:
        # Without this OpenSSL would ask on the terminal, and wait.
        nonlocal is_encrypted
        is_encrypted = True
        return tls.key_password or ""

    with _in_memory(chain) as chain_path, _in_memory(key) as key_path:
        try:
            context.load_cert_chain(chain_path, key_path, password)
        except (ssl.SSLError, ValueError) as error:
            raise _key_error(tls, is_encrypted, str(getattr(error, "reason", None) or "")) from None


def _key_error(tls: Tls, is_encrypted: bool, reason: str) -> WrongSecuritySetting:
    if reason == "KEY_VALUES_MISMATCH":
        return WrongSecuritySetting("ssl.keystore.location", "the private key belongs to another certificate")
    if is_encrypted and tls.key_password is None:
        return WrongSecuritySetting("ssl.key.password", "the private key is encrypted, and no password is given")
    if is_encrypted:
        return WrongSecuritySetting("ssl.key.password", "it does not open the private key")
    said = f" ({reason.replace('_', ' ').lower()})" if reason else ""
    return WrongSecuritySetting("ssl.keystore.location", f"certificate and private key cannot be used{said}")


@contextmanager
def _in_memory(text: str) -> Iterator[str]:
    """A path under which a text can be read once by OpenSSL, which takes only files; it is on no disk."""
    descriptor = os.memfd_create("zkconsumer-tls", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _read_pem(setting: str, path: str) -> str:
    return _pem(setting, path, _read(setting, path))


def _read(setting: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise _unreadable(setting, path, error) from None


def _unreadable(setting: str, path: str, error: OSError | ValueError) -> WrongSecuritySetting:
    reason = error.strerror if isinstance(error, OSError) else error
    return WrongSecuritySetting(setting, f"{path} cannot be read ({reason})")
