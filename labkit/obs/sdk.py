"""The client of esdk-obs-python, with labkit's changes. The SDK itself is imported when a client is created."""

import re
import selectors
import socket
import threading
import time
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPSConnection

LONGEST_IDLE = 15.0  # seconds, after which a server or router may have dropped a connection silently


class ErrorBody(Exception):
    """An <Error> in an answer with status 200."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Connections:
    """A client's open connections, to be reused by later requests. Each belongs to one thread until `within` ends.

    Replaces the SDK's queue, which gives any connection to any request: to another bucket's host, already closed by the
    server, or with half an answer still in it.
    """

    def __init__(self):
        self._idle, self._lock, self._local = {}, threading.Lock(), threading.local()

    def __del__(self):
        self._close()

    @contextmanager
    def within(self, seconds):
        """Abort this thread's request after so many seconds: the SDK's own timeout limits the time between two bytes.

        After an error, idle connections are closed, as they may be dead too.
        """
        self._local.used, whole = [], False
        timer = threading.Timer(seconds, _cut, [self._local.used])
        timer.daemon = True
        timer.start()
        try:
            yield
            whole = True
        finally:
            timer.cancel()
            used, self._local.used = self._local.used, None
            for host, connection in used:
                self._give_back(host, connection, whole)
            if not whole:
                self._close()

    def take(self, host, new):
        """An open connection to this host, or a new one, created by new()."""
        connection = self._open(host) or new()
        if self._used() is not None:
            self._local.used.append((host, connection))
        return connection

    def empty(self):
        """Always True, so that the SDK asks its client for a connection to the right host."""
        return True

    def put_nowait(self, connection):
        """The SDK no longer needs the connection."""
        if self._used() is None:  # the request was not made inside `within`
            connection.close()

    def _used(self):
        return getattr(self._local, "used", None)

    def _open(self, host):
        while True:
            with self._lock:
                idle = self._idle.get(host)
                connection, since = idle.pop() if idle else (None, 0)
            if connection is None or (time.monotonic() - since < LONGEST_IDLE and not connection.has_ended()):
                return connection
            connection.close()

    def _give_back(self, host, connection, whole):
        if whole and connection.sock and connection.answer and connection.answer.isclosed():  # read to the end
            with self._lock:
                self._idle.setdefault(host, []).append((connection, time.monotonic()))
        else:
            connection.close()

    def _close(self):
        with self._lock:
            idle, self._idle = self._idle, {}
        for connection, _ in (pair for pairs in idle.values() for pair in pairs):
            connection.close()


def _cut(used):
    for opened in [connection.opened for _, connection in used if connection.opened]:
        with suppress(OSError):
            socket.socket.shutdown(opened, socket.SHUT_RDWR)  # SSLSocket's own shutdown would break its reader


class _Tracked:
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
        """Whether the server has closed it meanwhile, or sent unrequested data."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.sock, selectors.EVENT_READ)
            return bool(selector.select(0))


class _Http(_Tracked, HTTPConnection):
    pass


class _Https(_Tracked, HTTPSConnection):
    pass


def client(*arguments, **settings):
    """An ObsClient that follows no redirects and reports what the SDK drops: an <Error> in a 200.

    Make each request inside its `connections.within`.
    """
    from obs import ObsClient
    from obs.model import DateTime

    DateTime.UTCToLocal = staticmethod(lambda text: text)  # unchanged: the SDK's own is an hour off in summer

    class Client(ObsClient):
        def _init_connHolder(self):
            self.connections = Connections()
            self.connHolder = {"connSet": self.connections, "lock": threading.Lock()}

        def _get_server_connection_use_http1x(self, is_secure, host, port, proxy_host, proxy_port):
            address = (proxy_host, proxy_port) if proxy_host else (host, port)
            options = {"timeout": self.timeout, **({"context": self.context} if is_secure else {})}
            return self.connections.take((host, port), lambda: (_Https if is_secure else _Http)(*address, **options))

        def _is_redirect_exception(self, *_):
            return False  # keys and signature are for one server, so a redirect becomes an error

        def _prepare_body(self, methodName, responseData, isJson, headers):
            if b"<Error" in (responseData or b"")[:400]:
                text = responseData.decode("utf-8", "replace")
                code, message = (re.search(f"<{name}>([^<]*)</|$", text)[1] for name in ("Code", "Message"))
                raise ErrorBody(code or "", message or "an error, though the status is 200")
            return super()._prepare_body(methodName, responseData, isJson, headers)

    return Client(*arguments, long_conn_mode=True, **settings)
