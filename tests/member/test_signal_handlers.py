"""Whether a call comes out of a signal handler can be told, however the handler is written."""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from zkconsumer.member.asked_commit import called_by_signal_handler

seen: list[bool] = []


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    before = signal.getsignal(signal.SIGUSR1)
    seen.clear()
    yield
    signal.signal(signal.SIGUSR1, before)


def look(*_: object) -> None:
    deeper()


def deeper() -> None:
    seen.append(called_by_signal_handler())


class Service:
    def method(self, number: int, frame: object) -> None:
        deeper()

    def __call__(self, number: int, frame: object) -> None:
        deeper()


HANDLERS: dict[str, Callable[..., None]] = {
    "function": look,
    "lambda": lambda number, frame: deeper(),
    "method": Service().method,
    "object": Service(),
    "partial": functools.partial(functools.partial(look, "more"), "still"),
}


@pytest.mark.parametrize("name", HANDLERS)
def test_a_handler_of_any_kind_is_recognised(name: str) -> None:
    signal.signal(signal.SIGUSR1, HANDLERS[name])
    signal.raise_signal(signal.SIGUSR1)
    assert seen == [True]


def test_a_plain_call_is_none() -> None:
    signal.signal(signal.SIGUSR1, look)
    deeper()
    assert seen == [False]


def test_another_thread_is_none() -> None:
    signal.signal(signal.SIGUSR1, look)
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [False]


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL, signal.default_int_handler])
def test_handlers_that_are_no_python_code_disturb_nothing(handler: signal.Handlers) -> None:
    signal.signal(signal.SIGUSR1, handler)
    deeper()
    assert seen == [False]
