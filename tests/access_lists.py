"""What is said when the access list of a node excludes us."""

__all__ = ["REMEDY", "unmade", "unread", "unread_cause"]

REMEDY = "set zookeeper.auth or zookeeper.sasl.* to credentials that it takes, or have the list changed (setAcl)"


def unread_cause(path: str) -> str:
    return (f"ZooKeeper does not let us read {path} (NoAuth): the access list of {path} does not name our "
            "credentials")


def unread(path: str) -> str:
    """The sentence about a node that may not be read."""
    return f"{unread_cause(path)}; {REMEDY}"


def unmade(path: str) -> str:
    """The sentence about a node that may not be created, which the list of the one above it says."""
    return (f"ZooKeeper does not let us create {path} (NoAuth): the access list of {path.rpartition('/')[0]} does not "
            f"name our credentials; {REMEDY}")
