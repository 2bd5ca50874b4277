"""Finds the versions of brokers whose addresses another broker has named: during an upgrade they are not all the same.

Rules, and which failure each prevents:
- A broker that lists its versions may name one of 0.9, which never answers a question for them, and one of 0.8. Each
  address is asked once, all at a time, before anybody sends it a request that it does not know.
- A broker that is not named any more is forgotten: it may come back as another version.
- Brokers that cannot be of 0.9 are not asked: brokers with SASL, and brokers that Kafka 4 names. Brokers that one of
  0.8 or 0.9 names are spoken to as such, which all of them understand up to Kafka 3.
- One that does not answer within seconds is taken for what the answer suggests; a silence is no sign of an age.

Source: docs/COMPATIBILITY.md; `simpleconsumer.probe`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Final

from simpleconsumer.connection import Address
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.errors import AuthenticationFailed, SimpleConsumerError
from simpleconsumer.probe import Probe
from simpleconsumer.security.security import Security
from simpleconsumer.types import Broker

_LONGEST_WAIT_S: Final = 3.0
_AGAIN_S: Final = 60.0
"""When a broker that did not answer is asked again."""
_MOST_AT_A_TIME: Final = 16


class Spoken:
    """Remembers what each broker speaks.

    Args:
        client_id: Name under which brokers log requests.
        timeout_s: Longest wait for brokers that are asked, in seconds; three seconds are the most that is used.
        security: TLS and SASL; None for neither.

    Threads: any.
    """

    def __init__(self, client_id: str, timeout_s: float, security: Security | None) -> None:
        self._client_id = client_id
        self._timeout_s = min(timeout_s, _LONGEST_WAIT_S)
        self._security = security
        self._lock = threading.Lock()
        self._known: dict[Address, Broker] = {}
        self._silent_until: dict[Address, float] = {}

    def at(self, address: Address) -> Broker | None:
        """Return the broker at an address with what it speaks, if that is known."""
        with self._lock:
            return self._known.get(address)

    def know(self, brokers: Iterable[Broker]) -> None:
        """Take over what brokers speak."""
        with self._lock:
            self._known.update({(broker.host, broker.port): broker for broker in brokers})

    def forget(self, address: Address) -> None:
        """Have the broker at an address asked again: another one may have come there."""
        with self._lock:
            self._known.pop(address, None)

    def of(self, named: Mapping[int, Broker], *, are_alike: bool) -> dict[int, Broker]:
        """Return the brokers of an answer with what each of them speaks.

        Args:
            named: The brokers that a broker has named, with its own dialect.
            are_alike: All of them speak what that broker speaks.
        """
        lists_versions = any(broker.generation == KAFKA011.name for broker in named.values())
        if are_alike or (self._security is not None and self._security.sasl is not None) or not lists_versions:
            return {number: self._as_known(broker) for number, broker in named.items()}
        addresses = {(broker.host, broker.port) for broker in named.values()}
        now = time.monotonic()
        with self._lock:
            for memory in (self._known, self._silent_until):
                for gone in memory.keys() - addresses:
                    del memory[gone]
            due = [each for each in addresses if each not in self._known and self._silent_until.get(each, now) <= now]
        self._ask(due)
        return {number: self._as_known(broker) for number, broker in named.items()}

    def _as_known(self, broker: Broker) -> Broker:
        known = self.at((broker.host, broker.port))
        if known is None:
            return broker
        return broker._replace(
            fetch_version=known.fetch_version, generation=known.generation, commit_version=known.commit_version
        )

    def _ask(self, due: list[Address]) -> None:
        """Ask all of these brokers, some at a time, until the deadline."""
        if not due:
            return
        deadline = time.monotonic() + self._timeout_s
        probes = [Probe(*each, self._timeout_s, self._client_id, security=self._security) for each in due]
        with self._lock:
            self._silent_until.update(dict.fromkeys(due, deadline + _AGAIN_S))
        waiting = list(probes)
        threads = [
            threading.Thread(target=self._run, args=(waiting, deadline), name="zkconsumer-probe", daemon=True)
            for _ in range(min(len(probes), _MOST_AT_A_TIME))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        for probe in probes:
            probe.close()

    def _run(self, waiting: list[Probe], deadline: float) -> None:
        while time.monotonic() < deadline:
            try:
                probe = waiting.pop()
            except IndexError:
                return
            try:
                self.know([probe.ask()])
            except (SimpleConsumerError, AuthenticationFailed):
                continue  # who sends it a request reports it
