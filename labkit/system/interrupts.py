"""Stopping: Ctrl-C and SIGTERM take effect at the end of a step; how processes end."""

import ctypes
import os
import signal
import sys
import threading
from contextlib import contextmanager

_stop, _at_steps = threading.Event(), threading.Event()  # a signal asked to stop; stops wait for a step's end


@contextmanager
def stopped_once():
    """Ctrl-C or SIGTERM raises KeyboardInterrupt once, with the signal's number; a second one interrupts no save.

    Inside `stopped_at_steps` it is raised by the next `raise_if_stopped`.
    """
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) != signal.SIG_IGN]

    def stop(number, frame):
        for one in numbers:
            signal.signal(one, signal.SIG_IGN)
        _stop.set()
        if not _at_steps.is_set():
            stopped = KeyboardInterrupt()
            stopped.number = number
            raise stopped
        os.write(2, b"\nstopping at the end of this step\n")

    before = [signal.signal(number, stop) for number in numbers]
    try:
        yield
    finally:
        _stop.clear()
        for number, handler in zip(numbers, before):
            signal.signal(number, handler)


@contextmanager
def stopped_at_steps():
    """Inside this context a stop waits for `raise_if_stopped`, or for the context's end.

    Raised at once, KeyboardInterrupt would look like a defect of the network if MindSpore is compiling, and Python
    would ignore it in a finalizer.
    """
    _at_steps.set()
    try:
        yield
        raise_if_stopped()  # a stop after the last step
    finally:
        _at_steps.clear()


def raise_if_stopped() -> None:
    """Raise KeyboardInterrupt if a stop was requested."""
    if _stop.is_set():
        raise KeyboardInterrupt


def shell_status(status: int) -> int:
    """Exit status of a process as a shell reports it; Python's is negative for the signal that killed it."""
    return status if status >= 0 else 128 - status


def signal_name(number: int) -> str:
    """SIGKILL for 9; a real-time signal has no name."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def die_with_parent() -> None:
    """Have the system kill this process when its parent ends, however that is. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG
