"""Precision and concurrency of a running program as levers, over a local socket (`dataplane.balance`).

The program connects, offers its range, and answers each order; messages are in dataplane/balance/messages.py. The
socket is this user's alone, or that of the one user whom settings name: it has mode 0600, lies in a folder of ours
unless settings name another, and the kernel says whose a peer is. Nothing here waits for a peer that is silent, except
for an answer to an order.
"""

from __future__ import annotations

import errno
import logging
import os
import pwd
import select
import socket
import stat
import struct
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from controller.balance.errors import LeverError
from controller.balance.levers.settings import ProgramLever
from controller.balance.levers.values import Moved, Standing, moved, refused
from controller.balance.rules.capacity import SPEEDS
from controller.balance.values import LeverKind, Precision
from dataplane.balance.messages import MOST_BYTES, VERSION, Hello, Order, State, Welcome, decode, encode
from dataplane.local.deadline import LocalDeadline
from dataplane.rpc.own_folder import own_folders, prepare
from dataplane.rpc.peers import refusal_of_peer

LOGGER: Final = logging.getLogger("millrace.balance")
_MOST_WAITING: Final = 8
"""Connections that have not said yet what they offer; beyond it, new ones are closed."""
_OFFER_S: Final = 5.0
_ANSWER_S: Final = 2.0
_READ_ONLY: Final = "its settings lack set: true"
_NONE: Final = "no program has connected"
_CREDENTIALS: Final = struct.Struct("iII")
_OWN_ONLY: Final = 0o600
_WRITABLE_BY_OTHERS: Final = 0o022
_ORDER: Final = tuple(Precision)


@dataclass(slots=True)
class _Waiting:
    """A connection without an offer yet."""

    connection: socket.socket
    deadline: LocalDeadline


@dataclass(slots=True)
class _Program:
    """The connected program."""

    connection: socket.socket
    hello: Hello
    process: int


