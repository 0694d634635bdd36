"""How every request to an object server is made: failures are raised, and what may pass is tried until a deadline.

The SDK returns HTTP errors as results and lets network errors through; a 429 or a body cut short it does not retry. So
its own retries are off, and every request goes through `Retrying.ask`.
"""

import random
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable
from http.client import HTTPException
from urllib.parse import urlsplit

from labkit.obs import access, sdk
from labkit.obs.place import CloudError

# Status codes worth retrying: these and all from 500 on, but "not implemented" and "HTTP version".
TRANSIENT, FINAL = {408, 429}, {501, 505}
# Damaged on the way, or said with another status than it should have.
TRANSIENT_CODES = {"BadDigest", "IncompleteBody", "InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown"}
# Of TLS, when the other side speaks none, or one that nobody should speak any more.
NO_TLS = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNSUPPORTED_PROTOCOL"}
LONGEST_WAIT = 20.0  # seconds between two tries
SLOWEST = 10_000  # bytes a second that a slow line brings; below that a request is cut off
ABSENT = 10.0  # seconds for which a server that has never answered may refuse connections
QUIET = 5.0  # seconds without an answer before the first notice, and between two notices


class GivenUp(CloudError):
    """The server was not there, or busy, until the deadline, for all requests; otherwise it is about this one only."""


class Tries:
    """The tries of one request: how long to wait before the next one, until a deadline in seconds."""

    def __init__(self, deadline):
        self.begun, self.deadline, self.count = time.monotonic(), deadline, 0

    def wait(self, error, least=0.0, kind=CloudError) -> float:
        """Seconds to wait after this error, at random so that many clients do not come back in step.

        Raises the error, of this kind, where the deadline would pass meanwhile.
        """
        self.count += 1
        wait = max(least, random.uniform(0, min(LONGEST_WAIT, 0.2 * 2**self.count)))
        seconds = time.monotonic() - self.begun
        if seconds + wait > self.deadline:
            raise error.reworded(f"{error.message}; given up after {self.count} tries in {seconds:.0f} s", kind)
        return wait


class _TryAgain(Exception):
    """What may have passed at the next try: the CloudError to raise if not, and seconds to wait at least.

    absent: nobody listens there, so a server that has never answered is hardly about to.
    """

    def __init__(self, error, wait=0.0, absent=False):
        super().__init__(str(error))
        self.error, self.wait, self.absent = error, wait, absent


class Retrying:
    """A server. deadline: seconds without success after which a request is given up.

    notice: called with a line of text now and then while a request is not answered and tried again.
    """

    def __init__(self, client, url, deadline=300.0, notice: Callable[[str], None] | None = None, keys=()):
        self.client, self.url, self.deadline, self.notice, self._keys = client, url, deadline, notice, keys
        self._stopped, self._answered, self._noticed = threading.Event(), 0.0, 0.0

    def apart(self):
        """The same server and account; `stop` of this one does not stop the other."""
        return type(self)(self.client, self.url, self.deadline, self.notice, self._keys)

    def stop(self):
        """Make no further try of any request."""
        self._stopped.set()

    def ask(self, place, request, *, whole=None, missing=False, size=0):
        """The SDK's result, after as many tries as the deadline allows; raises CloudError.

        whole: says of a body whether it is all that was asked for. missing: None where there is nothing (404). size:
        bytes to be moved, for which a try may take longer than the deadline.
        """
        tries = Tries(self.deadline)
        while True:
            try:
                with self.client.connections.within(self.deadline + size / SLOWEST):
                    return self._once(place, request, whole, missing)
            except _TryAgain as trouble:
                known = trouble
            if known.absent and not self._answered:
                tries.deadline = min(self.deadline, ABSENT)
            wait = tries.wait(known.error, known.wait, GivenUp if self._answered < tries.begun else CloudError)
            self._notice(known.error, tries)
            if self._stopped.wait(wait):
                raise GivenUp(f"{place}: stopped")

    def _notice(self, error, tries):
        now = time.monotonic()
        if self.notice and now - max(tries.begun, self._noticed) >= QUIET:
            self._noticed = now
            host = urlsplit(self.url).netloc
            line = f"{host} answers with status {error.status}" if error.status else f"no answer from {host} yet"
            self.notice(f"{line}, trying again ({tries.count})")

    def _once(self, place, request, whole, missing):
        try:
            result = request()
        except sdk.ErrorBody as error:
            known = CloudError(f"{place}: {self._clean(str(error))}", 200, error.code)
            raise _TryAgain(known) if error.code in TRANSIENT_CODES else known from None
        except (OSError, HTTPException, UnicodeError) as error:
            raise _network_error(f"{place}: {self.url}", error) from None
        busy = result.status in TRANSIENT or (result.status >= 500 and result.status not in FINAL)
        usable = result.status >= 300 or not whole or whole(result.body)
        if usable and not busy:
            self._answered = time.monotonic()
        if missing and result.status == 404:
            return None
        if result.status >= 300:
            error = CloudError(f"{place}: {self._reason(result)}", result.status, result.errorCode, result.requestId)
            if busy or result.errorCode in TRANSIENT_CODES:
                wait = _header(result, "retry-after") or ""
                raise _TryAgain(error, min(60.0, float(wait)) if wait.isdecimal() else 0.0)
            raise error
        if not usable:
            raise _TryAgain(CloudError(f"{place}: the answer is not whole", result.status, None, result.requestId))
        return result

    def _reason(self, result):
        reason = result.errorMessage or result.reason
        if result.status < 400:
            other = re.search(r"//([^/?#]+)", _header(result, "location") or "")
            host = other[1] if other else "another server"
            reason = f"{reason}: {host} has it; is OBS_ENDPOINT of the bucket's region?"
        return self._clean(reason)

    def _clean(self, message):
        return access.cleaned(message, self._keys)


def _network_error(place, error):
    """What to raise for an error of the network: _TryAgain where it may pass."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return CloudError(f"{place}: certificate refused: {error.verify_message}")
    if isinstance(error, socket.gaierror):
        unknown = CloudError(f"{place}: {error.strerror}")
        return unknown if error.errno == socket.EAI_NONAME else _TryAgain(unknown)
    message = f"{place}: {type(error).__name__}: {error}"
    if getattr(error, "reason", None) in NO_TLS:
        return CloudError(f"{message}; it speaks no https: does OBS_ENDPOINT begin with http://?")
    absent = isinstance(error, ConnectionRefusedError)
    hint = "; is the server of OBS_ENDPOINT running?" if absent else ""
    return _TryAgain(CloudError(f"{message}{hint}"), absent=absent)


def _header(result, name):
    return next((value for known, value in result.header if known.lower() == name), None)
