"""Accounts of the jobs that switches add up, from item reports: waits, stragglers, repetitions, cells in use."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.counters import Count, Counters
from collectors.jobs.accounts import JobAccounts
from collectors.settings import JobWatchSettings
from collectors.values import ChildKey, JobKey, JobNote, JobState
from dataplane.wire.completion import Completion
from tests.collectors.reports import build_topology

S = 1_000_000_000
JOB = JobKey(3, "s2")


class World:
    """The accounts, and a clock."""

    def __init__(self, **settings: int) -> None:
        self.counters = Counters()
        self.accounts = JobAccounts(build_topology(), JobWatchSettings(**settings), self.counters)
        self.now_ns = 100 * S

    def hear(
        self, number: int, *, child: int = 0, wait_us: int = 10, job: int = 3, repeated: int = 0, ahead: int = 0
    ) -> None:
        completion = Completion(job, number % 2**32, child, wait_us, repeated, ahead)
        self.accounts.add(12, completion, ip_address(f"10.0.0.{child + 1}"), self.now_ns)

    @property
    def states(self) -> dict[JobKey, JobState]:
        return self.accounts.states(self.now_ns)


def test_waits_and_repetitions_add_up() -> None:
    world = World()
    for number in range(100):
        world.hear(number, wait_us=number, repeated=number % 2, ahead=number % 8)
        world.now_ns += S // 100
    state = world.states[JOB]
    assert (state.items, state.reported, state.samples, state.repeated) == (100, 100, 100, 50)
    assert state.repeated_per_item == 0.5
    assert state.cells_used == 8
    assert (state.wait_mean_ns, state.wait_max_ns) == (49_500, 99_000)
    assert state.wait_p50_ns == pytest.approx(49_000, rel=0.01)
    assert state.items_per_s == pytest.approx(99)
    assert (state.name, state.epoch, state.cells, state.is_leaf) == (None, None, None, False)


def test_latest_child_comes_first_with_its_share_and_waits() -> None:
    world = World()
    for number in range(40):
        world.hear(number, child=1, wait_us=5000) if number % 4 == 0 else world.hear(number, child=number % 4)
    first, *others = world.states[JOB].children
    assert first.key == ChildKey(3, "s2", 1, "h2")
    assert (first.last, first.last_share, first.wait_max_ns) == (20, 0.5, 5_000_000)
    assert first.wait_mean_ns == 2_505_000
    assert first.wait_caused_ns == 1_252_500
    assert [(child.key.name, child.last) for child in others] == [("10.0.0.3", 10), ("10.0.0.4", 10)]
    assert str(first.key) == "job 3 at s2: h2"


def test_items_are_counted_by_number_in_any_report_order() -> None:
    """Over the end of the numbers' circle, and in any order of the reports."""
    world = World()
    for number in (2**32 - 32, 2**32 - 16, 0, 2**32 - 4, 16):
        world.hear(number)
        world.now_ns += S
    state = world.states[JOB]
    assert (state.items, state.reported) == (49, 5)
    assert state.items_per_s == pytest.approx(48 / 5)


def test_a_job_that_stands_still_has_ever_fewer_items_a_second() -> None:
    world = World()
    for number in range(11):
        world.hear(number)
        world.now_ns += S // 10
    rates = []
    for _ in range(3):
        rates.append(world.states[JOB].items_per_s)
        world.now_ns += S
    assert rates == pytest.approx([10 / 1.1, 10 / 2.1, 10 / 3.1])
    assert world.states[JOB].age_ns == 3_100_000_000


def test_one_report_makes_no_rate() -> None:
    world = World()
    world.hear(5)
    world.now_ns += S
    assert world.states[JOB].items_per_s is None


def test_what_is_older_than_the_window_counts_only_in_totals() -> None:
    world = World(window_ns=8 * S)
    world.hear(0, wait_us=9000, repeated=5, ahead=7)
    world.now_ns += 8 * S
    world.hear(1, child=1, wait_us=10)
    state = world.states[JOB]
    assert (state.reported, state.repeated, state.items) == (2, 5, 2)
    assert (state.samples, state.wait_max_ns, state.repeated_per_item, state.cells_used) == (1, 10_000, 0.0, 1)
    late, gone = state.children
    assert (late.key.number, late.last_share) == (1, 1.0)
    assert (gone.last, gone.last_share, gone.wait_mean_ns, gone.wait_max_ns, gone.wait_caused_ns) == (
        1,
        0,
        None,
        None,
        0,
    )


