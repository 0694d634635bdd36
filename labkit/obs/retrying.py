"""Requests to an object server: failures are raised, and transient ones are retried until a deadline.

The SDK returns HTTP errors as results, lets network errors through, and does not retry after a 429 or a truncated body.
So its own retries are off, and every request goes through `Retrying.ask`.
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

# Status codes worth retrying: these and all from 500 on, except "not implemented" and "HTTP version".
TRANSIENT, FINAL = {408, 429}, {501, 505}
# Worth retrying with any status: servers send some of these with an unexpected one.
TRANSIENT_CODES = {"BadDigest", "IncompleteBody", "InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown"}
# Reasons of TLS errors if the server does not use TLS, or only an obsolete version.
NO_TLS = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNSUPPORTED_PROTOCOL"}
LONGEST_WAIT = 20.0  # seconds between two tries
SLOWEST = 10_000  # bytes per second; a slower request is aborted
ABSENT = 10.0  # seconds for which a server that has never answered may refuse connections
QUIET = 5.0  # seconds without an answer before the first notice, and between two notices


class GivenUp(CloudError):
    """The server was unreachable or busy until the deadline, for all requests and not only this one."""


class Tries:
    """The tries of one request: computes the wait before the next one, until a deadline in seconds."""

    def __init__(self, deadline):
        self.start, self.deadline, self.count = time.monotonic(), deadline, 0

    def wait(self, error, error_class=CloudError) -> float:
        """Seconds to wait after an error, randomised so that many clients do not retry in step.

        Raises the error as `error_class` if the deadline would pass meanwhile.
        """
        self.count += 1
        wait = random.uniform(0, min(LONGEST_WAIT, 0.2 * 2**self.count))
        seconds = time.monotonic() - self.start
        if seconds + wait > self.deadline:
            raise error.reworded(f"{error.message}; given up after {self.count} tries in {seconds:.0f} s", error_class)
        return wait


class _TryAgain(Exception):
    """A failure that may be over at the next try: the CloudError to raise otherwise.

    absent: nothing listens on the port, so a server that has never answered is unlikely to start doing so.
    """

    def __init__(self, error, absent=False):
        super().__init__(str(error))
        self.error, self.absent = error, absent


class Retrying:
    """A server. deadline: seconds without success before giving up a request.

    notice: called with a line of text now and then while a request is retried.
    """

    def __init__(self, client, url, deadline=300.0, notice: Callable[[str], None] | None = None, keys=()):
        self.client, self.url, self.deadline, self.notice, self._keys = client, url, deadline, notice, keys
        self._stopped, self._answered, self._noticed = threading.Event(), 0.0, 0.0

    def independent(self):
        """The same server and account; stopping one of the two does not stop the other."""
        return type(self)(self.client, self.url, self.deadline, self.notice, self._keys)

    def stop(self):
        """Do not retry any request."""
        self._stopped.set()

    def ask(self, place, request, *, whole=None, missing=False, size=0):
        """The SDK's result, after as many tries as the deadline allows; raises CloudError.

        whole: function of the body that says whether it is complete. missing: return None for a 404. size: bytes to
        transfer, for which a try may take longer than the deadline.
        """
        tries = Tries(self.deadline)
        while True:
            try:
                with self.client.connections.within(self.deadline + size / SLOWEST):
                    return self._once(place, request, whole, missing)
            except _TryAgain as exception:
                failure = exception
            if failure.absent and not self._answered:
                tries.deadline = min(self.deadline, ABSENT)
            wait = tries.wait(failure.error, GivenUp if self._answered < tries.start else CloudError)
            self._notice(failure.error, tries)
            if self._stopped.wait(wait):
                raise GivenUp(f"{place}: stopped")

    def _notice(self, error, tries):
        now = time.monotonic()
        if self.notice and now - max(tries.start, self._noticed) >= QUIET:
            self._noticed = now
            host = urlsplit(self.url).netloc
            line = f"{host} answers with status {error.status}" if error.status else f"no answer from {host} yet"
            self.notice(f"{line}, trying again ({tries.count})")

    def _once(self, place, request, whole, missing):
        try:
            result = request()
        except sdk.ErrorBody as error:
            failure = CloudError(f"{place}: {self._clean(str(error))}", 200, error.code)
            raise _TryAgain(failure) if error.code in TRANSIENT_CODES else failure from None
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
            raise _TryAgain(error) if busy or result.errorCode in TRANSIENT_CODES else error
        if not usable:
            raise _TryAgain(CloudError(f"{place}: the answer is incomplete", result.status, None, result.requestId))
        return result

    def _reason(self, result):
        reason = result.errorMessage or result.reason
        if result.status < 400:
            location = next((value for name, value in result.header if name.lower() == "location"), "")
            match = re.search(r"//([^/?#]+)", location)
            host = match[1] if match else "another server"
            reason = f"{reason}: the bucket is at {host}; is OBS_ENDPOINT in the bucket's region?"
        return self._clean(reason)

    def _clean(self, message):
        return access.cleaned(message, self._keys)


def _network_error(place, error):
    """The exception to raise for a network error; _TryAgain if it may be transient."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return CloudError(f"{place}: certificate refused: {error.verify_message}")
    if isinstance(error, socket.gaierror):
        unknown = CloudError(f"{place}: {error.strerror}")
        return unknown if error.errno == socket.EAI_NONAME else _TryAgain(unknown)
    message = f"{place}: {type(error).__name__}: {error}"
    if getattr(error, "reason", None) in NO_TLS:
        return CloudError(f"{message}; the server does not use https: should OBS_ENDPOINT begin with http://?")
    absent = isinstance(error, ConnectionRefusedError)
    hint = "; is the server of OBS_ENDPOINT running?" if absent else ""
    return _TryAgain(CloudError(f"{message}{hint}"), absent=absent)
