"""A proxy in front of an object server that makes the faults a test plants, and counts requests and bytes.

It passes heads on byte by byte (Host and all, so signatures hold) and streams bodies. One thread for a connection.
"""

import contextlib
import re
import socket
import struct
import threading
import time
from dataclasses import dataclass
from http import HTTPStatus

BLOCK = 1 << 16
HTML = b"<html><body><h1>It works!</h1></body></html>"
ERROR = b"<?xml version='1.0' encoding='UTF-8'?><Error><Code>%s</Code><Message>planted</Message></Error>"


@dataclass
class Fault:
    """What happens to the first `times` requests of this method whose path and query the expression finds.

    Places are offsets in the body. Several things may happen to one request.
    """

    method: str | None = None
    path: str = ""
    times: int = 1
    stall: float = 0  # seconds before the request goes on to the server
    hold: threading.Event | None = None  # the request goes on to the server when this is set
    stall_answer: float = 0  # seconds in the middle of the answer's body, or of its head if it has no body
    drip: str | None = None  # "head" or "body" of the answer comes a byte at a time, two of them a second
    flip_upload: int | None = None  # change the byte here
    flip_download: int | None = None
    reset_upload: int | None = None  # so many bytes reach the server, then all is reset; 0: no head either
    reset_download: int | None = None  # so many bytes reach the client, then its connection is reset; 0: no head either
    truncate: int | None = None  # so many bytes reach the client, then its connection ends in good order
    answer: tuple | None = None  # (status, body, headers) in place of the server's
    etags: tuple | None = None  # tables of bytes.translate: of the server's ETags, and of those that come back to it
    served: bool = False  # the server gets the request all the same, and its answer is lost


