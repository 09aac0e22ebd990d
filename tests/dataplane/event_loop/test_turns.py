"""Few run at a time, and a slow one does not block the others."""

from __future__ import annotations

import asyncio

import pytest

from dataplane.event_loop.turns import Turns


@pytest.mark.parametrize("at_once", [1, 3])
def test_turns_let_few_in_at_a_time(at_once: int) -> None:
    inside, most, done = 0, 0, 0

    async def one(turns: Turns) -> None:
        nonlocal inside, most, done
        async with turns.turn():
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1
        done += 1

    async def scenario() -> None:
        turns = Turns(at_once, 60.0)
        await asyncio.gather(*(one(turns) for _ in range(10)))

    asyncio.run(scenario())
    assert (most, done) == (at_once, 10)


def test_turns_end_for_others_when_one_takes_long() -> None:
    async def scenario() -> None:
        turns, hung, second = Turns(1, 0.0), asyncio.Event(), asyncio.Event()

        async def hang() -> None:
            async with turns.turn():
                await hung.wait()

        async def follow() -> None:
            async with turns.turn():
                second.set()

        slow, _ = asyncio.create_task(hang()), asyncio.create_task(follow())
        await second.wait()
        hung.set()
        await slow
        assert turns._free._value == 1  # given back once

    asyncio.run(asyncio.wait_for(scenario(), 30.0))


def test_turns_are_given_back_after_a_failure() -> None:
    async def scenario() -> None:
        turns = Turns(1, 60.0)
        for _ in range(3):
            with pytest.raises(ValueError, match="x"):
                async with turns.turn():
                    raise ValueError("x")

    asyncio.run(asyncio.wait_for(scenario(), 30.0))
