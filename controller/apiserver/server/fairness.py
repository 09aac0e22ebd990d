"""Fair queueing: a limited number of users' requests run at a time, and the user who has used least goes first.

Priority and fairness as in Kubernetes, with a queue per principal: requests of nodes, centres, schedulers and
administrators are never queued; users' requests wait in queues bounded in length and time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from controller.common.errors import TooManyError
from dataplane.rpc.access import Role

_KEPT: Final = 4096
"""Principals whose usage is remembered."""
_LEAST_COST_S: Final = 0.001
"""Minimum cost of a request: parsing and answering take as long."""


def is_user(role: Role) -> bool:
    """Return whether a role has no part in running the system, and so yields to the others."""
    return role in {Role.USER, Role.VIEWER, Role.WORKER}


@dataclass(slots=True, eq=False)
class _Flow:
    """Queue and usage of a principal."""

    used_s: float
    running: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class Seat:
    """Permission to run; released once, by whoever does so first."""

    def __init__(self, give_back: Callable[[], None] | None = None) -> None:
        self._give_back = give_back

    def release(self) -> None:
        """Give the seat back."""
        if self._give_back is not None:
            give_back, self._give_back = self._give_back, None
            give_back()


class FairQueue:
    """See the module. `seats` requests run at a time, `queued` per principal wait up to `wait_s`; not thread-safe.

    `now_s` is a clock of which only differences count.
    """

    def __init__(self, seats: int, queued: int, wait_s: float, now_s: Callable[[], float]) -> None:
        self._free, self._queued, self._wait_s, self._now_s = seats, queued, wait_s, now_s
        self._flows: dict[str, _Flow] = {}
        self._reached_s = 0.0
        """Usage of the principal served last: newcomers start there, without credit."""
        self.waiting = 0

    async def take(self, principal: str) -> Seat:
        """Return a seat; raise TooManyError if too many requests wait, or after waiting too long."""
        flow = self._flow(principal)
        # Do not overtake those who wait already.
        if self._free and not self.waiting:
            return self._seat(flow)
        if len(flow.waiting) >= self._queued:
            raise TooManyError(f"{principal} has reached the limit of {self._queued} waiting requests")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        flow.waiting.append(turn)
        self.waiting += 1
        try:
            async with asyncio.timeout(self._wait_s):
                await turn
        except BaseException as error:
            self._leave(flow, turn)
            if isinstance(error, TimeoutError):
                raise TooManyError(f"no request slot was free for {principal} within {self._wait_s:g} s") from None
            raise
        return self._begun(flow)

    def _leave(self, flow: _Flow, turn: asyncio.Future[None]) -> None:
        if turn in flow.waiting:
            flow.waiting.remove(turn)
            self.waiting -= 1
        elif turn.done() and not turn.cancelled():  # it was granted, but the caller has gone: pass it on
            flow.running -= 1
            self._free += 1
            self._call_up()

    def _seat(self, flow: _Flow) -> Seat:
        self._free -= 1
        flow.running += 1
        return self._begun(flow)

    def _begun(self, flow: _Flow) -> Seat:
        begun_s = self._now_s()

        def give_back() -> None:
            flow.used_s += max(self._now_s() - begun_s, _LEAST_COST_S)
            flow.running -= 1
            self._free += 1
            self._call_up()

        return Seat(give_back)

    def _call_up(self) -> None:
        """Give free seats to the principals with the least usage."""
        while self._free and self.waiting:
            # The cost of a running request is not known yet, so each counts as one second.
            flow = min(
                (candidate for candidate in self._flows.values() if candidate.waiting),
                key=lambda candidate: candidate.used_s + candidate.running,
            )
            turn = flow.waiting.popleft()
            self.waiting -= 1
            if turn.done():  # cancelled, but not yet removed
                continue
            self._reached_s = max(self._reached_s, flow.used_s)
            self._free -= 1
            flow.running += 1
            turn.set_result(None)

    def _flow(self, principal: str) -> _Flow:
        # Reinsert at the end: the dictionary is in order of last use.
        flow = self._flows.pop(principal, None) or _Flow(self._reached_s)
        if not flow.running and not flow.waiting:
            # Time without requests earns no credit.
            flow.used_s = max(flow.used_s, self._reached_s)
        self._flows[principal] = flow
        if len(self._flows) > _KEPT:
            idle = next((name for name, flow in self._flows.items() if not flow.running and not flow.waiting), None)
            if idle is not None:
                del self._flows[idle]
        return flow
