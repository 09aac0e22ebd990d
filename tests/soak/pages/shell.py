"""A page's blocks in a shell: commands one after another in one bash, or each in its own terminal."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from tests.docs.shell_blocks import ShellBlock

COMMAND_S: Final = 900.0
QUIET_S: Final = 4.0
"""Silence of a command in another terminal after which the reader moves on."""
STAYS_S: Final = 20.0
"""Maximum time to watch a command that keeps printing."""
STARTS_S: Final = 90.0
"""Time after a start during which the reader retries commands that fail: daemons start slowly on a busy machine."""
_DAEMON = re.compile(r"\bmillrace (?:(?P<name>up|switch|fabric|collector|controller|node)|(?P<served>\w+) serve)\b")
_PROMPT = re.compile(r"^(?:mininet> |P4Runtime sh >>> |>>> )(?P<input>.*)$")
_NUMBER = re.compile(r"\d[\d.,:+_-]*(?:e[+-]?\d+)?")
_DRAWN = re.compile(r"[\s│┃┏┓┗┛┡┩├┤└┘┌┐─━┳╇┴┬┼╪═]+")


class PageError(AssertionError):
    """A page is wrong."""


@dataclass(slots=True)
class Command:
    """A command of a block: its text, its input, and its output on the page."""

    line: int
    text: str
    typed: list[str] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)


def commands_of(block: ShellBlock) -> Iterator[Command]:
    """Yield a block's commands: of a console those behind `$ `, each with its output, else each that is whole."""
    if block.language == "console":
        yield from _of_console(block)
        return
    held, first = "", 0
    for number, line in enumerate(block.text.splitlines()):
        first = number if not held else first
        held += line + "\n"
        if _is_whole(held):
            if held.strip() and not held.lstrip().startswith("#"):
                yield Command(block.line + first, held.rstrip("\n"))
            held = ""
    if held.strip():
        raise PageError(f"{block.page.name}:{block.line + first}: not whole: {held}")


def _of_console(block: ShellBlock) -> Iterator[Command]:
    command: Command | None = None
    is_open = False
    for number, line in enumerate(block.text.splitlines()):
        if line.startswith("$ "):
            if command is not None:
                yield command
            command = Command(block.line + number, line[2:])
            is_open = line.endswith("\\")
        elif command is None:
            raise PageError(f"{block.page.name}:{block.line + number}: output of no command")
        elif is_open or line.startswith("> "):
            command.text += "\n" + line.removeprefix("> ")
            is_open = line.endswith("\\")
        elif (typed := _PROMPT.match(line)) is not None:
            command.typed.append(typed["input"])
        else:
            command.printed.append(line)
    if command is not None:
        yield command


def _is_whole(text: str) -> bool:
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    return done.returncode == 0 and not done.stderr and not text.endswith("\\\n")


def shows(want: list[str], got: str) -> bool:
    """Return whether an output equals a page's, except for numbers, lines drawn around them, and `...`."""
    wanted = [_NUMBER.sub("#", _DRAWN.sub(" ", part)).strip() for part in re.split(r"\.\.\.", "\n".join(want))]
    text = _NUMBER.sub("#", _DRAWN.sub(" ", got)).strip()
    # Each part where it comes first after the one before: a regular expression would try all combinations.
    end = 0
    for part in wanted:
        begin = text.find(part, end)
        if begin < 0:
            return False
        end = begin + len(part)
    return True


def is_ready(command: str, output: str) -> bool:
    """Return whether a daemon has printed its ready line; True for other commands."""
    match = _DAEMON.search(command)
    return match is None or re.search(rf"\b{match['name'] or match['served']}(?: \d+|:) ready", output) is not None


def stays(command: str) -> bool:
    """Return whether a command is a daemon that keeps its terminal until Ctrl-C."""
    return _DAEMON.search(command) is not None and not re.search(r"&\s*$|--detach", command)


