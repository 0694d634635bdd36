"""Who grades: processes on this machine, or the workers of a Dask cluster; both as executors of concurrent.futures."""

import multiprocessing
import os
import signal
import sys
import tempfile
from collections import deque
from concurrent import futures
from contextlib import contextmanager, suppress
from pathlib import Path

from grader import digests, sandbox
from grader import lab as labs
from labkit.system import environment, interrupts
from labkit.system.errors import LabkitError

TRIES = 2  # of a submission at which the grader itself fails
READING, READING_MB = 120, 4000  # seconds and MB to unpack and read one submission
PATIENCE = 30  # seconds for a scheduler to answer, and for its first worker to come


class BatchError(LabkitError):
    """A class that cannot be graded, for reasons that are not a learner's: one line."""


class Pool:
    """An executor that is started again when it breaks; `width()` submissions are under way at a time."""

    def __init__(self, start, width):
        self.start, self.width = start, width
        self.executor = start()

    def call(self, function, *arguments):
        """What one call gives; raises what it raises, BatchError where its process dies."""
        try:
            return self.executor.submit(_told_to_end, function, *arguments).result()
        except (futures.BrokenExecutor, futures.CancelledError):
            raise BatchError("the process that executes the master has died: is there memory left?") from None

    def results(self, function, tasks: dict):
        """Yield (student, result, "") or (student, None, why not) as they come; `tasks` make the function's argument.

        A process that dies takes those that were under way with it. Each of them is then done alone, and one that
        kills its process there, twice, has failed.
        """
        waiting = deque((student, 1, False) for student in tasks)
        running = {}
        while waiting or running:
            while waiting and self._has_room(running, alone=waiting[0][2]):
                student, attempt, alone = waiting.popleft()
                try:
                    future = self.executor.submit(_told_to_end, function, tasks[student]())
                except NotRead as error:
                    yield student, None, str(error)
                    continue
                except futures.BrokenExecutor:  # noticed only now
                    waiting.appendleft((student, attempt, alone))
                    break
                running[future] = student, attempt, alone
            done = futures.wait(running, return_when=futures.FIRST_COMPLETED).done
            if not running or any(isinstance(_error(future), futures.BrokenExecutor) for future in done):
                done = futures.wait(running).done
                self.executor.shutdown()
                self.executor = self.start()
            for future in done:
                student, attempt, alone = running.pop(future)
                error = _error(future)
                if isinstance(error, futures.CancelledError):
                    raise BatchError("the connection to the scheduler is lost; continue with the same command")
                if error is None:
                    yield student, future.result(), ""
                elif _died(error) and not alone:
                    waiting.appendleft((student, attempt, True))
                elif attempt < TRIES:
                    waiting.append((student, attempt + 1, alone))
                else:
                    yield student, None, _reason(error)

    def _has_room(self, running, alone):
        if alone or any(its for _, _, its in running.values()):
            return not running
        return len(running) < self.width()


def _error(future):
    return futures.CancelledError() if future.cancelled() else future.exception()


def _died(error):
    """A process has died, though perhaps by what another submission did: Dask blames all that were on its worker."""
    return isinstance(error, futures.BrokenExecutor) or type(error).__name__ == "KilledWorker"


def _reason(error):
    if _died(error):
        return "its process died each time"
    return str(error) if isinstance(error, LabkitError) else f"{type(error).__name__}: {error}"


class NotRead(Exception):
    """Why a call of a Reader came to no end: a few words."""


class Reader:
    """A function called in a process of its own, where it has a time and a memory: nobody's file holds up the class."""

    def __init__(self, function, seconds: float = READING, memory_mb: int = READING_MB):
        self.function, self.seconds, self.memory_mb = function, seconds, memory_mb
        self.executor, self.started = None, set()

    def __call__(self, *arguments):
        """What the function gives; raises its LabkitError, and NotRead where its time is over or its process dies."""
        if self.executor is None:
            self._start()
        try:
            return self.executor.submit(self.function, *arguments).result(self.seconds)
        except LabkitError:
            raise
        except futures.TimeoutError:
            why = f"takes more than {self.seconds:g} seconds to read"
        except (futures.BrokenExecutor, MemoryError):
            why = "cannot be read: Python itself ended, or its memory was full"
        except Exception as error:  # what nobody's file should raise
            why = f"cannot be read: {type(error).__name__}"
        self._end()
        raise NotRead(why)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._end()

    def _start(self):
        before = set(multiprocessing.active_children())
        self.executor = _processes(1, tempfile.gettempdir(), environment.cores(), self.memory_mb)
        try:
            self.executor.submit(int).result()
        except futures.BrokenExecutor:
            raise BatchError("the process that reads submissions does not start: is there memory left?") from None
        finally:
            self.started = set(multiprocessing.active_children()) - before

    def _end(self):
        for process in self.started:
            process.kill()
        if self.executor:
            self.executor.shutdown()
        self.executor, self.started = None, set()


def most_jobs(memory_mb: int) -> int:
    """How many submissions that may have so much memory each (MB) this machine grades at a time: one a core at most."""
    import psutil

    return max(1, min(environment.cores(), psutil.virtual_memory().available // (memory_mb * 1_000_000)))


@contextmanager
def local(jobs: int, scratch: Path):
    """A Pool of processes on this machine, with their temporary files in `scratch`."""
    threads = max(1, environment.cores() // jobs)
    before = set(multiprocessing.active_children())
    pool = Pool(lambda: _processes(jobs, scratch, threads), lambda: jobs)
    try:
        yield pool
    except BaseException:
        pool.executor.shutdown(wait=False, cancel_futures=True)
        started = set(multiprocessing.active_children()) - before
        for process in started:
            process.terminate()
        for process in started:
            process.join(10)
            process.kill()
        raise
    pool.executor.shutdown()


_working = False


def _told_to_end(function, *arguments):
    """Call the function; a process that is told to end meanwhile does so, and takes nothing more from the queue."""
    global _working
    try:
        _working = True
        try:
            return function(*arguments)
        finally:
            _working = False
    except SystemExit:  # of `_end`; what cleans up is done
        os._exit(143)


def _end(*_):
    """SIGTERM: by way of what cleans up; outside of a call at once, because the executor would swallow a SystemExit."""
    if not _working:
        os._exit(143)
    sys.exit(143)


def _processes(jobs, scratch, threads, memory_mb=None):
    context = multiprocessing.get_context("spawn")
    arguments = (os.getpid(), str(scratch), threads, memory_mb, jobs, context.Value("i"))
    return futures.ProcessPoolExecutor(jobs, context, _prepare, arguments)


def _prepare(parent, scratch, threads, memory_mb, jobs, started):
    """In a new process: end with the one that started it, however that ends; leave nothing of a sandbox behind."""
    interrupts.die_with_parent()
    if os.getppid() != parent:
        os._exit(1)
    _take_cores(jobs, started)
    signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C reaches all; the first process tells this one
    signal.signal(signal.SIGTERM, _end)
    tempfile.tempdir = scratch
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    if memory_mb:
        import resource  # Windows has none

        resource.setrlimit(resource.RLIMIT_DATA, (memory_mb * 1_000_000,) * 2)


def _take_cores(jobs, started):
    """Keep this process and its sandboxes to cores of their own, where each can have one: no answer slows others."""
    with started.get_lock():
        number, started.value = started.value, started.value + 1
    if hasattr(os, "sched_setaffinity") and len(cores := sorted(os.sched_getaffinity(0))) >= jobs:
        with suppress(OSError):  # a container may forbid it
            os.sched_setaffinity(0, cores[number % jobs :: jobs])


@contextmanager
def dask(address: str, lab: labs.Lab, sandboxed: bool):
    """A Pool of the workers of a Dask cluster, which must have the same lab, labkit and packages; raises BatchError."""
    try:
        from distributed import Client
    except ImportError:
        raise BatchError("--scheduler needs Dask, which is not installed: pip install 'distributed>=2024'") from None
    try:
        client = Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        raise BatchError(f"{address}: no scheduler there ({' '.join(str(error).split())[:200]})") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            raise BatchError(f"{address}: the scheduler has no workers") from None
        _require_alike(client, lab, sandboxed)
        yield Pool(lambda: client.get_executor(pure=False), lambda: max(1, 2 * sum(client.nthreads().values())))


def _require_alike(client, lab, sandboxed):
    try:
        found = client.run(_inspect, lab.name, lab.folder.resolve(), sandboxed)
    except Exception as error:  # a worker without labkit fails at unpacking the function, in whatever way
        raise BatchError(f"the workers cannot run this labkit ({type(error).__name__}: {error})") from None
    here = _has(lab)
    for worker, there in sorted(found.items()):
        if isinstance(there, str):
            raise BatchError(f"worker {worker}: {there}")
        for name in sorted(here):
            if there.get(name) != here[name]:
                raise BatchError(f"worker {worker}: {name} is {there.get(name)}, here {here[name]}")


def _inspect(name, folder, sandboxed):
    """On a worker: what it has, or why it cannot grade."""
    try:
        found = _has(labs.load(name, folder))
    except LabkitError as error:
        return str(error)
    reason = sandbox.unavailable() if sandboxed else ""
    return f"no sandbox: {reason}" if reason else found


def _has(lab):
    return digests.about(lab) | {"labkit": digests.all_of_labkit()}
