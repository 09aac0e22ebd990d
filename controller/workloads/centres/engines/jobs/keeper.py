"""`python3 -I -S keeper.py FOLDER`: run one job as FOLDER/start.json says, and record its end in FOLDER.

One process runs next to each job, so that the job outlives the agent, however that ends, and its end is known after the
system that started it has forgotten it. It keeps the beginning and the end of the job's output and errors, ends the job
after its limit or on SIGTERM, first by the same signal and after its grace by SIGKILL, and leaves no process behind:
orphans of the job become its children. If the keeper is killed, so is the job's first process.

It uses only the standard library of Python 3.7 and newer, as it is copied to machines that may have no Millrace, and
only a small part of it: each job has a keeper, which takes a few ms to start and a few MB.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import sys
import time

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    Start = dict[str, Any]
    Sandbox = dict[str, Any]
    """The records of keeping.py."""

CANCELLED = "it was cancelled"
_CANNOT_RUN, _NOT_FOUND = 126, 127
"""Exit codes of shells for a program that cannot be run, and for a missing one."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_CLONE_NEWNET = 0x40000000
_READ_BYTES = 1 << 16
_KILLING_S = 10.0
_POLL_S = 0.01
_ENDING = (signal.SIGTERM, signal.SIGINT)
_libc = ctypes.CDLL(None, use_errno=True)


class Kept:
    """A pipe's output in a file: its beginning and its end, half of the limit each; bytes between are only counted."""

    def __init__(self, folder: int, name: str, limit: int) -> None:
        # Never write through an existing file of that name, which may be a link.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(name, flags, 0o644, dir_fd=folder)
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reader, False)
        self._head_left, self._most, self._tail, self.dropped = limit - limit // 2, limit // 2, bytearray(), 0

    def take(self) -> bool:
        """Read available output; return False at its end."""
        try:
            data = os.read(self.reader, _READ_BYTES)
        except BlockingIOError:
            return True
        head, rest = data[: self._head_left], data[self._head_left :]
        self._head_left -= len(head)
        _write(self._file, head)
        self._tail += rest
        if len(self._tail) > self._most:
            self.dropped += len(self._tail) - self._most
            del self._tail[: len(self._tail) - self._most]
        return bool(data)

    def close(self) -> None:
        """Write the end of the output."""
        if self.dropped:
            _write(self._file, f"\n... {self.dropped} bytes omitted ...\n".encode())
        _write(self._file, bytes(self._tail))
        os.close(self._file)
        os.close(self.reader)


class Pipe:
    """A pipe's two ends, neither of which programs inherit."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)


class Channels:
    """Channels of a job's processes: output, errors, the problem at start, the end of the first one."""

    def __init__(self, output: int, errors: int) -> None:
        self.output, self.errors = output, errors
        self.problem, self.status = Pipe(), Pipe()

    def close_writers(self) -> None:
        """Close our write ends; only the job writes."""
        for descriptor in (self.output, self.errors, self.problem.writer, self.status.writer):
            os.close(descriptor)

    def status_of_first(self, status: int) -> int:
        """Return the status that the process above the job's first one has reported; by default `status`."""
        text = os.read(self.status.reader, 16)
        return int(text) if text.isdigit() else status


def main(folder: str) -> int:
    """Run the job of a folder; return its exit code, or 1 at once if another keeper runs or ran it."""
    with open(f"{folder}/start.json", encoding="utf-8") as file:  # noqa: PTH123 - pathlib takes long to load
        start = json.load(file)
    if start["takes_lock"] and not take_lock(f"{folder}/lock"):
        return 1
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wakeups, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (*_ENDING, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    ended = run(folder, start, wakeups)
    write(folder, start["ended_file"], ended)
    hand_on(wakeups)
    code: int = ended["exit_code"]
    return code


def take_lock(path: str) -> bool:
    """Hold a lock for the life of this process; return False if it was ever held before."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    if os.fstat(lock).st_size:
        return False  # it has run before: never run it again
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return True


def run(folder: str, start: Start, wakeups: int) -> dict[str, Any]:
    """Run a job to its end; return the record of it."""
    began_ns, where = time.time_ns(), os.path.normpath(os.path.join(folder, start["folder"]))  # noqa: PTH118
    directory = os.open(where, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    outputs = [Kept(directory, name, start["output_limit_bytes"]) for name in ("stdout", "stderr")]
    alive = Pipe()  # carries no data: its closing signals our end
    channels = Channels(outputs[0].writer, outputs[1].writer)
    if start["sandbox"] is not None:
        sandboxing().separate(start["sandbox"])
    child = os.fork()
    if child == 0:
        os.close(alive.writer)
        be_job(start, where, alive.reader, channels)
    os.close(alive.reader)
    channels.close_writers()
    with os.fdopen(channels.problem.reader, encoding="utf-8", errors="replace") as file:
        problem = file.read()
    status, reason = wait_for(child, (folder, start), outputs, wakeups)
    status = channels.status_of_first(status)
    kill_rest(start)
    drain(outputs)
    killed_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if problem:
        reason = f"it cannot be started: {problem}"
    elif not reason and killed_by == signal.SIGKILL and oom_kills(start):
        reason = "out of memory: it used all memory of its units"
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "exit_code": 128 + killed_by if killed_by else os.WEXITSTATUS(status),
        "reason": reason,
        "started_ns": began_ns,
        "finished_ns": time.time_ns(),
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "memory_peak_bytes": usage.ru_maxrss * 1024,
        "dropped_bytes": sum(output.dropped for output in outputs),
    }


def wait_for(child: int, job: tuple[str, Start], outputs: list[Kept], wakeups: int) -> tuple[int, str]:
    """Return the job's status, and why it was ended, '' if it ended by itself; `job` is its folder and start."""
    waiting, sources = select.poll(), {output.reader: output for output in outputs}
    for descriptor in (*sources, wakeups):
        waiting.register(descriptor, select.POLLIN)
    folder, start = job
    limit_s = start["limit_s"]
    due_s, reason = (None if limit_s is None else time.monotonic() + limit_s), ""
    while True:
        status = reap(child)
        if status is not None:
            return status, reason
        left_s = None if due_s is None else max(due_s - time.monotonic(), 0.0)
        ready = [descriptor for descriptor, _ in waiting.poll(None if left_s is None else left_s * 1000 + 1)]
        for descriptor in ready:
            if descriptor in sources and not sources[descriptor].take():
                waiting.unregister(descriptor)
        wants_end = wakeups in ready and is_asked_to_end(wakeups)
        over = due_s is not None and time.monotonic() >= due_s
        if (wants_end or over) and not reason:
            reason = CANCELLED if wants_end else f"it exceeded its limit of {limit_s:g} s"
            signal_all(child, signal.SIGTERM)
            due_s = time.monotonic() + grace_of(folder, start)
        elif over:
            signal_all(child, signal.SIGKILL)
            due_s = None


def reap(child: int) -> int | None:
    """Reap ended processes, orphans of the job as well; return its first process's status once it has ended."""
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if ended in (0, child):
            return status if ended else None


def is_asked_to_end(wakeups: int) -> bool:
    """Return whether a signal has come that asks to end the job."""
    try:
        numbers = os.read(wakeups, _READ_BYTES)
    except BlockingIOError:
        return False
    return any(number in numbers for number in _ENDING)


def hand_on(wakeups: int) -> None:
    """Pass a request to end that came too late on to our caller, by leaving the signal pending."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    if is_asked_to_end(wakeups):
        os.kill(os.getpid(), signal.SIGTERM)


def grace_of(folder: str, start: Start) -> float:
    """Return the job's grace period: the one written at cancelling, otherwise the one ordered."""
    with contextlib.suppress(OSError, ValueError):
        # On a cluster the job itself may have put anything there, such as a pipe without a writer.
        descriptor = os.open(f"{folder}/grace", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return float(os.read(descriptor, 32))
        finally:
            os.close(descriptor)
    return float(start["grace_s"])


def be_job(start: Start, where: str, alive: int, channels: Channels) -> None:
    """Become the job, or report why that failed and end; `alive` is readable once the keeper has ended."""
    program = start["argv"][0]
    try:
        # Otherwise the keeper's wake-up bytes would be written here.
        signal.set_wakeup_fd(-1)
        for woken_by in (*_ENDING, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(woken_by, signal.SIG_DFL)
        os.setsid()
        confine(start)
        if start["sandbox"] is not None:
            be_sandboxed(start["sandbox"], alive, channels)
            os.chdir(where)
        else:
            os.chdir(where)
            if start["user"] is not None:
                be_user(*start["user"])
            end_with(alive)
        for number, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), channels.output, channels.errors)):
            os.dup2(descriptor, number)
        os.umask(0o077)
        os.execvpe(program, start["argv"], environment_of(start))  # noqa: S606 - the user's own program
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is reported
        name = getattr(error, "filename", None)
        name = name if isinstance(name, str) else program  # bytes: the last path that was tried
        _write(channels.problem.writer, f"{name}: {getattr(error, 'strerror', None) or error}".encode()[:500])
        os._exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _CANNOT_RUN)


