"""An error says the setting, the value and the place, and survives a trip through pickle."""

from __future__ import annotations

import pickle

import pytest

from zkconsumer import errors


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (errors.ConfigError("fetch.min.bytes", -1, "an integer from 0"), "fetch.min.bytes is -1; it must be an int"),
        (errors.ConfigError("group.id", None, "a name"), "group.id is not set; it must be a name"),
        (errors.NotSupported("offsets.storage=kafka", "not yet"), "offsets.storage=kafka is not supported: not yet"),
        (errors.ConsumerTimeout(200), "consumer.timeout.ms = 200"),
        (errors.MessageStreamsExist(), "has created its streams"),
        (errors.ConcurrentStreamUse("g_c-0"), "stream g_c-0"),
        (errors.StreamFailed("the group was refused"), "the group was refused"),
        (errors.CommitFailed({("t", 0): "not owned"}), "not committed: t/0: not owned"),
        (errors.CommitFailed({("t", number): "lost" for number in range(7)}), "t/4: lost; and 2 more"),
        (errors.ConnectorClosed(), "shut down"),
        (errors.ZooKeeperUnavailable("zk:1", 6.0), "no ZooKeeper server answered at zk:1 within 6 s; is it running"),
        (
            errors.ZooKeeperUnavailable("zk:1", 6.0, [errors.Obstacle("zk:1", " speaks TLS", "set it")]),
            "no session with ZooKeeper within 6 s: zk:1 speaks TLS; set it",
        ),
        (errors.ZooKeeperRefused("zk:1", "refused; check it"), "refused; check it (zk:1)"),
    ],
)
def test_what_an_error_says(error: errors.ZkConsumerError, said: str) -> None:
    assert said in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_wrong_setting_is_a_value_error() -> None:
    assert isinstance(errors.ConfigError("a", 1, "b"), ValueError)
