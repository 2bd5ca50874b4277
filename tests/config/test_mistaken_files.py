"""Files with slips: what the messages say, that they name the place, and that no secret is in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from zkconsumer import ConfigError, ConsumerConfig, SettingsNotUsable, UnknownSetting, ZkConsumerError
from zkconsumer.cli.program import program
from zkconsumer.config.connection_settings import find_connection_settings
from zkconsumer.config.file_check import check_properties
from zkconsumer.spark.settings_files import with_settings_files

SECRET = "S3CR3T"
BASE = "zookeeper.connect=127.0.0.1:1\ngroup.id=g\n"
HASH = "1iz7jz8rBcwVLRWmGLAqTD9F1cE="


def written(folder: Path, text: str) -> str:
    path = folder / "consumer.properties"
    path.write_text(BASE + text)
    path.chmod(0o600)
    return str(path)


def run(*arguments: str, environment: dict[str, str] | None = None) -> Result:
    return CliRunner(env=environment).invoke(program, arguments, prog_name="zkconsumer")


@pytest.mark.parametrize("line", [
    f"zookeeper.sasl.password-{SECRET}", rf"zookeeper.sasl.password\={SECRET}",
    rf"zookeeper.auth\:digest\:bob\:{SECRET}", f"zookeeper_sasl_password-{SECRET}",
    f"ZooKeeper.Sasl.Password-{SECRET}", f"zookeeper.sasl.passwort.password{SECRET}",
    f"zookeeper.ssl.keyfile.password-{SECRET}", f"sasl.secret-{SECRET}",
])  # fmt: skip
def test_a_secret_in_a_mistyped_line_is_not_shown(tmp_path: Path, line: str, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path, f"zookeeper.connection.timeout.ms=200\n{line}\n{line}\n")
    ConsumerConfig.from_properties(path)
    assert "***' is ignored" in caplog.text
    for arguments in (["topics", "--config", path], ["check-config", path], ["check-config", path, "--json"]):
        result = run(*arguments)
        assert SECRET not in result.output
        assert "***" in result.output + caplog.text
    assert SECRET not in caplog.text
    with pytest.raises(UnknownSetting) as raised:
        ConsumerConfig("zk", "g", **{line.replace("\\", ""): "1"})  # type: ignore[arg-type]
    assert SECRET not in str(raised.value) + repr(raised.value)


@pytest.mark.parametrize("name", ["ssl.keystore.password", "sasl.jaas.config", "password.encoder.secret"])
def test_an_unknown_name_without_a_value_is_shown_whole(name: str) -> None:
    assert check_properties(BASE + f"{name}=x\n").lines[2].name == name


@pytest.mark.parametrize("pair", [f"zookeeper.sasl.password:{SECRET}", f"zookeeper.auth digest:bob:{SECRET}",
                                  f"zookeeper.sasl.password-{SECRET}"])  # fmt: skip
def test_a_secret_in_a_mistyped_option_is_not_shown(pair: str) -> None:
    result = run("consume", "--zookeeper", "127.0.0.1:1", "--topic", "t", "--property", pair)
    assert result.exit_code == 2
    assert "is not key=value" in result.output
    assert SECRET not in result.output
    assert pair[:14] in result.output


def test_a_property_does_not_replace_the_zookeeper(tmp_path: Path) -> None:
    path = written(tmp_path, f"zookeeper.auth=digest:bob:{SECRET}\n")
    for name in ("zookeeper.connect", "zk.connect", "zookeeper_connect"):
        for mode in ([], ["--until-end"]):
            result = run("consume", "--topic", "t", "--config", path, "--property", f"{name}=127.0.0.1:2", *mode)
            assert result.exit_code == 2
            assert f"{name} names a ZooKeeper: give --zookeeper HOSTS instead" in result.output


def test_credentials_of_a_file_for_another_cluster_are_reported_by_spark(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path, f"zookeeper.auth=digest:bob:{SECRET}\n")
    options = with_settings_files({"config": path, "zookeeper.connect": "127.0.0.1:2"})
    assert options["zookeeper.connect"] == "127.0.0.1:2"
    assert (
        f"the credentials in {path} (zookeeper.auth) are used for 127.0.0.1:2 of the option zookeeper.connect, but "
        "the file is for 127.0.0.1:1"
    ) in caplog.text
    caplog.clear()
    assert with_settings_files({"config": path, "ZOOKEEPER.CONNECT": "127.0.0.1:1"})["ZOOKEEPER.CONNECT"]
    assert caplog.text == ""


def test_an_access_list_that_cannot_work_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^zookeeper\.acl is 'creator'; it must be open, unless zookeeper\.auth or"):
        ConsumerConfig("zk", "g", zookeeper_acl="creator")
    with pytest.raises(ConfigError, match="is 'auth::r'"):
        ConsumerConfig("zk", "g", zookeeper_acl="auth::r", zookeeper_auth=())
    for identity in ({"zookeeper_auth": "digest:a:b"}, {"zookeeper_sasl_mechanism": "GSSAPI"},
                     {"zookeeper_use_ssl": True, "zookeeper_ssl_certfile": "/c"}):  # fmt: skip
        ConsumerConfig("zk", "g", zookeeper_acl="creator", **identity)  # type: ignore[arg-type]
    ConsumerConfig("zk", "g", zookeeper_acl=f"digest:bob:{HASH}:cdrwa")


@pytest.mark.parametrize("entry", [f"digest:bob:{SECRET}:cdrwa", f"world:anyone:r,digest:{SECRET}:cdrwa",
                                   f"digest:bob:{SECRET}{HASH}:cdrwa"])  # fmt: skip
def test_a_password_in_place_of_a_hash_is_refused_and_not_shown(entry: str) -> None:
    with pytest.raises(ConfigError, match="28 characters: the base64 of the SHA-1 of user:password") as raised:
        ConsumerConfig("zk", "g", zookeeper_auth=f"digest:bob:{SECRET}", zookeeper_acl=entry)
    assert SECRET not in str(raised.value)
    found = check_properties(BASE + f"zookeeper.acl={entry}\n")
    assert SECRET not in found.to_json()
    assert [finding.severity for finding in found.findings] == ["error", "note"]


@pytest.mark.parametrize("missing", ["username", "password"])
def test_empty_credentials_are_refused(tmp_path: Path, missing: str) -> None:
    given = {"mechanism": "DIGEST-MD5", "username": "bob", "password": SECRET, missing: ""}
    path = written(tmp_path, "".join(f"zookeeper.sasl.{name}={value}\n" for name, value in given.items()))
    said = f"zookeeper.sasl.{missing} is ''; it must be given, because zookeeper.sasl.mechanism is DIGEST-MD5"
    assert said in run("check-config", path).output
    result = run("groups", "--config", path)
    assert result.exit_code == 1
    assert f"zookeeper.sasl.{missing} is '' ({path}, line " in result.output


def test_an_empty_auth_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    said = "zookeeper.auth is empty: no credentials are sent to ZooKeeper"
    empty = ConsumerConfig.from_properties({"zookeeper.connect": "zk", "group.id": "g", "zookeeper.auth": ""})
    assert said in caplog.text
    assert said in [finding.sentence for finding in check_properties(BASE + "zookeeper.auth=\n").findings]
    caplog.clear()
    assert ConsumerConfig.from_properties(empty.to_properties()) == empty
    assert caplog.text == ""


def test_two_names_with_one_value_are_one_setting_for_everybody(tmp_path: Path) -> None:
    path = written(tmp_path, "auto.commit.interval.ms=1000\nautocommit.interval.ms=1000 \nauto.offset.reset=largest\n")
    assert run("check-config", path).exit_code == 0
    assert ConsumerConfig.from_properties(path).auto_commit_interval_ms == 1000
    assert find_connection_settings(config=path, environment={}).properties["auto.commit.interval.ms"] == "1000"


def test_two_names_with_two_values_are_named_with_the_values(tmp_path: Path) -> None:
    path = written(tmp_path, "auto.commit.interval.ms=1000\nautocommit.interval.ms=2000\n")
    said = ("given once; it is given under two names, as auto.commit.interval.ms = '1000' and autocommit.interval.ms = "
            "'2000'")  # fmt: skip
    with pytest.raises(ConfigError) as raised:
        find_connection_settings(config=path, environment={})
    assert str(raised.value) == f"auto.commit.interval.ms is '2000' ({path}); it must be {said}"
    with pytest.raises(ConfigError, match=r"as auto\.commit\.interval\.ms = '1000' and") as raised:
        ConsumerConfig.from_properties(path)
    assert path in str(raised.value)
    assert said in run("check-config", path).output


def test_errors_name_the_line_and_the_variable(tmp_path: Path) -> None:
    path = written(tmp_path, "\nfetch.size=abc\n")
    place = f"fetch.message.max.bytes is 'abc' ({path}, line 4); it must be an integer"
    with pytest.raises(ConfigError) as raised:
        ConsumerConfig.from_properties(path)
    assert str(raised.value).startswith(place)
    assert ConsumerConfig.from_properties(path, fetch_message_max_bytes=7).fetch_message_max_bytes == 7
    for arguments in (["groups"], ["consume", "--topic", "t"], ["consume", "--topic", "t", "--until-end"],
                      ["topics"], ["verify", "g"]):  # fmt: skip
        assert place in run(*arguments, "--config", path).output, arguments
    of_variable = run("groups", environment={"ZKCONSUMER_CONFIG": path}).output
    assert f"is 'abc' ({path} of ZKCONSUMER_CONFIG, line 4)" in of_variable
    overridden = run("consume", "--topic", "t", "--config", path, "--property", "fetch.size=xyz").output
    assert "is 'xyz'; it must be" in overridden
    gone = run("groups", "--zookeeper", "127.0.0.1:1", environment={"ZKCONSUMER_CONFIG": "/nope.p"}).output
    assert "the consumer config /nope.p of ZKCONSUMER_CONFIG cannot be read: No such file or directory" in gone
    unknown = run("groups", environment={"ZKCONSUMER_PROFILE": "nope"}).output
    assert "profile 'nope' of ZKCONSUMER_PROFILE does not exist: " in unknown


def test_a_damaged_file_is_an_error_of_ours_that_names_it(tmp_path: Path) -> None:
    path = written(tmp_path, "client.id=\\u12\n")
    with pytest.raises(SettingsNotUsable) as raised:
        ConsumerConfig.from_properties(path)
    assert str(raised.value).startswith(f"{path} is not a properties file: line 3: \\u needs four hexadecimal digits")
    assert isinstance(raised.value, ZkConsumerError)
    assert isinstance(raised.value, ValueError)
    with pytest.raises(UnknownSetting, match="unknown setting '5'; the names of settings are text"):
        ConsumerConfig.from_properties({5: 6})  # type: ignore[dict-item]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_file_in_utf_16_is_recognised(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "u.properties"
    path.write_bytes((BASE + "client.id=grün\n").encode(encoding))
    said = f"{path} is not a properties file: it is UTF-16 text; save it as UTF-8"
    for result in (run("topics", "--config", str(path)), run("check-config", str(path))):
        assert result.exit_code == 1
        assert said in result.output
    with pytest.raises(SettingsNotUsable, match="it is UTF-16 text; save it as UTF-8"):
        ConsumerConfig.from_properties(path)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("auto_offset_reset", "SMALLEST ", "it must be smallest or largest (write 'smallest': case matters)"),
        ("auto_offset_reset", "Smallest", "(write 'smallest': case matters)"),
        ("zookeeper_sasl_mechanism", "digest-md5", "(write 'DIGEST-MD5': case matters)"),
        ("auto_commit_enable", "False", "(write 'false': case matters)"),
        ("client_id", "a ", "white space at its end is part of the value"),
        ("auto_offset_reset", "small ", "it must be smallest or largest"),
        ("auto_offset_reset", "raise", "('raise' is only possible with kafka.generation=0.7: it stops"),
    ],
)
def test_the_hint_names_what_is_wrong(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        ConsumerConfig("zk", "g", **{name: value})  # type: ignore[arg-type]
    assert said in str(raised.value)
    if value.strip().lower() != "a":
        assert "white space" not in str(raised.value)


def test_the_json_of_a_file_check_has_the_keys_that_it_had(tmp_path: Path) -> None:
    found = json.loads(run("check-config", written(tmp_path, ""), "--json").stdout)
    assert found["program"] == "consumer"
    assert set(found) == {"good", "program", "lines", "findings", "values"}
