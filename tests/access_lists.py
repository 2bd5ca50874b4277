"""Checks of the errors for nodes whose access list excludes us."""

__all__ = ["REMEDY", "unmade", "unread", "unread_cause"]

REMEDY = "set zookeeper.auth or zookeeper.sasl.* to credentials that it accepts, or change that list (setAcl)"


def unread_cause(path: str) -> str:
    return (
        f"ZooKeeper does not let this client read {path} (NoAuth): the access list of {path} does not name its "
        "credentials"
    )


def unread(path: str) -> str:
    """The sentence about a node that may not be read."""
    return f"{unread_cause(path)}; {REMEDY}"


def unmade(path: str) -> str:
    """The message about a node that may not be created, because of the access list of its parent."""
    return (
        f"ZooKeeper does not let this client create {path} (NoAuth): the access list of "
        f"{path.rpartition('/')[0]} does not name its credentials; {REMEDY}"
    )
