"""Commands of pages typed into a shell or Python of a new user, with what they print and how long they are silent."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dataplane.local.deadline import LocalDeadline
from tests.docs.shell_blocks import ROOT
from tests.docs.test_examples import Example, matches, without_progress
from tests.soak.pages.shell import Command, is_ready, shows

SILENCE_S: Final = 15.0
"""Maximum time without output on an idle machine (a LocalDeadline stretches it on a busy one)."""
WHOLE_S: Final = 1200.0
"""Maximum time of a command."""
STAYS_S: Final = 8.0
"""Time after which a reader leaves a command that is not a daemon and keeps printing in its terminal."""
ENDS_S: Final = 60.0
"""Maximum time from Ctrl-C to the end."""
_POLL_S: Final = 0.02
_TRACE: Final = "Traceback (most recent call last)"
_STARTS_IN_BACKGROUND: Final = re.compile(r"&\s*(?:#.*)?$")


@dataclass(slots=True)
class Done:
    """A command that was typed: its output, exit status, and longest silence; `problem` is empty if all is well."""

    place: str
    text: str
    status: int | None = None
    """None: it was still running when the reader went on."""
    output: str = ""
    took_s: float = 0.0
    silent_s: float = 0.0
    problem: str = ""


class Output:
    """A process in a session of its own, whose output a thread reads and times."""

    def __init__(self, words: Sequence[str], folder: str, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            words,
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
        )
        self._parts: list[bytes] = []
        self.said_s = time.monotonic()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def text(self) -> str:
        """All output so far."""
        return b"".join(self._parts).decode(errors="replace")

    def type(self, text: str) -> None:
        """Write to its input."""
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())

    def watch(self, done: Done, is_over: Callable[[], bool]) -> None:
        """Wait until something is over; note time and silence, and what is too long."""
        began_s = last_s = self.said_s = time.monotonic()
        whole, silence = LocalDeadline(WHOLE_S, done.place), LocalDeadline(SILENCE_S, done.place)
        while not is_over():
            time.sleep(_POLL_S)
            done.silent_s = max(done.silent_s, time.monotonic() - self.said_s)
            if self.said_s != last_s:
                last_s, silence = self.said_s, LocalDeadline(SILENCE_S, done.place)
            if silence.has_passed() and not done.problem:
                done.problem = f"is silent for more than {SILENCE_S:g} s"
            if whole.has_passed():
                done.problem = "does not end"
                break
        done.took_s = time.monotonic() - began_s

    def end(self) -> int | None:
        """Press Ctrl-C; return the exit status, or None if that did not end it."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
        deadline = LocalDeadline(ENDS_S, "a command ends by Ctrl-C")
        while self.process.poll() is None and not deadline.has_passed():
            time.sleep(_POLL_S)
        status = self.process.poll()
        self.kill()
        return status

    def kill(self) -> None:
        """End it and all processes of its session's group."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._thread.join(ENDS_S)
        if not self._thread.is_alive():
            for file in (self.process.stdin, self.process.stdout):
                assert file is not None
                file.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        while part := os.read(self.process.stdout.fileno(), 1 << 16):
            self._parts.append(part)
            self.said_s = time.monotonic()


@dataclass(slots=True)
class User:
    """Someone at a machine: how a command becomes theirs, their folder and environment."""

    words: tuple[str, ...]
    """Words before a command that make it this user's; none for root."""
    folder: Path
    environment: dict[str, str]


class Bash:
    """An open shell of a user, in which `cd`, `export` and background jobs persist."""

    def __init__(self, user: User) -> None:
        self._bash = Output([*user.words, "bash", "--noprofile", "--norc"], str(user.folder), user.environment)
        self._count = 0

    def run(self, command: Command, place: str) -> Done:
        """Type a command; return once it has ended, or is ready in the background."""
        self._count += 1
        done, start = Done(place, command.text), len(self._bash.text)
        mark = f"--- {os.getpid()}.{self._count} ended with "
        typed = "".join(f"{line}\n" for line in command.typed)
        into = f"<<'END_{self._count}'\n{typed}END_{self._count}\n" if typed else "</dev/null\n"
        self._bash.type(f"{{\n{command.text}\n}} {into}printf '\\n%s%s\\n' '{mark}' $?\n")
        ended = re.compile(rf"\n{re.escape(mark)}(\d+)\n")

        def output() -> str:
            return ended.sub("", self._bash.text[start:])

        def is_over() -> bool:
            if self._bash.process.poll() is not None:
                return True
            if ended.search(self._bash.text, start) is None:
                return False
            return not _STARTS_IN_BACKGROUND.search(command.text) or is_ready(command.text, output())

        self._bash.watch(done, is_over)
        match = ended.search(self._bash.text, start)
        done.status, done.output = None if match is None else int(match[1]), output()
        judge(done, command.printed)
        return done

    def state(self) -> tuple[str, dict[str, str]]:
        """Return its folder and environment."""
        done = self.run(Command(0, "pwd && env -0 | tr '\\0\\n' '\\n\\1'"), "")
        folder, *pairs = done.output.strip().split("\n")
        return folder, {name: value.replace("\1", "\n") for name, _, value in (pair.partition("=") for pair in pairs)}

    def close(self) -> None:
        """End the shell."""
        self._bash.kill()


