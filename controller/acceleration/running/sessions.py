"""A client's session with a worker: a plan, tables, and jobs one after the other."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from controller.acceleration.running.channels import Channel, Limits, Message
from controller.acceleration.running.engines import backend_of
from controller.acceleration.running.errors import RunError
from controller.acceleration.running.jobs import MOST_SAMPLE_BYTES, Job, Order, send_sample
from controller.acceleration.running.switch_sums import SwitchOrder, added, keys_of, problem_of
from controller.acceleration.running.values import MOST_COPIES, Backend, Plan, Trial

_MOST_TRIAL_S: Final = 60.0
_FEWEST: Final = 3
_IDLE_S: Final = 600.0
"""Maximum idle time of a session."""
T = TypeVar("T")


class Host(Protocol):
    """The worker, as seen by its session."""

    secret: bytes
    limits: Limits
    threads: int

    def add(self, job: Job) -> None:
        """Accept results for a job from now on."""

    def drop(self, job: Job) -> None:
        """Stop accepting results for a job."""


class Session:
    """Serves one connection; only one has the worker at a time."""

    def __init__(self, host: Host, channel: Channel) -> None:
        self._host, self._channel = host, channel
        self._backend: Backend | None = None
        self._job: Job | None = None
        self._thread: threading.Thread | None = None
        self._is_busy = False
        self._nbytes: dict[str, int] = {}
        self._sharded, self._sums = "", 0

    def converse(self, opening: Message) -> None:
        """Serve until the session is closed; raise OSError if the other end is gone or idle for too long."""
        self.answer(lambda: self.open(opening))
        while True:
            message, table = self._channel.receive(_IDLE_S)
            if message.get("type") == "close":
                return
            self.handle(message, table)

    def open(self, message: Message) -> Message:
        """Set the plan of the session."""
        plan = _converted(message.get("plan"), Plan)
        limits = self._host.limits
        self._sharded, self._sums = plan.split.sharded, plan.split.sums
        self._backend = backend_of(plan, limits.most_held_bytes, self._host.threads)
        return {}

    def handle(self, message: Message, table: pa.Table | None) -> None:
        """Handle a message, and answer."""
        match message.get("type"):
            case "load":
                self.answer(lambda: self._load(str(message.get("name")), table))
            case "prepare":
                self.answer(lambda: self._prepare(_converted(message.get("order"), Order)))
            case "go":
                self._go()
            case "result":
                self._send_result()
            case "keys":
                self._send_keys()
            case "add":
                self.answer(lambda: self._add(_converted(message.get("order"), SwitchOrder), table))
            case "trial":
                self.answer(lambda: self._trial(message))
            case "sample":
                self.answer(lambda: self._sample(message))
            case other:
                self._refuse(f"unknown request {other!r}")

    def answer(self, function: Callable[[], Message]) -> None:
        """Run a function and report success, or why it failed."""
        try:
            answer = {"type": "done"} | function()
        except Exception as error:  # noqa: BLE001 - any library error is reported to the client
            answer = {"type": "refused", "problem": _line(error)}
        self._channel.send(answer)

    def close(self) -> None:
        """Stop the running job."""
        if self._job is not None:
            self._job.stop("the job's client is gone")
            self._host.drop(self._job)
        if self._thread is not None:
            self._thread.join()

    def _refuse(self, problem: str) -> None:
        self._channel.send({"type": "refused", "problem": problem})

    def _ready(self) -> Backend:
        if self._backend is None or self._is_busy:
            raise RunError("it is busy" if self._backend else "it has no plan")
        return self._backend

    def _load(self, name: str, table: pa.Table | None) -> Message:
        backend, limits = self._ready(), self._host.limits
        if table is None:
            raise RunError(f"table {name} is missing")
        self._nbytes[name] = table.nbytes
        total = sum(self._nbytes.values())
        if total > limits.most_held_bytes:
            raise RunError(f"tables of {total} bytes refused: at most {limits.most_held_bytes} held")
        backend.load(name, table)
        return {}

    def _prepare(self, order: Order) -> Message:
        backend = self._ready()
        if self._job is not None:
            self._host.drop(self._job)
        self._job = Job(order, backend, self._host.secret, self._host.limits)
        self._host.add(self._job)
        return {}

    def _go(self) -> None:
        """Run the job while listening to this connection, whose end stops the job."""
        try:
            self._ready()
            if self._job is None:
                raise RunError("no job is prepared")
        except RunError as error:
            self._refuse(str(error))
            return
        self._is_busy = True
        self._thread = threading.Thread(target=self._run, args=(self._job,), daemon=True)
        self._thread.start()

    def _run(self, job: Job) -> None:
        try:
            answer = {"type": "done", "times": dataclasses.asdict(job.run())}
        except Exception as error:  # noqa: BLE001 - any library error is reported to the client
            answer = {"type": "refused", "problem": _line(error)}
        self._is_busy = False  # before the answer, as the next request follows it
        with suppress(OSError):  # the client is gone
            self._channel.send(answer)

    def _send_result(self) -> None:
        try:
            self._ready()
            if self._job is None:
                raise RunError("it has no job")
            table = self._job.result()
        except Exception as error:  # noqa: BLE001 - any library error is reported to the client
            self._refuse(_line(error))
            return
        steps = [dataclasses.asdict(run) for run in self._job.step_runs()]
        self._channel.send({"type": "done", "steps": steps}, table)

    def _send_keys(self) -> None:
        """Send the groups of this worker's partial result, or why switches cannot add up its sums."""
        try:
            self._ready()
            partial, sums = self._held(), self._sums
            problem = problem_of(partial, sums)
            keys = keys_of(partial, sums)
        except Exception as error:  # noqa: BLE001 - any library error is reported to the client
            self._refuse(_line(error))
            return
        self._channel.send({"type": "done", "problem_of_sums": problem, "groups": partial.num_rows}, keys)

    def _add(self, order: SwitchOrder, keys: pa.Table | None) -> Message:
        """Have switches add up the sums of all workers; this one then holds them."""
        self._ready()
        partial = self._held()
        assert self._job is not None
        begun_s = time.perf_counter()
        self._job.replace_held(
            added(partial, self._sums, keys_of(partial, self._sums) if keys is None else keys, order)
        )
        return {"seconds": time.perf_counter() - begun_s}

    def _held(self) -> pa.Table:
        if self._job is None:
            raise RunError("it has no job")
        if not self._sums:
            raise RunError("the statement's partial results are no sums")
        return self._job.held

    def _trial(self, message: Message) -> Message:
        """Time the shard's step, and a merge of copies of its result, alone."""
        backend = self._ready()
        copies, at_least_s = int(message.get("copies", 2)), float(message.get("at_least_s", 0.0))
        if not (1 <= copies <= MOST_COPIES and 0 <= at_least_s <= _MOST_TRIAL_S):
            raise RunError(
                f"a trial of {copies} copies and {at_least_s} s: at most {MOST_COPIES} and {_MOST_TRIAL_S} s"
            )
        partial, compute_s, cpu_s = _timed(backend.partial, at_least_s)
        _, merge_s, _ = _timed(lambda: backend.merge([partial] * copies), at_least_s)
        own = self._nbytes.get(self._sharded, 0)
        trial = Trial(own, sum(self._nbytes.values()) - own, partial.nbytes, copies, compute_s, merge_s, cpu_s)
        return {"trial": dataclasses.asdict(trial)}

    def _sample(self, message: Message) -> Message:
        """Send a table of zeros to another worker to time both processors."""
        self._ready()
        nbytes = int(message.get("nbytes", 0))
        if not 0 <= nbytes <= MOST_SAMPLE_BYTES // 2:
            raise RunError(f"a sample of {nbytes} bytes: at most {MOST_SAMPLE_BYTES // 2}")
        table = pa.table({"zeros": np.zeros(nbytes, np.int8)})
        sample = send_sample(str(message.get("address")), self._host.secret, self._host.limits, table)
        return {"sample": dataclasses.asdict(sample)}


def _line(error: Exception) -> str:
    """Return an error as one line; with its type, if it is from a library."""
    text = (str(error).splitlines() or [""])[0]
    return text if isinstance(error, RunError) else f"{type(error).__name__}: {text}"


def _timed(function: Callable[[], pa.Table], at_least_s: float) -> tuple[pa.Table, float, float]:
    """Return the result and the means of its seconds and of the processor's, after a warm-up.

    The mean, over enough repetitions: under a CPU quota, one of several takes that much longer.
    """
    table, number = function(), 0
    begun_s, cpu_s = time.perf_counter(), time.process_time()
    while number < _FEWEST or time.perf_counter() - begun_s < at_least_s:
        table, number = function(), number + 1
    return table, (time.perf_counter() - begun_s) / number, (time.process_time() - cpu_s) / number


def _converted(value: object, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise RunError(f"invalid request: {error}") from None
