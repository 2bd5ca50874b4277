"""Jars: locked, checked, cached, fetched once however many processes ask, or a clear error."""

from __future__ import annotations

import base64
import functools
import hashlib
import http.server
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from zkconsumer.testing.errors import JarMismatch, KitError, MavenMissing
from zkconsumer.testing.java import maven
from zkconsumer.testing.java.maven import Repository, mirror_of_central

CONTENT = {"a-1.jar": b"first jar", "b-2-linux.jar": b"second"}


def lock_text() -> str:
    names = {"a-1.jar": "org.x:a:1", "b-2-linux.jar": "org.x.y:b:2:linux"}
    return "".join(f"{names[f]} {hashlib.sha256(d).hexdigest()} {len(d)}\n" for f, d in CONTENT.items())


@pytest.fixture
def pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up pinned version `9.9`, an empty cache, and no Maven on PATH; returns the folder of the poms."""
    poms = tmp_path / "poms"
    poms.mkdir()
    (poms / "9.9.xml").write_text("<project/>")
    (poms / "9.9.txt").write_text(lock_text())
    monkeypatch.setattr(maven, "POMS", poms)
    monkeypatch.setenv(maven.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.delenv(maven.REPOSITORY_VARIABLE, raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("HOME", str(tmp_path))
    return poms


@pytest.fixture
def requests() -> list[str | None]:
    """The `Authorization` of each request to the repository, in order."""
    return []


@pytest.fixture
def failures() -> list[int]:
    """Statuses with which the next requests to the repository fail."""
    return []


@pytest.fixture
def repository(tmp_path: Path, requests: list[str | None], failures: list[int]) -> Iterator[tuple[str, Path]]:
    """A web server with the two jars in Maven layout: base address and folder."""
    root = tmp_path / "repository"
    for jar in maven.parse_lock(lock_text()):
        path = root / jar.repository_path
        path.parent.mkdir(parents=True)
        path.write_bytes(CONTENT[jar.file_name])

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(root))  # type: ignore[arg-type]

        def do_GET(self) -> None:
            requests.append(self.headers["Authorization"])
            if failures:
                self.send_error(failures.pop(0))
            else:
                super().do_GET()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", root
    server.shutdown()
    thread.join()
    server.server_close()


def test_every_pinned_version_has_a_readable_lock() -> None:
    assert {"0.7.2", "0.8.0", "0.8.2.2", "1.1.1", "3.9.2", "zk-3.9"} <= set(maven.known_versions())
    for version in maven.known_versions():
        jars = maven.parse_lock((maven.POMS / f"{version}.txt").read_text())
        assert jars
        assert all(len(jar.sha256) == 64 and jar.size_bytes > 0 for jar in jars)
        assert len({jar.file_name for jar in jars}) == len(jars)


def test_lock_lines_give_file_name_and_repository_path() -> None:
    plain, classified = maven.parse_lock(lock_text())
    assert plain.repository_path == "org/x/a/1/a-1.jar"
    assert classified.repository_path == "org/x/y/b/2/b-2-linux.jar"


@pytest.mark.parametrize("line", ["org.x:a:1 abc", "org.x:a 00 1", "org.x:a:1 00 many"])
def test_a_broken_lock_line_is_named(line: str) -> None:
    with pytest.raises(ValueError, match="line 1 of the lock file"):
        maven.parse_lock(line)


def test_without_cache_maven_and_address_the_sentence_says_what_to_do(
    pinned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jgo", None)
    with pytest.raises(MavenMissing, match=r"pip install jgo, or install Maven 3, or set ZKCONSUMER_MAVEN_REPOSITORY"):
        maven.jars("9.9")
    assert maven.needs_of("9.9") == "Java and, the first time, Maven or jgo"
    monkeypatch.setenv(maven.REPOSITORY_VARIABLE, "http://127.0.0.1:9")
    assert maven.needs_of("9.9") == "Java and, the first time, the network"


def test_an_unknown_version_lists_the_known_ones(pinned: Path) -> None:
    with pytest.raises(KitError, match=r"no jars are pinned for 4\.4; known: 9\.9"):
        maven.jars("4.4")


def test_jars_are_fetched_once_and_then_offline(
    pinned: Path, repository: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(maven.REPOSITORY_VARIABLE, repository[0])
    found = maven.jars("9.9")
    assert {path.name: path.read_bytes() for path in found} == CONTENT
    assert found[0].parent == tmp_path / "cache" / "jars" / "9.9"
    monkeypatch.delenv(maven.REPOSITORY_VARIABLE)
    maven._jars.cache_clear()
    assert maven.jars("9.9") == found


@pytest.mark.parametrize("bad", [b"first jaR", b"first", b"first jar and more"])
def test_a_jar_that_differs_from_its_lock_never_reaches_the_cache(
    pinned: Path, repository: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: bytes
) -> None:
    (repository[1] / "org/x/a/1/a-1.jar").write_bytes(bad)
    monkeypatch.setenv(maven.REPOSITORY_VARIABLE, repository[0])
    with pytest.raises(JarMismatch, match=r"a-1\.jar"):
        maven.jars("9.9")
    left = [path.name for path in (tmp_path / "cache" / "jars").iterdir()]
    assert left == ["9.9.lock"]


def test_a_cached_jar_that_was_damaged_is_noticed(
    pinned: Path, repository: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(maven.REPOSITORY_VARIABLE, repository[0])
    found = maven.jars("9.9")
    found[1].write_bytes(b"damage")
    maven._jars.cache_clear()
    with pytest.raises(JarMismatch, match=r"b-2-linux\.jar"):
        maven.jars("9.9")
    found[1].unlink()
    with pytest.raises(JarMismatch, match="is missing"):
        maven.jars("9.9")


def test_a_jar_the_repository_lacks_is_named_with_its_address(
    pinned: Path, repository: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository[1] / "org/x/a/1/a-1.jar").unlink()
    monkeypatch.setenv(maven.REPOSITORY_VARIABLE, repository[0])
    with pytest.raises(MavenMissing, match=r"org/x/a/1/a-1\.jar could not be fetched: .*404"):
        maven.jars("9.9")


def test_a_certificate_of_an_unknown_authority_names_what_helps(
    pinned: Path, repository: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "own.pem",
            "-subj", "/CN=proxy", "-days", "3", "-addext", "subjectAltName=IP:127.0.0.1"]  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setenv("PATH", os.defpath)
        subprocess.run(made, cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "own.pem", tmp_path / "key.pem")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(repository[1]))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            monkeypatch.setenv(maven.REPOSITORY_VARIABLE, f"https://127.0.0.1:{server.server_port}/")
            with pytest.raises(MavenMissing, match=r"CERTIFICATE_VERIFY_FAILED.*; this .* set SSL_CERT_FILE and"):
                maven.jars("9.9")
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "own.pem"))
            assert {path.name: path.read_bytes() for path in maven.jars("9.9")} == CONTENT
        finally:
            server.shutdown()
            thread.join()


SETTINGS = """<?xml version="1.0"?>
<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0">
  <servers>
    <server><id>other</id><username>nobody</username><password>wrong</password></server>
    <server><id>house</id><username>ann</username><password>{password}</password></server>
  </servers>
  <mirrors>
    <mirror><id>other</id><mirrorOf>snapshots,*,!central</mirrorOf><url>http://127.0.0.1:9/</url></mirror>
    <mirror><id>house</id><mirrorOf>{pattern}</mirrorOf><url>{address}</url></mirror>
  </mirrors>
