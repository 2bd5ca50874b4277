"""`examples/json_decoder.py`: one message of a partition is no JSON, in each of the three ways to go on."""

from __future__ import annotations

import runpy
import signal
import uuid
from contextlib import ExitStack

import pytest

from tests.examples.example_process import FOLDER, Example, stored
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.loads import load

NAME = "json_decoder.py"
BAD = (0, 2)
EACH = 5
READABLE = sorted(f"{partition} {n} ann" for partition in (0, 1) for n in range(EACH) if (partition, n) != BAD)
OFFSETS = {"raise": {0: EACH, 1: EACH}, "skip": {0: EACH, 1: EACH}, "stop": {0: 2, 1: EACH}}


@pytest.fixture(scope="module")
def topic(small_cluster: EmbeddedCluster) -> str:
    name = f"topic-{uuid.uuid4().hex[:12]}"
    small_cluster.create_topic(name, 2)
    load(small_cluster, name, EACH, value=lambda *place: b"no JSON" if place == BAD else b'{"user": "ann"}')
    return name


@pytest.fixture(scope="module")
def ended(small_cluster: EmbeddedCluster, topic: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Example]:
    """The example with each value of `on.message.error`, ended by Ctrl-C once its offsets were committed."""
    with ExitStack() as running:
        begun = {
            how: running.enter_context(
                Example(
                    NAME, tmp_path_factory.mktemp(how),
                    zookeeper=small_cluster.zookeeper_connect, group=f"{topic}-{how}", topic=topic,
                    on_message_error=how,
                )
            )
            for how in OFFSETS
        }  # fmt: skip
        for how, example in begun.items():
            example.wait_for(
                lambda how=how, example=example: (
                    stored(small_cluster, f"{topic}-{how}", topic) == OFFSETS[how] and example.errors().endswith("\n")
                ),
                f"the offsets with {how}, and a word about the message",
            )
            assert example.end(signal.SIGINT) == 0
    return begun


def test_raise_gives_the_error_to_the_loop_and_goes_on_behind_the_message(
    ended: dict[str, Example], topic: str
) -> None:
    assert sorted(ended["raise"].lines()) == READABLE
    assert ended["raise"].errors() == f"passed over: {topic} 0 2: Expecting value: line 1 column 1 (char 0)\n"


def test_skip_logs_the_message_and_goes_on_behind_it(ended: dict[str, Example], topic: str) -> None:
    assert sorted(ended["skip"].lines()) == READABLE
    assert (
        ended["skip"].errors().startswith(f"message skipped, on.message.error=skip: {topic}/0 at 2: the decoder failed")
    )


def test_stop_keeps_the_partition_in_front_of_the_message_and_goes_on_with_the_others(
    ended: dict[str, Example], topic: str
) -> None:
    assert sorted(ended["stop"].lines()) == [line for line in READABLE if line not in ("0 3 ann", "0 4 ann")]
    assert (
        ended["stop"]
        .errors()
        .startswith(f"partition stopped, on.message.error=stop: {topic}/0 at 2: the decoder failed")
    )


@pytest.mark.parametrize("value", [b"42", b'"ann"', b"null", b"[]", b'{"page": 1}'])
def test_json_that_is_no_click_is_refused_by_the_decoder(value: bytes) -> None:
    user = runpy.run_path(str(FOLDER / NAME))["user"]
    assert user(b'{"user": "ann"}') == "ann"
    with pytest.raises(ValueError, match="no click with a user: "):
        user(value)
