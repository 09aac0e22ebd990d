"""Reports a process's polled queues to its node's manager, follows its orders, and claims queues from it.

A thread of its own connects, and connects again when the manager is gone. Without a manager it looks for one every few
seconds and does nothing else.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from dataplane.clock import NS_PER_S, Clock, MonotonicClock
from dataplane.errors import PortError
from dataplane.local.deadline import LocalDeadline
from dataplane.nic.managed.link import LinkError, ManagerLink, connect
from dataplane.nic.managed.messages import MOST_QUEUES, Claim, Grant, Order, Outcome, Report
from dataplane.nic.managed.polled import PolledQueues, mode_named

LOGGER: Final = logging.getLogger("millrace.nic")
_RETRY_S: Final = 2.0
_GRANT_S: Final = 20.0
"""A manager that has just started waits for those who polled before."""


class QueueReporter:
    """Reports queues from `start` to `close`; `program` is the process's name for people.

    `link` is a connection over which queues were granted: it stays open as long as they are polled.
    """

    def __init__(
        self,
        program: str,
        queues: PolledQueues,
        *,
        paths: Sequence[Path] | None = None,
        link: ManagerLink | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._program, self._queues, self._paths = program, queues, paths
        self._clock: Clock = MonotonicClock() if clock is None else clock
        self._closing = threading.Event()
        self._guard = threading.Lock()
        self._link = link
        self._thread = threading.Thread(target=self._run, name="nic-queues", daemon=True)

    def start(self) -> Self:
        """Start reporting."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop; what was granted is free again. Idempotent."""
        self._closing.set()
        with self._guard:
            if self._link is not None:
                self._link.wake()
        if self._thread.ident is not None:
            self._thread.join()
        if self._link is not None:
            self._link.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        problem = ""
        while not self._closing.is_set():
            try:
                link = self._linked()
                self._follow(link)
            except (LinkError, OSError, ValueError) as error:
                if str(error) != problem:
                    LOGGER.debug("polled queues are not reported: %s", error)
                problem = str(error)
            with self._guard:
                if self._link is not None:
                    self._link.close()
                self._link = None
            self._closing.wait(_RETRY_S)

    def _linked(self) -> ManagerLink:
        link = self._link or connect(self._program, self._paths)
        with self._guard:
            self._link = link
            if self._closing.is_set():
                link.wake()
        LOGGER.info("polled queues are reported to node %s", link.welcome.node)
        return link

    def _follow(self, link: ManagerLink) -> None:
        """Report and follow orders until the connection ends."""
        period_ns = round(link.welcome.period_s * NS_PER_S)
        due_ns = self._clock.now_ns()
        while not self._closing.is_set():
            now_ns = self._clock.now_ns()
            if now_ns >= due_ns:
                due_ns = now_ns + period_ns
                states = self._queues.read()
                link.send(Report(tuple(states[:MOST_QUEUES]), max(len(states) - MOST_QUEUES, 0)))
                continue
            message = link.receive((due_ns - now_ns) / NS_PER_S)
            if isinstance(message, Order):
                link.send(self._obey(message))
            elif message is not None:
                raise ValueError("an order was expected")

    def _obey(self, order: Order) -> Outcome:
        before = {(state.device, state.queue): state.mode for state in self._queues.read()}
        try:
            self._queues.set_mode(order.device, order.queue, mode_named(order.mode))
        except PortError as error:
            return Outcome(order.number, refusal=str(error)[:500])
        LOGGER.info(
            "interface %s%s: %s, as the node's manager orders",
            *(order.device, "" if order.queue is None else f", queue {order.queue}", order.mode),
        )
        after = self._queues.read()
        wanted = [
            state
            for state in after
            if (state.device == order.device and order.queue in {None, state.queue})
            or before.get((state.device, state.queue)) != state.mode
        ]
        return Outcome(order.number, tuple(wanted[:MOST_QUEUES]))


class QueueClaim:
    """Queues of a device that this node's manager has granted, until `close` or the end of the link's reporter."""

    def __init__(self, link: ManagerLink, grant: Grant, device: str) -> None:
        self.link, self.grant, self.device = link, grant, device

    @property
    def node(self) -> str:
        """Name of the node."""
        return self.link.welcome.node

    def close(self) -> None:
        """Give the queues back."""
        self.link.close()


def claim_queues(
    program: str, device: str, index: int, *, job: str = "", paths: Sequence[Path] | None = None
) -> QueueClaim:
    """Claim queues of a device of this thread's network namespace; raise LinkError with the reason why there are none.

    `index` is the device's, `job` the job that the manager's grants may name.
    """
    link = connect(program, paths, own_only=True)
    try:
        link.send(Claim(1, device, index, job))
        grant = _granted(link)
    except OSError as error:
        link.close()
        raise LinkError(str(error.strerror or error)) from None
    except ValueError as error:
        link.close()
        raise LinkError(f"it sends no valid answer: {error}") from None
    except BaseException:
        link.close()
        raise
    if grant.refusal:
        link.close()
        raise LinkError(grant.refusal)
    return QueueClaim(link, grant, device)


def _granted(link: ManagerLink) -> Grant:
    deadline = LocalDeadline(_GRANT_S, f"node {link.welcome.node}: queues")
    while not deadline.has_passed():
        message = link.receive(deadline.step_s)
        if isinstance(message, Grant):
            return message
        if message is not None:
            raise ValueError("a grant was expected")
    raise LinkError("it does not answer")
