"""The thread that makes a member's requests to its coordinator: what is given up, and connections that are to end."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from simpleconsumer.calls.coordinator_client import CoordinatorClient
from simpleconsumer.dialect import KAFKA08
from simpleconsumer.errors import ConnectionFailed
from simpleconsumer.types import GenerationMember
from zkconsumer.member.request_thread import RequestThread
from zkconsumer.testing.waiting import wait_until

WAIT_S = 10.0
MEMBER = GenerationMember("g", 1, "m")


class Silent:
    """A coordinator that takes connections and answers nothing."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])

    def client(self) -> CoordinatorClient:
        return CoordinatorClient("127.0.0.1", self.port, 60.0, "m", dialect=KAFKA08)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def silent() -> Iterator[Silent]:
    made = Silent()
    yield made
    made.close()


@pytest.fixture
def deaths() -> list[BaseException]:
    return []


@pytest.fixture
def threads(deaths: list[BaseException]) -> Iterator[Callable[[Callable[[], CoordinatorClient | None]], RequestThread]]:
    """Makes threads, and ends them."""
    made: list[RequestThread] = []

    def thread(connect: Callable[[], CoordinatorClient | None]) -> RequestThread:
        made.append(RequestThread("requests", connect, deaths.append))
        return made[-1]

    yield thread
    for each in made:
        each.close(WAIT_S)
    assert deaths == []


Threads = Callable[[Callable[[], CoordinatorClient | None]], RequestThread]


def never() -> None:
    raise AssertionError("a coordinator is known")


def test_requests_are_made_in_their_order(threads: Threads, silent: Silent) -> None:
    thread, made = threads(silent.client), list[int]()
    for number in range(5):
        thread.ask(lambda _, number=number: made.append(number), never)  # type: ignore[misc]
    wait_until(lambda: made == [0, 1, 2, 3, 4], WAIT_S, "all of them")


def test_without_a_coordinator_whoever_asks_is_told(threads: Threads) -> None:
    told = threading.Event()
    threads(lambda: None).ask(lambda _: never(), told.set)
    assert told.wait(WAIT_S)


def test_a_request_that_is_given_up_ends_at_once_and_one_that_waits_is_not_made(
    threads: Threads, silent: Silent
) -> None:
    thread = threads(silent.client)
    began, said = threading.Event(), list[str]()

    def heartbeat(client: CoordinatorClient) -> None:
        began.set()
        with pytest.raises(ConnectionFailed):
            client.heartbeat(MEMBER)
        said.append("ended")

    thread.ask(heartbeat, never)
    thread.ask(lambda _: said.append("waited"), never)
    assert began.wait(WAIT_S)
    thread.give_up_present()
    thread.ask(lambda _: said.append("later"), never)
    wait_until(lambda: said == ["ended", "later"], WAIT_S, "the later one alone", state=lambda: said)


def test_a_request_given_up_before_it_began_is_not_made(threads: Threads, silent: Silent) -> None:
    said: list[str] = []
    entered, go_on = threading.Event(), threading.Event()

    def connect() -> CoordinatorClient:
        entered.set()
        assert go_on.wait(WAIT_S)
        return silent.client()

    thread = threads(connect)
    thread.ask(lambda _: said.append("first"), never)
    assert entered.wait(WAIT_S)
    thread.ask(lambda _: said.append("second"), never)
    thread.give_up_present()
    thread.ask(lambda _: said.append("third"), never)
    go_on.set()
    wait_until(lambda: said[-1:] == ["third"], WAIT_S, "the last one", state=lambda: said)
    assert "second" not in said


def test_a_connection_that_was_being_made_when_it_was_to_end_serves_nobody(threads: Threads, silent: Silent) -> None:
    entered, go_on = threading.Event(), threading.Event()
    made: list[CoordinatorClient] = []
    used: list[CoordinatorClient] = []

    def connect() -> CoordinatorClient:
        made.append(silent.client())
        entered.set()
        assert go_on.wait(WAIT_S)
        return made[-1]

    def heartbeat(client: CoordinatorClient) -> None:
        with pytest.raises(ConnectionFailed):
            client.heartbeat(MEMBER)  # of a coordinator that is none any more
        used.append(client)

    thread = threads(connect)
    thread.ask(heartbeat, never)
    assert entered.wait(WAIT_S)
    thread.restart()
    go_on.set()
    wait_until(lambda: used == made, WAIT_S, "the request to end")
    thread.ask(used.append, never)
    wait_until(lambda: len(used) == 2, WAIT_S, "the next request")
    assert used[1] is not used[0]


def test_a_thread_that_is_closed_ends_what_is_under_way(threads: Threads, silent: Silent) -> None:
    began, ended = threading.Event(), threading.Event()

    def heartbeat(client: CoordinatorClient) -> None:
        began.set()
        with pytest.raises(ConnectionFailed):
            client.heartbeat(MEMBER)
        ended.set()

    thread = threads(silent.client)
    thread.ask(heartbeat, never)
    assert began.wait(WAIT_S)
    thread.close(WAIT_S)
    assert ended.is_set()
