"""Workers in namespaces meet at the controller, add up in the switch, die, come back, and outlive the switch."""

from __future__ import annotations

import os
import re
import signal
from itertools import groupby

import pytest

from controller.apps.demo.training.fabric import SWITCH
from tests.integration.job_fabric import JOBS, JobFabric, until

pytestmark = pytest.mark.root

ALL = 2 + 4 + 8 + 16
WITHOUT_H2, WITHOUT_H3, WITHOUT_H4 = ALL - 4, ALL - 8, ALL - 16


def test_sums_are_of_the_current_workers_as_they_die_and_return() -> None:
    with JobFabric(4) as fabric:
        workers = [fabric.start_worker(host, 4) for host in ("h1", "h2", "h3", "h4")]
        for worker in workers:
            worker.wait_for_sum(ALL)
        first, killed, stopped, _ = workers

        killed.kill()
        at = first.wait_for_sum(WITHOUT_H2)
        workers.append(fabric.start_worker("h2", 4))
        at = first.wait_for_sum(ALL, after=at)

        os.kill(stopped.pid, signal.SIGSTOP)
        at = first.wait_for_sum(WITHOUT_H3, after=at)
        workers.append(fabric.start_worker("h3", 4))
        first.wait_for_sum(ALL, after=at)
        os.kill(stopped.pid, signal.SIGCONT)
        until(lambda: stopped.error is not None, "who was stopped is told")
        silence = re.fullmatch(r"h3 was removed from job sums: it has been silent for (\d+\.\d) s", stopped.error or "")
        assert silence is not None, stopped.error
        assert float(silence[1]) * 1e9 >= JOBS.lease_ns

        (job,) = fabric.jobs()
        fabric.kill_controller()
        first.wait_for_sum(ALL, after=max(first.sums) + 3)
        workers[3].kill()
        fabric.start_controller()
        first.wait_for_sum(WITHOUT_H4)
        (adopted,) = fabric.jobs()
        assert job.epoch is not None
        assert (adopted.name, adopted.number, adopted.epoch) == (job.name, job.number, job.epoch + 1)
        assert [member.host for member in adopted.members] == ["h1", "h2", "h3"]

        fabric.fabric.stop_switch(SWITCH, kill=True)
        left = [worker for worker in workers if worker not in (killed, stopped, workers[3])]
        until(lambda: all(worker.error for worker in left), "all are told")
        (reason,) = {worker.error for worker in left}
        assert (reason or "").startswith("job sums has ended: switch s1 has been unreachable for 2 s")

        sums = first.sums
        assert list(sums) == list(range(len(sums)))
        assert [total for total, _ in groupby(sums.values())] == [ALL, WITHOUT_H2, ALL, WITHOUT_H3, ALL, WITHOUT_H4]
        for worker in workers:
            shared = worker.sums.keys() & sums.keys()
            assert len(shared) >= len(worker.sums) - 1
            assert {count: worker.sums[count] for count in shared} == {count: sums[count] for count in shared}
