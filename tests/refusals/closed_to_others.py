"""Ways to close a node of ZooKeeper, and what a command has to say about one that is closed to it."""

from __future__ import annotations

import re

from kazoo.security import make_acl, make_digest_acl

OWNER_LOGIN = ("owner", "owner-secret")
OWNER = make_digest_acl(*OWNER_LOGIN, all=True)
MODES = {
    "closed": [OWNER],
    "read only": [OWNER, make_acl("world", "anyone", read=True)],
    "write only": [OWNER, make_acl("world", "anyone", write=True, create=True, delete=True)],
}
REMEDY = r"set zookeeper\.auth or zookeeper\.sasl\.\*|give all members the same zookeeper\.acl and zookeeper\.auth"


def without_times(text: str) -> str:
    return re.sub(r"\d+(\.\d+)? (ms|s|seconds)\b|\b\d{13}\b|\b\d{4}-\d\d-\d\dT[\d:.]+Z|0x[0-9a-f]+", "T", text)


def problem_of(path: str, found: tuple[int, str, str], of_open: tuple[int, str]) -> str:
    """Return what is wrong with a command while a node was closed to it; nothing if nothing is.

    Args:
        path: The node.
        found: Status, standard output and standard error.
        of_open: Status and standard output while the node was open.
    """
    status, printed, said = found
    if "bug in zkconsumer" in said or "Traceback" in said:
        return "a bug in zkconsumer"
    named = re.search(
        rf"does not let this client \w+ {path}(/\S+)? \(NoAuth\)|access list of {path}(/\S+)? does not", printed + said
    )
    if named is None:
        if (status, without_times(printed)) == (of_open[0], without_times(of_open[1])):
            return ""
        return "the output differs, and the node is not named"
    return "" if re.search(REMEDY, printed + said) else "the remedy is missing"
