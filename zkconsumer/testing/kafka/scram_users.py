"""Users of SASL's mechanism SCRAM, as brokers with ZooKeeper keep them there."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from collections.abc import Mapping

from kazoo.client import KazooClient

from simpleconsumer.security.sasl import HASHES

__all__ = ["write"]

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
    """What brokers with ZooKeeper keep of a password: salt, keys, and iterations, and not the password.

    Source: Kafka 2.8.2, ScramCredentialUtils.credentialToString.
    """
    name, salt = HASHES[mechanism], os.urandom(16)
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, _ITERATIONS)
    stored = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    parts = (("salt", salt), ("stored_key", stored), ("server_key", hmac.digest(salted, b"Server Key", name)))
    texts = [f"{key}={base64.b64encode(value).decode()}" for key, value in parts]
    return ",".join([*texts, f"iterations={_ITERATIONS}"])
