"""Certificates for one run of tests, made by `openssl`: authorities, servers, clients, good ones and bad ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from zkconsumer.testing.certificates import Authority, openssl

PASSWORD = "pass-phrase-4711"
"""Of the encrypted key."""


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
    authority, untrusted = (Authority.make(folder, name) for name in ("authority", "untrusted"))
    server = authority.sign("server")
    expired = authority.sign("expired", days=-1)
    elsewhere = authority.sign("elsewhere", "DNS:zk.example.org")
    client = authority.sign("client")
    unknown = untrusted.sign("unknown")
    encrypted = folder / "encrypted.key"
    openssl(folder, "pkcs8", "-topk8", "-in", client.key.name, "-passout", f"pass:{PASSWORD}", "-out", encrypted.name)
    return Certificates(
        authority.certificate,
        untrusted.certificate,
        server.both,
        expired.both,
        elsewhere.both,
        client.certificate,
        client.key,
        encrypted,
        client.both,
        unknown.certificate,
        unknown.key,
        client.keystore(PASSWORD),
    )
