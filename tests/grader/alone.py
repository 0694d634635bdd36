"""Run a command and tell what it left behind: python alone.py PORT COMMAND ...

One line of JSON: exit status, connections to PORT of this machine, packets on the loopback interface meanwhile, and
processes that are left a minute later. Started by `unshare --net`, as root, there is no other network, and nobody
else sends packets.
"""

import ctypes
import fcntl
import json
import socket
import struct
import subprocess
import sys
import threading

PR_SET_CHILD_SUBREAPER = 36
SIOCGIFFLAGS, SIOCSIFFLAGS, UP = 0x8913, 0x8914, 1


def main(port, *command):
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # what the command leaves behind becomes this one's child
    _loopback_up()
    calls = []
    with socket.create_server(("127.0.0.1", int(port))) as server:
        threading.Thread(target=_answer, args=(server, calls), daemon=True).start()
        before = packets()
        status = subprocess.run(command, stdout=sys.stderr).returncode
        told = {"status": status, "connections": len(calls), "packets": packets() - before, "left": _left()}
        socket.create_connection(server.getsockname(), timeout=10).close()  # a call is noticed
        told["packets of one call"] = packets() - before - told["packets"]
    print(json.dumps(told))


def packets() -> int:
    """Packets that the loopback interface has sent."""
    with open("/proc/net/dev") as file:
        row = next(line for line in file if line.split(":")[0].strip() == "lo")
    return int(row.split(":")[1].split()[9])


def _loopback_up():
    """A new network namespace has it, but down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("16sh14x", b"lo", 0)
        _, flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, asked))
        if not flags & UP:
            fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | UP))


def _answer(server, calls):
    while True:
        try:
            connection, address = server.accept()
        except OSError:  # closed
            return
        calls.append(address)
        connection.close()


def _left():
    """Commands that still run; Python's resource tracker needs a moment to see that its program has ended."""
    import psutil

    _, alive = psutil.wait_procs(psutil.Process().children(recursive=True), timeout=60)
    return [" ".join(child.cmdline()) for child in alive]


if __name__ == "__main__":
    main(*sys.argv[1:])