def be_sandboxed(sandbox: Sandbox, alive: int, channels: Channels) -> None:
    """Return in a new process, the job's first one, inside the sandbox; this one stays above it and reaps orphans."""
    module = sandboxing()
    module.enter(sandbox)
    end_with(alive)  # only now: changing the user clears it
    child = os.fork()
    if child:
        for descriptor in (channels.output, channels.errors, channels.problem.writer):
            os.close(descriptor)
        module.attend(child, channels.status.writer)
    os.setsid()


def end_with(alive: int) -> None:
    """Have the kernel kill this process when the keeper ends; exit now if it already has."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if select.select([alive], [], [], 0)[0]:
        os._exit(_CANNOT_RUN)


def sandboxing() -> ModuleType:
    """Return the module next to this file: a standalone program has no package to import it from."""
    folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return __import__("sandboxing")


def confine(start: Start) -> None:
    """Limit this process to the job's units; raise OSError."""
    for path in start["group_files"]:
        with open(path, "w", encoding="ascii") as file:  # noqa: PTH123
            file.write("0")
    if start["network_namespace"] is not None:
        enter(start["network_namespace"])
    if start["cores"]:
        os.sched_setaffinity(0, start["cores"])
    for name, most in start["resource_limits"].items():
        resource.setrlimit(getattr(resource, name), (most, most))


def be_user(user: int, group: int) -> None:
    """Become another user irreversibly."""
    os.setgroups([])
    os.setgid(group)
    os.setuid(user)
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def environment_of(start: Start) -> dict[str, str]:
    """Return the job's variables: those of its order, and those of its cluster about its location."""
    passes = start["passes"]
    where = {name: value for name, value in os.environ.items() if passes and name.startswith(passes)}
    return {**where, **start["environment"]}


def enter(namespace: str) -> None:
    """Enter a network namespace; raise OSError."""
    descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), namespace)
    os.close(descriptor)


def kill_rest(start: Start) -> None:
    """Kill the job's remaining processes, in its control groups and among our descendants, until none is left."""
    due_s = time.monotonic() + _KILLING_S
    while True:
        processes = (descendants(os.getpid()) | members(start["group_files"])) - {os.getpid()}
        for process in processes:
            _kill(process, signal.SIGKILL)
        reap(0)
        if not processes or time.monotonic() > due_s:
            break
        time.sleep(_POLL_S)


def drain(outputs: list[Kept]) -> None:
    """Read the rest of the pipes, which have no writers left, and close them."""
    for output in outputs:
        with contextlib.suppress(OSError):
            while select.select([output.reader], [], [], 0)[0] and output.take():
                pass
        output.close()


def descendants(process: int) -> set[int]:
    """Return all processes below one."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208
        with contextlib.suppress(OSError, IndexError, ValueError):
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                fields = file.read().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(name))
    below_process: set[int] = set()
    waiting = [process]
    while waiting:
        below = children.get(waiting.pop(), [])
        waiting += [each for each in below if each not in below_process]
        below_process.update(below)
    return below_process


def members(group_files: list[str]) -> set[int]:
    """Return the processes in control groups."""
    processes: set[int] = set()
    for path in group_files:
        with contextlib.suppress(OSError), open(path, encoding="ascii") as file:  # noqa: PTH123
            processes.update(int(line) for line in file if line.strip().isdecimal())
    return processes


def oom_kills(start: Start) -> bool:
    """Return whether the kernel has killed processes of the job for lack of memory."""
    for path in start["oom_files"]:
        with contextlib.suppress(OSError), open(path, encoding="ascii") as file:  # noqa: PTH123
            if any(line.split()[:1] == ["oom_kill"] and int(line.split()[1]) > 0 for line in file):
                return True
    return False


def signal_all(leader: int, number: int) -> None:
    """Send a signal to the job's first process with its group, and to each group formed by others."""
    groups = set()
    for process in descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            groups.add(os.getpgid(process))
    for group in {leader, *groups} - {os.getpgrp()}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)


def write(folder: str, name: str, ended: dict[str, Any]) -> None:
    """Record the job's end, atomically and durably."""
    part = f"{folder}/.{name}.part"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(part)  # noqa: PTH108
    # On a cluster the job itself may have put a link there.
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(ended, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(part, f"{folder}/{name}")  # noqa: PTH104


def _kill(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except OSError:
            return  # a full disk costs output, not the job


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
