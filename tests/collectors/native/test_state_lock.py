"""The state lock: one thread at a time, first come first served, reentrant."""

from __future__ import annotations

import threading

from collectors.native.state_lock import StateLock
from tests.waiting import wait_until


def waiters(lock: StateLock) -> int:
    return int(lock.native.drawn - lock.native.served) - 1


def test_threads_have_the_lock_in_the_order_in_which_they_ask() -> None:
    lock, order = StateLock(), list[int]()

    def take(number: int) -> None:
        with lock:
            order.append(number)

    threads = []
    with lock:
        for number in range(5):
            threads.append(threading.Thread(target=take, args=(number,)))
            threads[-1].start()
            wait_until(lambda asked=number + 1: waiters(lock) == asked)  # type: ignore[misc]
        assert order == []
        lock.step_aside()
        assert order == [0, 1, 2, 3, 4]
        assert waiters(lock) == 0
    for thread in threads:
        thread.join()


def test_lock_is_reentrant_and_does_not_step_aside_when_nested() -> None:
    lock, taken = StateLock(), threading.Event()

    def take() -> None:
        with lock:
            taken.set()

    thread = threading.Thread(target=take)
    with lock:
        with lock:
            thread.start()
            wait_until(lambda: waiters(lock) == 1)
            lock.step_aside()
            assert not taken.is_set()
        lock.step_aside()
        assert taken.is_set()
    thread.join()


def test_threads_that_count_together_lose_nothing() -> None:
    lock, count = StateLock(), [0]

    def add() -> None:
        for _ in range(2000):
            with lock:
                count[0] = count[0] + 1

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count == [8000]
