"""The errors of group administration. Pure.

    ZkConsumerError
    └── AdminError                what was asked for cannot be found out or done
        ├── NotFound              no such group, topic or partition
        ├── GroupHasMembers       refused while consumers are in the group
        ├── OffsetsNotSet         offsets that cannot be set, or that somebody else has changed meanwhile
        ├── GroupNotDeleted       a group that could not be deleted, or not wholly
        ├── ClaimNotReleased      a claim whose owner may be alive, or that has changed meanwhile
        ├── RebalanceNotTriggered ZooKeeper did not take the passing registration
        ├── CoordinatorUnavailable no broker coordinates a group now, or it does not answer
        ├── GroupNotAuthorized    brokers do not let us see or change a group
        ├── ControllerUnavailable no broker is the controller now, or it does not answer
        ├── TopicRefused          a topic that may not be created, grown, deleted, set or cut so
        ├── TopicNotAuthorized    brokers do not let us change a topic
        └── TopicUnfinished       the change is asked for, and the brokers have not done it in time
"""

# The names say what happened; an "Error" behind each would only repeat the tree above.
# ruff: noqa: N818
from __future__ import annotations

from zkconsumer_error import RemediedError

__all__ = [
    "AdminError",
    "ClaimNotReleased",
    "ControllerUnavailable",
    "CoordinatorUnavailable",
    "GroupHasMembers",
    "GroupNotAuthorized",
    "GroupNotDeleted",
    "NotFound",
    "OffsetsNotSet",
    "RebalanceNotTriggered",
    "TopicNotAuthorized",
    "TopicRefused",
    "TopicUnfinished",
]


class AdminError(RemediedError):
    """Something that cannot be found out or done."""


class NotFound(AdminError):
    """A group, topic or partition does not exist."""


class GroupHasMembers(AdminError):
    """A group is not changed while consumers are in it: they would write their own offsets again."""


class OffsetsNotSet(AdminError):
    """Offsets were not set, or not all of them; says how many are written."""


class GroupNotDeleted(AdminError):
    """A group was not deleted, or not wholly; says what is left."""


class ClaimNotReleased(AdminError):
    """A claim was not released: its owner may be alive, or the claim has changed meanwhile."""


class RebalanceNotTriggered(AdminError):
    """ZooKeeper did not take the registration that triggers a rebalance."""


class CoordinatorUnavailable(AdminError):
    """No broker coordinates a group now, or the one that does has not answered in time."""


class GroupNotAuthorized(AdminError):
    """The brokers do not let this user see, or change, a group that they coordinate."""


class ControllerUnavailable(AdminError):
    """No broker is the controller of the cluster now, or the one that is has not answered in time."""


class TopicRefused(AdminError):
    """A topic was not created, grown, deleted, set or cut: the request breaks a rule, and nothing was written."""


class TopicNotAuthorized(AdminError):
    """The brokers do not let this user change a topic; nothing was written."""


class TopicUnfinished(AdminError):
    """A change of a topic is asked for, and the brokers have not finished in time; says what hinders them."""
