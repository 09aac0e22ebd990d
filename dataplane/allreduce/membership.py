"""A worker's membership in a job: it meets the others by the job's name and follows the job's state.

with Membership.join("10.9.0.1:9560", job="resnet", host="h1", workers=4) as membership:
    sums = membership.reducer.all_reduce(gradients).result()
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from dataplane.allreduce.barriers import AllReduceBarrier, Barrier, RoundBarrier, ServerBarrier
from dataplane.allreduce.client import AllReducer
from dataplane.allreduce.engine import EngineSettings, TransportName, rings_of
from dataplane.allreduce.errors import JobRefusedError, RemovedError
from dataplane.allreduce.job_engine import JobEngine, Values
from dataplane.allreduce.jobs.codec import decode_downward
from dataplane.allreduce.jobs.connection import ServiceConnection
from dataplane.allreduce.jobs.convergence import Convergence
from dataplane.allreduce.jobs.messages import (
    Admitted,
    Arrived,
    Completed,
    Finished,
    Hello,
    Leave,
    Upward,
)
from dataplane.allreduce.membership_state import (
    Begin,
    Command,
    EnterBarrier,
    Fail,
    MembershipState,
    ReportWhenComplete,
    Resume,
    RunUntil,
    SetEpoch,
    describe_members,
)
from dataplane.allreduce.transfers import flattened
from dataplane.allreduce.transports import free_udp_port
from dataplane.clock import NS_PER_S
from dataplane.closing import Closing
from dataplane.errors import AllReduceError
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.channels import uncallable

LOGGER = logging.getLogger("millrace.allreduce")

MakeEngine = Callable[[EngineSettings], JobEngine]

_MARGIN_S: Final = 5.0
"""Extra hold time beyond the service's limit; the worker then continues, and fails after as long again."""
_CREATE_S: Final = 30.0
"""Maximum time for the switches to set up a job whose workers have come."""
_LEAVE_S: Final = 2.0
"""Maximum time for a farewell when no worker needs anything any more."""
_CALM_S: Final = 0.1
"""Wait before a leaving worker starts to resend what others may lack."""
_OFFER_S: Final = 0.01
"""Interval between small batches of that."""


