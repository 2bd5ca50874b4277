"""`zkconsumer demo`: a cluster, a group, a join, a leave and a death, watched and counted.

`story` is what happens, on a `stage` of real servers and processes; `counters` counts what they write down and `outcome`
judges it (both pure); `scene` is what there is to see, `view` draws it, `display` puts it on the terminal.
"""

from zkconsumer.cli.demo.command import demo

__all__ = ["demo"]
