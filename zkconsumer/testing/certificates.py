"""Certificates for one run of tests, made by the program `openssl`: authorities, and what they sign.

Files are PEM, and some of them as Java has them. Keys have 2048 bits; certificates are valid for 30 days.
"""

from __future__ import annotations

import hashlib
import shutil
import ssl
import struct
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from zkconsumer.testing.errors import KitError

LOCAL = "DNS:localhost,IP:127.0.0.1"
"""The names of a server on this machine."""
_OPENSSL_S = 60
_JKS_MAGIC = 0xFEEDFEED
_JKS_VERSION = 2
_JKS_TRUSTED = 2
_JKS_SALT = b"Mighty Aphrodite"


@dataclass(frozen=True)
class Certificate:
    """A certificate and its private key.

    Attributes:
        certificate: PEM file of the certificate.
        key: PEM file of its key.
        both: PEM file of key and certificate.
    """

    certificate: Path
    key: Path
    both: Path

    def keystore(self, password: str) -> Path:
        """Path of a PKCS12 file with both, under a password."""
        path = self.both.with_suffix(".p12")
        if not path.exists():
            openssl(path.parent, "pkcs12", "-export", "-in", self.both.name, "-passout", f"pass:{password}",
                    "-out", path.name)  # fmt: skip
        return path


@dataclass(frozen=True)
class Authority:
    """An authority that signs certificates.

    Attributes:
        certificate: PEM file of its own certificate.
        key: PEM file of its key.
    """

    certificate: Path
    key: Path

    @classmethod
    def make(cls, folder: Path, name: str) -> Self:
        """A new one, with its files in a folder."""
        openssl(folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key",
                "-out", f"{name}.pem", "-subj", f"/CN={name}", "-days", "30")  # fmt: skip
        return cls(folder / f"{name}.pem", folder / f"{name}.key")

    def sign(self, name: str, names: str = LOCAL, *, days: int = 30) -> Certificate:
        """A new certificate next to the authority's own files.

        Args:
            name: of its files, and its common name.
            names: its alternative names, such as `DNS:localhost`.
            days: how long it is valid; one that has expired with a negative number.
        """
        folder = self.certificate.parent
        openssl(folder, "req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr",
                "-subj", f"/CN={name}")  # fmt: skip
        (folder / f"{name}.ext").write_text(f"subjectAltName={names}\n")
        openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", self.certificate.name, "-CAkey", self.key.name,
                "-CAcreateserial", "-days", str(days), "-extfile", f"{name}.ext", "-out", f"{name}.crt")  # fmt: skip
        both = folder / f"{name}.pem"
        both.write_bytes((folder / f"{name}.key").read_bytes() + (folder / f"{name}.crt").read_bytes())
        return Certificate(folder / f"{name}.crt", folder / f"{name}.key", both)


def openssl(folder: Path, *arguments: str) -> None:
    """Run `openssl` in a folder.

    Raises:
        KitError: there is no such program, or it failed; carries what it said.
    """
    program = shutil.which("openssl")
    if program is None:
        raise KitError("certificates are made by the program openssl, and there is none on PATH; install it")
    ran = subprocess.run(
        [program, *arguments], cwd=folder, capture_output=True, text=True, timeout=_OPENSSL_S, check=False
    )
    if ran.returncode:
        raise KitError(f"openssl {arguments[0]} ended with status {ran.returncode}: {ran.stderr.strip()}")


def write_truststore(path: Path, authorities: Iterable[Path], password: str) -> None:
    """Write a truststore of Java (JKS) with the certificates of PEM files.

    Java does not take those in a PKCS12 file of OpenSSL 3.0 for trusted ones.
    Source: OpenJDK 17, sun.security.provider.JavaKeyStore.
    """
    certificates = [ssl.PEM_cert_to_DER_cert(each.read_text()) for each in authorities]
    data = struct.pack(">III", _JKS_MAGIC, _JKS_VERSION, len(certificates))
    for number, certificate in enumerate(certificates):
        data += struct.pack(">I", _JKS_TRUSTED) + _utf(f"authority-{number}")
        data += struct.pack(">q", int(time.time() * 1000)) + _utf("X.509")
        data += struct.pack(">I", len(certificate)) + certificate
    path.write_bytes(data + hashlib.sha1(password.encode("utf-16-be") + _JKS_SALT + data).digest())


def _utf(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data
