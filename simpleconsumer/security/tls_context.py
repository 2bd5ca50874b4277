"""Makes the TLS context of connections to brokers, from the `ssl.*` settings and their files.

Files are read again when they have changed: certificates are replaced while a consumer runs.

Threads: any.

The socket of a connection to a broker with TLS.

It is loaded with the first such connection: the `ssl` module is large.

Threads: One at a time, and `wake` from any thread.

Reads the certificates of a truststore of Java in the format JKS, which is not encrypted.

Source: OpenJDK 17, sun.security.provider.JavaKeyStore.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import socket
import ssl
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

from simpleconsumer.errors import AuthenticationFailed
from simpleconsumer.security.secret import WrongSecuritySetting
from simpleconsumer.security.tls import TLS_VERSIONS, Tls
from simpleconsumer.transport import Transport, seconds_left, some

JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_STORE_VERSIONS = (1, 2)
_PRIVATE_KEY, _TRUSTED = 1, 2
_SALT = b"Mighty Aphrodite"
_DIGEST_BYTES = 20
_MOST_ENTRIES = 10_000


def read_jks(data: bytes, password: str | None) -> list[bytes]:
    """Return the trusted certificates, as DER.

    Args:
        password: Shows that nobody has changed the file; None does not look.

    Raises:
        ValueError: The file is no JKS file, is cut off, or another password closes it.
    """
    if not data.startswith(JKS_MAGIC) or len(data) < 12 + _DIGEST_BYTES:
        raise ValueError("it is not a JKS file")
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None:
        wanted = hashlib.sha1(password.encode("utf-16-be") + _SALT + body).digest()
        if not hmac.compare_digest(wanted, digest):
            raise ValueError("the password does not open it, or the file was changed")
    try:
        return _certificates(body)
    except struct.error:
        raise ValueError("it is truncated") from None


def _certificates(body: bytes) -> list[bytes]:
    version, count = struct.unpack_from(">II", body, 4)
    if version not in _STORE_VERSIONS or count > _MOST_ENTRIES:
        raise ValueError(f"it is of version {version} with {count} entries, which is not possible")
    found, at = [], 12
    for _ in range(count):
        (tag,) = struct.unpack_from(">I", body, at)
        at = _behind_text(body, at + 4) + 8  # the time at which it was made
        chain = 1
        if tag == _PRIVATE_KEY:
            _, at = _bytes(body, at)
            (chain,) = struct.unpack_from(">I", body, at)
            at += 4
        elif tag != _TRUSTED:
            raise ValueError(f"it has an entry of the unknown type {tag}")
        for _ in range(min(chain, _MOST_ENTRIES)):
            if version > 1:
                at = _behind_text(body, at)  # X.509
            certificate, at = _bytes(body, at)
            if tag == _TRUSTED:
                found.append(certificate)
    return found


def _behind_text(body: bytes, at: int) -> int:
    (length,) = struct.unpack_from(">H", body, at)
    return int(at + 2 + length)


def _bytes(body: bytes, at: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from(">I", body, at)
    end = at + 4 + length
    if end > len(body):
        raise ValueError("it is truncated")
    return body[at + 4 : end], int(end)


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


_CLOSED = "closed during the TLS handshake; does this port speak TLS? (security.protocol)"


class TlsTransport(Transport):
    """A socket with TLS; `handshake` comes first.

    Args:
        connection: Connected; it belongs to this object from now on.
        context: Says whom to trust.
        host: Name that the certificate must have, which is also sent to the broker (SNI).
        port: For errors.
    """

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, host: str, port: int) -> None:
        secured = context.wrap_socket(connection, server_hostname=host, do_handshake_on_connect=False)
        super().__init__(secured)
        self._secured = secured
        self._place = host, port
        self._has_heard = False

    def handshake(self, deadline: float) -> None:
        """Agree on keys with the broker, and check its certificate.

        Raises:
            AuthenticationFailed: The certificate is refused, by either side, or nothing can be agreed on.
            OSError: The connection is lost, perhaps since the port does not speak TLS.
        """
        self._secured.settimeout(seconds_left(deadline))
        try:
            self._secured.do_handshake()
        except ssl.SSLCertVerificationError as error:
            raise self._refused(f"its certificate is rejected: {error.verify_message}") from error
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError) as error:
            raise ConnectionResetError(_CLOSED) from error
        except ssl.SSLError as error:
            if error.reason == "WRONG_VERSION_NUMBER":
                raise self._refused("it does not speak TLS on this port (security.protocol)") from error
            raise self._refused(f"no TLS connection: {_reason(error)}") from error

    def send(self, packets: Iterable[bytes], deadline: float) -> None:
        """Send all of the packets, as a plain one."""
        for packet in packets:
            self._secured.settimeout(seconds_left(deadline))
            self._secured.sendall(packet)

    def receive(self, view: memoryview, deadline: float) -> None:
        """Fill a buffer, as a plain one.

        Raises:
            AuthenticationFailed: The broker refuses the client's certificate, which it says after the handshake.
        """
        filled = 0
        while filled < len(view):
            self._secured.settimeout(seconds_left(deadline))
            try:
                count = self._secured.recv_into(view[filled:])
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                count = 0
            except ssl.SSLError as error:
                if self._has_heard:
                    raise
                raise self._refused(f"the broker ends the TLS connection: {_reason(error)}") from error
            filled += some(count, filled, len(view))
            self._has_heard = True

    def wait_readable(self, timeout_s: float) -> bool:
        """As of a plain one; the first bytes of an answer may have come, and be decrypted, with those of another."""
        return self._secured.pending() > 0 or super().wait_readable(timeout_s)

    def is_idle(self) -> bool:
        """As of a plain one; TLS's own messages in between are read."""
        self._secured.settimeout(0)
        try:
            self._secured.recv(1)
        except ssl.SSLWantReadError:
            return True
        except OSError:
            pass
        return False

    def _refused(self, reason: str) -> AuthenticationFailed:
        return AuthenticationFailed(*self._place, reason)


def _reason(error: ssl.SSLError) -> str:
    return str(error.reason or error.strerror or error).replace("_", " ").lower()
