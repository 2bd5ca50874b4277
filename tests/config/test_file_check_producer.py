"""The check of a producer's properties file says what the producer will do with it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.config.file_check import check_properties, program_of
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.config.properties import parse_properties
from zkconsumer.config.tables.producer_keys import PRODUCER_KEYS
from zkconsumer.errors import ConfigError

BASE = "metadata.broker.list=b1:9092\nrequest.required.acks=1\n"


@pytest.mark.parametrize(
    ("names", "program"),
    [
        (["zookeeper.connect", "group.id"], "consumer"),
        (["zk.connect", "client.id"], "consumer"),  # both have these
        (["zk.connect", "queue.time"], "producer"),
        (["broker.list", "batch.size", "groupid"], "producer"),
        (["metadata.broker.list", "group.id", "auto.offset.reset"], "consumer"),
        ([], "consumer"),
    ],
)
def test_the_names_say_whose_file_it_is(names: list[str], program: str) -> None:
    assert program_of(names) == program


@pytest.mark.parametrize(
    ("lines", "finding"),
    [
        (["batch.num.messages=0"], "error 3: batch.num.messages is '0'; it must be an integer from 1"),
        (["batch.num.messages=20000"], "error 3: batch.num.messages is 20000; it must be at most queue.buffering.max"),
        (["zookeeper.connect=zk:2181"], "error 3: zookeeper.connect is 'zk:2181'; it must be left out"),
        (["num.retries=1", "message.send.max.retries=2"], "error 4: message.send.max.retries is '2'; it must be given"),
        (["request.required.acks=0"], "warning 3: request.required.acks is 0: messages that a broker does not accept"),
        (["group.id=g"], "warning 3: group.id is ignored: no such setting exists; it is a setting of consumers"),
        (
            ["linger.ms=5"],
            "warning 3: linger.ms is ignored: no such setting exists; it is a setting of newer producers",
        ),
        (["queue.time=5"], "note 3: queue.buffering.max.ms has no effect: producer.type is sync"),
        (
            ["queue.size=500"],
            "note None: queue.enqueue.timeout.ms is not in the file: send waits while the queue is full",
        ),
        (["client_id=c"], "note 3: Java producers ignore client_id: they know it as client.id"),
    ],
)
def test_what_is_found(lines: list[str], finding: str) -> None:
    found = check_properties(BASE + "\n".join(lines), "producer")
    assert found.program == "producer"
    shown = [f"{each.severity} {each.line}: {each.sentence}" for each in found.findings]
    assert any(each.startswith(finding) for each in shown), shown


def test_a_good_file_has_no_finding_and_acks_that_are_left_out_are_noted() -> None:
    assert check_properties(BASE + "producer.type=async\nqueue.time=5\nqueue.enqueueTimeout.ms=-1\n").findings == ()
    [note] = check_properties("metadata.broker.list=b:1\n").findings
    assert (note.severity, note.setting) == ("note", "request.required.acks")


def test_a_file_may_be_checked_as_that_of_the_other_program() -> None:
    found = check_properties(BASE, "consumer")
    assert found.program == "consumer"
    assert [each.status for each in found.lines] == ["ignored", "ignored"]
    assert any("it is a setting of producers" in each.sentence for each in found.findings)


_NAMES = sorted({name for key in PRODUCER_KEYS for name in (key.name, key.name_07) if name} | {"no.such"})
_VALUES = ["1", "0", "-1", "x", "true", "b1:9092", "zk:2181", "async", "gzip", "0:b:1"]


@given(given_ones=st.lists(st.tuples(st.sampled_from(_NAMES), st.sampled_from(_VALUES)), max_size=5))
def test_the_check_refuses_what_the_producer_refuses(given_ones: list[tuple[str, str]]) -> None:
    text = "\n".join(f"{name}={value}" for name, value in given_ones)
    found = check_properties(text, "producer")
    has_errors = any(each.severity == "error" for each in found.findings)
    try:
        config = ProducerConfig.from_properties(parse_properties(text))
    except ConfigError:
        assert has_errors
    else:
        assert not has_errors
        in_force = {each.setting: each.value for each in found.values if each.value is not None}
        hidden = {key.name for key in PRODUCER_KEYS if key.secret}
        wanted = {name: value for name, value in config.to_properties().items() if name not in hidden}
        assert {name: value for name, value in in_force.items() if name in wanted} == wanted
