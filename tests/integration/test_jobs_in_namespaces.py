"""Workers in namespaces meet at the controller, add up in the switch, are killed, and come back."""

from __future__ import annotations

import os
import signal

import pytest

from tests.integration.job_fabric import JobFabric

pytestmark = pytest.mark.root

ALL, WITHOUT_H2 = 2 + 4 + 8 + 16, 2 + 8 + 16


def test_a_killed_worker_is_done_without_and_comes_back() -> None:
    hosts = ("h1", "h2", "h3", "h4")
    with JobFabric(4) as fabric:
        workers = {host: fabric.start_worker(host, 4) for host in hosts}
        for worker in workers.values():
            worker.wait_for(f'"sum": {ALL}')
        killed = workers["h2"]
        os.kill(killed.process.pid, signal.SIGKILL)
        at = workers["h1"].wait_for(f'"sum": {WITHOUT_H2}')
        workers["h2"] = back = fabric.start_worker("h2", 4)
        back.wait_for(f'"sum": {ALL}')
        workers["h1"].wait_for(f'"sum": {ALL}', at)
        assert workers["h1"].stop() == 0
        assert [worker.wait() for worker in workers.values()] == [0] * 4
        told = workers["h1"].sums
        first, last = min(back.sums), max(told)
        assert list(told) == list(range(last + 1))
        lost = min(count for count, total in told.items() if total == WITHOUT_H2)
        assert [told[count] for count in range(lost)] == [ALL] * lost
        assert {told[count] for count in range(lost, first)} == {WITHOUT_H2}
        assert {told[count] for count in range(first, last + 1)} == {ALL}
        for worker in (*workers.values(), killed):
            assert worker.sums.items() <= told.items()
