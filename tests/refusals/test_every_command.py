"""Every command against ZooKeeper servers that demand credentials or TLS: a sentence with the cause and the remedy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from certificates import Certificates
from every_command import OFFLINE, SERVICES, Ran, every_command, found_command, run_all
from secured import SASL_PASSWORD, USER, SecureServer, sasl_server

from zkconsumer.testing.zookeeper import ZooKeeperServer

SECRET = "digest-secret-4711"
WRONG = "wrong-secret-1234"
SASL = "zookeeper.sasl.mechanism=DIGEST-MD5\nzookeeper.sasl.username={}\nzookeeper.sasl.password={}\n"
SECRETS = (SECRET, WRONG, SASL_PASSWORD)
EVERY = every_command()
FEW = ["consume", "groups list", "verify", "produce"]
"""A member, and commands whose sessions are opened in different ways; for causes that take a time-out to be found."""
QUICK = "zookeeper.connection.timeout.ms={}\n"
DEMANDED = r"ZooKeeper requires credentials for every session; set zookeeper\.auth or zookeeper\.sasl\.\* to cre"
REFUSED = r"ZooKeeper refused the SASL credentials; check zookeeper\.sasl\.username and zookeeper\.sasl\.password"
HUNG_UP = r"(hung up|does not answer) when this client sends its credentials; check zookeeper\.sasl\.username and "


@pytest.fixture(params=[pytest.param(FEW, id="few"), pytest.param(EVERY, id="every", marks=pytest.mark.slow)])
def names(request: pytest.FixtureRequest) -> list[str]:
    """The commands that a test calls: a few in the default suite, and every one in the slow one."""
    found: list[str] = request.param
    return found


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    file = tmp_path / "consumer.properties"
    file.touch(mode=0o600)
    return file


def check_refused(hosts: str, settings: Path, expected: str, names: Sequence[str] = EVERY) -> None:
    """Run commands, and check that each fails with one sentence in which no secret stands."""
    wrong = []
    for name, ran in run_all(names, "--zookeeper", hosts, "--config", str(settings)).items():
        if problem := _problem(name, ran, expected):
            wrong.append(f"{name}: {problem}\n  status {ran.returncode}\n  {ran.stderr}\n  {ran.stdout[:400]}")
    assert not wrong, "\n".join(wrong)


def _problem(name: str, ran: Ran, expected: str) -> str:
    if name in SERVICES:
        if ran.returncode != 0 or not re.search(expected, ran.stderr) or "bug in zkconsumer" in ran.stderr:
            return "the refusal is not logged, or the service does not end in order"
        return "a secret is shown" if any(each in ran.stdout + ran.stderr for each in SECRETS) else ""
    said = [line for line in ran.stderr.splitlines() if line.startswith("zkconsumer: ")]
    if ran.returncode not in (1, 2):  # 2 is what `verify` ends with when it could not look
        return "the status is neither 1 nor 2"
    if len(said) != 1 or "bug in zkconsumer" in ran.stderr or "Traceback" in ran.stderr:
        return "not one sentence"
    if not re.search(expected, said[0]):
        return "another sentence"
    if any(secret in ran.stdout + ran.stderr for secret in SECRETS):
        return "a secret is shown"
    return "" if not ran.stdout else "it prints something"


def test_every_command_takes_the_options_of_the_connection() -> None:
    for name in every_command():
        options = {text for each in found_command(name).params for text in each.opts}
        assert {"--zookeeper", "--config", "--consumer-config", "--profile"} <= options, (
            f"`{name}` lacks the decorator zookeeper_option(); OFFLINE names the commands that connect to nothing: "
            f"{sorted(OFFLINE)}"
        )


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_no_credentials_where_they_are_demanded(sasl_only: ZooKeeperServer, settings: Path) -> None:
    settings.write_text(QUICK.format(3000))
    check_refused(sasl_only.connect, settings, DEMANDED)


def test_a_digest_where_sasl_is_demanded(sasl_only: ZooKeeperServer, settings: Path) -> None:
    settings.write_text(f"zookeeper.auth=digest:bob:{SECRET}\n")
    check_refused(sasl_only.connect, settings, DEMANDED)


def test_a_wrong_password(sasl_only: ZooKeeperServer, settings: Path) -> None:
    settings.write_text(SASL.format(USER, WRONG))
    check_refused(sasl_only.connect, settings, REFUSED)


def test_a_wrong_password_at_an_old_server(tmp_path: Path, settings: Path) -> None:
    with sasl_server(tmp_path, "zk-3.4.14") as server:
        settings.write_text(SASL.format(USER, WRONG) + QUICK.format(3000))
        check_refused(server.connect, settings, HUNG_UP)


def test_sasl_to_a_server_without_it(zookeeper: ZooKeeperServer, settings: Path, names: list[str]) -> None:
    settings.write_text(SASL.format(USER, WRONG) + QUICK.format(3000))
    check_refused(zookeeper.connect, settings, HUNG_UP, names)


def test_plain_to_a_tls_port(open_server: SecureServer, settings: Path, names: list[str]) -> None:
    settings.write_text(QUICK.format(8000))  # a handshake of Java on a machine with much to do took longer than 3 s
    check_refused(open_server.secure, settings, r"speaks TLS at this port; set zookeeper\.use\.ssl=true", names)


def test_tls_to_a_plain_port(
    open_server: SecureServer, certificates: Certificates, settings: Path, names: list[str]
) -> None:
    settings.write_text(f"zookeeper.use.ssl=true\nzookeeper.ssl.cafile={certificates.authority}\n" + QUICK.format(3000))
    check_refused(
        open_server.connect, settings, r"does not speak TLS at this port; set zookeeper\.use\.ssl=false", names
    )


def test_an_authority_that_is_not_trusted(
    open_server: SecureServer, certificates: Certificates, settings: Path, names: list[str]
) -> None:
    settings.write_text(f"zookeeper.use.ssl=true\nzookeeper.ssl.cafile={certificates.untrusted}\n" + QUICK.format(3000))
    check_refused(
        open_server.secure,
        settings,
        r"shows a certificate that this client does not trust .*; set "
        r"zookeeper\.ssl\.caf",
        names,
    )


def test_no_certificate_where_one_is_demanded(
    strict_server: SecureServer, certificates: Certificates, settings: Path, names: list[str]
) -> None:
    settings.write_text(f"zookeeper.use.ssl=true\nzookeeper.ssl.cafile={certificates.authority}\n" + QUICK.format(3000))
    check_refused(
        strict_server.secure,
        settings,
        r"requires a certificate from its clients .*; set "
        r"zookeeper\.ssl\.certf",
        names,
    )


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("expired", r"shows a certificate that has expired .*; renew the certificate of the server"),
        ("elsewhere", r"shows a certificate of another host .*; use the host name of the certificate in zoo"),
    ],
)
def test_a_certificate_of_the_server_that_is_wrong(
    certificates: Certificates, settings: Path, names: list[str], kind: str, said: str
) -> None:
    settings.write_text(
        f"zookeeper.use.ssl=true\nzookeeper.ssl.cafile={certificates.authority}\n"
        "zookeeper.ssl.check.hostname=true\n" + QUICK.format(3000)
    )
    with SecureServer(getattr(certificates, kind), certificates.authority) as server:
        check_refused(server.secure, settings, said, names)
