"""Archives of classes: the first program writes one, later ones load it, and nothing depends on it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zkconsumer.testing.java.maven import CACHE_VARIABLE
from zkconsumer.testing.java.runtime import ClassArchive, find_java
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.kafka.known_versions import kafka_jars
from zkconsumer.testing.kafka.server_process import KafkaServerProcess
from zkconsumer.testing.zookeeper import ZooKeeperServer
from zkconsumer.testing.zookeeper.server import default_jars


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    default_jars()  # what has to be fetched is fetched into the usual cache
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def server_folder(tmp_path: Path) -> Path:
    (tmp_path / "server").mkdir()
    return tmp_path / "server"


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    file = tmp_path / "one.jar"
    file.write_bytes(b"jar")
    return file


def archives(cache: Path) -> list[str]:
    return [path.name for path in (cache / "classes").glob("*.jsa")]


def has_loaded(server: ZooKeeperServer | KafkaServerProcess, archive: str) -> bool:
    return archive in Path(f"/proc/{server.process.pid}/maps").read_text()


def has_base_archive() -> bool:
    return any(find_java().program.resolve().parents[1].glob("lib/*/classes*.jsa"))


@pytest.mark.real
def test_the_first_server_writes_it_and_later_ones_load_it(cache: Path) -> None:
    if not has_base_archive():
        pytest.skip("this Java has no archive of its own classes, on which others are built")
    with ZooKeeperServer():
        assert archives(cache) == []
    [name] = archives(cache)
    assert name.endswith(".jsa")
    with ZooKeeperServer() as second:
        assert has_loaded(second, name)
        second.restart()
        assert has_loaded(second, name)
    assert archives(cache) == [name]


@pytest.mark.real
@pytest.mark.parametrize("version", ["0.8.2.2", "4.3.1"])
def test_brokers_have_archives_of_their_own(cache: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    if not has_base_archive():
        pytest.skip("this Java has no archive of its own classes, on which others are built")
    monkeypatch.delenv(CACHE_VARIABLE)
    jars = kafka_jars(version)
    monkeypatch.setattr("zkconsumer.testing.java.runtime.cache_folder", lambda: cache)
    monkeypatch.setattr("zkconsumer.testing.kafka.cluster.kafka_jars", lambda *_: jars)
    with KafkaCluster(version, 2):
        pass
    names = set(archives(cache))
    with KafkaCluster(version) as later:
        assert any(has_loaded(later.brokers[0], name) for name in names)
        later.stop(0)
        later.start(0)
        assert any(has_loaded(later.brokers[0], name) for name in names)
    assert set(archives(cache)) == names


@pytest.mark.real
def test_a_server_that_is_killed_writes_none(cache: Path) -> None:
    with ZooKeeperServer() as server:
        server.kill()
    assert archives(cache) == []


@pytest.mark.real
def test_an_archive_that_java_refuses_is_no_obstacle(cache: Path) -> None:
    server = ZooKeeperServer()
    archive = ClassArchive(find_java(), default_jars(), server.folder)
    [name] = [flag.rpartition("/")[2] for flag in _flags_with_any_archive(archive, cache) if ".jsa" in flag]
    with server:
        assert server.accepts_sessions()
        assert not has_loaded(server, name)
        assert "jsa" not in server.log()


def _flags_with_any_archive(archive: ClassArchive, cache: Path) -> tuple[str, ...]:
    """The flags when a file that is no archive lies in the cache under the name of the archive."""
    archive._written.write_bytes(b"no archive")
    archive.keep(143)
    assert len(archives(cache)) == 1
    return archive.flags


@pytest.mark.real
def test_a_cache_that_cannot_be_written_is_no_obstacle(cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    with ZooKeeperServer() as server:
        assert server.accepts_sessions()
    assert cache.read_text() == "a file where the folder should be"


@pytest.mark.parametrize(("exit_code", "kept"), [(0, 1), (143, 1), (-15, 1), (1, 0), (-9, 0), (None, 0)])
def test_only_an_orderly_end_counts(
    cache: Path, server_folder: Path, jar: Path, exit_code: int | None, kept: int
) -> None:
    archive = ClassArchive(find_java(), [jar], server_folder)
    (server_folder / "classes.jsa").write_bytes(b"classes")
    archive.keep(exit_code)
    assert len(archives(cache)) == kept


def test_only_one_program_at_a_time_writes_it(cache: Path, server_folder: Path, jar: Path) -> None:
    first = ClassArchive(find_java(), [jar], server_folder)
    assert any("ArchiveClassesAtExit" in flag for flag in first.flags)
    second = ClassArchive(find_java(), [jar], server_folder)
    assert not second.is_to_be_written
    assert not any(".jsa" in flag for flag in second.flags)
    first.keep(1)
    third = ClassArchive(find_java(), [jar], server_folder)
    assert third.is_to_be_written
    del third  # given up without an end in order, as after a kill
    assert ClassArchive(find_java(), [jar], server_folder).is_to_be_written


def test_other_jars_have_another_archive(cache: Path, server_folder: Path, jar: Path) -> None:
    def kept() -> set[str]:
        archive = ClassArchive(find_java(), [jar], server_folder)
        assert archive.is_to_be_written
        (server_folder / "classes.jsa").write_bytes(b"classes")
        archive.keep(0)
        assert not ClassArchive(find_java(), [jar], server_folder).is_to_be_written
        return set(archives(cache))

    names = [kept()]
    jar.write_bytes(b"longer jar")
    names.append(kept())
    os.utime(jar, ns=(1, 1))
    names.append(kept())
    assert [len(each) for each in names] == [1, 2, 3]