class Membership(Closing):
    """A worker of a job, from `join` to `close`; its threads talk to the service."""

    def __init__(self, address: str, hello: Hello, make: MakeEngine, tls: TlsSettings | None) -> None:
        """Use `join`."""
        self._address, self._hello, self._make = address, hello, make
        self._state = MembershipState()
        self._changed = threading.Condition()
        self._commanding = threading.RLock()
        self._engine: JobEngine | None = None
        self._barrier: Barrier | None = None
        self._newcomers: tuple[str, ...] = ()
        self._members_before: tuple[str, ...] = ()
        self._failure: AllReduceError | None = None
        self._patience_s = _LEAVE_S
        self._held_until_s: float | None = None
        self._is_closing = self._is_closed = False
        self._leaves_before: int | None = None
        self._connection = ServiceConnection(
            address,
            hello.job,
            tls,
            greet=self._greeting,
            take=self._take,
            idle=self._resume_if_overdue,
            is_over=self._is_finished_within,
        )
        self._thread = threading.Thread(target=self._run, name=f"millrace-member-{hello.host}", daemon=True)

    @classmethod
    def join(
        cls,
        address: str,
        *,
        job: str,
        host: str,
        workers: int,
        deadline_s: float = 60.0,
        window: int | None = None,
        capacity: int | None = None,
        boundaries: bool = False,
        server: tuple[str, int] | str | None = None,
        is_main_server: bool = False,
        convergence: Convergence | None = None,
        local_address: str = "",
        patience_s: float | None = None,
        tls: TlsSettings | None = None,
        make: MakeEngine = AllReducer,
        transport: TransportName = "udp",
    ) -> Self:
        """Meet the other workers of a job at its service, and return once the switches add up for them.

        `address` may be several, separated by commas, of a pair of controllers. `host` is this machine's name in the
        topology. The first `workers` form the job; later ones join it between two
        all-reduces, or with `boundaries` only where all call `boundary`. `window` and `capacity` are the service's
        choice if left out; so is `patience_s`, the time without a result after which an all-reduce fails: longer than
        it takes to drop a worker that has died. `server`, a host and its UDP port, gets final sums: see `for_server`;
        a host alone is a main server that joins the job as well (`MainServer.join`, which is `is_main_server` here).
        `convergence` must be the same at all workers.
        `local_address` is where results arrive, if the machine has several addresses. `make` returns the engine:
        without its own thread, a JobEngine. `transport` carries the packets: "auto" is queues that this node's
        manager grants, else UDP. `tls` has the certificate of a worker of this host, for HOST:PORT beyond
        loopback; None: the environment's. Raises JobRefusedError, with the reason that all workers get, AllReduceError
        when no answer comes in time, ConfigError or AccessError for unusable certificates.
        """
        for each in address.split(","):
            problem = uncallable(each, tls)
            if problem is not None:
                raise AllReduceError(f"job service at {each!r}: {problem}")
        server = (server, 0) if isinstance(server, str) else server
        port = free_udp_port(local_address, server[1] if is_main_server and server is not None else 0)
        deadline_ns = int(deadline_s * NS_PER_S)
        token = secrets.token_hex(8)
        asked = None if is_main_server else server
        hello = Hello(job, host, token, workers, port, deadline_ns, window, capacity, boundaries, None, asked)
        terms = None if convergence is None else (convergence.measure, convergence.below, convergence.steps)
        hello = replace(hello, is_main_server=is_main_server, convergence=terms)

        def with_choices(settings: EngineSettings) -> JobEngine:
            patience = settings.patience_s if patience_s is None else patience_s
            rings = rings_of(transport, job)
            return make(replace(settings, local=(local_address, port), patience_s=patience, rings=rings))

        membership = cls(address, hello, with_choices, tls)
        membership._start(deadline_s)
        return membership

    @property
    def engine(self) -> JobEngine:
        """Return the engine; the membership holds it, releases it, and fails it when the job has ended."""
        if self._engine is None:
            raise self._failure or AllReduceError(f"job {self._hello.job}: {self._hello.host} is not admitted")
        return self._engine

    @property
    def reducer(self) -> AllReducer:
        """Return the engine, if it was made with its own thread, which is the default."""
        engine = self.engine
        if not isinstance(engine, AllReducer):
            raise AllReduceError(f"job {self._hello.job}: its engine has no thread")
        return engine

    @property
    def job(self) -> str:
        """Return the job's name."""
        return self._hello.job

    @property
    def members(self) -> tuple[str, ...]:
        """Return the hosts of the job's members."""
        return self._state.members

    @property
    def epoch(self) -> int:
        """Return the epoch of the service's last view."""
        return self._admitted.epoch

    @property
    def number(self) -> int:
        """Return the job's number in the switches."""
        return self._admitted.number

    @property
    def identity(self) -> str:
        """Return what this job has in common with no other, ended ones included; the same at all members."""
        nonce = self._admitted.nonce.to_bytes(8, "big")
        return f"{self.number}-{hashlib.sha256(nonce).hexdigest()[:16]}"

    @property
    def first_count(self) -> int:
        """Return how many all-reduces (or rounds) the others had done when this worker joined; 0 for founders."""
        return self._admitted.first_count

    @property
    def failure(self) -> AllReduceError | None:
        """Return why this worker has no job any more, or None."""
        return self._failure

    def boundary(self) -> bool:
        """End a round and begin the next one, waiting while the job is held; return whether a worker joins.

        If True, all must synchronise their state, as with `share`. Raises AllReduceError.
        """
        if not isinstance(self._barrier, RoundBarrier):
            raise AllReduceError(f"job {self._hello.job}: it was joined without boundaries")
        self._newcomers = self._barrier.next_round()
        return bool(self._newcomers)

    def share(self, values: NDArray[Any], add_up: Callable[[Values], Values] | None = None) -> NDArray[Any]:
        """Return the values of a worker that was there before the newcomers, bit-identical at all workers.

        All must call it after `boundary` has returned True, with arrays of the same shape and type. The values go
        through the switches as integers; if the worker that gives them is lost meanwhile, the next one takes over.
        `add_up` returns sums of int32 over all workers, for engines without a thread.
        """
        data = np.ascontiguousarray(values).tobytes()
        words = np.frombuffer(data + bytes(-len(data) % 4), np.int32)
        for source in sorted(set(self._members_before) - set(self._newcomers)):
            given = np.zeros(words.size + 1, np.int32)
            if source == self._hello.host:
                given[:-1], given[-1] = words, 1
            sums = self.reducer.all_reduce(given).result() if add_up is None else add_up(given)
            if sums[-1] == 1:
                shared: NDArray[Any] = np.frombuffer(sums[:-1].tobytes()[: len(data)], values.dtype)
                return shared.reshape(values.shape).copy()
        raise AllReduceError(f"job {self._hello.job}: no worker is left that has the state for newcomers")

    @property
    def main_server(self) -> str | None:
        """The host of the job's main server, while it is a member of the job."""
        return self._state.main_server

    def check_main_server(self) -> None:
        """Raise AllReduceError if the job has no main server that could distribute, or take what is delivered."""
        if self.main_server is None and self._failure is None:
            raise AllReduceError(f"job {self._hello.job}: its main server is not a member, or no longer")

    def receive(self) -> bytes:
        """Return what the main server distributes; all workers call it at the same place among their all-reduces.

        Raises AllReduceError, as does everything that follows, if the main server is lost meanwhile.
        """
        self.check_main_server()
        engine = self.reducer
        return engine.submit(lambda: engine.receive(self.check_main_server)).result().tobytes()

    def deliver(self, values: bytes | NDArray[Any]) -> None:
        """Send a value to the main server, which takes it; all workers call it at the same place, with the same value.

        Raises AllReduceError, as does everything that follows, if the main server is lost meanwhile.
        """
        self.check_main_server()
        engine, data = self.reducer, flattened(values)
        engine.submit(lambda: engine.deliver(data, self.givers(), self.check_main_server)).result()

    def givers(self) -> list[bool]:
        """Return, for the members in order, which one this worker is."""
        return [host == self._hello.host for host in sorted(self.members)]

    def for_server(self) -> EngineSettings:
        """Return the settings with which the main server reads the next all-reduce, on the UDP port given to `join`.

        Call it between all-reduces. The caller must transfer the settings to the server before an all-reduce with
        `final`: `Engine(settings).read(target)` there gets the sums.
        """
        admitted = self._admitted
        return EngineSettings(
            aggregator=admitted.root,
            job=admitted.number,
            window=admitted.window,
            capacity=admitted.capacity,
            epoch=admitted.epoch,
            nonce=admitted.nonce,
            first_item=self.engine.next_item,
            local=("", 0 if self._hello.server is None else self._hello.server[1]),
        )

    def close(self) -> None:
        """Leave the job, which continues without this worker; all-reduces without a result fail. Idempotent.

        Returns when the others have all results that this worker has, or have given up: until then it helps them, in
        case a switch has forgotten what they lack.
        """
        with self._commanding, self._changed:
            was_closing, self._is_closing = self._is_closing, True
            self._changed.notify_all()
        if was_closing:
            return
        item = 0 if self._engine is None else self._engine.retire()
        if self._failure is None and not self._connection.problem:
            self._leaves_before = item
            self._connection.send(Leave(item))
            self._drain()
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._engine is not None:
            self._engine.close()
        self._connection.close()
        if self._thread is not threading.current_thread():
            self._thread.join(_LEAVE_S)

    def _drain(self) -> None:
        """Help the others until they no longer need this worker."""
        engine = self._engine if self._engine is not None and self._engine.is_open else None
        wait_s = _LEAVE_S if engine is None else _CALM_S
        until_s = time.monotonic() + self._patience_s
        while not self._is_over_within(wait_s) and engine is not None and time.monotonic() < until_s:
            engine.offer_again()
            wait_s = _OFFER_S

    def _is_over_within(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._failure is not None, seconds)

    @property
    def _admitted(self) -> Admitted:
        if self._state.admitted is None:
            raise self._failure or AllReduceError(f"job {self._hello.job}: {self._hello.host} is not admitted")
        return self._state.admitted

    def _start(self, deadline_s: float) -> None:
        """Wait until the worker is admitted; raise AllReduceError."""
        self._thread.start()
        with self._changed:
            self._changed.wait_for(self._is_decided, deadline_s)
            if not self._is_decided() and self._state.present:
                # The service refuses a worker that waits for others too long; once they have met, only switches are
                # awaited.
                self._changed.wait_for(self._is_decided, _CREATE_S)
        if self._engine is not None:
            return
        failure = self._failure or AllReduceError(f"job {self._hello.job}: {self._unmet(deadline_s)}")
        self.close()
        raise failure

    def _is_decided(self) -> bool:
        return self._engine is not None or self._failure is not None

    def _unmet(self, deadline_s: float) -> str:
        present = self._state.present
        if not present:
            return (
                f"no answer from the job service at {self._address} within {deadline_s:g} s: {self._connection.problem}"
            )
        there = f"{len(present)} of {self._hello.workers} workers were there ({' '.join(present)})"
        return f"it did not start within {deadline_s + _CREATE_S:g} s; {there}"

    def _run(self) -> None:
        """Keep talking to the service until there is no job."""
        try:
            self._connection.run()
        except AllReduceError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - in any case: no caller may wait for a thread that has ended
            self._fail(AllReduceError(f"job {self._hello.job}: {error!r}"))

    def _is_finished(self) -> bool:
        return self._failure is not None or self._is_closed

    def _is_finished_within(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(self._is_finished, seconds)

    def _greeting(self) -> list[Upward]:
        admitted = self._state.admitted
        hello = replace(self._hello, number=None if admitted is None else admitted.number)
        return [hello] if self._leaves_before is None else [hello, Leave(self._leaves_before)]

    def _take(self, message: bytes) -> None:
        """Follow a message of the service."""
        with self._commanding:
            before = self._state.members
            commands = self._state.take(decode_downward(message))
            self._tell_members(before)
            self._execute(commands)

    def _tell_members(self, before: tuple[str, ...]) -> None:
        told = describe_members(before, self._state.members)
        if told is not None and not self._is_closing:
            LOGGER.info("job %s: %s", self._hello.job, told)

    def _resume_if_overdue(self) -> None:
        until_s = self._held_until_s
        if until_s is None or until_s >= time.monotonic():
            return
        with self._commanding:
            self._held_until_s = None
            commands = self._state.overdue()
            if not commands and self._barrier is not None:
                told = f"waiting {self._patience_s:g} s for the service, as the job may have changed"
                self._barrier.enter(self._patience_s)
            else:
                told = "continuing"
            LOGGER.warning("job %s: the barrier lasted longer than announced: %s", self._hello.job, told)
            self._execute(commands)

    def _execute(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Fail():
                    self._fail(_error_of(command))
                case _ if self._is_closing:
                    pass
                case Begin():
                    self._begin(command.admitted)
                case SetEpoch():
                    self.engine.set_epoch(command.epoch, command.contributors)
                case ReportWhenComplete():
                    self._report_when_complete(command.item)
                case EnterBarrier() | RunUntil() | Resume():
                    self._use_barrier(command)

    def _begin(self, admitted: Admitted) -> None:
        self._connection.heartbeat_s = admitted.heartbeat_ns / NS_PER_S
        settings = EngineSettings(
            aggregator=admitted.aggregator,
            job=admitted.number,
            window=admitted.window,
            capacity=admitted.capacity,
            epoch=admitted.epoch,
            nonce=admitted.nonce,
            contributors=admitted.contributors,
            first_item=admitted.first_item,
            first_all_reduce=admitted.first_count,
            hears_refusals=False,
        )
        settings = replace(settings, patience_s=max(settings.patience_s, admitted.patience_ns / NS_PER_S + _MARGIN_S))
        self._patience_s = settings.patience_s
        engine = self._make(settings)
        is_by_rounds = self._hello.boundaries
        self._members_before = admitted.members
        if self._hello.is_main_server:
            self._barrier = ServerBarrier(engine)
        elif is_by_rounds:
            self._barrier = RoundBarrier(engine, admitted.first_count, admitted.newcomers)
        else:
            self._barrier = AllReduceBarrier(engine)
        with self._changed:
            self._engine = engine
            self._changed.notify_all()

    def _report_when_complete(self, item: int) -> None:
        self.engine.when_complete(item, lambda: self._connection.send(Completed(item)))

    def _use_barrier(self, command: EnterBarrier | RunUntil | Resume) -> None:
        barrier = self._barrier
        if barrier is None:
            return
        match command:
            case EnterBarrier(barrier=number):
                limit_s = command.limit_ns / NS_PER_S + _MARGIN_S
                self._held_until_s = time.monotonic() + limit_s
                self._connection.send(Arrived(number, barrier.enter(limit_s + _MARGIN_S)))
            case RunUntil(barrier=number, count=count):
                barrier.run_until(count, lambda item: self._finish(Finished(number, count, item)))
            case Resume():
                self._held_until_s = None
                self._members_before = self._state.members
                barrier.resume(command)

    def _finish(self, finished: Finished) -> None:
        self._state.finished = finished.barrier
        self._connection.send(finished)

    def _fail(self, error: AllReduceError) -> None:
        with self._changed:
            if self._failure is None:
                self._failure = error
            self._changed.notify_all()
        self._connection.stop()
        if self._engine is not None and not self._is_closing:
            self._engine.fail(error)
        if self._barrier is not None:
            self._barrier.fail(error)


def _error_of(command: Fail) -> AllReduceError:
    if not command.admitted:
        return JobRefusedError(command.reason)
    return RemovedError(command.reason) if command.removed else AllReduceError(command.reason)
