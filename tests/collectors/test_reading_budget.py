"""The budget of what Python reads one by one: by count and by time."""

from __future__ import annotations

from collectors.collector import BURST_NS, ReadingBudget
from collectors.settings import CollectorSettings
from collectors.token_bucket import TokenBucket
from dataplane.clock import VirtualClock

MS = 1_000_000
S = 1_000 * MS


def test_time_spent_leaves_reports_unread() -> None:
    clock = VirtualClock()
    budget = ReadingBudget(CollectorSettings(python_share=0.5), clock, is_limited=True)
    states = []
    for _ in range(5):
        states.append(budget.allows_other)
        began_ns = budget.now_ns()
        clock.advance_to(clock.now_ns() + 10 * MS)
        budget.charge(began_ns)
    # 40 ms of a half are 20 ms; each report costs 10 ms, in which 5 come back.
    assert states == [True, True, True, False, False]
    clock.advance_to(clock.now_ns() + 2 * BURST_NS)
    assert budget.allows_other


def test_unlimited_reading_goes_on_whatever_it_takes() -> None:
    clock = VirtualClock()
    budget = ReadingBudget(CollectorSettings(other_reports_per_s=None), clock, is_limited=True)
    clock.advance_to(3 * S)
    budget.charge(0)
    assert budget.allows_other


def test_bucket_pays_back_what_was_spent_beyond_it() -> None:
    clock = VirtualClock()
    bucket = TokenBucket(10, clock, burst_ns=S // 2)
    assert bucket.left == 5
    bucket.spend(8)
    assert (bucket.left, bucket.take(1)) == (-3, 0)
    clock.advance_to(S // 2)
    assert bucket.take(5) == 2
