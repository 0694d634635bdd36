"""The client of esdk-obs-python with what labkit changes in it. The SDK itself is imported when a client is made."""

import os
import re
import selectors
import socket
import threading
import time
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import urlsplit

LONGEST_IDLE = 15.0  # seconds; later, a server or a router on the way may have dropped a connection without a word


class ErrorBody(Exception):
    """An <Error> in an answer whose status is 200."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Connections:
    """A client's open connections, which later requests use again. One belongs to a thread until `within` ends.

    It replaces the SDK's queue, which gives any connection to any request: one to another bucket's host, one that the
    server has closed, or one with half an answer in it.
    """

    def __init__(self):
        self._idle, self._lock, self._mine = {}, threading.Lock(), _Mine()

    def __del__(self):
        self.close()

    def close(self):
        """Close those that no request uses."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for connection, _ in (one for several in idle.values() for one in several):
            connection.close()

    @property
    def reused(self) -> bool:
        """Whether this thread's last request used a connection that was open already."""
        return self._mine.reused

    @contextmanager
    def within(self, seconds):
        """Cut off what this thread asks for after so long: the SDK's timeout is for the time between two bytes.

        Gives the function that cuts it off at once. After an error, idle connections are closed: they may be as dead.
        """
        self._mine.used, self._mine.reused, whole = [], False, False
        used = self._mine.used

        def cut():
            for one in [connection.opened for _, connection in used if connection.opened]:
                with suppress(OSError):
                    socket.socket.shutdown(one, socket.SHUT_RDWR)  # TLS's own would break off the reader's

        timer = threading.Timer(seconds, cut)
        timer.daemon = True
        timer.start()
        try:
            yield cut
            whole = True
        finally:
            timer.cancel()
            self._mine.used = None
            while used:
                self._give_back(*used.pop(), whole)
            if not whole:
                self.close()

    def take(self, host, new):
        """An open connection to this host, or a new one, which new() makes."""
        connection = self._open(host)
        self._mine.reused = connection is not None
        connection = connection or new()
        if self._mine.used is not None:
            self._mine.used.append((host, connection))
        return connection

    def empty(self):
        """The SDK asks its client for a connection, which knows to what host, when this is True."""
        return True

    def put_nowait(self, connection):
        """The SDK needs it no more."""
        if self._mine.used is None:  # a request that was not made within `within`
            connection.close()

    def _open(self, host):
        while True:
            with self._lock:
                idle = self._idle.get((os.getpid(), host))  # after a fork, those of the parent stay the parent's
                connection, since = idle.pop() if idle else (None, 0)
            if connection is None or (time.monotonic() - since < LONGEST_IDLE and not connection.has_ended()):
                return connection
            connection.close()

    def _give_back(self, host, connection, whole):
        if whole and connection.sock and connection.answer and connection.answer.isclosed():  # read to its end
            with self._lock:
                self._idle.setdefault((os.getpid(), host), []).append((connection, time.monotonic()))
        else:
            connection.close()


class _Mine(threading.local):
    """What a thread uses: (host, connection) of its request, and whether the last one was open already."""

    used, reused = None, False


class _Kept:
    """A connection of http.client that remembers its socket and its last answer."""

    opened = answer = None

    def connect(self):
        super().connect()
        self.opened = self.sock

    def getresponse(self):
        self.answer = super().getresponse()
        return self.answer

    def set_tunnel(self, *arguments):
        if not self.sock:  # the SDK sets it for each request
            super().set_tunnel(*arguments)

    def has_ended(self) -> bool:
        """Whether the server has closed it meanwhile, or sent what nobody has asked for."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.sock, selectors.EVENT_READ)
            return bool(selector.select(0))


class _Http(_Kept, HTTPConnection):
    pass


class _Https(_Kept, HTTPSConnection):
    pass


def client(url, *arguments, **settings):
    """An ObsClient that follows no redirect and passes on what the SDK drops: Retry-After, and an <Error> in a 200.

    url: the server's, also with an IPv6 address. A request is made within its `connections.within`.
    """
    from obs import ObsClient
    from obs.model import DateTime

    DateTime.UTCToLocal = staticmethod(lambda text: text)  # as the server wrote it: the SDK's is an hour off in summer

    class Client(ObsClient):
        def _init_connHolder(self):
            self.connections = Connections()
            self.connHolder = {"connSet": self.connections, "lock": threading.Lock()}

        def _get_server_connection_use_http1x(self, is_secure, host, port, proxy_host, proxy_port):
            host = host.strip("[]")  # of an IPv6 address
            first = (proxy_host, proxy_port) if proxy_host else (host, port)
            how = {"timeout": self.timeout, **({"context": self.context} if is_secure else {})}
            return self.connections.take((host, port), lambda: (_Https if is_secure else _Http)(*first, **how))

        @staticmethod
        def _prepare_response_data(result, size):
            data = ObsClient._prepare_response_data(result, size)
            # An error's page that is not UTF-8, as a proxy may send, would end in a UnicodeDecodeError.
            return data.decode("utf-8", "replace").encode() if data and result.status >= 300 else data

        def _is_redirect_exception(self, *_):
            return False  # keys and signature are for one server; a redirect comes out as an error

        def _rename_response_headers(self, headers):
            asked = headers.get("retry-after")
            more = [("retry-after", str(seconds(asked, headers.get("date"))))] if asked else []
            return super()._rename_response_headers(headers) + more

        def _prepare_body(self, methodName, responseData, isJson, headers):
            if b"<Error" in (responseData or b"")[:400]:
                found = {}
                for name in ("Code", "Message"):
                    match = re.search(rf"<{name}>([^<]*)</{name}>".encode(), responseData)
                    found[name] = match.group(1).decode("utf-8", "replace") if match else ""
                raise ErrorBody(found["Code"], found["Message"] or "an error, though the status is 200")
            return super()._prepare_body(methodName, responseData, isJson, headers)

    server, settings = urlsplit(url), settings | {"long_conn_mode": True}
    if ":" not in server.hostname:
        return Client(*arguments, server=url, **settings)
    made = Client(*arguments, server=server._replace(netloc="localhost").geturl(), **settings)  # it reads no [::1]
    made.server, made.port = f"[{server.hostname}]", server.port or made.port
    return made


def seconds(asked, date):
    """A Retry-After in seconds, at most a minute; where it is a date, it counts from the answer's own, its Date."""
    try:
        if asked.isdecimal():
            wait = float(asked)
        else:
            now = parsedate_to_datetime(date) if date else datetime.now(timezone.utc)
            wait = (parsedate_to_datetime(asked) - now).total_seconds()
    except (TypeError, ValueError):  # no date, or one without its zone
        return 0.0
    return min(max(wait, 0.0), 60.0)
