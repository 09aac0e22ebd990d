"""Processes that share the work of kernels which do not use several cores by themselves: strong scaling.

The sizes that a kernel `splits` are divided over them; each prepares its part and runs it, on its own core. A
repetition ends when all have finished. Their outputs are combined only if something reads them.
"""

from __future__ import annotations

import os
import pickle
import resource
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

import numpy as np

from controller.probing.kernels.base import Mean, Value
from controller.probing.kernels.loading import prepare
from controller.probing.running.failing import FailedError, blamed, of_status
from controller.probing.running.parents import end_with_parent
from controller.probing.values import MOST_USES, KernelUse

Inputs = tuple[Value, ...]


class Ready:
    """A use in one process. `run` is timed; `settle` follows each run, and is not."""

    def __init__(self, use: KernelUse, sizes: Mapping[str, int], seed: int, *, is_read: bool) -> None:
        name = f"{use.kernel}.{use.version}"
        self._kernel = prepare(name, use.implementation, dict(sizes), seed)
        self._is_read = is_read
        self._inputs: Inputs = ()
        self._output: Any = None
        self._mean = Mean()

    def begin(self, inputs: Inputs) -> None:
        """Take the inputs of the repetitions to come."""
        self._inputs, self._mean = inputs, Mean()

    def run(self) -> None:
        """Run the kernel once."""
        self._output = self._kernel.run(self._inputs)

    def settle(self, *, is_checked: bool) -> float:
        """Add the last output to the mean, if somebody reads that; return its relative error, 0 if not checked."""
        if self._is_read:
            self._mean.add(self._output)
        return self._kernel.accuracy(self._output) if is_checked else 0.0

    def mean(self) -> Value:
        """Return the mean of all outputs since `begin`."""
        return self._mean.value

    def figures(self) -> dict[str, float]:
        """Return the kernel's other figures of its last run: bytes per second, hits, whatever it measures."""
        figures = getattr(self._kernel, "figures", None)
        return {} if figures is None else {str(name): float(value) for name, value in figures().items()}

    def end(self) -> None:
        """Drop the last output."""
        self._output = None

    def close(self) -> None:
        """Remove what the runs have left."""
        self._kernel.close()


_LENGTH: Final = struct.Struct("<Q")
_KIB: Final = 1024


def is_shared(use: KernelUse) -> bool:
    """Return whether a use's work can be divided over processes."""
    divided = use.splits.split()
    return bool(divided) and not use.implementation.threads and dict(use.sizes)[divided[0]] > 1


