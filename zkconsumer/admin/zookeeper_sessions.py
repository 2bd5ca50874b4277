"""Asks ZooKeeper's servers, by four-letter words, which client has a session and whether the session lives.

`cons` names the clients of one server; `dump` at the leader (or the only server) names all sessions. From ZooKeeper 3.5
on both have to be allowed (`4lw.commands.whitelist`); without an answer nothing is known. Every request has a deadline.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Sequence

__all__ = ["client_of", "clients_in", "leader_knows", "sessions_in"]

_TIMEOUT_S = 3.0
_MOST_BYTES = 16 * 1024 * 1024
_CLIENT = re.compile(r"^ */?(\S+?)\[\d+\]\(.*\bsid=0x([0-9a-f]+)", re.MULTILINE)
_SESSION = re.compile(r"^\s*0x([0-9a-f]+)\b", re.MULTILINE)
_LEADS = re.compile(r"^Mode: (leader|standalone)$", re.MULTILINE)

Server = tuple[str, int]


def client_of(servers: Sequence[Server], session: int) -> str | None:
    """Return the address of the client that has a session, None when no server names it."""
    for server in servers:
        address = clients_in(_ask(server, b"cons")).get(session % 2**64)
        if address is not None:
            return address
    return None


def leader_knows(servers: Sequence[Server], session: int, witness: int) -> bool | None:
    """Return whether the session lives, None when that is not known.

    Args:
        witness: A session that lives and is younger: a server that does not know it is not the leader any more.
    """
    for server in servers:
        if not _LEADS.search(_ask(server, b"srvr")):
            continue
        known = sessions_in(_ask(server, b"dump"))
        if witness % 2**64 in known:
            return session % 2**64 in known
    return None


def clients_in(text: str) -> dict[int, str]:
    """Return the addresses of the sessions in an answer to `cons`.

    >>> clients_in(" /10.0.0.7:41234[1](queued=0,recved=5,sent=5,sid=0x1f,lop=PING)")
    {31: '10.0.0.7:41234'}
    """
    return {int(session, 16): address for address, session in _CLIENT.findall(text)}


def sessions_in(text: str) -> set[int]:
    """Return the sessions that a leader lists as living in its answer to `dump`; none if it lists none.

    Behind that list stand the owners of ephemeral nodes, which are not read: by a fault of the server, a node may
    outlive its session.
    """
    head, separator, _ = text.partition("ephemeral nodes dump:")
    return {int(session, 16) for session in _SESSION.findall(head)} if separator else set()


def _ask(server: Server, word: bytes) -> str:
    """Return the answer, an empty text without one."""
    deadline = time.monotonic() + _TIMEOUT_S
    answer = bytearray()
    try:
        with socket.create_connection(server, _TIMEOUT_S) as connection:
            connection.sendall(word)
            while len(answer) < _MOST_BYTES:
                connection.settimeout(max(0.001, deadline - time.monotonic()))
                chunk = connection.recv(65536)
                if not chunk:
                    return answer.decode("utf-8", "replace")
                answer += chunk
    except OSError:
        pass
    return ""  # half an answer could lack the session that is looked for