REPORTS = st.lists(
    st.tuples(st.integers(0, 3 * S), st.integers(0, 3), st.integers(0, 9000), st.integers(0, 2), st.integers(0, 5)),
    min_size=1,
    max_size=40,
)


@given(REPORTS)
def test_the_window_is_the_sum_of_what_came_in_it(reports: list[tuple[int, int, int, int, int]]) -> None:
    """Whatever came and went before."""
    world, slots = World(window_ns=8 * S), []
    for number, (pause_ns, child, wait_us, repeated, ahead) in enumerate(reports):
        world.now_ns += pause_ns
        slots.append(world.now_ns // S)
        world.hear(number, child=child, wait_us=wait_us, repeated=repeated, ahead=ahead)
    inside = [report for slot, report in zip(slots, reports, strict=True) if slot + 8 > slots[-1]]
    state = world.states[JOB]
    waits = [1000 * wait_us for _, _, wait_us, _, _ in inside]
    assert (state.samples, state.wait_max_ns, state.wait_mean_ns) == (len(waits), max(waits), sum(waits) // len(waits))
    assert state.wait_p50_ns == pytest.approx(sorted(waits)[(len(waits) + 1) // 2 - 1], rel=1 / 128)
    assert state.repeated_per_item == sum(report[3] for report in inside) / len(inside)
    assert state.cells_used == 1 + max(report[4] for report in inside)
    assert sum(child.last for child in state.children) == state.reported == len(reports)
    for each in state.children:
        mine = [wait_ns for wait_ns, report in zip(waits, inside, strict=True) if report[1] == each.key.number]
        assert each.last_share == len(mine) / len(waits)
        assert each.wait_max_ns == (max(mine) if mine else None)
        assert each.wait_mean_ns == (sum(mine) // len(mine) if mine else None)
        assert each.wait_caused_ns == sum(mine) // len(waits)


def test_a_job_whose_number_had_another_before_begins_anew() -> None:
    world = World()
    for number in range(200_000, 200_010):
        world.hear(number, repeated=1)
    world.hear(0, child=2)
    state = world.states[JOB]
    assert (state.items, state.reported, state.repeated, len(state.children)) == (1, 1, 0, 1)


def test_a_job_that_nobody_hears_of_is_forgotten() -> None:
    world = World(forget_after_ns=S)
    world.hear(0)
    world.now_ns += S
    assert JOB in world.states
    world.now_ns += 1
    assert not world.states
    world.hear(1)
    assert world.states[JOB].reported == 1
    world.now_ns += 2 * S
    world.hear(2)
    assert world.states[JOB].reported == 1


def test_the_job_unheard_for_longest_makes_room() -> None:
    world = World(max_jobs=2)
    for job in (1, 2, 1, 3):
        world.hear(0, job=job)
    assert [key.job for key in world.states] == [1, 3]
    assert world.counters[Count.JOBS_FORGOTTEN] == 1


def test_names_are_told_of_all_jobs_that_run_and_stay_theirs() -> None:
    world = World()
    world.hear(0)
    world.hear(0, job=4)
    world.accounts.note({3: JobNote("resnet", epoch=2, cells=16)})
    state = world.states[JOB]
    assert (state.name, state.epoch, state.cells) == ("resnet", 2, 16)
    assert world.states[JobKey(4, "s2")].name is None
    world.accounts.note({4: JobNote("other")})
    assert [state.name for state in world.states.values()] == ["resnet", "other"]
    world.hear(500_000)
    world.hear(0)
    assert world.states[JOB].name is None, "another job has the number"


def test_switches_that_the_topology_lacks_are_counted_only() -> None:
    world = World()
    world.accounts.add(99, Completion(3, 0, 0, 1, 0, 0), ip_address("10.0.0.1"), world.now_ns)
    assert not world.states
    assert (world.counters[Count.UNKNOWN_NODE], world.counters[Count.ITEMS_REPORTED]) == (1, 1)