class ProgramLink:
    """The socket of a unit and the program behind it, one at a time, while the `with` block lasts.

    `hold_s` is how long the program keeps its settings without an order. Raises LeverError if the socket cannot be
    made, or another loop listens there.
    """

    def __init__(self, unit: str, settings: ProgramLever, hold_s: float) -> None:
        self.unit, self._settings, self._hold_s = unit, settings, hold_s
        self.name = f"program of {unit}"
        folder = None if settings.socket is not None else own_folders()[0]
        if folder is not None and (why_not := prepare(folder)) is not None:
            raise LeverError(self.name, why_not)
        self.path = Path(settings.socket or f"{folder}/unit-{unit}.sock")
        if (why_not := _others_may_write(self.path.parent)) is not None:
            raise LeverError(self.name, why_not)
        self._others: Set[int] = frozenset() if settings.user is None else frozenset({self._uid(settings.user)})
        self._waiting: list[_Waiting] = []
        self._program: _Program | None = None
        self._number = 0

    def __enter__(self) -> Self:
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._bind()
        except OSError as error:
            self._listening.close()
            raise LeverError(self.name, f"{self.path}: {error.strerror or error}") from error
        except LeverError:
            self._listening.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.path.unlink(missing_ok=True)
        self._listening.close()
        self._drop()
        for waiting in self._waiting:
            waiting.connection.close()

    @property
    def hello(self) -> Hello | None:
        """Offer of the connected program; None without one."""
        self._look()
        return None if self._program is None else self._program.hello

    def ask(self, precision: str | None = None, concurrency: int | None = None) -> State:
        """Return the program's state after a change of what is given; raise LeverError without an answer."""
        self._look()
        if self._program is None:
            raise LeverError(self.name, _NONE)
        self._number += 1
        program, order = self._program, Order(number=self._number, precision=precision, concurrency=concurrency)
        problem = f"its process {program.process} has ended"
        try:
            program.connection.send(encode(order), socket.MSG_NOSIGNAL)
            state = self._answer(program)
        except OSError as error:
            if not isinstance(error, ConnectionError):
                problem = f"its process {program.process}: {error.strerror}"
        except ValueError as error:
            problem = f"its process {program.process} sends an invalid state: {error}"
        else:
            if state is not None:
                return state
        self._drop()
        raise LeverError(self.name, problem)

    def _answer(self, program: _Program) -> State | None:
        """Return the answer to the last order, None at the end of the connection; raise LeverError after the wait."""
        deadline, polling = LocalDeadline(_ANSWER_S, f"unit {self.unit}: the program's answer"), select.poll()
        polling.register(program.connection, select.POLLIN)
        while True:
            if not polling.poll(deadline.step_s * 1000):
                if deadline.has_passed():
                    raise LeverError(self.name, f"its process {program.process} does not answer")
                continue
            if not (packet := program.connection.recv(MOST_BYTES + 1)):
                return None
            state = decode(packet, State)
            if state.number == self._number:  # others answer orders for which nobody waits any more
                return self._within(state, program.hello)

    @staticmethod
    def _within(state: State, hello: Hello) -> State:
        if state.precision not in hello.precisions:
            raise ValueError(f"precision {state.precision} was not offered")
        if not hello.concurrency_low <= state.concurrency <= hello.concurrency_high:
            raise ValueError(f"concurrency {state.concurrency} was not offered")
        return state

    def _look(self) -> None:
        """Take in what has happened at the socket, without waiting."""
        if self._program is not None and _has_ended(self._program.connection):
            LOGGER.warning("unit %s: process %d has ended", self.unit, self._program.process)
            self._drop()
        self._accept()
        for waiting in list(self._waiting):
            try:
                packet = waiting.connection.recv(MOST_BYTES + 1, socket.MSG_DONTWAIT)
            except BlockingIOError:
                if not waiting.deadline.has_passed():
                    continue
                packet = b""
            except OSError:
                packet = b""
            self._waiting.remove(waiting)
            self._meet(waiting.connection, packet)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                LOGGER.warning("unit %s: %s", self.unit, error.strerror)
                return
            problem = refusal_of_peer(connection, self._others)
            if problem is None and len(self._waiting) >= _MOST_WAITING:
                problem = "too many connections wait"
            if problem is not None:
                LOGGER.warning("unit %s: refused a program: %s", self.unit, problem)
                connection.close()
                continue
            connection.setblocking(False)
            self._waiting.append(_Waiting(connection, LocalDeadline(_OFFER_S, f"unit {self.unit}: a program's offer")))

    def _meet(self, connection: socket.socket, packet: bytes) -> None:
        """Take a program by its offer, or refuse it."""
        refusal = "no offer came in time"
        try:
            hello = decode(packet, Hello)
            if hello.version != VERSION:
                refusal = f"version {hello.version} of the messages, not {VERSION}"
            elif hello.unit != self.unit:
                refusal = f"this is unit {self.unit}, not {hello.unit}"
            elif self._program is not None:
                refusal = f"unit {self.unit} has a program already (process {self._program.process})"
            else:
                refusal = ""
        except ValueError as error:
            refusal = str(error)[:500] if packet else refusal
        try:
            connection.send(encode(Welcome(hold_s=self._hold_s, refusal=refusal)), socket.MSG_NOSIGNAL)
        except OSError as error:
            refusal = refusal or str(error.strerror)
        if refusal:
            LOGGER.warning("unit %s: refused a program: %s", self.unit, refusal)
            connection.close()
            return
        process, _, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        LOGGER.info("unit %s: process %d offers %s", self.unit, process, ", ".join(hello.precisions))
        self._program = _Program(connection, hello, process)

    def _drop(self) -> None:
        if self._program is not None:
            self._program.connection.close()
            self._program = None

    def _bind(self) -> None:
        os.fchmod(self._listening.fileno(), _OWN_ONLY)  # before it has a name: nobody else can connect in between
        try:
            self._listening.bind(str(self.path))
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not self._is_left_over():
                raise
            self.path.unlink()
            self._listening.bind(str(self.path))
        for user in self._others:
            os.chown(self.path, user, -1, follow_symlinks=False)
        self._listening.listen(_MOST_WAITING)
        self._listening.setblocking(False)

    def _is_left_over(self) -> bool:
        """Return whether the path is a socket of a killed loop; raise LeverError if a loop listens there."""
        status = self.path.lstat()
        if not stat.S_ISSOCK(status.st_mode) or status.st_uid not in {os.geteuid(), *self._others}:
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probing:
            probing.setblocking(False)
            try:
                probing.connect(str(self.path))
            except ConnectionRefusedError:
                return True
            except BlockingIOError:
                pass  # its queue is full
        raise LeverError(self.name, f"another loop listens at {self.path}")

    def _uid(self, user: str) -> int:
        try:
            return pwd.getpwnam(user).pw_uid
        except KeyError:
            raise LeverError(self.name, f"no user {user}") from None


