"""Finds out whether a call comes from a Python signal handler.

Python runs a handler between two steps of the main thread, whatever that is doing. A `shutdown` in a handler cannot
know from the thread alone whether the application is done with its message, or was interrupted in its work on it.
"""

from __future__ import annotations

import functools
import inspect
import signal
import sys
import threading
from types import CodeType, FrameType

__all__ = ["called_by_signal_handler"]


def called_by_signal_handler() -> bool:
    """Whether a function that is installed as a signal handler is on the stack of the calling thread."""
    if threading.current_thread() is not threading.main_thread():
        return False
    codes = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code in codes:
            return True
        frame = frame.f_back
    return False


def _code_of(handler: object) -> CodeType | None:
    """The code that runs when a handler is called; None for what is not written in Python, and for no handler."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    function = getattr(handler, "__func__", handler)
    code = getattr(function, "__code__", None)
    if code is None:
        code = getattr(inspect.getattr_static(type(handler), "__call__", None), "__code__", None)
    return code if isinstance(code, CodeType) else None
