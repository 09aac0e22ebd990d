"""One worker's part of a run: computes, receives its children's results, merges by round, and sends to its parent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from controller.acceleration.running.channels import Channel, Limits, Message, connect
from controller.acceleration.running.errors import RunError
from controller.acceleration.running.values import Backend, Sample, StepRun, WorkerTimes
from dataplane.config import Strict

_WAKE_S = 0.2
MOST_SAMPLE_BYTES = 64 << 20
"""Maximum size of a timing sample, including everything around its table."""


class Step(Strict, frozen=True):
    """One worker's part of a round: it receives results of these workers, or sends its own to the one at an address."""

    receive: tuple[str, ...] = ()
    send: str = ""
    address: str = ""


class Order(Strict, frozen=True):
    """A worker's part of a job; `name` is its own. The last step of a non-root worker sends."""

    job: str
    name: str
    steps: tuple[Step, ...]
    deadline_s: float


class Mailbox:
    """Results expected from children, from the preparation of the job; holds at most this many bytes."""

    def __init__(self, names: Sequence[str], most_bytes: int) -> None:
        self._due, self._most = set(names), most_bytes
        self._found: dict[str, pa.Table] = {}
        self._problem = ""
        self._changed = threading.Condition()

    @property
    def room_bytes(self) -> int:
        """Bytes that may still arrive."""
        with self._changed:
            return max(0, self._most - self._held_bytes())

    def expect(self, name: str) -> None:
        """Raise RunError unless this worker's result is due."""
        with self._changed:
            if name not in self._due:
                raise RunError(f"no result is due from worker {name}")

    def put(self, name: str, table: pa.Table) -> None:
        """Store a result; raise RunError if it is not due, is a duplicate, or exceeds the room."""
        with self._changed:
            held = self._held_bytes()
            if name not in self._due:
                raise RunError(f"no result is due from worker {name}")
            if held + table.nbytes > self._most:
                raise RunError(f"results of {held + table.nbytes} bytes refused: at most {self._most} held")
            self._due.remove(name)
            self._found[name] = table
            self._changed.notify_all()

    def stop(self, problem: str) -> None:
        """Make current and later waiters get RunError."""
        with self._changed:
            self._problem = self._problem or problem
            self._changed.notify_all()

    def _held_bytes(self) -> int:
        return sum(int(table.nbytes) for table in self._found.values())

    def take(self, names: Sequence[str], ends_s: float) -> list[pa.Table]:
        """Return the results of these workers, in this order; raise RunError after the deadline, or once stopped."""
        with self._changed:
            while not self._problem and not all(name in self._found for name in names):
                if time.monotonic() > ends_s:
                    missing = ", ".join(name for name in names if name not in self._found)
                    raise RunError(f"no result in time from worker {missing}")
                self._changed.wait(_WAKE_S)
            if self._problem:
                raise RunError(self._problem)
            return [self._found.pop(name) for name in names]


@dataclass(slots=True)
class _Stopwatch:
    """Seconds by activity."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("compute", "wait", "merge", "send"), 0.0))

    def timed(self, what: str, function: Callable[[], pa.Table]) -> pa.Table:
        begun_s = time.perf_counter()
        try:
            return function()
        finally:
            self.seconds[what] += time.perf_counter() - begun_s


class Job:
    """A prepared job of one worker; `run` once, `stop` from any thread."""

    def __init__(self, order: Order, backend: Backend, secret: bytes, limits: Limits) -> None:
        self.order, self._backend, self._secret, self._limits = order, backend, secret, limits
        due = [name for step in order.steps for name in step.receive]
        self.mailbox = Mailbox(due, limits.most_held_bytes)
        self._merged_table: pa.Table | None = None
        self._is_stopped = False

    def run(self) -> WorkerTimes:
        """Do this worker's part; the root keeps the merged result. Raise RunError on failure."""
        watch, ends_s = _Stopwatch(), time.monotonic() + self.order.deadline_s
        cpu_s = time.process_time()
        held = watch.timed("compute", self._backend.partial)
        own_bytes, sent_bytes = held.nbytes, 0
        for step in self.order.steps:
            if self._is_stopped:
                raise RunError("the job was stopped")
            if step.send:
                own, began_s = held, time.perf_counter()
                sent_bytes = self._send(step, own, ends_s)
                watch.seconds["send"] += time.perf_counter() - began_s
                held = None
                break
            held = self._merged(watch, held, step, ends_s)
        self._merged_table = held
        seconds, used_s = watch.seconds, time.process_time() - cpu_s
        return WorkerTimes(
            seconds["compute"],
            seconds["wait"],
            seconds["merge"],
            seconds["send"],
            used_s,
            own_bytes,
            sent_bytes,
            self._backend.step_runs(),
        )

    def result(self) -> pa.Table:
        """Return the root's result, in the order and with the columns of the statement."""
        return self._backend.finish(self.held)

    @property
    def held(self) -> pa.Table:
        """The worker's result after its part: without steps its own partial one."""
        if self._merged_table is None:
            raise RunError("it has no result")
        return self._merged_table

    def replace_held(self, table: pa.Table) -> None:
        """Hold the sums of all workers instead of this worker's own."""
        self._merged_table = table

    def step_runs(self) -> tuple[StepRun, ...]:
        """Return where this worker's steps ran that were planned for a device."""
        return self._backend.step_runs()

    def stop(self, problem: str) -> None:
        """Stop the job: waiting or computing calls get RunError."""
        self._is_stopped = True
        self.mailbox.stop(problem)
        self._backend.interrupt()

    def _merged(self, watch: _Stopwatch, held: pa.Table, step: Step, ends_s: float) -> pa.Table:
        began_s = time.perf_counter()
        parts = [held, *self.mailbox.take(step.receive, ends_s)]
        watch.seconds["wait"] += time.perf_counter() - began_s
        return watch.timed("merge", lambda: self._backend.merge(parts))

    def _send(self, step: Step, table: pa.Table, ends_s: float) -> int:
        """Send a result to the parent, and return its bytes once the parent has received it."""
        words = {"type": "part-of", "job": self.order.job, "from": self.order.name}
        parent = f"its parent {step.send} at {step.address}"
        try:
            with connect(step.address, self._secret, self._limits) as channel:
                channel.send(words)
                _expect(channel, "ready", ends_s)
                nbytes = channel.send({"type": "part"}, table)
                _expect(channel, "taken", ends_s)
        except OSError as error:
            raise RunError(f"{parent}: {error.strerror or error}") from None
        except RunError as error:
            raise RunError(f"{parent}: {error}") from None
        return nbytes


def send_sample(address: str, secret: bytes, limits: Limits, table: pa.Table) -> Sample:
    """Send a table to a worker to time both processors; RunError names the address."""
    ends_s = time.monotonic() + limits.silence_s
    begun_s = time.process_time()
    try:
        with connect(address, secret, limits) as channel:
            channel.send({"type": "sample"})
            _expect(channel, "ready", ends_s)
            nbytes = channel.send({"type": "part"}, table)
            taken = _expect(channel, "taken", ends_s)
    except OSError as error:
        raise RunError(f"worker {address}: {error.strerror or error}") from None
    return Sample(nbytes, time.process_time() - begun_s, float(taken.get("cpu_s", 0.0)))


def _expect(channel: Channel, word: str, ends_s: float) -> Message:
    answer, _ = channel.receive(max(0.0, ends_s - time.monotonic()))
    if answer.get("type") != word:
        raise RunError(str(answer.get("problem", "invalid answer")))
    return answer
