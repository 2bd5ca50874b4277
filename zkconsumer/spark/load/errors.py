"""Why a load does not go on.

Nothing of a load that ends with one of these can be seen in its folder, but with `AppendFailed`.
"""

# The names say what happened; an "Error" behind each would only repeat the tree.
# ruff: noqa: N818
from __future__ import annotations

from zkconsumer.errors import ZkConsumerError

__all__ = ["AppendFailed", "AuditFailed", "LoadOvertaken", "LoadRefused", "OffsetsLost"]


class LoadRefused(ZkConsumerError):
    """The folder, its history or the wishes do not fit together; the text says what to do."""


class OffsetsLost(LoadRefused):
    """What the last run left to be read is not in the logs any more: retention, or a topic that was created anew."""


class AppendFailed(ZkConsumerError):
    """A run is published, and its rows are not in the table yet; the next load appends them first."""


class AuditFailed(ZkConsumerError):
    """What was written is not what was asked for; nothing of it was published."""


class LoadOvertaken(ZkConsumerError):
    """Another load published into the same folder meanwhile; nothing of this one was."""