def _others_may_write(folder: Path) -> str | None:
    """Return why a folder is no place for a socket: somebody could put a file there in its place; None if it is."""
    try:
        status = folder.stat()
    except OSError as error:
        return f"{folder}: {error.strerror}"
    if status.st_uid in {os.geteuid(), 0} and not status.st_mode & _WRITABLE_BY_OTHERS:
        return None
    return f"others may write to {folder}: the socket needs a folder of this user or root, with mode 755 or less"


def _has_ended(connection: socket.socket) -> bool:
    """Return whether the other side has closed; late answers are dropped on the way."""
    try:
        while connection.recv(MOST_BYTES + 1, socket.MSG_DONTWAIT):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


class ProgramPrecision:
    """Precision of a running program: a step is the next one that it offers, of those that differ in speed.

    Of precisions of the same speed, such as bf16 and fp16, the lever uses the one that the program names first, and the
    one with which it began.
    """

    def __init__(self, link: ProgramLink, *, may_set: bool = False) -> None:
        self.kind, self.name = LeverKind.PRECISION, f"precision of the {link.name}"
        self._link, self._may_set, self._has_moved = link, may_set, False
        self._allowed: tuple[Precision, ...] = (Precision.FP32,)

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """Precision of each of its positions; those of the last program if there is none."""
        return self._allowed

    def read(self) -> Standing:
        """Return the index of the current precision among the offered ones, fastest first."""
        if (hello := self._link.hello) is None:
            at = self._allowed.index(self._allowed[-1])
            return Standing(at, at, at, may_set=False, why_not=_NONE)
        state = self._link.ask()
        self._allowed = _distinct(hello, state.precision)
        at = self._allowed.index(Precision(state.precision))
        why_not = "" if self._may_set else _READ_ONLY
        return Standing(at, 0, len(self._allowed) - 1, may_set=self._may_set, why_not=why_not)

    def move(self, by: float) -> Moved:
        """Raise (lower) the precision by this many steps, from the program's next step on."""
        standing = self.read()
        if (nothing := refused(standing, by)) is not None:
            return nothing
        target = round(standing.place(standing.value + by))
        if target == standing.value:
            return moved(standing, by, target)
        state = self._link.ask(precision=self._allowed[target].value)
        if state.refusal:
            return Moved(0.0, by, state.refusal)
        self._has_moved = True
        return moved(standing, by, self._allowed.index(Precision(state.precision)))

    def release(self, *, always: bool = False) -> None:
        """Restore the precision with which the program began, if this lever ever moved it."""
        hello = self._link.hello
        if hello is not None and self._may_set and (self._has_moved or always):
            self._link.ask(precision=hello.precision)
        self._has_moved = False


class ProgramConcurrency:
    """Concurrency of a running program: its streams, worker threads or batches in flight."""

    def __init__(self, link: ProgramLink, *, may_set: bool = False) -> None:
        self.kind, self.name = LeverKind.CONCURRENCY, f"concurrency of the {link.name}"
        self._link, self._may_set, self._has_moved = link, may_set, False
        self._last = 1

    def read(self) -> Standing:
        """Return how many run at once, and the program's range."""
        if (hello := self._link.hello) is None:
            return Standing(self._last, self._last, self._last, may_set=False, why_not=_NONE)
        self._last = self._link.ask().concurrency
        why_not = "" if self._may_set else _READ_ONLY
        return Standing(
            self._last, hello.concurrency_low, hello.concurrency_high, may_set=self._may_set, why_not=why_not
        )

    def move(self, by: float) -> Moved:
        """Run this many more (fewer) at once, from the program's next step on."""
        standing = self.read()
        if (nothing := refused(standing, by)) is not None:
            return nothing
        target = round(standing.place(standing.value + by))
        if target == standing.value:
            return moved(standing, by, target)
        state = self._link.ask(concurrency=target)
        if state.refusal:
            return Moved(0.0, by, state.refusal)
        self._has_moved = True
        return moved(standing, by, state.concurrency)

    def release(self, *, always: bool = False) -> None:
        """Restore the number with which the program began, if this lever ever moved it."""
        hello = self._link.hello
        if hello is not None and self._may_set and (self._has_moved or always):
            self._link.ask(concurrency=hello.concurrency)
        self._has_moved = False


def _distinct(hello: Hello, now: str) -> tuple[Precision, ...]:
    """Return the offered precisions, fastest first, one for each speed: a step without an effect would only stall."""
    by_speed: dict[float, Precision] = {}
    for name in (now, hello.precision, *hello.precisions):
        precision = Precision(name)
        by_speed.setdefault(SPEEDS[precision], precision)
    return tuple(sorted(by_speed.values(), key=_ORDER.index))
