"""The errors of loads.

A load that raises one of these has published nothing, except after `AppendFailed`.
"""

# The names say what happened; an "Error" behind each would only repeat the tree.
# ruff: noqa: N818
from __future__ import annotations

from zkconsumer.spark.errors import RemediedError

__all__ = ["AppendFailed", "AuditFailed", "LoadOvertaken", "LoadRefused", "OffsetsLost"]


class LoadRefused(RemediedError):
    """The folder, its history and the settings do not fit together."""


class OffsetsLost(LoadRefused):
    """Messages are not in the logs any more: retention, a log that was cut, or a topic that was created anew."""

    remedy = "`--on-data-loss skip` loads the messages that exist"


class AppendFailed(RemediedError):
    """A run is published, and its rows are not in the table yet; the next load appends them first."""


class AuditFailed(RemediedError):
    """What was written is not what was planned; nothing of it was published."""


class LoadOvertaken(RemediedError):
    """Another load has published into the same folder meanwhile; nothing of this one was published."""