</settings>
"""


def write_settings(home: Path, address: str, pattern: str = "*", password: str = "${env.HOUSE_PASSWORD}") -> None:
    (home / ".m2").mkdir()
    text = SETTINGS.format(address=address, pattern=pattern, password=password)
    (home / ".m2" / "settings.xml").write_text(text)


@pytest.mark.parametrize("pattern", ["*", "central", "external:*", "internal, central"])
def test_without_maven_the_mirror_of_its_settings_is_used_with_its_password(
    pinned: Path, repository: tuple[str, Path], requests: list[str | None], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, pattern: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("HOUSE_PASSWORD", "secret")
    write_settings(tmp_path, repository[0], pattern)
    assert {path.name: path.read_bytes() for path in maven.jars("9.9")} == CONTENT
    assert requests == ["Basic " + base64.b64encode(b"ann:secret").decode()] * len(CONTENT)


def test_a_mirror_of_something_else_is_not_used(tmp_path: Path) -> None:
    write_settings(tmp_path, "http://127.0.0.1:9/", "internal")
    assert mirror_of_central(tmp_path / ".m2" / "settings.xml") is None


def test_a_mirror_of_exactly_central_comes_before_one_with_a_pattern(tmp_path: Path) -> None:
    path = tmp_path / "settings.xml"
    mirrors = [("*", "http://all/"), ("central", "http://central/")]
    each = "<mirror><id>{0}</id><mirrorOf>{0}</mirrorOf><url>{1}</url></mirror>"
    path.write_text(f"<settings><mirrors>{''.join(each.format(*mirror) for mirror in mirrors)}</mirrors></settings>")
    assert mirror_of_central(path) == Repository("http://central/")


def test_an_encrypted_password_is_refused_with_what_helps(pinned: Path, tmp_path: Path) -> None:
    write_settings(tmp_path, "http://127.0.0.1:9/", password="{COQLCE6DU6GtcS5P=}")
    with pytest.raises(MavenMissing, match=r"password of server house is encrypted.*; install Maven 3, or set"):
        maven.jars("9.9")


def test_broken_settings_are_named(pinned: Path, tmp_path: Path) -> None:
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text("<settings>")
    with pytest.raises(MavenMissing, match=r"settings\.xml cannot be read: .*; fix it, or set"):
        maven.jars("9.9")


@pytest.mark.parametrize("statuses", [[503], [503, 500]])
def test_a_passing_failure_of_the_repository_is_tried_again(
    pinned: Path, repository: tuple[str, Path], requests: list[str | None], failures: list[int],
    monkeypatch: pytest.MonkeyPatch, statuses: list[int],
) -> None:  # fmt: skip
    monkeypatch.setenv(maven.REPOSITORY_VARIABLE, repository[0])
    failures += statuses
    assert {path.name: path.read_bytes() for path in maven.jars("9.9")} == CONTENT
    assert len(requests) == len(CONTENT) + len(statuses)


def test_a_lasting_failure_ends_with_its_reason_and_what_helps(
    pinned: Path, repository: tuple[str, Path], failures: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(maven.REPOSITORY_VARIABLE, repository[0])
    failures += [503] * 3
    with pytest.raises(MavenMissing, match=r"a-1\.jar could not be fetched: .*503.*; look at the proxy"):
        maven.jars("9.9")


@pytest.mark.slow
def test_without_maven_and_address_jgo_fetches_from_maven_central(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jgo")
    monkeypatch.setenv(maven.CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv(maven.REPOSITORY_VARIABLE, raising=False)
    maven._jars.cache_clear()
    found = maven.jars("zk-3.9")
    assert all(path.is_file() for path in found)
    assert [path.name for path in (tmp_path / "jars").iterdir() if path.is_dir()] == ["zk-3.9"]


def test_the_lock_keeps_others_out_until_it_is_released(tmp_path: Path) -> None:
    with (
        maven.file_lock(tmp_path / "l"),
        pytest.raises(KitError, match="locked by another process for 0 s"),
        maven.file_lock(tmp_path / "l", timeout_s=0),
    ):
        pass
    with maven.file_lock(tmp_path / "l", timeout_s=0):
        pass


def test_the_cache_folder_follows_the_environment(tmp_path: Path) -> None:
    assert maven.cache_folder({maven.CACHE_VARIABLE: str(tmp_path)}) == tmp_path
    assert maven.cache_folder({}) == Path.home() / ".cache" / "zkconsumer"
