"""Keeps watch over the process that runs the kernels: what it tells, how it ends, and when it has had its time.

The kernels run in a forked child, so that one which crashes, hangs or eats all memory is still told of by name.
"""

from __future__ import annotations

import math
import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from io import RawIOBase
from typing import Any, Final, NoReturn

import msgspec

from controller.schedulers.probe.errors import ProbeError
from controller.schedulers.probe.running.results import Outcome, Repetition, RunResult
from controller.schedulers.probe.running.steady import AT_LEAST_S
from controller.schedulers.probe.values import ProbeTask

_READ_BYTES: Final = 1 << 16
_LINE: Final = 1000
"""Characters of a problem that are kept."""
_KIB: Final = 1024


@dataclass(frozen=True, slots=True)
class Order:
    """What to run: on how many units, with how many cores, how often, for how long at least, and in what time."""

    units: int
    cores: int
    repeat: int
    deadline_s: float
    at_least_s: float = AT_LEAST_S


@dataclass(slots=True)
class _Told:
    """What the child has told so far."""

    use: str | None = None
    is_preparing: bool = True
    warm_up: Repetition | None = None
    start_s: float | None = None
    repetitions: list[Repetition] = field(default_factory=list)
    steady_s: dict[str, float] = field(default_factory=dict)
    failed: tuple[Outcome, str] | None = None
    versions: dict[str, str] = field(default_factory=dict)
    is_done: bool = False


def supervise(probe: ProbeTask, order: Order, started_s: float) -> RunResult:
    """Run a probe task in a child and return how that went; `started_s` is when the program started (monotonic)."""
    started_ns = time.time_ns() - round((time.monotonic() - started_s) * 1e9)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _be_child(probe, order, writer)
    os.close(writer)
    told = _Told()
    try:
        in_time = _listen(reader, told, started_s, order.deadline_s)
    finally:
        os.close(reader)
        status, peak_bytes = _reap(child)
    outcome, problem = _outcome(told, status) if in_time else _hang(told, order)
    return RunResult(
        probe=probe.name,
        units=order.units,
        cores=order.cores,
        outcome=outcome,
        problem=problem[:_LINE],
        use=None if outcome is Outcome.SUCCEEDED else told.use,
        repetitions=tuple(told.repetitions),
        steady_s=told.steady_s,
        started_ns=started_ns,
        start_s=told.start_s,
        warm_up_s=None if told.warm_up is None else told.warm_up.run_time_s,
        peak_memory_bytes=peak_bytes,
        versions=told.versions,
    )


def _be_child(probe: ProbeTask, order: Order, writer: int) -> NoReturn:
    """Run the kernels, tell of it, and end without returning."""
    try:
        with os.fdopen(writer, "wb", buffering=0) as pipe:
            _run_and_tell(probe, order, lambda event, content: _send(pipe, event, content))
    finally:
        os._exit(0)


def _send(pipe: RawIOBase, event: str, content: object) -> None:
    pipe.write(msgspec.json.encode([event, content]) + b"\n")


def _run_and_tell(probe: ProbeTask, order: Order, tell: Callable[[str, Any], None]) -> None:
    from controller.schedulers.probe.running.work import WrongValueError, versions, work  # noqa: PLC0415 - numpy

    try:
        tell("versions", versions())
        work(probe, order.repeat, order.at_least_s, tell)
        tell("done", None)
    except MemoryError as error:
        tell("failed", [Outcome.OUT_OF_MEMORY.value, str(error) or "no memory is left"])
    except WrongValueError as error:
        tell("failed", [Outcome.WRONG_VALUE.value, str(error)])
    except ProbeError as error:
        tell("failed", [Outcome.REFUSED.value, str(error)])
    except BaseException as error:  # noqa: BLE001 - whatever a kernel raises is what is told
        tell("failed", [Outcome.CRASH.value, f"{type(error).__name__}: {error}"])


def _listen(reader: int, told: _Told, started_s: float, deadline_s: float) -> bool:
    """Take in what the child tells until it ends; return False if it has had its time."""
    waiting, buffer = select.poll(), b""
    waiting.register(reader, select.POLLIN)
    while (left_s := started_s + deadline_s - time.monotonic()) > 0:
        if not waiting.poll(math.ceil(left_s * 1000)):
            continue
        if not (read := os.read(reader, _READ_BYTES)):
            return True
        *lines, buffer = (buffer + read).split(b"\n")
        for line in lines:
            _take_in(told, line, started_s)
    return False


def _take_in(told: _Told, line: bytes, started_s: float) -> None:
    event, content = msgspec.json.decode(line)
    match event:
        case "versions":
            told.versions = content
        case "preparing" | "use":
            told.use, told.is_preparing = content, event == "preparing"
        case "warm-up":
            told.warm_up = msgspec.convert(content, Repetition)
            told.start_s = time.monotonic() - started_s
        case "repetition":
            told.repetitions.append(msgspec.convert(content, Repetition))
        case "steady":
            told.steady_s = content
        case "failed":
            told.failed = Outcome(content[0]), content[1]
        case "done":
            told.is_done = True


def _reap(child: int) -> tuple[int, int]:
    """Kill the child if it still runs; return how it ended, and the most memory that it had in bytes."""
    os.kill(child, signal.SIGKILL)  # of one that has ended nothing is left to kill
    _, status, usage = os.wait4(child, 0)
    return status, usage.ru_maxrss * _KIB


def _outcome(told: _Told, status: int) -> tuple[Outcome, str]:
    """Return how a run went that ended by itself."""
    if told.failed is not None:
        return told.failed
    if told.is_done:
        return Outcome.SUCCEEDED, ""
    doing = _doing(told)
    if not os.WIFSIGNALED(status):
        return Outcome.CRASH, f"{doing}: the program ended with exit code {os.waitstatus_to_exitcode(status)}"
    number = os.WTERMSIG(status)
    if number == signal.SIGKILL:
        return Outcome.OUT_OF_MEMORY, f"{doing}: killed, as the system does where memory has run out"
    return Outcome.CRASH, f"{doing}: {signal.Signals(number).name} ({signal.strsignal(number)})"


def _hang(told: _Told, order: Order) -> tuple[Outcome, str]:
    return Outcome.HANG, f"{_doing(told)}: not done after {order.deadline_s:g} s"


def _doing(told: _Told) -> str:
    return "start" if told.use is None else f"{'making ready' if told.is_preparing else 'use'} {told.use}"
