"""Outcomes of decisions are reported to the learner once; policies are opened, saved and closed in order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from controller.common.errors import SchedulerError
from controller.scheduling.framework.lessons import Outcome, Standing
from controller.scheduling.serving.lessons import Lessons
from dataplane.clock import VirtualClock
from tests.waiting import until

S = 1_000_000_000


_NOTHING = Standing(
    version=0, is_shadow=True, decisions={}, unanswered={}, compared=0, agreed=0, regret=0, experiences={}, waiting=0
)


@dataclass(slots=True)
class Pupil:
    """Learns nothing; records its calls."""

    log: list[object] = field(default_factory=list)
    awaits_end: bool = False
    fails: bool = False
    is_learning: bool = True
    save_every_s: float = 10.0
    longest_start_s: float = 5.0
    standing: Standing = _NOTHING

    def open(self) -> None:
        if self.fails:
            raise SchedulerError("it cannot")
        self.log.append("open")

    def came(self, key: str, outcome: Outcome | None) -> None:
        self.log.append((key, outcome))

    def save(self) -> None:
        self.log.append("save")

    def close(self) -> None:
        self.log.append("close")


def _lessons(clock: VirtualClock, **learners: Pupil) -> Lessons:
    return Lessons(clock, learners, lambda: 0.5)


def _stands(lessons: Lessons, pupil: Pupil, subject: str, epoch: int = 1) -> None:
    lessons.record(subject, pupil, key=f"{subject}/{epoch}", epoch=epoch, asked_ns=2 * S)


def test_start_is_reported_once_and_a_new_decision_ends_the_last() -> None:
    pupil = Pupil()
    lessons = _lessons(VirtualClock(), default=pupil)
    _stands(lessons, pupil, "a")
    lessons.started("a", 5 * S)
    lessons.started("a", 6 * S)
    lessons.started("nobody", 6 * S)
    _stands(lessons, pupil, "b")
    _stands(lessons, pupil, "b", epoch=2)
    _stands(lessons, pupil, "c")
    lessons.gone("c")
    lessons.failed("b")
    lessons.ended("a", 9 * S)
    assert pupil.log == [
        ("a/1", Outcome(3 * S, 0.5)),
        ("b/1", Outcome(None, 0.5)),
        ("c/1", None),
        ("b/2", Outcome(None, 0.5)),
    ]
    assert lessons.subjects() == ()


def test_learners_that_ask_for_it_await_the_end() -> None:
    pupil = Pupil(awaits_end=True)
    lessons = _lessons(VirtualClock(), default=pupil)
    _stands(lessons, pupil, "a")
    lessons.started("a", 5 * S)
    assert pupil.log == []
    lessons.ended("a", 9 * S)
    _stands(lessons, pupil, "b")
    lessons.ended("b", 9 * S)
    assert pupil.log == [("a/1", Outcome(3 * S, 0.5, 7 * S)), ("b/1", Outcome(None, 0.5))]


def test_policies_are_saved_periodically_and_replaced() -> None:
    async def main() -> None:
        clock, before, after, broken = VirtualClock(), Pupil(), Pupil(), Pupil(fails=True)
        lessons = _lessons(clock, default=before)
        async with lessons.opened():
            work = asyncio.create_task(lessons.run())
            _stands(lessons, before, "a")
            clock.advance_to(6 * S)
            await until(lambda: ("a/1", Outcome(None, 0.5)) in before.log)
            clock.advance_to(11 * S)
            await until(lambda: "save" in before.log)
            lessons.take({"default": after, "other": broken})
            await until(lambda: "open" in after.log)
            work.cancel()
        assert before.log == ["open", ("a/1", Outcome(None, 0.5)), "save", "close"]
        assert after.log == ["open", "close"]
        with pytest.raises(SchedulerError, match="profile other: it cannot"):
            async with _lessons(clock, default=after, other=broken).opened():
                raise AssertionError
        assert after.log[2:] == ["open", "close"]

    asyncio.run(main())
