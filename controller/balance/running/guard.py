"""The guard of a unit's levers: a separate process that releases them if the loop is killed or hangs.

The loop sends it a message each turn. Without one for `hold_s` the unit is uncontrolled: until then its levers are
held, then they return to their original positions, and levers that follow a pool's books go to their low ends, before
the units are given away. The time for which units of a pool may be used counts from the service's last answer, not from
the last turn: the message states its end, and is sent before that answer moves anything. A final message says that the
loop has released the levers itself. SIGTERM, which a service manager sends to the remains of a killed daemon, releases
them at once.
"""

from __future__ import annotations

import os
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

import msgspec

from collectors.devices.nvml import open_nvml
from collectors.devices.root import Root
from controller.balance.errors import LeverError
from controller.balance.levers.making import local_levers
from controller.balance.levers.settings import LeverSettings
from controller.balance.levers.values import Lever
from controller.balance.values import LeverKind
from dataplane.clock import NS_PER_S, Clock, MonotonicClock
from dataplane.config import Strict
from dataplane.local.deadline import LocalDeadline, wait_for_exit, wait_readable

_WORD: Final = struct.Struct("<q")
"""Time until which units of a pool may be used, 0 without a pool; _END at the end."""
_END: Final = -1
_START_S: Final = 30.0
_END_S: Final = 5.0


class GuardOrder(Strict, frozen=True):
    """Orders of a guard: the levers, the time without a turn until it acts, and the root of the machine's files."""

    levers: LeverSettings
    hold_s: float
    root: str = "/"

    def is_of_pool(self, lever: Lever) -> bool:
        """Return whether a lever follows a pool's books."""
        return self.levers.pool is not None and lever.kind is LeverKind.SUB_UNITS


