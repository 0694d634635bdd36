"""Waiting for what another process or thread does."""

import time

import psutil


def wait_until(condition, seconds=60):
    """Ask again and again; fails where it does not hold by then."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not so after {seconds} s"
        time.sleep(0.02)


def ended(pid):
    """Whether a process has: after SIGKILL it may take a moment, and nobody may have asked for its status."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
