"""Trainings that outlive parts of the fabric; `python tests/soak/outliving.py --minutes 10 --kills 50` is the whole."""

from __future__ import annotations

import os

import pytest

from controller.common.standby.settings import StandbySettings
from tests.integration.job_fabric import JobFabric
from tests.soak.outliving import soak

pytestmark = [
    pytest.mark.slow,
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]


def test_training_outlives_a_minute_of_kills() -> None:
    assert soak(60.0, kills=6, seed=3) == []


def test_other_controller_of_a_pair_takes_over_with_the_jobs() -> None:
    """The active one is killed; the workers, which know both, continue in the same epoch."""
    with JobFabric(4, standby=StandbySettings(sqlite="lease.db", lease_ns=3_000_000_000)) as fabric:
        fabric.start_second_controller()
        workers = [fabric.start_worker(host, 4) for host in ("h1", "h2", "h3", "h4")]
        for worker in workers:
            worker.wait_for_sum(30)
        (job,) = fabric.jobs()
        fabric.kill_controller()
        workers[0].wait_for_sum(30, after=max(workers[0].sums) + 3)
        fabric.until_second_is_active()
        (adopted,) = fabric.jobs()
        assert (adopted.number, adopted.epoch, len(adopted.members)) == (job.number, job.epoch, 4)
        fabric.until_all_connected()
        workers[1].kill()
        workers[0].wait_for_sum(30 - 4, after=max(workers[0].sums))
        assert [worker.error for worker in workers] == [None] * 4