class Guard:
    """A guard while the `with` block lasts; raises LeverError if it does not start, or has ended."""

    def __init__(self, order: GuardOrder) -> None:
        self._order = order

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "controller.balance.running.guard", msgspec.json.encode(self._order).decode()]
        # In its own session, so that the end of the loop's terminal does not end it.
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, bufsize=0
        )
        assert self._process.stdout is not None
        deadline = LocalDeadline(_START_S, "the start of the guard process")
        if not wait_readable(self._process.stdout, deadline) or self._process.stdout.readline() != b"ready\n":
            self._stop()
            raise LeverError("guard", "the guard process did not start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._send(_END)
        except LeverError:
            pass  # it is already gone
        finally:
            self._stop()

    def beat(self, until_ns: int = 0) -> None:
        """Report that the loop lives, and until when on this machine's monotonic clock it may use units of its pool.

        Raise LeverError if the guard is gone.
        """
        self._send(until_ns)

    def _send(self, word: int) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(_WORD.pack(word))
        except OSError as error:
            raise LeverError("guard", f"the guard process has ended: {error.strerror}") from error

    def _stop(self) -> None:
        # If killed too early, it would leave levers in place.
        if not wait_for_exit(self._process, _END_S, "the guard process"):
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


@dataclass(slots=True)
class Heard:
    """Messages from the loop: its words, a request to release at once, and the end of all messages."""

    words: tuple[int, ...] = ()
    must_stop: bool = False
    is_closed: bool = False


class Ear(Protocol):
    """Receiver of the loop's messages."""

    def hear(self, left_s: float | None) -> Heard:
        """Wait for this long, None: indefinitely, and return what arrived."""
        ...


class _Pipes:
    """The loop's messages from one file descriptor, a signal from another."""

    def __init__(self, beats: int, stop: int) -> None:
        self._beats, self._stop, self._is_closed = beats, stop, False

    def hear(self, left_s: float | None) -> Heard:
        heard = [] if self._is_closed else [self._beats]
        ready, _, _ = select.select([*heard, self._stop], [], [], left_s)
        if self._stop in ready:
            return Heard(must_stop=True)
        if not ready:
            return Heard(is_closed=self._is_closed)
        data = os.read(self._beats, 1 << 16)  # whole words: short writes to a pipe are atomic
        self._is_closed = not data
        return Heard(tuple(word for (word,) in _WORD.iter_unpack(data)), is_closed=self._is_closed)


@dataclass(slots=True)
class Hold:
    """Times until which levers are held: all of them from the last turn, a pool's units from its last answer."""

    hold_ns: int
    turn_until_ns: int | None = None
    units_until_ns: int | None = None
    has_begun: bool = False
    _units_over_ns: int = 0

    def hear(self, until_ns: int, now_ns: int) -> None:
        """Take a message of the loop; an expired time stays expired until the service answers again."""
        self.has_begun, self.turn_until_ns = True, now_ns + self.hold_ns
        if until_ns > self._units_over_ns:
            self.units_until_ns = until_ns

    def close(self, now_ns: int) -> None:
        """Record that the loop is dead; what it moved after it had hung for long expires at once."""
        if self.has_begun and self.turn_until_ns is None:
            self.turn_until_ns = now_ns

    @property
    def next_ns(self) -> int | None:
        """Time of the next expiry; None if nothing is held."""
        return min((end for end in (self.turn_until_ns, self.units_until_ns) if end is not None), default=None)

    def is_turn_over(self, now_ns: int) -> bool:
        """Return, once, whether the unit has become uncontrolled."""
        if self.turn_until_ns is None or now_ns < self.turn_until_ns:
            return False
        self.turn_until_ns = None
        return True

    def are_units_over(self, now_ns: int) -> bool:
        """Return, once, whether the service has been silent for too long."""
        if self.units_until_ns is None or now_ns < self.units_until_ns:
            return False
        self._units_over_ns, self.units_until_ns = self.units_until_ns, None
        return True


def watch_over(order: GuardOrder, levers: list[Lever], ear: Ear, clock: Clock) -> None:
    """Release the levers whenever the loop is silent for `hold_s`, or its pool's units expire; return at its end.

    At once, and for good, when told to.
    """
    hold, heard = Hold(round(order.hold_s * NS_PER_S)), Heard()
    while not heard.is_closed or hold.next_ns is not None:
        next_ns, was_closed = hold.next_ns, heard.is_closed
        heard = ear.hear(None if next_ns is None else max(next_ns - clock.now_ns(), 0) / NS_PER_S)
        if heard.must_stop:
            release(order, levers)
            return
        if _END in heard.words:
            return
        now_ns = clock.now_ns()
        for word in heard.words:
            hold.hear(word, now_ns)
        if heard.is_closed and not was_closed:
            hold.close(now_ns)
        if hold.are_units_over(now_ns):
            lower_units(order, levers)
        if hold.is_turn_over(now_ns):
            release(order, levers)


def release(order: GuardOrder, levers: list[Lever]) -> None:
    """Restore the levers' original positions, those that follow a pool at their low ends; report failures."""
    for lever in levers:
        if order.is_of_pool(lever):
            _do(lever, "uncontrolled unit: released {}", _lower)
        else:
            _do(lever, "uncontrolled unit: released {}", lambda lever: lever.release(always=True))


def lower_units(order: GuardOrder, levers: list[Lever]) -> None:
    """Move levers that follow a pool's books to their low ends: its service may soon give the units away."""
    for lever in levers:
        if order.is_of_pool(lever):
            _do(lever, "no answer from the pool's service: lowered {}", _lower)


def _lower(lever: Lever) -> None:
    standing = lever.read()
    lever.move(standing.low - standing.value)


def _do(lever: Lever, what: str, act: Callable[[Lever], object]) -> None:
    """Apply an action to a lever, and report it, or why it failed."""
    try:
        act(lever)
    except LeverError as error:
        sys.stderr.write(f"millrace balance guard: {error}\n")
    else:
        sys.stderr.write(f"millrace balance guard: {what.format(lever.name)}\n")


def main() -> None:
    """Guard the levers of the order on the command line, by the messages on stdin."""
    order = msgspec.json.decode(sys.argv[1], type=GuardOrder)
    stop_reader, stop_writer = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(stop_writer)
    signal.signal(signal.SIGTERM, lambda *_: None)  # reported by the wake-up file descriptor
    of_devices = (order.levers.gpu_clock, order.levers.gpu_instances, order.levers.power_cap)
    needs_nvml = any(lever is not None for lever in of_devices)
    with open_nvml() if needs_nvml else nullcontext("NVML is not needed") as nvml:
        levers, _ = local_levers(order.levers, Root(Path(order.root)), nvml)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        watch_over(order, levers, _Pipes(sys.stdin.fileno(), stop_reader), MonotonicClock())


if __name__ == "__main__":
    main()
