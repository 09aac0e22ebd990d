"""`python -I -S keeper.py FOLDER`: runs one job and tells in FOLDER/exit.json how it ended.

A process of its own session, so that the job outlives the agent, whatever ends that. It holds FOLDER/lock while it
lives, does what FOLDER/start.json says, and leaves no process behind: orphans of the job become its children. SIGTERM
is the wish that the job ends. If the keeper is killed, so is the job's first process; the agent then ends the others.
Nothing of Millrace is loaded: some ms to start, some MB.
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
from typing import Any

Start = dict[str, Any]

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_CLONE_NEWNET = 0x40000000
_READ_BYTES = 1 << 16
_CANNOT_START = 127
_KILLING_S = 10.0
_POLL_S = 0.01
_libc = ctypes.CDLL(None, use_errno=True)


class Kept:
    """A pipe's output in a file: its beginning and its end, half of the limit each; what is between is counted."""

    def __init__(self, path: str, limit: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o644)
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reader, False)
        self._head_left, self._most, self._tail, self.dropped = limit - limit // 2, limit // 2, bytearray(), 0

    def take(self) -> bool:
        """Take what is there; return False at the end."""
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
        """Write the end."""
        if self.dropped:
            _write(self._file, f"\n... {self.dropped} bytes are left out ...\n".encode())
        _write(self._file, bytes(self._tail))
        os.close(self._file)
        os.close(self.reader)


def main(folder: str) -> int:
    """Run the job of a folder; return 1 at once where another keeper does."""
    lock = os.open(f"{folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 1
    if os.fstat(lock).st_size:
        return 1  # it was run once: never again
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    with open(f"{folder}/start.json", encoding="utf-8") as file:  # noqa: PTH123 - pathlib takes long to load
        start = json.load(file)
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    woken, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    write(folder, run(start, woken))
    return 0


def run(start: Start, woken: int) -> dict[str, Any]:
    """Run a job to its end; return what is to be told of it."""
    began_ns, where = time.time_ns(), start["folder"]
    outputs = [Kept(f"{where}/{name}", start["output_limit_bytes"]) for name in ("stdout", "stderr")]
    problem_reader, problem_writer = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        os.close(problem_reader)
        be_job(start, outputs[0].writer, outputs[1].writer, problem_writer)
    for descriptor in (outputs[0].writer, outputs[1].writer, problem_writer):
        os.close(descriptor)
    with os.fdopen(problem_reader, encoding="utf-8", errors="replace") as file:
        problem = file.read()
    status, usage, reason = wait_for(child, start, outputs, woken)
    kill_rest(start)
    drain(outputs)
    code = os.waitstatus_to_exitcode(status)
    if problem:
        code, reason = _CANNOT_START, f"it cannot be started: {problem}"
    elif not reason and code == -signal.SIGKILL and oom_kills(start):
        reason = "out of memory: it had no more than its units'"
    return {
        "exit_code": 128 - code if code < 0 else code,
        "reason": reason,
        "started_ns": began_ns,
        "finished_ns": time.time_ns(),
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "memory_peak_bytes": usage.ru_maxrss * 1024,
        "dropped_bytes": sum(output.dropped for output in outputs),
    }


def wait_for(child: int, start: Start, outputs: list[Kept], woken: int) -> tuple[int, resource.struct_rusage, str]:
    """Return the job's status, what it has used, and why it was ended, '' where it ended by itself."""
    waiting, ended = select.poll(), os.pidfd_open(child)
    sources = {output.reader: output for output in outputs}
    for descriptor in (*sources, ended, woken):
        waiting.register(descriptor, select.POLLIN)
    limit_s = start["limit_s"]
    due_s, reason = (None if limit_s is None else time.monotonic() + limit_s), ""
    while True:
        left_s = None if due_s is None else max(due_s - time.monotonic(), 0.0)
        found = [descriptor for descriptor, _ in waiting.poll(None if left_s is None else left_s * 1000 + 1)]
        if ended in found:
            os.close(ended)
            _, status, usage = os.wait4(child, 0)
            return status, usage, reason
        for descriptor in found:
            if descriptor in sources and not sources[descriptor].take():
                waiting.unregister(descriptor)
        wants_end = woken in found and signal.SIGTERM in os.read(woken, 64)
        over = due_s is not None and time.monotonic() >= due_s
        if (wants_end or over) and not reason:
            reason = "it was cancelled" if wants_end else f"it took longer than its {limit_s:g} s"
            signal_group(child, signal.SIGTERM)
            due_s = time.monotonic() + grace_of(start)
        elif over:
            signal_group(child, signal.SIGKILL)
            due_s = None


def grace_of(start: Start) -> float:
    """Return how long the job has to end by itself: what whoever cancels has written, else what was said before."""
    with contextlib.suppress(OSError, ValueError), open(start["grace_file"], encoding="ascii") as file:  # noqa: PTH123
        return float(file.read())
    return float(start["grace_s"])


def be_job(start: Start, stdout: int, stderr: int, problem: int) -> None:
    """Become the job, or say why that cannot be and end."""
    try:
        os.setsid()
        for file in start["group_files"]:
            with open(file, "w", encoding="ascii") as opened:  # noqa: PTH123
                opened.write("0")
        if start["network_namespace"] is not None:
            enter(start["network_namespace"])
        os.sched_setaffinity(0, start["cores"])
        for name, most in start["resource_limits"].items():
            resource.setrlimit(getattr(resource, name), (most, most))
        os.chdir(start["folder"])
        if start["user"] is not None:
            user, group = start["user"]
            os.setgroups([])
            os.setgid(group)
            os.setuid(user)
            _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == 1:
            os._exit(_CANNOT_START)  # its keeper was killed meanwhile
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.umask(0o077)
        os.execvpe(start["argv"][0], start["argv"], start["environment"])  # noqa: S606 - the user's own program
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is told
        words = f"{getattr(error, 'filename', None) or start['argv'][0]}: {getattr(error, 'strerror', None) or error}"
        _write(problem, words.encode()[:500])
    os._exit(_CANNOT_START)


def enter(namespace: str) -> None:
    """Enter a network namespace; raise OSError."""
    descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), namespace)
    os.close(descriptor)


