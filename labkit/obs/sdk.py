"""The client of esdk-obs-python with what labkit changes in it. The SDK itself is imported when a client is made."""

import re
import socket
import threading
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit


class ErrorBody(Exception):
    """An <Error> in an answer whose status is 200."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def client(url, *arguments, **settings):
    """An ObsClient that follows no redirect and passes on what the SDK drops: Retry-After, and an <Error> in a 200.

    url: the server's, also with an IPv6 address. Inside its `within` a request is cut off that takes too long.
    """
    from obs import ObsClient
    from obs.model import DateTime

    DateTime.UTCToLocal = staticmethod(lambda text: text)  # as the server wrote it: the SDK's is an hour off in summer

    class Client(ObsClient):
        under_way = threading.local()  # sockets of what a thread asks for

        def _get_server_connection_use_http1x(self, is_secure, host, *arguments):
            host = host.strip("[]")  # of an IPv6 address
            connection = super()._get_server_connection_use_http1x(is_secure, host, *arguments)
            connect, sockets = connection.connect, getattr(self.under_way, "sockets", [])

            def connected():
                connect()
                sockets.append(connection.sock)

            connection.connect = connected
            return connection

        @contextmanager
        def within(self, seconds):
            """Cut off what this thread asks for after so long: the SDK's timeout is for the time between two bytes.

            Gives the function that cuts it off at once.
            """
            self.under_way.sockets = sockets = []

            def cut():
                for one in sockets:
                    with suppress(OSError):
                        socket.socket.shutdown(one, socket.SHUT_RDWR)  # TLS's own would break off the reader's

            timer = threading.Timer(seconds, cut)
            timer.daemon = True
            timer.start()
            try:
                yield cut
            finally:
                timer.cancel()

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

    server = urlsplit(url)
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
