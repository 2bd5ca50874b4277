"""Servers that the tests of this folder share: do not stop them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from certificates import Certificates, make_certificates
from secured import SecureServer, sasl_server

from zkconsumer.testing.zookeeper import ZooKeeperServer


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def open_server(certificates: Certificates) -> Iterator[SecureServer]:
    """Speaks TLS with all clients."""
    with SecureServer(certificates.server, certificates.authority) as server:
        yield server


@pytest.fixture(scope="session")
def strict_server(certificates: Certificates) -> Iterator[SecureServer]:
    """Demands a certificate that its authority has signed."""
    with SecureServer(certificates.server, certificates.authority, "need") as server:
        yield server


@pytest.fixture(scope="session")
def with_sasl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with sasl_server(tmp_path_factory.mktemp("sasl")) as server:
        yield server


@pytest.fixture(scope="session")
def sasl_only(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """Serves only clients that have authenticated."""
    with sasl_server(tmp_path_factory.mktemp("sasl-only"), sessionRequireClientSASLAuth="true") as server:
        yield server