def kill_rest(start: Start) -> None:
    """Kill all that the job has left, in its control groups and among our descendants, and remove the groups."""
    due_s = time.monotonic() + _KILLING_S
    while True:
        found = (descendants(os.getpid()) | members(start["group_files"])) - {os.getpid()}
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not found or time.monotonic() > due_s:
            break
        time.sleep(_POLL_S)


def drain(outputs: list[Kept]) -> None:
    """Read what is left in the pipes, which nobody writes into any more, and close them."""
    for output in outputs:
        with contextlib.suppress(OSError):
            while select.select([output.reader], [], [], 0)[0] and output.take():
                pass
        output.close()


def descendants(process: int) -> set[int]:
    """Return all processes below one."""
    parents: dict[int, list[int]] = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208
        with (
            contextlib.suppress(OSError, IndexError, ValueError),
            open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file,  # noqa: PTH123
        ):
            parents.setdefault(int(file.read().rpartition(")")[2].split()[1]), []).append(int(name))
    found, waiting = set[int](), [process]
    while waiting:
        below = parents.get(waiting.pop(), [])
        waiting += [each for each in below if each not in found]
        found.update(below)
    return found


def members(group_files: list[str]) -> set[int]:
    """Return the processes in control groups."""
    found: set[int] = set()
    for path in group_files:
        with contextlib.suppress(OSError), open(path, encoding="ascii") as file:  # noqa: PTH123
            found.update(int(line) for line in file if line.strip().isdecimal())
    return found


def oom_kills(start: Start) -> bool:
    """Return whether the kernel has killed some of the job for want of memory."""
    for path in start["oom_files"]:
        with contextlib.suppress(OSError), open(path, encoding="ascii") as file:  # noqa: PTH123
            if any(line.split()[:1] == ["oom_kill"] and int(line.split()[1]) > 0 for line in file):
                return True
    return False


def signal_group(leader: int, number: int) -> None:
    """Send a signal to the job's first process and its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, number)


def write(folder: str, told: dict[str, Any]) -> None:
    """Write how the job ended, in one step and for good."""
    part = f"{folder}/.exit.json.part"
    with open(part, "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump(told, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(part, f"{folder}/exit.json")  # noqa: PTH104


def _write(descriptor: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except OSError:
            return  # a full disk costs output, not the job


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
