"""Workers in namespaces meet at the controller, add up in the switch, are killed, come back, and outlive the switch."""

from __future__ import annotations

import pytest

from tests.integration.allreduce_namespaces import SWITCH
from tests.integration.job_fabric import JobFabric, until

pytestmark = pytest.mark.root

ALL, WITHOUT_H2 = 2 + 4 + 8 + 16, 2 + 8 + 16


def test_a_killed_worker_is_done_without_and_comes_back_and_a_dead_switch_ends_it() -> None:
    with JobFabric(4) as fabric:
        workers = [fabric.start_worker(host, 4) for host in ("h1", "h2", "h3", "h4")]
        for worker in workers:
            worker.wait_for_sum(ALL)
        first, killed = workers[0], workers.pop(1)
        killed.kill()
        lost = first.wait_for_sum(WITHOUT_H2)
        back = fabric.start_worker("h2", 4)
        joined = back.wait_for_sum(ALL)
        first.wait_for_sum(ALL, after=lost)
        until(lambda: [state.epoch for state in fabric.watched_jobs()] == [3], "the collector is told of the epochs")
        (seen,) = fabric.watched_jobs()
        assert (seen.name, seen.key.switch, seen.cells) == ("sums", SWITCH, 128)
        assert {child.key.name for child in seen.children} <= {"h1", "h2", "h3", "h4"}
        assert 2 * len(first.sums) <= seen.reported <= seen.items
        fabric.fabric.stop_switch(SWITCH, kill=True)
        workers.append(back)
        until(lambda: all(worker.error for worker in workers), "all are told")

        sums = first.sums
        assert sums == {count: WITHOUT_H2 if lost <= count < joined else ALL for count in range(len(sums))}
        assert joined == min(back.sums)
        for worker in (*workers, killed):
            shared = worker.sums.keys() & sums.keys()
            assert {count: worker.sums[count] for count in shared} == {count: sums[count] for count in shared}
        (reason,) = {worker.error for worker in workers}
        assert reason is not None
        assert reason.startswith("job sums has ended: switch s1 has been away for 2 s")
