"""A limit for all requests of a copy together: --bandwidth."""

import re
import threading
import time

from labkit.obs.place import CloudError
from labkit.obs.retrying import GivenUp
from labkit.obs.store import Store

UNITS = {"": 0, "K": 1, "M": 2, "G": 3}


def rate(text) -> float:
    """Bytes a second of a text such as 500k, 5MiB or 1.5MB; raises CloudError. KB are 1,000 bytes, K and KiB 1,024."""
    known = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)(i?B)?(/s)?", text, re.IGNORECASE)
    if not known:
        raise CloudError(f"{text}: no bandwidth; write bytes a second, for example 500K, 5MiB or 1.5MB")
    decimal = known[2] and (known[3] or "").lower() == "b"
    found = float(known[1]) * (1000 if decimal else 1024) ** UNITS[known[2].upper()]
    if found < 1024:
        raise CloudError(f"{text}: must be at least 1 KiB a second")
    return found


class Pace:
    """When the next bytes may be moved, so that those of all threads are `rate` bytes a second, on average."""

    def __init__(self, rate, now=time.monotonic):
        self.rate, self._now, self._lock, self._free = rate, now, threading.Lock(), 0.0

    def turn(self, size) -> float:
        """Seconds to wait before these bytes; what is asked for next waits for them."""
        with self._lock:
            begin = max(self._now(), self._free)
            self._free = begin + size / self.rate
            return begin - self._now()


class PacedStore(Store):
    """A server that is asked to move bytes no faster than `pace` allows: each request waits for its turn."""

    pace: Pace

    @classmethod
    def at(cls, rate, **options):
        """The server of the environment; options: of connect."""
        found = cls.connect(**options)
        found.pace = Pace(rate)
        return found

    def apart(self):
        found = super().apart()
        found.pace = self.pace
        return found

    def ask(self, place, request, *, size=0, **more):
        if size and self._stopped.wait(self.pace.turn(size)):
            raise GivenUp(f"{place}: stopped")
        return super().ask(place, request, size=size, **more)
