"""The check of a properties file says what the consumer will do with it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.config import ConsumerConfig
from zkconsumer.config.file_check import FileCheck, check_properties
from zkconsumer.config.properties import parse_properties, property_lines
from zkconsumer.config.tables.keys import KEYS
from zkconsumer.errors import ConfigError

BASE = "zookeeper.connect=zk\ngroup.id=g\n"


def check(*lines: str) -> FileCheck:
    """The check of these lines, which start at line 3 of the file."""
    return check_properties(BASE + "\n".join(lines))


def said(found: FileCheck) -> list[str]:
    return [f"{each.severity} {each.line}: {each.sentence}" for each in found.findings]


@pytest.mark.parametrize(
    ("lines", "finding"),
    [
        (["fetch.min.bytes=x"], "error 3: fetch.min.bytes is 'x'; it must be an integer from 0 to 2147483647"),
        (["zookeeper.auth=hunter2"], "error 3: zookeeper.auth is '***'; it must be scheme:credential"),
        (["group.id=h"], "warning 2: group.id has no effect: line 3 sets it again, and the last line counts"),
        (["group.id=g"], "note 2: group.id has no effect: line 3 sets it again, to the same value"),
        (["groupid=g"], "note 3: groupid sets group.id to the same value as line 2"),
        (["groupid=h"], "error 3: group.id is 'h'; it must be given once"),
        (["client_id=c"], "note 3: Java consumers ignore client_id: they know it as client.id"),
        (["qqqq=hunter2"], "warning 3: qqqq is ignored: no such setting exists"),
        (["socket.timeout.ms=50"], "error 3: socket.timeout.ms is 50; it must be at least fetch.wait.max.ms, which is"),
        (
            ["zookeeper.ssl.cafile=/ca"],
            "error None: zookeeper.use.ssl is False; it must be true, because zookeeper.ssl",
        ),
        (["zookeeper.sasl.mechanism=DIGEST-MD5"], "error None: zookeeper.sasl.username is not set; it must be given"),
        (
            ["kafka.generation=0.7", "offsets.storage=kafka"],
            "error 4: offsets.storage is kafka, but Kafka 0.7 supports",
        ),
        (["rebalance.max.retries=1"], "warning None: rebalance.max.retries x rebalance.backoff.ms = 2000 ms is less"),
        (["rebalance.drain.timeout.ms=5000"], "warning None: rebalance.drain.timeout.ms = 5000 is 4000 or more"),
        (["dual.commit.enabled=true"], "warning 3: dual.commit.enabled has no effect without offsets.storage=kafka"),
        (["shallowiterator.enable=true"], "warning 3: shallowiterator.enable has no effect"),
        (["fetcher.backoff.ms=5"], "note 3: fetcher.backoff.ms only has an effect with brokers of Kafka 0.7"),
        (["auto.commit.interval.ms=5", "auto.commit.enable=false"], "note 3: auto.commit.interval.ms has no effect"),
        (["zookeeper.sync.time.ms=5", "rebalance.backoff.ms=2000"], "note 3: zookeeper.sync.time.ms has no effect"),
        (["roundrobin.order=1.0"], "note 3: roundrobin.order has no effect with partition.assignment.strategy=range"),
        (["fetch.min.bytes=2", "fetch.wait.max.ms=0"], "warning 3: fetch.min.bytes has no effect with"),
        (["zookeeper.session.timeout.ms=3000"], "note 3: zookeeper.session.timeout.ms = 3000: a ZooKeeper server with"),
        (["zookeeper.session.timeout.ms=60000", "rebalance.max.retries=40"], "note 3: zookeeper.session.timeout.ms ="),
        (["zookeeper.connection.timeout.ms=60001"], "note 3: it takes 60.001 s until a ZooKeeper that does not"),
        (["consumer.id=a"], "note 3: consumer.id is fixed: each member of the group needs its own"),
        (["fetch.message.max.bytes=2000", "queued.max.bytes=1999"], "warning 3: fetch.message.max.bytes = 2000 is"),
        (["decoded.max.bytes=1999"], "warning 3: decoded.max.bytes = 1999 is less than fetch.message.max.bytes"),
        (["fetch.message.max.bytes=1000"], "note 3: fetch.message.max.bytes = 1000 is less than the largest message"),
        (["consumer.timeout.ms=0"], "warning 3: consumer.timeout.ms = 0 is less than fetch.wait.max.ms = 100"),
        (["zookeeper.auth=digest:a:b"], "note 3: zookeeper.auth is sent in clear text without zookeeper.use.ssl=true"),
    ],
)
def test_what_is_found(lines: list[str], finding: str) -> None:
    found = check(*lines)
    assert any(each.startswith(finding) for each in said(found)), said(found)
    assert found.is_good is not any(each.startswith(("error", "warning")) for each in said(found))
    assert "hunter2" not in found.to_json()


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["dual.commit.enabled=true", "offsets.storage=kafka"],
        ["dual.commit.enabled=false"],
        ["roundrobin.order=1.0", "partition.assignment.strategy=roundrobin"],
        ["fetch.min.bytes=2"],
        ["consumer.timeout.ms=-1"],
        ["consumer.timeout.ms=100"],
        ["auto.offset.reset=smallest"],
        ["zookeeper.connection.timeout.ms=60000"],
        ["zookeeper.session.timeout.ms=40000", "rebalance.max.retries=20"],
    ],
)
def test_nothing_is_found_about_a_good_file(lines: list[str]) -> None:
    assert said(check(*lines)) == []


def test_what_each_line_does() -> None:
    found = check("zk.sessiontimeout.ms=6000", "fetch_size=5", "zookeeper.auth=digest:a:b", "qqqq=1", "fetch.size=7",
                  "group.id=h", "fetch.min.bytes=x")  # fmt: skip
    assert [(each.line, each.name, each.setting, each.spelling, each.status, each.value, each.unit, each.is_default)
            for each in found.lines] == [
        (1, "zookeeper.connect", "zookeeper.connect", "0.8", "used", "zk", None, False),
        (2, "group.id", "group.id", "0.8", "overridden", None, None, False),
        (3, "zk.sessiontimeout.ms", "zookeeper.session.timeout.ms", "0.7", "used", "6000", "ms", True),
        (4, "fetch_size", "fetch.message.max.bytes", "0.7", "used", "5", "bytes", False),
        (5, "zookeeper.auth", "zookeeper.auth", "0.8", "used", "***", None, False),
        (6, "qqqq", None, None, "ignored", None, None, False),
        (7, "fetch.size", "fetch.message.max.bytes", "0.7", "refused", None, "bytes", False),
        (8, "group.id", "group.id", "0.8", "used", "h", None, False),
        (9, "fetch.min.bytes", "fetch.min.bytes", "0.8", "refused", None, "bytes", False),
    ]  # fmt: skip
    assert found.values == ()


def test_defaults_follow_the_settings_that_they_depend_on() -> None:
    found = check("client.id=g", "rebalance.backoff.ms=3000", "zookeeper.sync.time.ms=3000")
    assert [line.is_default for line in found.lines] == [False, False, True, True, False]
    in_force = {each.setting: (each.value, each.line) for each in found.values}
    assert list(in_force) == [key.name for key in KEYS]
    assert in_force["rebalance.backoff.ms"] == ("3000", 4)
    assert in_force["zookeeper.connection.timeout.ms"] == ("6000", None)
    assert in_force["consumer.id"] == (None, None)
    assert in_force["max.processing.interval.ms"] == ("off", None)


def test_the_json_is_plain() -> None:
    found = check("fetch.size=7", "qqqq=1")
    read = json.loads(found.to_json())
    assert list(read) == ["good", "program", "lines", "findings", "values"]
    assert read["good"] is False
    assert read["lines"][2] == {
        "line": 3, "name": "fetch.size", "setting": "fetch.message.max.bytes", "spelling": "0.7", "status": "used",
        "value": "7", "unit": "bytes", "is_default": False,
    }  # fmt: skip
    assert list(read["findings"][0]) == ["severity", "line", "setting", "sentence"]


def test_lines_are_counted_as_an_editor_does() -> None:
    text = "# comment\r\n\r\na = 1\\\r\n   2\r\n! another\r\nb\r\n\r\na=3"
    assert list(property_lines(text)) == [(3, "a", "12"), (6, "b", ""), (8, "a", "3")]
    with pytest.raises(ValueError, match=r"^line 2: \\u needs four hexadecimal"):
        check_properties("a=1\nb=\\u12")


def test_a_file_that_is_something_else_cannot_disturb_the_terminal() -> None:
    found = check("\x1b[31mred=1", "x" * 5000 + "=1", "client.id=\x1b[0m")
    assert all(each.isprintable() and len(each) < 1000 for each in said(found))
    assert all(line.name.isprintable() and len(line.name) < 1000 for line in found.lines)


NAMES = [name for key in KEYS for name in (key.name, key.name_07, key.attribute) if name] + ["grup.id", "earliest"]
VALUES = ["", "0", "1", "5", "6000", "-1", "true", "false", "smallest", "largest", "earliest", "kafka", "range", "x y",
          "off", "0.7", "zk1:2181,zk2/chroot", "digest:a:b", "PLAIN", "1.0"]  # fmt: skip


def read(text: str) -> ConsumerConfig | ConfigError:
    try:
        return ConsumerConfig.from_properties(parse_properties(text))
    except ConfigError as error:
        return error


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=8), st.booleans())
def test_it_finds_errors_exactly_where_the_consumer_raises(entries: list[tuple[str, str]], has_base: bool) -> None:
    text = (BASE if has_base else "") + "\n".join(f"{name}={value}" for name, value in entries)
    found = check_properties(text)
    errors = {each.setting for each in found.findings if each.severity == "error"}
    config = read(text)
    if isinstance(config, ConfigError):
        assert config.key in errors
        return
    assert not errors
    properties = config.to_properties()
    for line in found.lines:
        if line.status == "used" and line.value != "***":
            assert line.setting is not None
            assert properties.get(line.setting, "off") == line.value
    assert "auto.offset.reset is not given" not in " ".join(said(found)) or config.auto_offset_reset == "largest"


def test_a_file_that_names_brokers_and_no_group_is_good() -> None:
    found = check_properties("bootstrap.servers=b1:9092\nsecurity.protocol=SSL\n")
    sentence = "bootstrap.servers is enough to read topics; to join a group, group.id is needed"
    assert said(found) == [f"note 1: {sentence}"]
    assert found.is_good
    assert {each.setting: each.value for each in found.values}["bootstrap.servers"] == "b1:9092"
