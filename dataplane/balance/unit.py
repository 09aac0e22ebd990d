"""A program's side of a balanced unit: offers its levers over a local socket, and follows the loop's orders.

A thread of its own connects to the loop of `millrace balance drive`, answers it, and connects again when it is gone.
Without an order for the time that the loop stated, precision and concurrency return to where the program began.
"""

from __future__ import annotations

import logging
import os
import socket
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from dataplane.balance.errors import UnitError
from dataplane.balance.messages import MOST_BYTES, PRECISIONS, Hello, Order, State, Welcome, decode, encode
from dataplane.balance.timing import BusyCounter
from dataplane.clock import NS_PER_S, Clock, MonotonicClock
from dataplane.rpc.own_folder import default_address, foreign_socket
from dataplane.rpc.peers import refusal_of_peer

LOGGER: Final = logging.getLogger("millrace.balance")
UNIT_VARIABLE: Final = "MILLRACE_UNIT"
SOCKET_VARIABLE: Final = "MILLRACE_UNIT_SOCKET"
_RETRY_S: Final = 1.0
_LOOK_S: Final = 0.25
"""Time between two looks at the end of the hold, or of the program."""
_WELCOME_S: Final = 30.0
"""Patience with a loop that is between two turns."""


def balanced_unit(
    name: str | None = None,
    *,
    precisions: Sequence[str] = ("fp32",),
    precision: str | None = None,
    concurrency: tuple[int, int] = (1, 1),
    at_once: int | None = None,
    path: str | None = None,
) -> BalancedUnit:
    """Return a unit whose precision and concurrency a loop sets while the `with` block lasts.

    `precisions` are those that the model offers; it begins with `precision`, by default the most exact. `concurrency`
    is the range of its streams, threads or batches in flight, which begin at `at_once`, by default the low end. `name`
    and `path` default to the variables MILLRACE_UNIT and MILLRACE_UNIT_SOCKET; the latter to the user's own folder.
    Raise UnitError for an offer that contradicts itself.
    """
    name = name or os.environ.get(UNIT_VARIABLE)
    if not name:
        raise UnitError(f"no unit is named, neither here nor by {UNIT_VARIABLE}")
    low, high = concurrency
    ordered = tuple(precisions)
    try:
        hello = Hello(
            unit=name,
            precisions=ordered,
            precision=precision or _most_exact(ordered),
            concurrency_low=low,
            concurrency_high=high,
            concurrency=low if at_once is None else at_once,
        )
        decode(encode(hello), Hello)  # bounds are checked on decoding
    except ValueError as error:
        raise UnitError(f"unit {name}: {error}") from error
    return BalancedUnit(hello, path or os.environ.get(SOCKET_VARIABLE))


