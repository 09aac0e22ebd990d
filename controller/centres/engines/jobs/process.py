"""Runs one job where an engine has put it, and writes down how it ended: a program by itself, of the standard library.

    python3 -I -S FOLDER/.millrace/process.py FOLDER

It is copied beside the order, as the machine that runs it may have no Millrace. FOLDER/.millrace/order.json says what
to run; `ended.json` says how it ended, so that this is known after the engine has forgotten the job. On SIGTERM, and
after the limit, the job is asked to end, and killed after the grace with all that it has started, also what has left
its process group. Its output and errors are read to the end, the beginning and the end of each are kept.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from io import FileIO
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
CANNOT_RUN, NOT_FOUND = 126, 127
"""What shells say of a program that cannot be run, and of one that is not there."""
ENDING = {signal.SIGTERM, signal.SIGINT}
WAITED = {signal.SIGCHLD, *ENDING}
POLL_S = 0.02
MOST_ROUNDS = 500


class Job:
    """A job that runs; `order` is the content of order.json."""

    def __init__(self, folder: Path, order: dict[str, object]) -> None:
        self.folder, self.own, self.order = folder, folder / ".millrace", order
        self.reason = ""
        self.kill_at: float | None = None
        self.started_ns = time.time_ns()

    def end(self, reason: str, grace_s: float) -> None:
        """Ask all processes to end; once the grace is over they are killed."""
        if self.kill_at is None:
            self.reason, self.kill_at = reason, time.monotonic() + grace_s
        signal_all(signal.SIGTERM)

    def number(self, name: str) -> float:
        """Return a number of the order."""
        return float(str(self.order[name]))

    def run(self) -> int:
        """Run it to its end; return its exit code, 128 + N if signal N has killed it."""
        argv, environment = self.order["argv"], self.order["environment"]
        assert isinstance(argv, list)
        assert isinstance(environment, dict)
        where = {name: os.environ[name] for name in os.environ if name.startswith(str(self.order["passes"]) or "\0")}
        try:
            child = subprocess.Popen(  # noqa: S603 - what it is for
                argv,
                cwd=self.folder,
                env={**where, **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                preexec_fn=unblock,  # noqa: PLW1509 - there is no other thread yet
            )
        except OSError as error:
            self.reason = f"{argv[0]!r} cannot be started: {(error.strerror or '').lower()}"
            return NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN
        assert child.stdout is not None
        assert child.stderr is not None
        pumps = [
            self.pump(child.stdout.fileno(), str(self.order["output_file"])),
            self.pump(child.stderr.fileno(), str(self.order["errors_file"])),
        ]
        code = self.wait(child)
        kill_all()
        for pump in pumps:
            pump.join(10)
        return 128 - code if code < 0 else code

    def wait(self, child: subprocess.Popen[bytes]) -> int:
        """Wait for the job's first process, and see to limit, grace and SIGTERM meanwhile; nothing is polled."""
        limit_s = None if self.order["limit_s"] is None else self.number("limit_s")
        limit_at = None if limit_s is None else time.monotonic() + limit_s
        while child.poll() is None:
            now = time.monotonic()
            if self.kill_at is not None and now >= self.kill_at:
                kill_all(child)
                return child.wait()
            if self.kill_at is None and limit_s is not None and limit_at is not None and now >= limit_at:
                self.end(f"over its limit of {limit_s:g} s", self.number("grace_s"))
            next_at = self.kill_at if self.kill_at is not None else limit_at
            if next_signal(None if next_at is None else max(0.0, next_at - now)) in ENDING:
                self.end("cancelled", number_in(self.own / "grace", self.number("grace_s")))
            reap(child.pid)
        return child.returncode

    def pump(self, source: int, name: str) -> threading.Thread:
        """Read all that comes; keep its beginning and its end in a file, half of the limit each."""
        most = int(self.number("output_limit_bytes"))

        def work() -> None:
            room, tail, dropped = most - most // 2, bytearray(), 0
            with (self.folder / name).open("wb", buffering=0) as file:
                while data := os.read(source, 1 << 16):
                    written(file, data[:room])
                    tail += data[room:]
                    room -= min(room, len(data))
                    over = max(0, len(tail) - most // 2)
                    dropped += over
                    del tail[:over]
                if dropped:
                    written(file, f"\n... {dropped} bytes are left out ...\n".encode())
                written(file, bytes(tail))

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        return thread

    def write_end(self, exit_code: int) -> None:
        """Write how it ended, all at once or not at all."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        record = {
            "exit_code": exit_code,
            "reason": self.reason,
            "started_ns": self.started_ns,
            "finished_ns": time.time_ns(),
            "cpu_s": used.ru_utime + used.ru_stime,
            "memory_peak_bytes": used.ru_maxrss * 1024,
        }
        new = self.own / "ended.json.new"
        with new.open("w") as file:
            json.dump(record, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.own / "ended.json")


def written(file: FileIO, data: bytes) -> None:
    """Write what can be written: a full disk costs output, not the job."""
    with contextlib.suppress(OSError):
        while data:
            data = data[file.write(data) or len(data) :]


def number_in(path: Path, otherwise: float) -> float:
    """Return the number that stands in a file."""
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return otherwise


def unblock() -> None:
    """Have a process get its signals again."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, WAITED)


def next_signal(within_s: float | None) -> int | None:
    """Wait for a signal; None if none comes in time."""
    found = signal.sigwaitinfo(WAITED) if within_s is None else signal.sigtimedwait(WAITED, within_s)
    return None if found is None else found.si_signo


def reap(spared: int) -> None:
    """Reap processes that have become this one's and ended; the job's first one is left to who started it."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid != spared:
            os.waitpid(ended.si_pid, 0)


def descendants() -> list[int]:
    """Return all processes below this one; those whose parents have ended count, as they become this one's."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
            if fields and fields[0] != b"Z":
                children.setdefault(int(fields[1]), []).append(int(process.name))
    found, todo = [], [os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def signal_all(number: int) -> bool:
    """Send a signal to all processes below this one; return whether there were any."""
    found = descendants()
    for process in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)
    return bool(found)


def kill_all(child: subprocess.Popen[bytes] | None = None) -> None:
    """Kill all processes below this one until there are none; reap those that have become this one's."""
    for _ in range(MOST_ROUNDS):
        if not signal_all(signal.SIGKILL):
            break
        if child is not None:
            child.poll()
        time.sleep(POLL_S)
    reap(0 if child is None else child.pid)


def main(folder: Path) -> int:
    """Run the job of a folder; return its exit code."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    job = Job(folder, json.loads((folder / ".millrace" / "order.json").read_text("utf-8")))
    signal.pthread_sigmask(signal.SIG_BLOCK, WAITED)
    code = job.run()
    job.write_end(code)
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
