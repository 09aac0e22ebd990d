"""Outcomes of decisions for learning policies, tracked by key from the decision to the start."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final

from controller.common.errors import SchedulerError
from controller.scheduling.framework.lessons import Learns, Outcome
from dataplane.clock import NS_PER_S, Clock

LOGGER: Final = logging.getLogger("millrace.scheduler")
_LOOK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Awaited:
    """A decision in force: `asked_ns` is the request's time by the server's clock, `since_ns` by the local clock."""

    key: str
    learner: Learns
    epoch: int
    asked_ns: int
    since_ns: int
    start: Outcome | None = None
    """The outcome at the start, if the policy waits for the end."""


class Lessons:
    """Tracks decisions, saves learned state periodically, and opens and closes policies as they come and go."""

    def __init__(self, clock: Clock, learners: Mapping[str, Learns], utilisation: Callable[[], float]) -> None:
        """`learners` are by profile name; `utilisation` returns the share of all capacity that running work holds."""
        self._clock, self._utilisation = clock, utilisation
        self._learners = dict(learners)
        self._opened: dict[str, Learns] = {}
        self._awaited: dict[str, Awaited] = {}
        self._saved_ns: dict[str, int] = {}
        self._logged: dict[str, str] = {}
        self._changed = asyncio.Event()

    @property
    def learners(self) -> Mapping[str, Learns]:
        """Policies that learn, by the name of their profile."""
        return dict(self._learners)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Keep all policies learning while the block lasts; raise SchedulerError if one cannot."""
        try:
            for name, learner in dict(self._learners).items():
                await self._open(name, learner)
            yield
        finally:
            for name in list(self._opened):
                await asyncio.to_thread(self._opened.pop(name).close)
            self._awaited.clear()

    async def run(self) -> None:
        """Save learned state, give up on subjects that never start, and adopt new policies, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(_LOOK_S):
                    await self._changed.wait()
            except TimeoutError:
                pass
            if self._changed.is_set():
                self._changed.clear()
                await self._exchange()
            self._give_up()
            await self._save()
            self._log_problems()

    def take(self, learners: Mapping[str, Learns]) -> None:
        """Use other policies from now on; save and close the previous ones first."""
        self._learners = dict(learners)
        self._awaited.clear()
        self._changed.set()

    def record(self, subject: str, learner: Learns, *, key: str, epoch: int, asked_ns: int) -> None:
        """Record a decision in force about a subject; an earlier one still awaited never started."""
        self.failed(subject)
        self._awaited[subject] = Awaited(key, learner, epoch, asked_ns, self._clock.now_ns())

    def awaited(self, subject: str) -> Awaited | None:
        """Return the awaited decision about a subject."""
        return self._awaited.get(subject)

    def subjects(self) -> tuple[str, ...]:
        """Return the subjects with an awaited decision."""
        return tuple(self._awaited)

    def started(self, subject: str, started_ns: int) -> None:
        """Record the start of a subject, by the server's clock."""
        awaited = self._awaited.get(subject)
        if awaited is None or awaited.start is not None:
            return
        outcome = Outcome(max(started_ns - awaited.asked_ns, 1), self._utilisation())
        if awaited.learner.awaits_end:
            self._awaited[subject] = replace(awaited, start=outcome)
        else:
            self._end(subject, outcome)

    def ended(self, subject: str, ended_ns: int) -> None:
        """Record the end of a subject, by the server's clock; one that never started has failed."""
        awaited = self._awaited.get(subject)
        if awaited is not None and awaited.start is not None:
            self._end(subject, replace(awaited.start, response_ns=max(ended_ns - awaited.asked_ns, 1)))
        else:
            self.failed(subject)

    def failed(self, subject: str) -> None:
        """Record that a subject will neither start nor end where it was sent."""
        if subject in self._awaited:
            self._end(subject, Outcome(None, self._utilisation()))

    def gone(self, subject: str) -> None:
        """Record that a subject was deleted: its user's wish, which says nothing about the decision."""
        self._end(subject, None)

    def _end(self, subject: str, outcome: Outcome | None) -> None:
        if (awaited := self._awaited.pop(subject, None)) is not None:
            awaited.learner.came(awaited.key, outcome)

    def _give_up(self) -> None:
        now_ns = self._clock.now_ns()
        for subject, awaited in list(self._awaited.items()):
            if awaited.start is None and now_ns - awaited.since_ns > awaited.learner.longest_start_s * NS_PER_S:
                self.failed(subject)

    async def _save(self) -> None:
        now_ns = self._clock.now_ns()
        for name, learner in list(self._opened.items()):
            if now_ns - self._saved_ns[name] >= learner.save_every_s * NS_PER_S:
                self._saved_ns[name] = now_ns
                # The policy's standing reports the failure.
                with suppress(SchedulerError):
                    await asyncio.to_thread(learner.save)

    def _log_problems(self) -> None:
        for name, learner in self._opened.items():
            problem = learner.standing.problem
            if problem and problem != self._logged.get(name):
                LOGGER.warning("profile %s: learning: %s", name, problem)
            self._logged[name] = problem

    async def _exchange(self) -> None:
        wanted = dict(self._learners)
        for name in [name for name, learner in self._opened.items() if wanted.get(name) is not learner]:
            await asyncio.to_thread(self._opened.pop(name).close)
        for name, learner in wanted.items():
            if name not in self._opened:
                try:
                    await self._open(name, learner)
                except SchedulerError as error:
                    LOGGER.warning("%s", error)

    async def _open(self, name: str, learner: Learns) -> None:
        try:
            await asyncio.to_thread(learner.open)
        except SchedulerError as error:
            raise SchedulerError(f"profile {name}: {error}") from None
        self._opened[name], self._saved_ns[name] = learner, self._clock.now_ns()