class BalancedUnit:
    """A unit in a program: what to compute with now, and meters of what it does; usable from any thread."""

    def __init__(self, hello: Hello, path: str | None = None, *, clock: Clock | None = None) -> None:
        self._hello, self._path = hello, path
        self._clock: Clock = MonotonicClock() if clock is None else clock
        self._changed = threading.Condition()
        self._precision, self._concurrency, self._running = hello.precision, hello.concurrency, 0
        self._is_driven, self._hold_ns, self._ordered_ns = False, 0, 0
        self._refusal = ""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=f"unit {hello.unit}", daemon=True)
        self.moving, self.computing = BusyCounter(self._clock), BusyCounter(self._clock)
        """Meters of the bus and of the cores, to be entered with `with`."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._thread.join()

    @property
    def precision(self) -> str:
        """Precision of the next step."""
        return self._precision

    @property
    def concurrency(self) -> int:
        """Number of streams, threads or batches that may run at once."""
        return self._concurrency

    @property
    def is_driven(self) -> bool:
        """True while a loop sets the unit."""
        return self._is_driven

    @property
    def refusal(self) -> str:
        """Reason why no loop sets the unit, as far as known; empty otherwise."""
        return self._refusal

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Hold one of `concurrency` places while the block lasts; wait for one first."""
        with self._changed:
            self._changed.wait_for(lambda: self._running < self._concurrency)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def _set(self, precision: str, concurrency: int) -> None:
        with self._changed:
            self._precision, self._concurrency = precision, concurrency
            self._changed.notify_all()

    def _serve(self) -> None:
        while not self._closing.is_set():
            connection = self._connected()
            if connection is not None:
                with connection:
                    self._follow(connection)
                self._is_driven = False
            self._look_at_hold()
            self._closing.wait(_RETRY_S)

    def _connected(self) -> socket.socket | None:
        """Return a connection to the loop that has taken the offer; None, and why, if there is none."""
        address = self._path or default_address(f"unit-{self._hello.unit}").removeprefix("unix:")
        problem = _unsuitable(Path(address))
        if problem is None:
            try:
                connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            except OSError as error:  # a system without such sockets
                problem = str(error.strerror)
            else:
                problem = self._offer(connection, address)
                if problem is None:
                    self._refusal = ""
                    return connection
                connection.close()
        if problem != self._refusal:
            LOGGER.info("unit %s: %s: %s", self._hello.unit, address, problem)
        self._refusal = problem
        return None

    def _offer(self, connection: socket.socket, address: str) -> str | None:
        """Connect and offer the unit; return why that failed."""
        try:
            connection.settimeout(_LOOK_S)
            connection.connect(address)
            if (stranger := refusal_of_peer(connection)) is not None:
                return f"whoever listens is not trusted: {stranger}"
            connection.send(encode(self._hello))
            packet = self._received(connection, self._clock.now_ns() + round(_WELCOME_S * NS_PER_S))
            welcome = decode(packet, Welcome)
        except OSError as error:
            return str(error.strerror or error)
        except ValueError as error:
            return f"it sends no valid answer: {error}"
        if welcome.refusal:
            return welcome.refusal
        self._hold_ns, self._ordered_ns = round(welcome.hold_s * NS_PER_S), self._clock.now_ns()
        return None

    def _follow(self, connection: socket.socket) -> None:
        """Follow the loop's orders until it is gone, silent for too long, or the program ends."""
        self._is_driven = True
        try:
            while packet := self._received(connection, self._ordered_ns + self._hold_ns):
                order = decode(packet, Order)
                self._ordered_ns = self._clock.now_ns()
                connection.send(encode(self._answered(order)))
        except OSError:
            return  # the loop has ended
        except ValueError as error:
            LOGGER.warning("unit %s: invalid order: %s", self._hello.unit, error)

    def _received(self, connection: socket.socket, until_ns: int) -> bytes:
        """Return the next packet; nothing at the end of the connection, of the program, or of the time."""
        while not self._closing.is_set() and self._clock.now_ns() < until_ns:
            try:
                return connection.recv(MOST_BYTES + 1)
            except TimeoutError:
                continue
        return b""

    def _answered(self, order: Order) -> State:
        precision = order.precision or self._precision
        concurrency = order.concurrency or self._concurrency
        hello, refusal = self._hello, ""
        if precision not in hello.precisions:
            refusal = f"the program does not offer {precision}"
        elif not hello.concurrency_low <= concurrency <= hello.concurrency_high:
            refusal = f"the program runs {hello.concurrency_low} to {hello.concurrency_high} at once"
        else:
            self._set(precision, concurrency)
        now_ns = self._clock.now_ns()
        return State(
            number=order.number,
            precision=self._precision,
            concurrency=self._concurrency,
            now_ns=now_ns,
            moving_ns=self.moving.busy_ns(now_ns),
            computing_ns=self.computing.thread_ns(now_ns),
            refusal=refusal,
        )

    def _look_at_hold(self) -> None:
        """Return to the beginning if nothing has set the unit for as long as its settings hold."""
        hello = self._hello
        if self._hold_ns and self._clock.now_ns() - self._ordered_ns >= self._hold_ns:
            self._hold_ns = 0
            self._set(hello.precision, hello.concurrency)
            LOGGER.warning("unit %s: no order came in time: back to its own settings", hello.unit)


def _most_exact(precisions: tuple[str, ...]) -> str:
    return max(precisions, key=lambda name: PRECISIONS.index(name) if name in PRECISIONS else -1, default="")


def _unsuitable(path: Path) -> str | None:
    """Return why a socket should not be connected to; None if it may be."""
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        return "no loop runs" if isinstance(error, FileNotFoundError) else str(error.strerror)
    return foreign_socket(path) if stat.S_ISSOCK(mode) else "it is not a socket"
