"""Resources shared by subscribers: snapshots made once for all, and queues from other threads."""

from __future__ import annotations

import asyncio
import threading

import pytest

from collectors.subscribers import Handover, SharedSnapshots, next_due


def test_subscribers_that_ask_together_share_one_snapshot() -> None:
    made: list[int] = []

    def make() -> bytes:
        made.append(len(made))
        return b"%d" % made[-1]

    async def scenario() -> None:
        snapshots, now_s = SharedSnapshots(make), asyncio.get_running_loop().time()
        assert await asyncio.gather(*(snapshots.since(now_s) for _ in range(8))) == [b"0"] * 8
        assert await snapshots.since(now_s) == b"0"
        assert await snapshots.since(asyncio.get_running_loop().time()) == b"1"

    asyncio.run(scenario())
    assert made == [0, 1]


def test_snapshot_begun_too_early_is_followed_by_another() -> None:
    begun, may_end = threading.Event(), threading.Event()
    made: list[int] = []

    def make() -> bytes:
        made.append(len(made))
        begun.set()
        assert may_end.wait(30)
        return b"%d" % made[-1]

    async def scenario() -> None:
        snapshots, loop = SharedSnapshots(make), asyncio.get_running_loop()
        early = asyncio.create_task(snapshots.since(loop.time()))
        assert await asyncio.to_thread(begun.wait, 30)
        late = asyncio.create_task(snapshots.since(loop.time()))
        leaver = asyncio.create_task(snapshots.since(loop.time()))
        await asyncio.sleep(0)
        leaver.cancel()
        may_end.set()
        assert (await early, await late) == (b"0", b"1")

    asyncio.run(scenario())


def test_failed_snapshot_fails_all_waiters_and_is_retried() -> None:
    results: list[OSError | bytes] = [OSError("no memory"), b"whole"]
    outcomes = iter(results)

    def make() -> bytes:
        outcome = next(outcomes)
        if isinstance(outcome, OSError):
            raise outcome
        return outcome

    async def scenario() -> None:
        snapshots, now_s = SharedSnapshots(make), asyncio.get_running_loop().time()
        asked = [snapshots.since(now_s) for _ in range(2)]
        assert [str(outcome) for outcome in await asyncio.gather(*asked, return_exceptions=True)] == ["no memory"] * 2
        assert await snapshots.since(now_s) == b"whole"

    asyncio.run(scenario())


@pytest.mark.parametrize(("now_s", "due_s"), [(10.0, 10.1), (10.04, 10.1), (10.06, 10.2), (10.1, 10.2), (10.34, 10.4)])
def test_next_due_is_a_multiple_at_least_half_an_interval_away(now_s: float, due_s: float) -> None:
    assert next_due(now_s, 0.1) == pytest.approx(due_s)


def test_handover_is_bounded_and_keeps_the_order() -> None:
    async def scenario() -> None:
        queue: Handover[tuple[int, ...]] = Handover(4)

        def offer() -> list[bool]:
            return [queue.offer((number, number)) for number in range(6)]

        assert await asyncio.to_thread(offer) == [True] * 4 + [False] * 2
        assert await queue.take(3) == [(0, 0), (1, 1)]
        assert await queue.take(100) == [(2, 2), (3, 3)]
        waiting = asyncio.create_task(queue.take(100))
        await asyncio.sleep(0)
        assert queue.offer((7,))
        assert await waiting == [(7,)]

    asyncio.run(scenario())
