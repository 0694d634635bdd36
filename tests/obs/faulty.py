"""The book's object server with the faults that a test plants."""

import sys
import threading
import time

from labkit.system.environment import REPO

sys.path.insert(0, str(REPO / "book" / "4-cloud"))

import object_server

HTML = b"<html><body><h1>It works!</h1></body></html>"
ERROR = b"<?xml version='1.0' encoding='UTF-8'?><Error><Code>%s</Code><Message>planted</Message></Error>"


class Server(object_server.Server):
    """`plant` makes requests fail; `seen` has a line for each, also for one that is not answered."""

    def __init__(self, tls=None):
        super().__init__("course")
        self.RequestHandlerClass, self.seen, self._planted = Handler, [], []
        if tls:
            self.socket, self.url = tls.wrap_socket(self.socket, server_side=True), f"https://localhost:{self.server_port}"
        self._planting = threading.Lock()

    def plant(self, begin, fault, times=1):
        """A fault for the next requests whose line in the log would begin so; a function of handler and answer()."""
        self._planted += [(begin, fault)] * times

    def clear(self):
        """Forget faults and requests."""
        self._planted.clear()
        self.seen.clear()

    def requests(self, begin=""):
        """Lines of the requests that begin so."""
        return [line for line in self.seen if line.startswith(begin)]

    def take(self, line):
        with self._planting:
            self.seen.append(line)
            planted = next((pair for pair in self._planted if line.startswith(pair[0])), None)
            if planted:
                self._planted.remove(planted)
                return planted[1]


class Handler(object_server.Handler):
    def perform(self, bucket):
        fault = self.server.take(f"{self.command} {self.operation()}")
        if fault:
            return fault(self, lambda: super(Handler, self).perform(bucket))
        return super().perform(bucket)


def answer(status, body=b"", **headers):
    """An answer in place of the server's."""
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler, real: (status, {"Content-Type": "application/xml", **headers}, body)


def error(status, code):
    return answer(status, ERROR % code.encode())


def lost(handler, real):
    """The server does it, and nobody hears."""
    real()
    raise ConnectionError


def reset(handler, real):
    raise ConnectionError


def cut_short(handler, real):
    """Half of the answer's body, then the connection ends."""
    status, headers, content = real()
    handler.send_response(status)
    for name, value in {**headers, "Content-Length": len(content)}.items():
        handler.send_header(name, str(value))
    handler.end_headers()
    handler.wfile.write(content[: len(content) // 2])
    raise ConnectionError


def damaged_up(handler, real):
    """A byte changes on the way up; this server does see that."""
    handler.body = bytes([handler.body[0] ^ 1]) + handler.body[1:]
    return real()


def damaged_unseen(handler, real):
    """A byte changes on the way up, and the server compares no MD5."""
    del handler.headers["Content-MD5"]
    return damaged_up(handler, real)


def damaged_down(handler, real):
    status, headers, content = real()
    return status, headers, bytes([content[0] ^ 1]) + content[1:]


def stall(seconds):
    def fault(handler, real):
        time.sleep(seconds)
        return real()

    return fault


def after(action):
    """Something happens, then the request is answered."""

    def fault(handler, real):
        action()
        return real()

    return fault
