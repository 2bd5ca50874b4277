"""What is handed to a connector in the wrong form is refused at once, in a sentence that says the right one."""

from __future__ import annotations

from typing import Any

import pytest

from zkconsumer import ConsumerConfig, ConsumerConnector


def _connector() -> ConsumerConnector:
    return ConsumerConnector(ConsumerConfig("127.0.0.1:1", "g"))


def test_a_connection_string_in_the_place_of_the_settings() -> None:
    wrong: Any = "zk1:2181"
    with pytest.raises(TypeError, match="must be a ConsumerConfig"):
        ConsumerConnector(wrong)


def test_a_topic_in_the_place_of_topics_and_streams() -> None:
    wrong: Any = "clicks"
    with pytest.raises(TypeError, match="must map topics to numbers of streams"):
        _connector().create_message_streams(wrong)


def test_a_text_in_the_place_of_a_filter() -> None:
    wrong: Any = "clicks.*"
    with pytest.raises(TypeError, match="must be a Whitelist or a Blacklist"):
        _connector().create_message_streams_by_filter(wrong)
