"""Which ZooKeeper and which settings count: arguments, files, profiles, environment; and the warnings about them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from zkconsumer import ConsumerConfig
from zkconsumer.config.connection_settings import (
    SettingsNotUsable,
    find_connection_settings,
    profile_file,
    profile_names,
)
from zkconsumer.config.properties import warn_of_shown_secrets


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """All places name a ZooKeeper: each of them another one."""
    write(tmp_path / "config", "zookeeper.connect=config:1\nclient.id=config\n")
    write(tmp_path / "zkconsumer" / "one.properties", "zookeeper.connect=one:1\nclient.id=one\ngroup.id=one\n")
    write(tmp_path / "zkconsumer" / "two.properties", "zk.connect=two:1\nclient.id=two\n")
    return {"XDG_CONFIG_HOME": str(tmp_path), "ZKCONSUMER_ZOOKEEPER": "variable:1",
            "ZKCONSUMER_CONFIG": str(tmp_path / "config"), "ZKCONSUMER_PROFILE": "one"}  # fmt: skip


def write(path: Path, text: str, mode: int = 0o600) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_the_first_place_that_names_a_zookeeper_counts(environment: dict[str, str], tmp_path: Path) -> None:
    file = write(tmp_path / "file", "zookeeper.connect=file:1\n")
    bare = write(tmp_path / "bare", "client.id=bare\n")

    def found(**arguments: str) -> tuple[str | None, str | None]:
        settings = find_connection_settings(environment=environment, **arguments)
        return settings.zookeeper, settings.properties.get("client.id")

    assert found(zookeeper="option:1", config=file, profile="two") == ("option:1", "two")
    assert found(config=file, profile="two") == ("file:1", "two")
    assert found(config=bare, profile="two") == ("two:1", "bare")
    assert found(config=bare) == ("variable:1", "bare")
    assert found() == ("variable:1", "config")
    del environment["ZKCONSUMER_ZOOKEEPER"]
    assert found() == ("config:1", "config")
    environment["ZKCONSUMER_CONFIG"] = ""
    assert found() == ("one:1", "one")
    assert found(config=bare) == (None, "bare"), "a file on the command line replaces those of the environment"


def test_settings_of_a_file_come_before_those_of_a_profile(environment: dict[str, str]) -> None:
    settings = find_connection_settings(environment=environment)
    assert dict(settings.properties) == {"client.id": "config", "group.id": "one"}
    assert [Path(file).name for file in settings.files] == ["config", "one.properties"]


def test_a_profile_that_does_not_exist_is_reported_with_those_that_do(environment: dict[str, str]) -> None:
    with pytest.raises(
        SettingsNotUsable,
        match=r"^profile 'tow' does not exist: there is no file "
        r".*/zkconsumer/tow\.properties; existing profiles: one, two$",
    ):
        find_connection_settings(profile="tow", environment=environment)
    assert profile_names(environment) == ["one", "two"]


@pytest.mark.parametrize("name", ["", "../one", "a/b", ".hidden", "x" * 101])
def test_a_name_that_is_none_of_a_profile_is_refused(name: str) -> None:
    with pytest.raises(SettingsNotUsable, match="is not the name of a profile; use 1 to 100 of"):
        profile_file(name)


def test_a_relative_folder_of_profiles_is_ignored() -> None:
    assert profile_file("a", {"XDG_CONFIG_HOME": "here"}) == Path("~/.config/zkconsumer/a.properties").expanduser()


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"ZKCONSUMER_ZOOKEEPER": "a/x,b"}, r"^ZKCONSUMER_ZOOKEEPER is 'a/x,b': the chroot is given once"),
        (
            {"ZKCONSUMER_CONFIG": "/no/file"},
            r"^the consumer config /no/file of ZKCONSUMER_CONFIG cannot be read: No such file or directory$",
        ),
        ({"ZKCONSUMER_CONFIG": "/"}, r"^the consumer config / of ZKCONSUMER_CONFIG cannot be read: Is a directory$"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named(variables: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsNotUsable, match=said):
        find_connection_settings(environment=variables)


def test_an_address_in_a_file_that_is_none_is_named_with_the_file(tmp_path: Path) -> None:
    file = write(tmp_path / "file", "zookeeper.connect=zk1:99999\n")
    with pytest.raises(SettingsNotUsable, match=r"^zookeeper\.connect in .*/file is 'zk1:99999': port 99999 of zk1 is"):
        find_connection_settings(config=file, environment={})


@pytest.mark.parametrize(
    ("text", "mode", "is_warned"),
    [
        ("zookeeper.sasl.password=hidden-secret\n", 0o644, True),
        ("zookeeper.sasl.password=hidden-secret\n", 0o640, False),
        ("zookeeper.sasl.username=bob\n", 0o644, False),
    ],
)
def test_a_password_that_everybody_can_read_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, mode: int, is_warned: bool
) -> None:
    for folder in (tmp_path, *tmp_path.parents[:3]):
        if folder.name:
            folder.chmod(folder.stat().st_mode | 0o011)
    file = write(tmp_path / "file", text, mode)
    with caplog.at_level(logging.WARNING, "zkconsumer.config"):
        for _ in range(2):
            find_connection_settings(config=file, environment={})
    said = f"{file} contains zookeeper.sasl.password, and every user of this machine can read the file (mode 0644): "
    assert caplog.text.count(said) == is_warned
    assert "hidden-secret" not in caplog.text


def test_a_password_in_a_folder_that_is_closed_is_not_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(tmp_path / "closed" / "file", "zookeeper.sasl.password=hidden\n", 0o644)
    (tmp_path / "closed").chmod(0o700)
    find_connection_settings(config=file, environment={})
    assert caplog.text == ""


def test_credentials_for_other_servers_than_the_file_names_are_warned_about(
    environment: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(tmp_path / "file", "zookeeper.connect=zk1:1,zk2:1/a\nzookeeper.auth=digest:bob:hidden-secret\n")
    find_connection_settings("zk2:1/b", file, environment={})
    assert caplog.text == ""
    find_connection_settings("elsewhere:1", file, environment={})
    assert f"the credentials in {file} (zookeeper.auth) are used for elsewhere:1 of --zookeeper, but " in caplog.text
    assert "hidden-secret" not in caplog.text


def test_no_secret_is_in_the_representation(tmp_path: Path) -> None:
    file = write(tmp_path / "file", "zookeeper.sasl.password=hidden-secret\n")
    assert "hidden-secret" not in repr(find_connection_settings(config=file, environment={}))


def test_a_file_of_a_member_is_warned_about_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for folder in (tmp_path, *tmp_path.parents[:3]):
        if folder.name:
            folder.chmod(folder.stat().st_mode | 0o011)
    file = write(tmp_path / "file", "zookeeper.connect=a:1\ngroup.id=g\nzookeeper.auth=digest:a:hidden-secret\n", 0o644)
    ConsumerConfig.from_properties(file)
    assert f"{file} contains zookeeper.auth, and every user of this machine can read the file" in caplog.text
    assert "hidden-secret" not in caplog.text


def test_a_secret_in_a_command_line_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_shown_secrets(["zookeeper.sasl.password", "group.id"], "--property")
    assert caplog.text.count("shows a secret to every user of this machine (ps)") == 1
