"""Deadlines count the time that the event loop ran, on a loop with a manual clock."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine

import pytest

from dataplane.event_loop.deadlines import loop_timeout


class _Selector(selectors.DefaultSelector):
    """Does not wait: time jumps to the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now_s += timeout or 0.0
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    """An event loop with a clock that can be advanced, as if it were blocked."""

    def __init__(self) -> None:
        self.moving = _Selector()
        super().__init__(self.moving)

    def time(self) -> float:
        return self.moving.now_s

    def stand_still(self, seconds: float) -> None:
        self.moving.now_s += seconds


@pytest.fixture
def loop() -> _Loop:
    """Return a loop at time 0."""
    return _Loop()


def _run(loop: _Loop, work: Coroutine[object, object, None]) -> None:
    try:
        loop.run_until_complete(work)
    finally:
        loop.close()


def test_loop_timeout_expires_when_nothing_comes(loop: _Loop) -> None:
    async def work() -> None:
        with pytest.raises(TimeoutError):
            async with loop_timeout(10.0):
                await asyncio.Event().wait()
        assert loop.time() == pytest.approx(10.0)

    _run(loop, work())


def test_loop_timeout_lets_what_is_in_time_pass(loop: _Loop) -> None:
    async def work() -> None:
        async with loop_timeout(10.0):
            await asyncio.sleep(9.4)
        await asyncio.sleep(60.0)  # nothing is left that could expire

    _run(loop, work())


@pytest.mark.parametrize("begins_s", [0.1, 5.0, 9.9])
def test_loop_timeout_does_not_count_a_standstill(loop: _Loop, begins_s: float) -> None:
    async def work() -> None:
        answer = asyncio.Event()

        def stand_still() -> None:
            loop.stand_still(25.0)
            loop.call_later(0.2, answer.set)  # it is read only now, a moment after the timers

        loop.call_later(begins_s, stand_still)
        async with loop_timeout(10.0):
            await answer.wait()

    _run(loop, work())


def test_loop_timeout_expires_after_a_standstill(loop: _Loop) -> None:
    async def work() -> None:
        loop.call_later(5.0, loop.stand_still, 25.0)
        with pytest.raises(TimeoutError):
            async with loop_timeout(10.0):
                await asyncio.Event().wait()
        assert 34.0 <= loop.time() <= 36.0

    _run(loop, work())


def test_loop_timeout_expires_in_a_loop_that_is_always_late(loop: _Loop) -> None:
    async def work() -> None:
        def again() -> None:
            loop.stand_still(2.0)
            loop.call_soon(again)

        again()
        with pytest.raises(TimeoutError):
            async with loop_timeout(10.0):
                await asyncio.Event().wait()
        assert 100.0 <= loop.time() <= 110.0

    _run(loop, work())
