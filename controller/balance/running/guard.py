"""The guard of a unit's levers: a process of its own, which releases them when the loop is killed or hangs.

The loop sends it a byte each turn. Without one for `hold_s` nobody controls the unit: until then its levers are held,
then they stand where they were found, and what follows a pool's books goes to its low end, before the units are
somebody else's. A word at the end says that the loop has released them itself. SIGTERM, which a service manager sends
to what a killed daemon leaves, has them released at once.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from collectors.devices.nvml import open_nvml
from collectors.devices.root import Root
from controller.balance.errors import LeverError
from controller.balance.levers.making import local_levers
from controller.balance.levers.settings import LeverSettings
from controller.balance.levers.values import Lever
from controller.balance.values import LeverKind
from dataplane.config import Strict

_BEAT: Final = b"."
_END: Final = b"q"
_START_S: Final = 30.0
_END_S: Final = 5.0


class GuardOrder(Strict, frozen=True):
    """What a guard is told: the levers, after how long without a turn it acts, and where the machine's files are."""

    levers: LeverSettings
    hold_s: float
    root: str = "/"


class Guard:
    """A guard while the `with` block lasts; raises LeverError where it does not start, or has ended."""

    def __init__(self, order: GuardOrder) -> None:
        self._order = order

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "controller.balance.running.guard", msgspec.json.encode(self._order).decode()]
        # In a session of its own: what ends the loop's terminal does not end it.
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, bufsize=0
        )
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _START_S)
        if not ready or self._process.stdout.readline() != b"ready\n":
            self._stop()
            raise LeverError("guard", "the process that releases levers did not start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._send(_END)
        except LeverError:
            pass  # it is gone already
        finally:
            self._stop()

    def beat(self) -> None:
        """Say that the loop lives; raise LeverError where nobody hears it."""
        self._send(_BEAT)

    def _send(self, word: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(word)
        except OSError as error:
            raise LeverError("guard", f"the process that releases levers has ended: {error.strerror}") from error

    def _stop(self) -> None:
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def watch_over(order: GuardOrder, levers: list[Lever], beats: int, told: int) -> None:
    """Release the levers whenever `beats`, a file's number, says nothing for `hold_s`; return at its end.

    At once, and for good, where `told` can be read.
    """
    last_s, is_held, heard = time.monotonic(), False, [beats]
    while heard or is_held:
        left_s = max(last_s + order.hold_s - time.monotonic(), 0.0)
        ready, _, _ = select.select([*heard, told], [], [], left_s if is_held else None)
        if told in ready:
            release(order, levers)
            return
        if not ready:
            release(order, levers)
            is_held = False
            continue
        words = os.read(beats, 1 << 16)
        if _END in words:
            return
        if words:
            last_s, is_held = time.monotonic(), True
        else:
            heard = []  # it was killed: what it had is held until its time is over


def release(order: GuardOrder, levers: list[Lever]) -> None:
    """Have the levers stand where they were found, those that follow a pool at their low ends; say what fails."""
    for lever in levers:
        try:
            if order.levers.pool is not None and lever.kind is LeverKind.SUB_UNITS:
                standing = lever.read()
                lever.move(standing.low - standing.value)
            else:
                lever.release(always=True)
        except LeverError as error:
            sys.stderr.write(f"millrace balance guard: {error}\n")
        else:
            sys.stderr.write(f"millrace balance guard: nobody controls the unit: {lever.name} is released\n")


def main() -> None:
    """Watch over the levers of the order that stands on the command line, by what comes on stdin."""
    order = msgspec.json.decode(sys.argv[1], type=GuardOrder)
    told, tell = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(tell)
    signal.signal(signal.SIGTERM, lambda *_: None)  # the wake-up tells it
    needs_nvml = order.levers.gpu_clock is not None or order.levers.gpu_instances is not None
    with open_nvml() if needs_nvml else nullcontext("NVML is not asked") as nvml:
        levers, _ = local_levers(order.levers, Root(Path(order.root)), nvml)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        watch_over(order, levers, sys.stdin.fileno(), told)


if __name__ == "__main__":
    main()
