"""Stopping: Ctrl-C and SIGTERM take effect at the end of a step; exit statuses of processes."""

import ctypes
import os
import signal
import sys
import threading
from contextlib import contextmanager, suppress

_stop, _at_steps = threading.Event(), threading.Event()  # a stop was requested; stops wait for the end of a step


@contextmanager
def stopped_once():
    """Ctrl-C or SIGTERM raises KeyboardInterrupt with the signal's number, once: a second one interrupts no save.

    Inside `stopped_at_steps` the next `raise_if_stopped` raises it.
    """
    signals = [sig for sig in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(sig) != signal.SIG_IGN]

    def stop(number, frame):
        for sig in signals:
            signal.signal(sig, signal.SIG_IGN)
        _stop.set()
        if not _at_steps.is_set():
            stopped = KeyboardInterrupt()
            stopped.number = number
            raise stopped
        with suppress(OSError):  # the terminal may be gone
            os.write(2, b"\nstopping at the end of this step\n")

    before = [signal.signal(sig, stop) for sig in signals]
    try:
        yield
    finally:
        _stop.clear()
        for sig, handler in zip(signals, before):
            signal.signal(sig, handler)


@contextmanager
def stopped_at_steps():
    """Inside this context a stop waits for `raise_if_stopped`, or for the end of the context.

    Raised immediately, KeyboardInterrupt would look like an error in the network while MindSpore compiles it, and
    Python would ignore it in a finalizer.
    """
    _at_steps.set()
    try:
        yield
        raise_if_stopped()  # a stop after the last step
    finally:
        _at_steps.clear()


def stop_requested() -> bool:
    """Whether a stop waits for `raise_if_stopped`."""
    return _stop.is_set()


def raise_if_stopped() -> None:
    """Raise KeyboardInterrupt if a stop was requested."""
    if stop_requested():
        raise KeyboardInterrupt


def shell_status(status: int) -> int:
    """A process's exit status as a shell reports it; Python uses the negative number of the signal that killed it."""
    return status if status >= 0 else 128 - status


def signal_name(number: int) -> str:
    """A signal's name, such as SIGKILL for 9; real-time signals have none."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def die_with_parent() -> None:
    """Have the system kill this process when its parent ends, for whatever reason. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG
