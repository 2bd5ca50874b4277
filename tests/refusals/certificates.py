"""Certificates for one run of tests, made by `openssl`: authorities, servers, clients, good ones and bad ones."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

PASSWORD = "pass-phrase-4711"
"""Of the encrypted key."""

LOCAL = "DNS:localhost,IP:127.0.0.1"


@dataclass(frozen=True)
class Certificates:
    """The files, PEM unless their names say otherwise.

    Attributes:
        authority, untrusted: certificates of an authority that the servers trust, and of one that none trusts.
        server, expired, elsewhere: certificate and key of a server, in one file; the second has expired, the third is
            that of another host.
        client, client_key, encrypted_key: certificate of a client, its key, and that key under `PASSWORD`.
        client_both: certificate and key of the client in one file.
        unknown, unknown_key: a client whose certificate is signed by the other authority.
        keystore: the client as PKCS12, as Java has it.
    """

    authority: Path
    untrusted: Path
    server: Path
    expired: Path
    elsewhere: Path
    client: Path
    client_key: Path
    encrypted_key: Path
    client_both: Path
    unknown: Path
    unknown_key: Path
    keystore: Path


def make_certificates(folder: Path) -> Certificates:
    """Make them all in `folder`."""
    for authority in ("authority", "untrusted"):
        _openssl(folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{authority}.key", "-out",
                 f"{authority}.pem", "-subj", f"/CN={authority}", "-days", "30")
    for name, authority, names, days in (
        ("server", "authority", LOCAL, 30),
        ("expired", "authority", LOCAL, -1),
        ("elsewhere", "authority", "DNS:zk.example.org", 30),
        ("client", "authority", LOCAL, 30),
        ("unknown", "untrusted", LOCAL, 30),
    ):
        _openssl(folder, "req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr",
                 "-subj", f"/CN={name}")
        (folder / f"{name}.ext").write_text(f"subjectAltName={names}\n")
        _openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
                 "-CAcreateserial", "-days", str(days), "-extfile", f"{name}.ext", "-out", f"{name}.crt")
        (folder / f"{name}.pem").write_bytes((folder / f"{name}.key").read_bytes() +
                                             (folder / f"{name}.crt").read_bytes())
    _openssl(folder, "pkcs8", "-topk8", "-in", "client.key", "-passout", f"pass:{PASSWORD}", "-out", "encrypted.key")
    _openssl(folder, "pkcs12", "-export", "-in", "client.pem", "-passout", f"pass:{PASSWORD}", "-out", "client.p12")
    return Certificates(
        folder / "authority.pem", folder / "untrusted.pem", folder / "server.pem", folder / "expired.pem",
        folder / "elsewhere.pem", folder / "client.crt", folder / "client.key", folder / "encrypted.key",
        folder / "client.pem", folder / "unknown.crt", folder / "unknown.key", folder / "client.p12",
    )


def _openssl(folder: Path, *arguments: str) -> None:
    ran = subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, f"openssl {arguments[0]}: {ran.stderr}"