class Shell:
    """One bash, fed like a terminal; it returns its own and its children's output in order."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
        )
        self._count = 0
        self._began_s = -STARTS_S
        self.said = ""

    def run(self, command: Command, page: str) -> None:
        """Type a command and its input; raise PageError if it fails, or its output differs."""
        while True:
            try:
                self._try(command, page)
            except PageError:
                if time.monotonic() - self._began_s > STARTS_S:
                    raise
                time.sleep(1.0)
            else:
                break
        if command.text.rstrip().endswith("&") or re.search(r"&\s+#", command.text):
            self._began_s = time.monotonic()

    def _try(self, command: Command, page: str) -> None:
        self._count += 1
        mark = f"--- {os.getpid()}.{self._count} ended with "
        typed = "".join(f"{line}\n" for line in command.typed)
        into = f"<<'END_OF_{self._count}'\n{typed}END_OF_{self._count}\n" if typed else "</dev/null\n"
        self._type(f"{{\n{command.text}\n}} {into}printf '\\n%s%s\\n' '{mark}' $?\n")
        output, status = self._until(mark, command, page)
        if status != "0":
            raise PageError(f"{page}:{command.line}: {command.text!r} ended with {status}:\n{output}")
        if command.text.rstrip().endswith("&"):
            output = self._until_shown(command, output)
        if command.printed and not shows(command.printed, output):
            raise PageError(f"{page}:{command.line}: {command.text!r} says:\n{output}")

    def close(self) -> None:
        """End the shell and its processes."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _type(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode())

    def _until(self, mark: str, command: Command, page: str) -> tuple[str, str]:
        until_s, output = time.monotonic() + COMMAND_S, ""
        while (at := output.find(mark)) < 0 or "\n" not in output[at:]:
            more = self._read(until_s - time.monotonic())
            if not more:
                raise PageError(f"{page}:{command.line}: {command.text!r} does not end:\n{output}")
            output += more
        before, _, after = output.partition(f"\n{mark}")
        status, _, rest = after.partition("\n")
        return before + rest, status

    def _until_shown(self, command: Command, output: str) -> str:
        """Read until the page's output is complete, a daemon is ready, and output stops."""
        until_s = time.monotonic() + 60.0
        while more := self._read(
            min(
                until_s - time.monotonic(),
                QUIET_S if shows(command.printed, output) and is_ready(command.text, output) else 60.0,
            )
        ):
            output += more
        return output

    def _read(self, within_s: float) -> str:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], max(0.0, within_s))[0]:
            return ""
        text = os.read(self._process.stdout.fileno(), 1 << 16).decode(errors="replace")
        self.said += text
        return text


class Terminals:
    """Concurrent commands, each in a terminal; those still running are ended by Ctrl-C."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder, self._environment = folder, environment
        self._running: list[tuple[Command, subprocess.Popen[bytes], Path, IO[bytes]]] = []
        self.said = ""

    def run(self, command: Command, page: str, *, ends: bool = False) -> None:
        """Start a command, and watch it until it ends or, if it need not end, is silent."""
        began_s = time.monotonic()
        while True:
            try:
                self._try(command, page, ends=ends)
            except PageError:
                *before, (_, failed, _, _) = self._running
                goes_on = any(process.poll() is None for _, process, _, _ in before)
                if failed.poll() is None or not goes_on or time.monotonic() - began_s > STARTS_S:
                    raise
                self._running.pop()[3].close()
                time.sleep(1.0)
            else:
                return

    def _try(self, command: Command, page: str, *, ends: bool) -> None:
        path = self._folder / f".terminal-{len(self._running)}"
        output = path.open("wb")
        process = subprocess.Popen(
            ["bash", "-c", command.text],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._running.append((command, process, path, output))
        begin_s = quiet_s = time.monotonic()
        seen = 0
        while process.poll() is None and time.monotonic() - begin_s < COMMAND_S:
            time.sleep(0.05)
            if (size := path.stat().st_size) != seen:
                seen, quiet_s = size, time.monotonic()
            # Without output it is still working, as is a daemon before its ready line.
            if ends or not seen or not is_ready(command.text, path.read_text(errors="replace")):
                continue
            if time.monotonic() - quiet_s > QUIET_S or time.monotonic() - begin_s > STAYS_S:
                break
        text = path.read_text(errors="replace")
        if process.poll() not in {None, 0}:
            raise PageError(f"{page}:{command.line}: {command.text!r} ended with {process.returncode}:\n{text}")
        if process.poll() is None and (ends or not seen):
            raise PageError(f"{page}:{command.line}: {command.text!r} does not end:\n{text}")

    def close(self, page: str) -> None:
        """Press Ctrl-C in all terminals; raise PageError for unclean ends or other output."""
        for command, process, path, output in reversed(self._running):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            output.close()
            text = path.read_text(errors="replace")
            self.said += f"$ {command.text}\n{text}\n"
            if process.returncode not in {0, 130, -signal.SIGINT}:
                raise PageError(
                    f"{page}:{command.line}: {command.text!r} ended with {process.returncode} by Ctrl-C:\n{text}"
                )
            if command.printed and not shows(command.printed, text):
                raise PageError(f"{page}:{command.line}: {command.text!r} says:\n{text}")
