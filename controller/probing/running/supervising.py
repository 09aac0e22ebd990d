"""Watches the process that runs the kernels: its messages, its end, and its deadline.

The kernels run in a forked child, so that one which crashes, hangs or eats all memory is still reported by name.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from controller.probing.running.failing import FailedError, blamed, of_status
from controller.probing.running.report import Order, Outcome, Repetition, Report
from controller.probing.values import ProbeTask
from dataplane.clock import NS_PER_S

_READ_BYTES: Final = 1 << 16
_MOST_BYTES: Final = 64 << 20
"""Longest line from the child."""
_LINE: Final = 1000
"""Most characters of a problem that are kept."""
_KIB: Final = 1024


@dataclass(slots=True)
class _Progress:
    """The child's messages so far, and their times since the program's start."""

    doing: str = "start"
    use: str | None = None
    at_s: dict[str, float] = field(default_factory=dict)
    repetitions: list[Repetition] = field(default_factory=list)
    steady_s: dict[str, float] = field(default_factory=dict)
    failed: FailedError | None = None
    versions: dict[str, str] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    saved_s: float = 0.0
    cpu_s: dict[str, float] = field(default_factory=dict)
    peak_bytes: int = 0
    is_done: bool = False

    @property
    def start_s(self) -> float | None:
        """Seconds until all is imported, including those that a warm process has saved."""
        return self.at_s["imported"] + self.saved_s if "imported" in self.at_s else None

    def between_s(self, first: str, second: str) -> float | None:
        """Return the seconds between two events, None if one of them has not occurred."""
        return self.at_s[second] - self.at_s[first] if {first, second} <= self.at_s.keys() else None


def supervise(probe: ProbeTask, order: Order, started_s: float) -> Report:
    """Run a probe task in a child and report its outcome; `started_s` is when the program started (monotonic)."""
    started_ns = time.time_ns() - round((time.monotonic() - started_s) * NS_PER_S)
    progress = _Progress()
    failed, peak_bytes = _watched(probe, order, started_s, progress)
    return Report(
        probe.name,
        order.units,
        order.cores,
        Outcome.SUCCEEDED if failed is None else failed.outcome,
        "" if failed is None else failed.problem[:_LINE],
        None if failed is None else progress.use,
        progress.repetitions,
        progress.steady_s,
        started_ns,
        progress.start_s,
        progress.between_s("imported", "prepared"),
        progress.between_s("prepared", "warm"),
        time.monotonic() - started_s,
        max(peak_bytes, progress.peak_bytes),
        progress.versions,
        progress.figures,
        progress.cpu_s,
    )


def _watched(probe: ProbeTask, order: Order, started_s: float, progress: _Progress) -> tuple[FailedError | None, int]:
    """Run the kernels in a child; return its failure, if any, and its peak memory in bytes."""
    reader, writer = os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        os.close(reader)
        _be_child(probe, order, writer, parent)
    os.close(writer)
    signal.signal(signal.SIGTERM, _end)
    ended = os.pidfd_open(child)
    in_time = False
    try:
        in_time = _listen(reader, ended, progress, started_s, order.deadline_s)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        progress.failed = FailedError(Outcome.CRASH, f"{progress.doing}: its program sent an invalid message: {error}")
    finally:
        os.kill(child, signal.SIGKILL)  # Harmless if it has ended: it stays a zombie until wait4 below.
        _, status, usage = os.wait4(child, 0)
        os.close(ended)
        os.close(reader)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    peak_bytes = usage.ru_maxrss * _KIB
    if progress.failed is not None:
        return progress.failed, peak_bytes
    if not in_time:
        return FailedError(Outcome.HANG, f"{progress.doing}: not done after {order.deadline_s:g} s"), peak_bytes
    if progress.is_done:
        return None, peak_bytes
    return of_status(progress.doing, os.waitstatus_to_exitcode(status)), peak_bytes


def _end(number: int, _: object) -> NoReturn:
    """End this program on a signal through its pending cleanup."""
    sys.exit(128 + number)


def _be_child(probe: ProbeTask, order: Order, writer: int, parent: int) -> NoReturn:
    """Run the kernels, report progress, and exit without returning; the kernels' output goes to standard error."""
    try:
        os.dup2(2, 1)
        _run_and_report(probe, order, writer, parent)
        with suppress(OSError, ValueError):
            sys.stdout.flush()
    finally:
        os._exit(0)


def _run_and_report(probe: ProbeTask, order: Order, writer: int, parent: int) -> None:
    preparing = True

    def report(event: str, content: Any) -> None:  # noqa: ANN401 - any JSON value
        nonlocal preparing
        preparing = preparing and event != "prepared"
        data = memoryview(json.dumps([event, content]).encode() + b"\n")
        while data:
            data = data[os.write(writer, data) :]

    try:
        from controller.probing.running.parents import end_with_parent  # noqa: PLC0415 - ctypes
        from controller.probing.running.work import work  # noqa: PLC0415 - numpy

        end_with_parent(parent)
        work(probe, order, report)
    except BaseException as error:  # noqa: BLE001 - whatever a kernel raises is reported
        failed = blamed(error, is_preparing=preparing)
        report("failed", [failed.outcome.value, failed.problem])


def _listen(reader: int, ended: int, progress: _Progress, started_s: float, deadline_s: float) -> bool:
    """Process the child's messages until it ends; return False if its deadline has passed."""
    waiting, buffer = select.poll(), b""
    waiting.register(reader, select.POLLIN)
    waiting.register(ended, select.POLLIN)
    while (left_s := started_s + deadline_s - time.monotonic()) > 0:
        ready = {descriptor for descriptor, _ in waiting.poll(math.ceil(left_s * 1000))}
        if reader in ready:
            if not (read := os.read(reader, _READ_BYTES)):
                return True
            *lines, buffer = (buffer + read).split(b"\n")
            for line in lines:
                _take_in(progress, line, time.monotonic() - started_s)
            if len(buffer) > _MOST_BYTES:
                raise ValueError(f"a line of more than {_MOST_BYTES} bytes")
        elif ended in ready:
            return True
    return False


def _refused(word: str) -> None:
    raise ValueError(f"{word} is not a number")


def _take_in(progress: _Progress, line: bytes, now_s: float) -> None:
    event, content = json.loads(line, parse_constant=_refused)
    progress.at_s.setdefault(event, now_s)
    match event:
        case "preparing":
            progress.use, progress.doing = content, f"preparing {content}"
        case "use":
            progress.use, progress.doing = content, f"use {content}"
        case "imported":
            progress.versions = content
        case "cpu":
            progress.cpu_s = {name: float(seconds) for name, seconds in content.items()}
        case "saved":
            progress.saved_s = float(content)
        case "repetition":
            progress.repetitions.append(Repetition(**content))
        case "steady":
            progress.steady_s = content
        case "figures":
            progress.figures = content
        case "memory":
            progress.peak_bytes = content
        case "failed":
            progress.failed = FailedError(Outcome(content[0]), content[1])
        case "done":
            progress.is_done = True
