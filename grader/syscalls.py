"""System calls that no lab needs, refused to what runs in the sandbox as if the system did not know them.

A user namespace would bring mounts, and with them memory that nobody counts; so would segments, semaphores and queues
that belong to no process. What would take another submission's cores is refused as well. The others are ways into the
kernel that a learner's code has no use for.
"""

import errno
import platform
import struct

X86_64 = 0xC000003E  # AUDIT_ARCH_X86_64
REFUSED = {
    "clone3": 435, "unshare": 272, "setns": 308,  # glibc falls back to clone, whose flags can be looked at
    "shmget": 29, "semget": 64, "msgget": 68, "mq_open": 240, "sched_setaffinity": 203,
    "memfd_create": 319, "memfd_secret": 447,
    "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311,
    "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "io_uring_setup": 425,
    "add_key": 248, "request_key": 249, "keyctl": 250,
}  # fmt: skip
SOCKET, SOCKETPAIR, SETSOCKOPT, SOL_SOCKET = 41, 53, 54, 1
BUFFERS = {"SO_SNDBUF": 7, "SO_RCVBUF": 8, "SO_SNDBUFFORCE": 32, "SO_RCVBUFFORCE": 33}  # left as they are, in silence
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}  # what a kernel of Jupyter needs
CLONE, CLONE_NEWUSER = 56, 0x10000000
# linux/bpf_common.h and linux/seccomp.h: operations of a filter, and offsets in what it looks at.
LOAD, EQUAL, AT_LEAST, HAS_BITS, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16
ALLOW, REFUSE, NO_FAMILY = 0x7FFF0000, 0x00050000 | errno.ENOSYS, 0x00050000 | errno.EAFNOSUPPORT
DONE = 0x00050000  # as if it had been done


def program() -> bytes:
    """A seccomp filter for `bwrap --seccomp`; empty where the machine is no x86-64, whose numbers these are."""
    if platform.machine() != "x86_64":
        return b""
    refuse = (RETURN, 0, 0, REFUSE)
    steps = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, X86_64), refuse, (LOAD, 0, 0, NUMBER)]
    steps += [(AT_LEAST, 0, 1, 0x40000000), refuse]  # x32 has numbers of its own
    for number in REFUSED.values():
        steps += [(EQUAL, 0, 1, number), refuse]
    families = [(EQUAL, len(FAMILIES) - place, 0, number) for place, number in enumerate(FAMILIES.values())]
    of_another = [(LOAD, 0, 0, FIRST_ARGUMENT), *families, (RETURN, 0, 0, NO_FAMILY), (RETURN, 0, 0, ALLOW)]
    steps += [(EQUAL, 1, 0, SOCKET), (EQUAL, 0, len(of_another), SOCKETPAIR), *of_another]
    buffers = [(EQUAL, len(BUFFERS) - place, 0, number) for place, number in enumerate(BUFFERS.values())]
    kept = [(LOAD, 0, 0, FIRST_ARGUMENT + 8), (EQUAL, 0, 6, SOL_SOCKET), (LOAD, 0, 0, FIRST_ARGUMENT + 16)]
    kept += [*buffers, (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, DONE), (RETURN, 0, 0, ALLOW)]
    steps += [(EQUAL, 0, len(kept), SETSOCKOPT), *kept]
    steps += [(EQUAL, 0, 3, CLONE), (LOAD, 0, 0, FIRST_ARGUMENT), (HAS_BITS, 0, 1, CLONE_NEWUSER), refuse]
    steps += [(RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("=HBBI", code, yes, no, value) for code, yes, no, value in steps)
