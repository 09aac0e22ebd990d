"""Requests that are worked on at a time: of users so many, each user's turn by what it has used so far.

Priority and fairness as Kubernetes has them, with a queue for each principal: what nodes, centres, schedulers and
administrators ask is never queued, what users ask waits in their own queues, which are bounded in length and in time.
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
"""Principals whose use is remembered."""
_LEAST_COST_S: Final = 0.001
"""Of a request, however fast: parsing it and answering take as long."""


def is_user(role: Role) -> bool:
    """Return whether a role has no part in running the system, so that others' work goes first."""
    return role in {Role.USER, Role.WORKER}


@dataclass(slots=True, eq=False)
class _Flow:
    """A principal's requests."""

    used_s: float
    running: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class Seat:
    """The right to be worked on; given back once, by whoever is first to say so."""

    def __init__(self, give_back: Callable[[], None] | None = None) -> None:
        self._give_back = give_back

    def release(self) -> None:
        """Give the seat back."""
        if self._give_back is not None:
            give_back, self._give_back = self._give_back, None
            give_back()


class FairQueue:
    """See the module; of one event loop. `seats` requests at a time, `queued` of one principal wait up to `wait_s`.

    `now_s` is a clock of which only differences count.
    """

    def __init__(self, seats: int, queued: int, wait_s: float, now_s: Callable[[], float]) -> None:
        self._free, self._queued, self._wait_s, self._now_s = seats, queued, wait_s, now_s
        self._flows: dict[str, _Flow] = {}
        self._reached_s = 0.0
        """What the principal had used whose turn it was last: who comes anew begins there, without a credit."""
        self.waiting = 0

    async def take(self, principal: str) -> Seat:
        """Return a seat; raise TooManyError where too many wait already, or for too long."""
        flow = self._flow(principal)
        if self._free and not self.waiting:
            return self._seat(flow)
        if len(flow.waiting) >= self._queued:
            raise TooManyError(f"{self._queued} requests of {principal} wait already, there can be no more")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        flow.waiting.append(turn)
        self.waiting += 1
        try:
            async with asyncio.timeout(self._wait_s):
                await turn
        except BaseException as error:
            self._leave(flow, turn)
            if isinstance(error, TimeoutError):
                raise TooManyError(f"it was not the turn of {principal} within {self._wait_s:g} s") from None
            raise
        return self._begun(flow)

    def _leave(self, flow: _Flow, turn: asyncio.Future[None]) -> None:
        if turn in flow.waiting:
            flow.waiting.remove(turn)
            self.waiting -= 1
        elif turn.done() and not turn.cancelled():  # it was called up, and has gone: the next one is
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
        """Give free seats to who has used least."""
        while self._free and self.waiting:
            flow = min((one for one in self._flows.values() if one.waiting), key=lambda one: one.used_s + one.running)
            turn = flow.waiting.popleft()
            self.waiting -= 1
            if turn.done():  # given up, and not yet left
                continue
            self._reached_s = max(self._reached_s, flow.used_s)
            self._free -= 1
            flow.running += 1
            turn.set_result(None)

    def _flow(self, principal: str) -> _Flow:
        flow = self._flows.pop(principal, None) or _Flow(self._reached_s)
        if not flow.running and not flow.waiting:
            flow.used_s = max(flow.used_s, self._reached_s)
        self._flows[principal] = flow
        if len(self._flows) > _KEPT:
            idle = next((name for name, one in self._flows.items() if not one.running and not one.waiting), None)
            if idle is not None:
                del self._flows[idle]
        return flow
