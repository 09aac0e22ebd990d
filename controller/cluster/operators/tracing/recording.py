"""Recording of a running program's computation: operators folded as they come, and the writers of memory."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from controller.cluster.operators.tracing.places import Place
from controller.cluster.operators.tracing.values import Described

MOST_OPERATORS: Final = 4096
"""Limit of distinct operators in a graph; a program with more keeps changing its shapes."""
_NOTICEABLE: Final = 0.02
_NOTICEABLE_S: Final = 1e-4
_OFTEN: Final = 100
_MOST_NUMBERS: Final = 4096
"""Limit of single numbers (results of sums) tracked by identity."""


_MOST_WRITERS: Final = 16
"""Limit of operators that wrote parts of one array; beyond that only the last ones are known."""


class Buffer(NamedTuple):
    """Memory read or written: start of the whole, bytes touched, owning object; `is_part`: not all of it."""

    key: int
    nbytes: int
    owner: object | None
    is_part: bool = False


@dataclass(slots=True, eq=False)
class Folded:
    """An operator: all executions of one signature at one place."""

    index: int
    kind: str
    shape: tuple[tuple[str, int], ...]
    what: Described
    place: Place
    library: str
    code: str = ""
    executions: int = 0
    seconds: float = 0.0
    reads: dict[int, int] = field(default_factory=dict)
    outside_bytes: int = 0
    unread_bytes: int = 0

    @property
    def repeats(self) -> bool:
        """True if its code has a loop, or calls itself."""
        return any(f"({word} " in self.code for word in ("loop", "while", "self"))


class _Owner(weakref.ref[object]):
    """Weak reference to the object that owns written memory."""

    __slots__ = ("key",)
    key: int


@dataclass(slots=True, eq=False)
class _Written:
    by: Folded
    nbytes: int
    is_read: bool = False
    owner: _Owner | None = None


class Recorder:
    """Collects the operators of one program; thread-safe."""

    def __init__(self) -> None:
        self.operators: dict[object, Folded] = {}
        self.problems: dict[str, int] = {}
        self.overhead_s = 0.0
        self.pid = os.getpid()
        self._written: dict[int, list[_Written]] = {}
        # Owners that are gone, until the next record. The callback is a deque's method, not Python code, which would
        # run in the middle of the program and swallow the exception that stops it at its deadline.
        self._gone: deque[weakref.ref[object]] = deque()
        self._numbers: deque[object] = deque(maxlen=_MOST_NUMBERS)
        self._lock = threading.RLock()
        self._local = threading.local()

    @property
    def is_listening(self) -> bool:
        """True if this thread is outside all operators, in the traced process."""
        return not getattr(self._local, "depth", 0) and os.getpid() == self.pid

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Count everything in the block as part of one operator."""
        self._local.depth = getattr(self._local, "depth", 0) + 1
        try:
            yield
        finally:
            self._local.depth -= 1

    def passed(self, seconds: float, overhead_s: float) -> None:
        """Record the time of an operator and of the tracer itself; neither counts towards the calling function."""
        self.overhead_s += overhead_s
        if calls := self.calls:
            calls[-1].elsewhere_s += seconds + overhead_s
            calls[-1].operators += 1

    def imported(self, seconds: float) -> None:
        """Record the running function's wait for an import."""
        if calls := self.calls:
            calls[-1].elsewhere_s += seconds

    @property
    def calls(self) -> list[Any]:
        """The program's own calls that are running in this thread, the innermost last."""
        try:
            running: list[Any] = self._local.calls
        except AttributeError:
            running = self._local.calls = []
        return running

    def changed(self, array: object) -> None:
        """Record that the running function writes single elements of an array."""
        if calls := self.calls:
            calls[-1].changed[id(array)] = array

    def is_known(self, buffer: Buffer) -> bool:
        """Return whether an operator has written that memory."""
        with self._lock:
            self._forget_gone()
            return buffer.key in self._written

    def problem(self, text: str) -> None:
        """Record a message for people; repetitions are only counted."""
        with self._lock:
            self.problems[text] = self.problems.get(text, 0) + 1

    def record(
        self,
        described: Described,
        reads: Iterable[Buffer],
        writes: Iterable[Buffer],
        seconds: float,
        place: Place,
        *,
        library: str,
        code: str = "",
    ) -> None:
        """Record an executed operator."""
        with self._lock:
            operator = self._operator(described, place, library, code)
            if operator is None:
                return
            operator.executions += described.count
            operator.seconds += seconds
            self._forget_gone()
            self._note_reads(operator, reads)
            for buffer in writes:
                self._write(buffer, operator)

    def pass_on(self, reads: Iterable[Buffer], writes: Iterable[Buffer]) -> None:
        """Record that data was passed on unchanged: its readers depend on the original writers."""
        with self._lock:
            self._forget_gone()
            sources = [written for read in reads for written in self._written.get(read.key, ())]
            for source in sources:
                source.is_read = True
            for buffer in writes:
                if not buffer.is_part:
                    self._forget(buffer.key)
                for by in {source.by.index: source.by for source in sources}.values():
                    self._write(buffer._replace(is_part=True), by)

    def keep(self, number: object) -> Buffer:
        """Return the identity of a single number, and keep it alive so that the identity is not reused."""
        self._numbers.append(number)
        return Buffer(-id(number), getattr(number, "nbytes", 8), None)

    def finish(self, run_time_s: float) -> tuple[Folded, ...]:
        """Return the operators, in order of their first execution, and end the recording.

        The program's own functions count as operators if they compute for a noticeable part of the run time, in loops
        or by being called often; others wait, or combine operators.
        """
        least_s = max(_NOTICEABLE * run_time_s, _NOTICEABLE_S)
        with self._lock:
            for key in tuple(self._written):
                self._forget(key)
            return tuple(
                operator
                for operator in self.operators.values()
                if operator.library != "python"
                or (operator.seconds >= least_s and (operator.executions >= _OFTEN or operator.repeats))
            )

    def _operator(self, described: Described, place: Place, library: str, code: str) -> Folded | None:
        key = (described.kind, described.shape, described.number_format, place.user, place.inner, code)
        if (operator := self.operators.get(key)) is not None:
            return operator
        if len(self.operators) == MOST_OPERATORS:
            self.problem(f"more than {MOST_OPERATORS} different operators: later ones are left out")
            return None
        operator = Folded(len(self.operators), described.kind, described.shape, described, place, library, code)
        self.operators[key] = operator
        return operator

    def _note_reads(self, operator: Folded, reads: Iterable[Buffer]) -> None:
        for key, nbytes in {read.key: read.nbytes for read in reads}.items():
            if not (writers := self._written.get(key)):
                operator.outside_bytes += nbytes if key > 0 else 0
                continue
            for written in writers:
                written.is_read = True
                index = written.by.index
                operator.reads[index] = operator.reads.get(index, 0) + min(nbytes, written.nbytes)

    def _write(self, buffer: Buffer, operator: Folded) -> None:
        if buffer.nbytes == 0:
            return
        if not buffer.is_part:
            self._forget(buffer.key)
        writers = self._written.setdefault(buffer.key, [])
        for written in writers:
            if written.by is operator:
                written.nbytes += buffer.nbytes
                return
        if len(writers) == _MOST_WRITERS:
            self._release(writers.pop(0))
        writers.append(_Written(operator, buffer.nbytes, owner=self._owner(buffer)))

    def _owner(self, buffer: Buffer) -> _Owner | None:
        if buffer.owner is None:
            return None
        owner = _Owner(buffer.owner, self._gone.append)
        owner.key = buffer.key
        return owner

    def _forget_gone(self) -> None:
        """Forget freed memory: another array may have it by now."""
        while self._gone:
            owner = self._gone.popleft()
            assert isinstance(owner, _Owner)
            if any(written.owner is owner for written in self._written.get(owner.key, ())):
                self._forget(owner.key)

    def _forget(self, key: int) -> None:
        for written in self._written.pop(key, ()):
            self._release(written)

    @staticmethod
    def _release(written: _Written) -> None:
        if not written.is_read:
            written.by.unread_bytes += written.nbytes
