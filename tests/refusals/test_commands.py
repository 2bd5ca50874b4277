"""The error and status of each command when ZooKeeper cannot be used, and the settings that it uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from certificates import Certificates
from click.testing import CliRunner, Result
from kazoo.client import KazooClient
from kazoo.security import make_acl
from secured import PATIENCE_S, SASL_PASSWORD, USER, SecureServer

from zkconsumer.cli.program import program
from zkconsumer.testing.zookeeper import ZooKeeperServer

LOOKING = [
    ["describe", "group"],
    ["verify", "group"],
    ["release", "group", "topic", "0"],
    ["groups"],
    ["topics"],
    ["offsets", "get", "group"],
    ["offsets", "set", "group", "--topic", "topic", "--to", "0"],
    ["offsets", "export"],
    ["offsets", "import", "--input-file", "-"],
    ["produce", "--topic", "topic"],
]
"""Every command that needs nothing but the connection, with the settings in a file."""
LINE = "/consumers/group/offsets/topic/0:1\n"
CONSUME = ["consume", "--topic", "topic", "--group", "group"]

by_name = pytest.mark.parametrize("arguments", [*LOOKING, CONSUME], ids=lambda arguments: " ".join(arguments[:2]))


def run(arguments: Sequence[str], hosts: str, config: Path | None = None) -> Result:
    chosen = ["--config", str(config)] if config is not None else []
    return CliRunner().invoke(program, [*arguments, "--zookeeper", hosts, *chosen], input=LINE, prog_name="zkconsumer")


def sentence(result: Result) -> str:
    """The one line on stderr of a command that failed."""
    assert result.exit_code in (1, 2), result.output
    lines = [line for line in result.stderr.splitlines() if not line.startswith("warning: ")]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("zkconsumer: ")
    return lines[0].removeprefix("zkconsumer: ")


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """A file for settings of the consumer."""
    return tmp_path / "consumer.properties"


@by_name
def test_a_missing_file_is_named_with_its_setting(arguments: Sequence[str], settings: Path) -> None:
    settings.write_text("zookeeper.use.ssl=true\nzookeeper.ssl.cafile=/no/such/ca.pem\n")
    assert sentence(run(arguments, "127.0.0.1:1", settings)) == (
        f"zookeeper.ssl.cafile is '/no/such/ca.pem' ({settings}, line 2); it must be a file that can be read "
        "(No such file or directory)"
    )


@by_name
def test_credentials_that_are_refused(arguments: Sequence[str], settings: Path, with_sasl: ZooKeeperServer) -> None:
    settings.write_text(
        f"zookeeper.sasl.mechanism=DIGEST-MD5\nzookeeper.sasl.username={USER}\nzookeeper.sasl.password=wrong-secret\n"
    )
    said = sentence(run(arguments, with_sasl.connect, settings))
    assert said.startswith("ZooKeeper refused the SASL credentials; check zookeeper.sasl.username and ")
    assert "wrong-secret" not in said


@by_name
def test_credentials_that_are_demanded(arguments: Sequence[str], sasl_only: ZooKeeperServer) -> None:
    assert sentence(run(arguments, sasl_only.connect)).startswith(
        "ZooKeeper requires credentials for every session; set zookeeper.auth or zookeeper.sasl.*"
    )


def test_plain_to_a_tls_port(open_server: SecureServer) -> None:
    """The whole sentence; `test_every_command` has it for each command."""
    assert sentence(run(["groups"], open_server.secure)) == (
        f"no session with ZooKeeper within 6 s: {open_server.secure} speaks TLS at this port; set "
        "zookeeper.use.ssl=true, or give the server's clientPort in zookeeper.connect"
    )


def test_an_authority_that_is_not_trusted(
    open_server: SecureServer, certificates: Certificates, settings: Path
) -> None:
    settings.write_text(
        f"zookeeper.use.ssl=true\nzookeeper.ssl.cafile={certificates.untrusted}\nzookeeper.connection.timeout.ms=3000\n"
    )
    said = sentence(run(["topics"], open_server.secure, settings))
    assert "shows a certificate that this client does not trust" in said
    assert "set zookeeper.ssl.cafile to the certificate of the authority that signed it" in said


def test_a_command_over_tls_with_a_certificate(
    strict_server: SecureServer, certificates: Certificates, settings: Path
) -> None:
    settings.write_text(
        f"zookeeper.use.ssl=true\nzookeeper.ssl.cafile={certificates.authority}\n"
        f"zookeeper.ssl.certfile={certificates.client_both}\ngroup.id=another\nauto.offset.reset=smallest\n"
    )
    result = run(["groups"], strict_server.secure, settings)
    assert (result.exit_code, result.stderr) == (0, "")


def test_a_command_that_authenticates(with_sasl: ZooKeeperServer, settings: Path) -> None:
    settings.write_text(
        f"zookeeper.sasl.mechanism=DIGEST-MD5\nzookeeper.sasl.username={USER}\n"
        f"zookeeper.sasl.password={SASL_PASSWORD}\n"
    )
    result = run(["groups"], with_sasl.connect, settings)
    assert (result.exit_code, result.stderr) == (0, "")


def test_a_debug_run_shows_no_secret(with_sasl: ZooKeeperServer, settings: Path) -> None:
    settings.write_text(
        f"zookeeper.sasl.mechanism=DIGEST-MD5\nzookeeper.sasl.username={USER}\n"
        f"zookeeper.sasl.password={SASL_PASSWORD}\nzookeeper.auth=digest:me:digest-secret\n"
    )
    result = run(["--debug", "groups"], with_sasl.connect, settings)
    assert result.exit_code == 0
    assert "Auth(***)" in result.stderr
    assert "digest-secret" not in result.stderr
    assert SASL_PASSWORD not in result.stderr


# -- nodes that are kept from us ---------------------------------------------------------------------------------------


@pytest.fixture
def closed(zookeeper: ZooKeeperServer, fresh_group: str) -> Iterator[str]:
    """A chroot with a topic, and a group whose nodes we may read and no client may write."""
    client = KazooClient(zookeeper.connect)
    client.start(timeout=PATIENCE_S)
    root, read_only = f"/{fresh_group}", [make_acl("world", "anyone", read=True)]
    client.create(f"{root}/brokers/topics/topic", b'{"version":1,"partitions":{"0":[0],"1":[0]}}', makepath=True)
    client.create(f"{root}/consumers/group/offsets/topic/0", b"1", makepath=True)
    for path in ("offsets/topic/0", "offsets/topic", "offsets", ""):
        client.set_acls(f"{root}/consumers/group/{path}".rstrip("/"), read_only)
    yield zookeeper.connect + root
    client.stop()
    client.close()


@pytest.mark.parametrize(
    ("partition", "said"),
    [
        (
            "0",
            "ZooKeeper does not let this client write /consumers/group/offsets/topic/0 (NoAuth): the access list of "
            "/consumers/group/offsets/topic/0 does not name its credentials; 0 of 1 offset was written; set zookeeper",
        ),
        (
            "1",
            "ZooKeeper does not let this client create /consumers/group/offsets/topic/1 (NoAuth): the access list of "
            "/consumers/group/offsets/topic does not name its credentials; 0 of 1 offset was written; set zookeeper",
        ),
    ],
)
def test_an_offset_that_may_not_be_written(closed: str, tmp_path: Path, partition: str, said: str) -> None:
    file = tmp_path / "offsets"
    file.write_text(f"/consumers/group/offsets/topic/{partition}:5\n")
    assert sentence(run(["offsets", "import", "--input-file", str(file), "--force"], closed)).startswith(said)


def test_nodes_that_may_not_be_read(zookeeper: ZooKeeperServer, fresh_group: str) -> None:
    client = KazooClient(zookeeper.connect)
    client.start(timeout=PATIENCE_S)
    client.create(f"/{fresh_group}/brokers", makepath=True)
    client.create(f"/{fresh_group}/brokers/topics", acl=[make_acl("world", "anyone", create=True)])
    client.stop()
    client.close()
    assert sentence(run(["topics"], f"{zookeeper.connect}/{fresh_group}")).startswith(
        "ZooKeeper does not let this client read /brokers/topics (NoAuth): the access list of /brokers/topics does "
        "not name its credentials; set zookeeper.auth or zookeeper.sasl.* to credentials that it accepts, or "
        "change that list"
    )
