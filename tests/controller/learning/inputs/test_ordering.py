"""Batch logs: ordering a window of waiting jobs on processors."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from controller.learning.errors import LearningError
from controller.learning.heuristics.named import job_rules
from controller.learning.inputs.ordering import Gain, Ordering, OrderingSettings
from controller.learning.inputs.predicted_waits import predicted_waits_ns
from controller.learning.inputs.values import Jobs
from controller.learning.values import Observation

S = 1_000_000_000


def jobs_of(*rows: tuple[int, int, int, int] | tuple[int, int, int], total: int = 4) -> Jobs:
    """Return jobs of (submitted, run, processors[, estimate]) in seconds."""
    full = [(*row, row[1]) if len(row) == 3 else row for row in rows]
    submitted, run, processors, estimate = (np.array(column, np.int64) for column in zip(*full, strict=True))
    return Jobs("made", total, submitted * S, run * S, estimate * S, processors)


def drawn(seed: int, count: int = 60) -> Jobs:
    rng, now, rows = random.Random(seed), 0, []
    for _ in range(count):
        now += rng.randrange(0, 20)
        run = rng.randrange(1, 60)
        rows.append((now, run, rng.randrange(1, 9), run * rng.randrange(1, 4)))
    return jobs_of(*rows, total=8)


def finished(made: Ordering, pick: random.Random | None = None) -> Ordering:
    seen, count = made.start(0), 0
    while True:
        assert seen.row.min() >= 0
        assert seen.row.max() <= 1
        assert np.flatnonzero(seen.candidates).tolist() == list(made.places)
        step = made.step(pick.choice(made.places) if pick else made.places[0])
        count += 1
        if step.observation is None:
            assert count == len(made.jobs)
            return made
        seen = step.observation


def started_s(made: Ordering) -> list[float]:
    return [ns / S for ns in made.started_ns]


def test_fitting_job_starts_at_once_and_another_is_reserved_for() -> None:
    made = Ordering(jobs_of((0, 10, 4), (1, 5, 2), (2, 5, 2)))
    made.start(0)
    first = made.step(0)
    assert (first.wait_ns, first.response_ns, first.elapsed_ns) == (0, 10 * S, S)
    second = made.step(0)
    assert second.wait_ns == 9 * S
    # The third is submitted while the second waits; no processor is free, so nothing can be backfilled.
    assert made.now_ns == 10 * S
    assert made.step(0).wait_ns == 8 * S
    assert started_s(made) == [0, 10, 10]


def test_easy_backfills_without_delaying_the_reserved_job() -> None:
    # 3 of 4 processors are busy until 10; the second job needs all. One later job ends in time, one does not.
    rows = (0, 10, 3), (1, 10, 4), (2, 20, 1), (2, 5, 1)
    made = finished(Ordering(jobs_of(*rows)))
    assert started_s(made) == [0, 10, 20, 2]
    off = finished(Ordering(jobs_of(*rows), OrderingSettings(backfilling=False)))
    assert started_s(off) == [0, 10, 20, 20]


def test_spare_processors_are_backfilled_for_any_time() -> None:
    # The reserved job leaves one processor when it starts.
    made = finished(Ordering(jobs_of((0, 10, 3), (1, 10, 3), (2, 100, 1))))
    assert started_s(made) == [0, 10, 2]


def test_backfilling_trusts_estimates_but_reserved_starts_early() -> None:
    # The first is estimated to end at 50 but ends at 10; the third, estimated at 42, goes first and ends at 12.
    made = finished(Ordering(jobs_of((0, 10, 3, 50), (1, 10, 4), (2, 10, 1, 40))))
    assert started_s(made) == [0, 12, 2]


def test_only_the_oldest_of_a_window_can_be_chosen() -> None:
    made = Ordering(jobs_of((0, 10, 4), *[(1, 1, 1)] * 5), OrderingSettings(window=2))
    made.start(0)
    seen = made.step(0).observation
    assert seen is not None
    assert made.actions == len(seen.candidates) == 2
    assert list(made.window) == [1, 2]


def test_the_six_features_of_a_window_of_jobs_and_two_more() -> None:
    made = Ordering(jobs_of((0, 10, 2), (1, 1, 4), (1, 7, 1)), OrderingSettings(window=3))
    made.start(0)
    seen = made.step(0).observation
    assert seen is not None
    assert seen.utilisation == 0.5
    assert (seen.size, seen.is_write) == (0, 0)
    np.testing.assert_allclose(seen.free, [(1 - 2 / 4) / 2, (1 + 1 / 4) / 2, 0])
    np.testing.assert_allclose(seen.similarity, [1 - 1 / 24, 1 - 3 / 24, 0], rtol=1e-6)
    np.testing.assert_allclose(seen.bandwidth, [1, 0.25, 0])
    np.testing.assert_allclose(seen.delay, 0)
    np.testing.assert_allclose(seen.operations, np.log2(1 + (4 * 1 + 7) / 4) / 24, rtol=1e-6)
    following = made.step(0).observation
    assert following is not None
    # It has its reservation: now backfilling is decided.
    assert (following.size, following.is_write) == (1, 1)
    assert following.candidates.tolist() == [True, False, False]


def test_features_of_waits_and_sizes_can_be_switched_off() -> None:
    seen = Ordering(jobs_of((0, 1, 1)), OrderingSettings(waits_and_sizes=False)).start(0)
    assert not seen.has_network
    assert len(seen.row) == 4 + 2 * 128


def test_late_decisions_wait_until_a_job_of_the_window_fits() -> None:
    rows = (0, 10, 4), (1, 9, 4), (2, 3, 4), (3, 1, 1)
    made = Ordering(jobs_of(*rows), OrderingSettings(early=False))
    made.start(0)
    made.step(0)
    # The second gets no reservation on arrival: in second 10 there are three to choose from.
    assert made.now_ns == 10 * S
    assert list(made.places) == [0, 1, 2]
    made.step(1)
    assert started_s(finished(made)) == [0, 10, 19, 22]


def test_six_more_features_of_jobs() -> None:
    made = Ordering(
        jobs_of((0, 10, 3), (1, 7, 4), (1, 5, 1), (1, 20, 2)), OrderingSettings(window=4, job_features=True)
    )
    made.start(0)
    seen = made.step(0).observation
    assert seen is not None
    soon_s = np.array([10 - 1, 0, 10 - 1])
    np.testing.assert_allclose(seen.load[0], [0, 1, 0, 0])
    np.testing.assert_allclose(seen.load[1, :3], np.log2(1 + soon_s) / 24, rtol=1e-6)
    np.testing.assert_allclose(seen.load[2], [1, 0, 0.5, 0])
    np.testing.assert_allclose(seen.load[3], [0.75, 0.75, 0.75, 0])
    np.testing.assert_allclose(seen.load[4:], 0)
    # The third job, of two processors, has a reservation: it starts in second 10 and leaves two free.
    reserved = made.step(2).observation
    assert reserved is not None
    np.testing.assert_allclose(reserved.load[4, :2], np.log2(10) / 24, rtol=1e-6)
    np.testing.assert_allclose(reserved.load[5, :2], 0.5)


def three_to_choose_from() -> Ordering:
    """One processor is free; jobs wait for 3 s on one, 2 s on one, and 5 s on both, which are free in 10 s."""
    settings = OrderingSettings(window=4, early=False, job_features=True, foretold=True)
    made = Ordering(jobs_of((0, 10, 1), (0, 3, 1), (0, 2, 1), (0, 5, 2), total=2), settings)
    made.start(0)
    made.step(0)
    return made


def test_added_wait_of_each_choice() -> None:
    made = three_to_choose_from()
    # The shortest first: waits of 0, 2 and 10 s. The other first: 0, 3 and 10 s. With a reservation for the job on
    # both processors, the others still run before it, the one of 2 s first.
    assert made.lengthened_ns() == [1 * S, 0, 0]
    assert made.now_ns == 0
    assert len(made.places) == 3


def test_foretold_gain_is_the_seventh_job_feature() -> None:
    made = three_to_choose_from()
    seen = made.restore(made.save())
    assert seen is not None
    hours = 1 / 3600
    np.testing.assert_allclose(seen.load[6], [0.5 - 0.5 * hours / (1 + hours), 0.5, 0.5, 0], rtol=1e-6)
    # With that reservation only jobs that end before it can be chosen; then only the third job is left.
    reserved = made.step(2).observation
    assert reserved is not None
    np.testing.assert_allclose(reserved.load[6, :2], [0.5 - 0.5 * hours / (1 + hours), 0.5], rtol=1e-6)


def test_foretold_needs_the_other_job_features() -> None:
    with pytest.raises(LearningError, match="foretold needs job_features"):
        OrderingSettings(foretold=True)


def test_actions_equal_waiting_jobs_without_empty_places() -> None:
    made = Ordering(jobs_of((0, 10, 4), *[(1, 1, 1)] * 5), OrderingSettings(window=3, empty_places=False))
    assert made.start(0).actions == 1
    seen = made.step(0).observation
    assert seen is not None
    assert seen.actions == 3


def test_an_episode_is_jobs_in_succession_that_its_seed_draws() -> None:
    made = Ordering(drawn(0), OrderingSettings(episode=10))
    runs = []
    for seed in range(20):
        made.start(seed)
        assert len(made.jobs) == 10
        assert made.jobs.submitted_ns[0] == 0
        runs.append(made.jobs.run_ns.tolist())
    starts = {next(at for at in range(51) if made.log.run_ns[at : at + 10].tolist() == run) for run in runs}
    assert len(starts) > 10
    made.start(0)
    assert made.jobs.run_ns.tolist() == runs[0]
    assert made.start(0).candidates.any()
    at_once = Ordering(drawn(0), OrderingSettings(episode=10, at_once=True))
    at_once.start(3)
    assert at_once.jobs.run_ns.tolist() == runs[3]
    assert not at_once.jobs.submitted_ns.any()


def test_an_episode_longer_than_the_log_is_refused() -> None:
    with pytest.raises(LearningError, match="made: an episode of 61 jobs, but there are 60"):
        Ordering(drawn(0), OrderingSettings(episode=61))
    with pytest.raises(LearningError, match="invalid episode of -1 jobs"):
        OrderingSettings(episode=-1)


@pytest.mark.parametrize("seed", range(5))
def test_jobs_start_after_submission_within_the_processors(seed: int) -> None:
    made = finished(Ordering(drawn(seed), OrderingSettings(window=16)), random.Random(seed))
    started, jobs = np.array(made.started_ns), made.jobs
    assert (started >= jobs.submitted_ns).all()
    for moment in started:
        runs = (started <= moment) & (moment < started + jobs.run_ns)
        assert jobs.processors[runs].sum() <= jobs.total


@pytest.mark.parametrize("seed", range(5))
def test_a_reserved_job_never_starts_later_than_it_was_promised(seed: int) -> None:
    made, rng = Ordering(drawn(seed)), random.Random(seed)
    made.start(0)
    promised = {}
    while made.places:
        step = made.step(rng.choice(made.places))
        promised[step.task] = step.submitted_ns + step.wait_ns
    assert all(made.started_ns[job] <= latest_ns for job, latest_ns in promised.items())


def test_outcome_is_means_and_used_over_all_processor_time() -> None:
    made = finished(Ordering(jobs_of((0, 10, 4), (1, 5, 2))))
    outcome = made.outcome()
    assert outcome.mean_wait_ns == 4.5 * S
    assert outcome.mean_response_ns == 12 * S
    assert outcome.utilisation == (40 + 10) / (4 * 15)
    with pytest.raises(LearningError, match="2 jobs have not begun"):
        Ordering(made.jobs).outcome()


def test_reward_adds_weighted_utilisation_and_inverse_slowdown() -> None:
    made = Ordering(jobs_of((0, 20, 4), (10, 20, 1)), OrderingSettings(utilisation_weight=0.5))
    made.start(0)
    assert made.step(0).reward == 0.5 + 1
    # The first job still holds all processors.
    assert made.step(0).reward == pytest.approx(0.5 + 1 / ((10 + 20) / 20))


def test_the_other_reward_sums_up_to_all_response_time() -> None:
    made = Ordering(drawn(3), OrderingSettings(gain=Gain.RESPONSE))
    made.start(0)
    total = 0.0
    while made.places:
        total += made.step(made.places[-1]).reward
    responses_ns = made.outcome().mean_response_ns * len(made.jobs)
    assert -total * 3600 == pytest.approx(responses_ns / S)


def test_foretold_gain_is_zero_if_the_forecast_is_right() -> None:
    at_once = jobs_of((0, 10, 3), (0, 7, 4), (0, 5, 1), (0, 20, 2), (0, 3, 2))
    settings = OrderingSettings(early=False, gain=Gain.FORETOLD, gain_hours=1 / 3600)
    made, rule = Ordering(at_once, settings), job_rules(settings, 0)["shortest-fitting-first"]
    seen: Observation | None = made.start(0)
    rewards = []
    while seen is not None:
        step = made.step(rule.choose(seen, made))
        rewards.append(step.reward)
        seen = step.observation
    assert rewards == pytest.approx([0] * 5)
    waits_s = sum(started_s(made))
    # A different first job: the reward has its cost at once, and nothing later.
    made.start(0)
    rewards = [made.step(1).reward]
    while made.places:
        rewards.append(made.step(rule.choose(made.restore(made.save()), made)).reward)  # type: ignore[arg-type]
    assert rewards[1:] == pytest.approx([0] * 4)
    assert rewards[0] == pytest.approx(waits_s - sum(started_s(made)))
    assert rewards[0] < 0


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_foretold_gains_sum_up_to_all_waits(seed: int, *, early: bool) -> None:
    made, rng = Ordering(drawn(seed), OrderingSettings(early=early, gain=Gain.FORETOLD)), random.Random(seed)
    made.start(0)
    total = 0.0
    while made.places:
        total += made.step(rng.choice(made.places)).reward
    # Nothing waits at the first decision, and at the end.
    assert -total * 3600 == pytest.approx(made.outcome().mean_wait_ns * len(made.jobs) / S)


def test_foresight_rewards_only_choices_that_change_the_forecast() -> None:
    settings = OrderingSettings(early=False, gain=Gain.FORETOLD, foresight=True)
    jobs = drawn(5)
    made, pick = Ordering(replace(jobs, estimate_ns=jobs.run_ns), settings), random.Random(1)
    rule = job_rules(settings, 0)["shortest-fitting-first"]
    seen: Observation | None = made.start(0)
    sums, others = [0.0], 0
    while seen is not None:
        places = [place for place in made.places if place != rule.choose(seen, made)]
        is_other = bool(places) and pick.random() < 0.3
        step = made.step(pick.choice(places) if is_other else rule.choose(seen, made))
        assert is_other or step.reward == pytest.approx(0, abs=1e-9)
        others += is_other
        sums.append(step.reward)
        seen = step.observation
    waited_ns = made.outcome().mean_wait_ns
    seen = made.start(0)
    while seen is not None:
        seen = made.step(rule.choose(seen, made)).observation
    assert others > 5
    assert -sum(sums) * 3600 == pytest.approx((waited_ns - made.outcome().mean_wait_ns) * len(made.jobs) / S)


def test_prediction_leaves_a_reserved_job_undelayed() -> None:
    # 3 of 4 processors are busy for 10 s; 4 are reserved. A job of 12 s would delay that, one of 9 s does not.
    assert predicted_waits_ns(1, [(10, 3)], [(12, 1), (9, 1)], (5, 4)) == 0 + 10 + 15
    # Next to a reserved job of 3 one job starts at once, however long; a second one does not.
    assert predicted_waits_ns(1, [(10, 3)], [(100, 1), (120, 1)], (5, 3)) == 0 + 10 + 15


def test_saved_moment_can_be_restored_repeatedly() -> None:
    made = Ordering(drawn(1))
    made.start(0)
    for _ in range(20):
        made.step(made.places[0])
    saved, now_ns, window = made.save(), made.now_ns, list(made.window)
    ends = []
    for place in (0, -1, 0):
        seen = made.restore(saved)
        assert seen is not None
        assert (made.now_ns, list(made.window)) == (now_ns, window)
        while made.places:
            made.step(made.places[place])
        ends.append(list(made.started_ns))
    assert ends[0] == ends[2] != ends[1]
    assert made.restore(made.save()) is None


def test_a_place_that_cannot_be_chosen_is_refused() -> None:
    made = Ordering(jobs_of((0, 1, 1)))
    made.start(0)
    with pytest.raises(LearningError, match="place 1 of the window is not one of the 1"):
        made.step(1)
    made.step(0)
    with pytest.raises(LearningError, match="place 0 of the window is not one of the 0"):
        made.step(0)
