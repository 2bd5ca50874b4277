"""`zkconsumer demo`: shows a cluster and a group in which members join, leave and are killed, and counts all messages.

`stage` runs the sequence of events on real servers and processes. `scene` (pure) has what is shown at one moment, draws
it, counts what was recorded and checks the whole history. `display` prints it.
"""

from zkconsumer.cli.demo.command import demo

__all__ = ["demo"]