def sizes_of_part(use: KernelUse, part: int, parts: int) -> dict[str, int] | None:
    """Return the sizes of one part of a use's work, None if there are more parts than work."""
    sizes, divided = dict(use.sizes), use.splits.split()
    own = {name: sizes[name] // parts + (part < sizes[name] % parts) for name in divided}
    return sizes | own if own[divided[0]] else None


class Crew:
    """The other processes, one for each core but the first; forked before any data are made."""

    def __init__(self, uses: Mapping[str, KernelUse], cores: Sequence[int]) -> None:
        self.cores = tuple(cores)
        self._members = [_start(uses, part, self.cores) for part in range(1, len(self.cores))]

    def tell(self, command: str, *content: object) -> None:
        """Send all others a command; `answers` waits for them."""
        for _, _, writer in self._members:
            _send(writer, (command, *content))

    def answers(self) -> list[Any]:
        """Return all others' answers to the last command, in their order; raise FailedError for one that failed."""
        replies = []
        for pid, reader, _ in self._members:
            answer = _receive(reader)
            if answer is None:
                _, status = os.waitpid(pid, 0)
                raise of_status("a worker process", os.waitstatus_to_exitcode(status))
            if isinstance(answer, FailedError):
                raise answer
            replies.append(answer[0])
        return replies

    def peak_bytes(self) -> int:
        """Return the sum of each other process's peak memory."""
        self.tell("memory")
        return sum(self.answers())

    def close(self) -> None:
        """End the others, and wait for them."""
        for pid, reader, writer in reversed(self._members):
            os.close(writer)
            os.close(reader)
            os.waitpid(pid, 0)


class Shared(Ready):
    """A use whose parts run at the same time, the first of them in this process."""

    def __init__(self, use: KernelUse, seed: int, crew: Crew, *, is_read: bool) -> None:
        self._use, self._crew = use, crew
        crew.tell("prepare", use.name, seed, is_read)
        own = sizes_of_part(use, 0, len(crew.cores))
        super().__init__(use, own or dict(use.sizes), seed, is_read=is_read)
        crew.answers()

    def begin(self, inputs: Inputs) -> None:
        """Pass the inputs to the others; pin this process to its first core until `end`."""
        os.sched_setaffinity(0, self._crew.cores[:1])
        self._crew.tell("begin", self._use.name, inputs)
        super().begin(inputs)
        self._crew.answers()

    def run(self) -> None:
        """Run all parts once."""
        self._crew.tell("run", self._use.name)
        super().run()
        self._crew.answers()

    def settle(self, *, is_checked: bool) -> float:
        """Settle as for one process; the error is the worst of all parts."""
        self._crew.tell("settle", self._use.name, is_checked)
        own = super().settle(is_checked=is_checked)
        errors: list[float] = self._crew.answers()
        return max(own, *errors)

    def mean(self) -> Value:
        """Return the parts' means one after another; for numbers their mean."""
        self._crew.tell("mean", self._use.name)
        means = [super().mean(), *(value for value in self._crew.answers() if value is not None)]
        if all(isinstance(value, np.ndarray) for value in means):
            return np.concatenate([np.asarray(value) for value in means])
        return float(np.mean([np.mean(value) for value in means]))

    def end(self) -> None:
        """Drop the outputs, and use all cores again."""
        self._crew.tell("end", self._use.name)
        super().end()
        self._crew.answers()
        os.sched_setaffinity(0, self._crew.cores)


class _Member:
    """Work of another process; a use that is too small for all parts has none here."""

    def __init__(self, uses: Mapping[str, KernelUse], part: int, parts: int) -> None:
        self._uses, self._part, self._parts = uses, part, parts
        self._ready: dict[str, Ready | None] = {}

    def do(self, command: str, *content: Any) -> Any:  # noqa: ANN401 - as the commands are
        """Carry out a command of the first process and return the answer."""
        if command == "memory":
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
        name, *rest = content
        if command == "prepare":
            self._prepare(name, *rest)
            return None
        ready = self._ready[name]
        if command == "settle":
            return 0.0 if ready is None else ready.settle(is_checked=rest[0])
        return None if ready is None else getattr(ready, command)(*rest)

    def _prepare(self, name: str, seed: int, is_read: bool) -> None:
        use = self._uses[name]
        sizes = sizes_of_part(use, self._part, self._parts)
        # Its own data, which are the same for any run on this many cores.
        own_seed = seed + self._part * MOST_USES
        self._ready[name] = None if sizes is None else Ready(use, sizes, own_seed, is_read=is_read)

    def close(self) -> None:
        """Remove what the runs have left."""
        for ready in self._ready.values():
            if ready is not None:
                ready.close()


def _start(uses: Mapping[str, KernelUse], part: int, cores: Sequence[int]) -> tuple[int, int, int]:
    """Fork a process; return its id, and the ends of the pipes from and to it."""
    commands, writer = os.pipe()
    reader, answers = os.pipe()
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        os.close(writer)
        os.close(reader)
        _be_member(_Member(uses, part, len(cores)), cores[part], parent, (commands, answers))
    os.close(commands)
    os.close(answers)
    return pid, reader, writer


def _be_member(member: _Member, core: int, parent: int, ends: tuple[int, int]) -> NoReturn:
    """Carry out commands until there are none left; does not return."""
    try:
        end_with_parent(parent)
        os.sched_setaffinity(0, (core,))
        commands, answers = ends
        while (command := _receive(commands)) is not None:
            try:
                answer: object = (member.do(*command),)
            except BaseException as error:  # noqa: BLE001 - whatever a kernel raises is reported
                answer = blamed(error, is_preparing=command[0] == "prepare")
            _send(answers, answer)
        member.close()
    finally:
        os._exit(0)


def _send(writer: int, content: object) -> None:
    data = pickle.dumps(content, pickle.HIGHEST_PROTOCOL)
    left = memoryview(_LENGTH.pack(len(data)) + data)
    while left:
        left = left[os.write(writer, left) :]


def _receive(reader: int) -> Any:  # noqa: ANN401 - what our own processes send one another
    """Return the next message, None at the end."""
    if (head := _read(reader, _LENGTH.size)) is None:
        return None
    data = _read(reader, *_LENGTH.unpack(head))
    return None if data is None else pickle.loads(data)  # noqa: S301 - of our own fork


def _read(reader: int, count: int) -> bytes | None:
    parts = []
    while count:
        if not (part := os.read(reader, min(count, 1 << 20))):
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
