"""Functions that cannot run inside an event loop run on another thread; without a loop, on the caller's."""

from __future__ import annotations

import asyncio
import threading

import pytest

from dataplane.nic.run_off_loop import run_off_loop


@run_off_loop
def runs_a_loop(number: int, *, fails: bool = False) -> tuple[int, int]:
    async def work() -> int:
        if fails:
            raise ValueError("failed beside the loop")
        return number + 1

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work()), threading.get_ident()
    finally:
        loop.close()


def test_without_a_loop_it_runs_on_the_callers_thread() -> None:
    assert runs_a_loop(1) == (2, threading.get_ident())


def test_within_a_loop_it_runs_on_another_thread() -> None:
    async def main() -> tuple[int, int]:
        return runs_a_loop(1)

    result, thread = asyncio.run(main())
    assert result == 2
    assert thread != threading.get_ident()


def test_what_it_raises_is_raised() -> None:
    async def main() -> None:
        runs_a_loop(1, fails=True)

    with pytest.raises(ValueError, match="failed beside the loop"):
        asyncio.run(main())