class Terminals:
    """Further terminals, opened from a shell, in which commands go on until Ctrl-C."""

    def __init__(self, user: User, folder: str, environment: dict[str, str]) -> None:
        self._user, self._folder, self._environment = user, folder, environment
        self._open: list[tuple[Command, Done, Output]] = []

    def run(self, command: Command, place: str, *, ends: bool) -> Done:
        """Start a command; return once it has ended, is ready, or has shown what it keeps showing."""
        words = [*self._user.words, "bash", "-c", command.text]
        output, done = Output(words, self._folder, self._environment), Done(place, command.text)
        self._open.append((command, done, output))
        begin_s = time.monotonic()

        def is_over() -> bool:
            if output.process.poll() is not None:
                return True
            is_left = not ends and output.text != "" and time.monotonic() - begin_s > STAYS_S
            return is_left and is_ready(command.text, output.text)

        output.watch(done, is_over)
        done.status, done.output = output.process.poll(), output.text
        if done.status is not None:
            judge(done, command.printed)
        return done

    def close(self) -> None:
        """Press Ctrl-C in each terminal, last opened first; note bad ends in what `run` has returned."""
        for command, done, output in reversed(self._open):
            if done.status is None:
                status = output.end()
                done.output = output.text
                if status not in {0, 130, -signal.SIGINT}:
                    done.problem = done.problem or f"ended with {status} by Ctrl-C"
                done.status = 0
                judge(done, command.printed)


_DRIVER: Final = """
import contextlib, io, json, os, sys
names = {"__name__": "docs." + sys.argv[1]}
for line in sys.stdin:
    order = json.loads(line)
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    exec(compile(chr(10) * (order["line"] - 1) + order["text"], sys.argv[1], "exec"), names)
    print(end=order["mark"], flush=True)
"""


class Python:
    """An open Python of a user, in which a page's blocks share one namespace."""

    def __init__(self, user: User, page: Path) -> None:
        words = [*user.words, str(ROOT / ".venv/bin/python"), "-u", "-c", _DRIVER, page.stem]
        self._python = Output(words, str(user.folder), user.environment)
        self._count = 0

    def run(self, example: Example, place: str, folder: str, environment: dict[str, str]) -> Done:
        """Type a block; return once it has ended."""
        self._count += 1
        done, start = Done(place, example.text.strip()), len(self._python.text)
        mark = f"\n--- {os.getpid()}.{self._count} has ended\n"
        order = {"text": example.text, "line": example.line, "mark": mark}
        self._python.type(json.dumps(order | {"folder": folder, "environment": environment}) + "\n")
        self._python.watch(done, lambda: mark in self._python.text or self._python.process.poll() is not None)
        done.status = self._python.process.poll() or 0
        done.output = self._python.text[start:].replace(mark, "")
        judge(done)
        if not done.problem and not _prints(example.output, done.output):
            done.problem = "prints something else"
        return done

    def close(self) -> None:
        """End it, and what it has started."""
        self._python.kill()


def _prints(want: str, got: str) -> bool:
    """Return whether a terminal shows a page's lines in their order, between lines that daemons log."""
    lines = iter(got.splitlines(keepends=True))
    wanted = [line for line in want.splitlines(keepends=True) if line.strip() != "..."]
    return all(any(matches(line, shown) for shown in lines) for line in wanted)


def judge(done: Done, wanted: Sequence[str] = ()) -> None:
    """Note what a reader would complain about."""
    if _TRACE in done.output:
        done.problem = "prints a stack trace"
    elif done.problem:
        pass
    elif wanted:
        if not shows(list(wanted), without_progress(done.output)):
            done.problem = "prints something else than the page shows"
    elif done.status != 0:
        done.problem = f"ends with {done.status}"


def problems_of(all_done: Sequence[Done]) -> Iterator[str]:
    """Yield a paragraph for each problem."""
    for done in all_done:
        if done.problem:
            yield f"{done.place}: {done.text}\n  {done.problem}:\n{done.output.rstrip()}"


__all__ = ["Bash", "Done", "Python", "Terminals", "User", "problems_of"]
