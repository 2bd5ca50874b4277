"""`zkconsumer demo`: shows a cluster and a group in which members join, leave and are killed, and counts all messages.

`story` is the sequence of events, on a `stage` of real servers and processes. `counters` counts what they record, and
`outcome` checks the whole history (both pure). `scene` is what is shown at one moment, `view` draws it, and `display`
prints it.
"""

from zkconsumer.cli.demo.command import demo

__all__ = ["demo"]
