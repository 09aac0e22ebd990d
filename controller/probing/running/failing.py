"""Failures of a run, and who is to blame: every failure becomes an outcome and one line."""

from __future__ import annotations

import signal

from controller.probing.errors import ProbeError, ProbeKernelError, ProbeMemoryError
from controller.probing.running.report import Outcome


class FailedError(ProbeError):
    """A run has ended early; `outcome` says how."""

    def __init__(self, outcome: Outcome, problem: str) -> None:
        self.outcome = outcome
        super().__init__(problem)

    def __reduce__(self) -> tuple[type[FailedError], tuple[Outcome, str]]:
        """Pass through a pipe unchanged."""
        return FailedError, (self.outcome, self.problem)


def blamed(error: BaseException, *, is_preparing: bool) -> FailedError:
    """Return the outcome of a run that raised this: failed preparation is refused, later failures are crashes."""
    text = str(error).strip().splitlines()
    message = text[0] if text else ""
    match error:
        case FailedError():
            return error
        case MemoryError():
            return FailedError(Outcome.OUT_OF_MEMORY, message or "out of memory")
        case ProbeMemoryError():
            return FailedError(Outcome.OUT_OF_MEMORY, message)
        case ProbeKernelError() if not is_preparing:
            return FailedError(Outcome.CRASH, message)
        case ProbeError():
            return FailedError(Outcome.REFUSED, message)
    kind = type(error).__name__
    return FailedError(Outcome.CRASH, f"{kind}: {message}" if message else kind)


def of_status(doing: str, status: int) -> FailedError:
    """Return the outcome of a run whose process ended early with this status of `os.waitpid`."""
    if status >= 0:
        return FailedError(Outcome.CRASH, f"{doing}: the program exited with code {status}")
    if -status == signal.SIGKILL:
        return FailedError(Outcome.OUT_OF_MEMORY, f"{doing}: killed, probably for lack of memory")
    name = signal.strsignal(-status) or "unknown signal"
    return FailedError(Outcome.CRASH, f"{doing}: {_name_of(-status)} ({name})")


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