def busy(status=503, retry_after=None):
    """An answer that says: later."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return status, ERROR % b"SlowDown", headers


@dataclass
class Seen:
    """A request that came: its bytes of body up and, as far as they were sent, down."""

    method: str
    path: str
    up: int = 0
    down: int = 0
    status: int | None = None


class FaultProxy:
    """HOST:`port` in front of 127.0.0.1:`server`; `tls`: an SSLContext towards the client. `accepted`: connections."""

    def __init__(self, server: int, tls=None, host="127.0.0.1"):
        self.server, self.tls, self.accepted = server, tls, 0
        self.faults, self.seen, self._lock = [], [], threading.Lock()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=128)
        self.port = self._listener.getsockname()[1]
        host = "localhost" if tls else f"[{host}]" if ":" in host else host
        self.url = f"{'https' if tls else 'http'}://{host}:{self.port}"
        self._open = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """End, with all connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept
        self._listener.close()
        self.hang_up()

    def hang_up(self):
        """Close all connections, as a server does with those that are idle."""
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def plant(self, **fault) -> Fault:
        """Add a fault; see Fault. Its `times` counts down."""
        planted = Fault(**fault)
        with self._lock:
            self.faults.append(planted)
        return planted

    def clear(self):
        """Forget faults and counts."""
        with self._lock:
            self.faults, self.seen = [], []

    def requests(self, method=None, path="") -> list[Seen]:
        """What came, of this method, where the expression finds something in path and query."""
        with self._lock:
            return [one for one in self.seen if method in (None, one.method) and re.search(path, one.path)]

    # -- One connection --------------------------------------------------------------------------------

    def _accept(self):
        while True:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            self.accepted += 1
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        server = None
        self._open.add(client)
        try:
            client.settimeout(120)
            if self.tls:
                raw, client = client, self.tls.wrap_socket(client, server_side=True)
                self._open.discard(raw)
                self._open.add(client)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            reader = client.makefile("rb")
            while head := _Head.read(reader):
                if server is None:
                    server = socket.create_connection(("127.0.0.1", self.server), timeout=120)
                    answers = server.makefile("rb")
                    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if not self._exchange(head, client, reader, server, answers):
                    break
        except (OSError, ValueError):  # gone, or not HTTP: the connection ends
            pass
        finally:
            self._open.discard(client)
            for one in (client, server):
                if one is not None:
                    with contextlib.suppress(OSError):
                        one.shutdown(socket.SHUT_RDWR)
                    one.close()

    def _exchange(self, head, client, reader, server, answers) -> bool:
        """One request and its answer; False where the connection must end."""
        method, path = head.first.split()[:2]
        seen = Seen(method, path)
        with self._lock:
            self.seen.append(seen)
            fault = next((one for one in self.faults if one.times > 0 and one.method in (None, method)
                          and re.search(one.path, path)), Fault())  # fmt: skip
            fault.times -= 1
        time.sleep(fault.stall)
        if fault.hold:
            fault.hold.wait(30)
        if head.get("expect"):
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            head.drop("expect")
        if fault.reset_upload == 0:
            _reset(client)
            return False
        onward = fault.answer is None or fault.served
        if fault.etags:
            head.lines = [_etags(line, fault.etags[1]) for line in head.lines]
        if onward:
            server.sendall(head.bytes())
        for block in head.body(reader):
            if fault.reset_upload is not None and seen.up + len(block) >= fault.reset_upload:
                server.sendall(block[: fault.reset_upload - seen.up])
                _reset(server)
                _reset(client)
                return False
            block = _flipped(block, seen.up, fault.flip_upload)
            if fault.etags and method == "POST":
                block = _etags(block, fault.etags[1])
            seen.up += len(block)
            if onward:
                server.sendall(block)
        if onward:
            answer = _Head.read(answers)
            if answer is None:
                return False
            body = answer.body(answers, of=method)
        if fault.answer is not None:
            if onward:
                for _ in body:
                    pass
            answer, content = _made(*fault.answer)
            body = iter([content] if method != "HEAD" else [])
        if fault.etags:
            answer.lines = [_etags(line, fault.etags[0]) for line in answer.lines]
            body = (_etags(block, fault.etags[0]) for block in body)
        seen.status = int(answer.first.split()[1])
        if fault.reset_download == 0:
            _reset(client)
            return False
        lines = answer.bytes()
        if method in ("HEAD", "DELETE") or answer.get("content-length") == "0":
            client.sendall(lines[:20])
            time.sleep(fault.stall_answer)
            lines = lines[20:]
        if fault.drip == "head":
            _drip(client, lines)
            return False
        client.sendall(lines)
        for block in body:
            ends = [place for place in (fault.reset_download, fault.truncate) if place is not None]
            if ends and seen.down + len(block) >= min(ends):
                client.sendall(block[: min(ends) - seen.down])
                seen.down = min(ends)
                if fault.reset_download is not None:
                    time.sleep(0.05)  # a reset overtakes bytes that the client has not read
                    _reset(client)
                return False
            begin = seen.down
            seen.down += len(block)  # before it is sent: who has it may look at once
            block = _flipped(block, begin, fault.flip_download)
            if fault.stall_answer and not begin:
                client.sendall(block[: len(block) // 2])
                time.sleep(fault.stall_answer)
                client.sendall(block[len(block) // 2 :])
            elif fault.drip:
                _drip(client, block)
            else:
                client.sendall(block)
        ends = "close" in (head.get("connection"), answer.get("connection")) or answer.unframed
        return onward and fault.answer is None and not ends


class _Head:
    """First line and headers of a request or an answer."""

    def __init__(self, lines):
        self.lines, self.first, self.unframed = lines, lines[0].decode("latin-1").strip(), False

    @classmethod
    def read(cls, reader):
        """The next head; None at the end. An answer's 100 Continue is passed over."""
        lines = []
        while line := reader.readline(BLOCK):
            if line in (b"\r\n", b"\n"):
                if lines and re.match(rb"HTTP/1.. 1\d\d", lines[0]):
                    lines = []
                    continue
                return cls(lines)
            lines.append(line)
        return None

    def get(self, name):
        """A header's value in lower case, or None."""
        for line in self.lines[1:]:
            found, _, value = line.decode("latin-1").partition(":")
            if found.lower() == name:
                return value.strip().lower()
        return None

    def drop(self, name):
        self.lines = [line for line in self.lines if line.partition(b":")[0].lower() != name.encode()]

    def bytes(self):
        return b"".join([*self.lines, b"\r\n"])

    def body(self, reader, of=None):
        """The body's bytes as they are on the wire, chunks and all. of: the method, for an answer."""
        length = self.get("content-length")
        if of == "HEAD" or (of and self.first.split()[1] in ("204", "304")):
            return
        if self.get("transfer-encoding") == "chunked":
            while line := reader.readline(BLOCK):
                size = int(line.split(b";")[0], 16)
                yield line + reader.read(size + 2)  # the last one, of size 0, has an empty line behind it: no trailers
                if not size:
                    return
        elif length is not None:
            yield from _blocks(reader, int(length))
        elif of:  # until the connection ends
            self.unframed = True
            yield from iter(lambda: reader.read1(BLOCK), b"")


def _blocks(reader, left):
    while left:
        block = reader.read1(min(left, BLOCK))
        if not block:
            raise OSError("the connection ended in a body")
        left -= len(block)
        yield block


def _etags(text, table):
    """A header, or a document, with the ETags that a table makes of its own, which are as long."""
    where = rb"(?i)((?:^(?:etag|if-match): *|<etag>)\W*(?:quot;)?)([0-9a-v]{32})"
    return re.sub(where, lambda found: found[1] + found[2].translate(table), text)


def _flipped(block, begin, place):
    if place is None or not begin <= place < begin + len(block):
        return block
    at = place - begin
    return block[:at] + bytes([block[at] ^ 1]) + block[at + 1 :]


def _drip(client, content):
    for place in range(len(content)):
        client.sendall(content[place : place + 1])
        time.sleep(0.5)


def _made(status, content=b"", headers=()):
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"Content-Length: {len(content)}", "Connection: close",
             "Content-Type: application/xml"]  # fmt: skip
    lines += [f"{name}: {value}" for name, value in dict(headers).items()]
    return _Head([f"{line}\r\n".encode() for line in lines]), content


def _reset(connection):
    """End a connection with RST."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with contextlib.suppress(OSError):
        connection.close()
