"""The shield, which msrun starts, runs a program in a child process and exits as the program did.

python -m labkit.launch.shield {PROGRAM | -m MODULE} [ARGUMENT ...]

MindSpore disconnects its processes after a program's end, and may crash then: it closes the connection to the scheduler
while another thread still reads the scheduler's last answer (SIGSEGV in 3 of 164 processes, MindSpore 2.8 on two
cores). Everything is saved by then, but msrun would kill the other processes. So the program runs in a child process,
which reports how it ended; what happens to the child afterwards does not matter.
"""

import os
import runpy
import signal
import sys
import traceback
from pathlib import Path

from labkit.system import interrupts

FORWARDED = (signal.SIGINT, signal.SIGTERM)
LOGS = "LABKIT_LAUNCH_LOGS"  # the folder with the logs; `labkit launch` sets it for its shields


def main() -> None:
    """Run the program on the command line; exit with its status, or by the signal that killed it."""
    _write_pid(os.environ.pop(LOGS, None))
    reading, writing = os.pipe()
    child = os.fork()  # while there is only one thread
    if child == 0:
        os.close(reading)
        interrupts.die_with_parent()
        status = run(sys.argv[1:])
        os.write(writing, bytes([status]))
        sys.exit(status)
    os.close(writing)
    for number in FORWARDED:
        signal.signal(number, lambda number, frame: os.kill(child, number))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.set_blocking(reading, False)  # a process that the program left behind may keep the other end open
    try:
        reported = os.read(reading, 1)
    except BlockingIOError:
        reported = b""
    if reported and status < 0:
        print(f"{interrupts.signal_name(-status)} after the program had ended with status {reported[0]}", flush=True)
        sys.exit(reported[0])
    if status < 0:
        for number in FORWARDED:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


def _write_pid(log_dir):
    """Write this process's id next to its log, since msrun identifies failed processes by it; end with the parent."""
    if log_dir is not None:
        interrupts.die_with_parent()
        if os.environ.get("MS_ROLE") != "MS_SCHED":
            Path(log_dir, f"worker_{os.environ.get('RANK_ID', '0')}.pid").write_text(str(os.getpid()))


def run(command: list[str]) -> int:
    """Run a program or module with its arguments, as `python` would; return its exit status."""
    module = command[1] if command[0] == "-m" else None
    sys.argv = command[1:] if module else command
    try:
        if module:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(os.path.abspath(command[0]))
            runpy.run_path(command[0], run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    main()
