"""The command line: `zkconsumer consume`, `produce`, `describe`, `offsets` and others."""

from zkconsumer.cli.program import main

__all__ = ["main"]
