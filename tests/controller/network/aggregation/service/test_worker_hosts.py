"""A worker's host is that of its certificate or token; users have only their role's permissions."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from controller.common.errors import JobError
from controller.network.aggregation.service.client import JobClient, JobClientSettings
from controller.network.aggregation.service.messages import JobRow
from dataplane.errors import AllReduceError
from dataplane.rpc.access import Right, Role
from dataplane.rpc.access.settings import TlsSettings
from tests.certificates import Authority
from tests.controller.network.aggregation.service.serving_jobs import BOUND_S, run_service
from tests.waiting import finish_within


def asked(address: str, tls: TlsSettings, *, end: str | None = None) -> tuple[JobRow, ...]:
    """End a job and list jobs with these credentials."""

    async def ask() -> tuple[JobRow, ...]:
        async with JobClient(JobClientSettings(address=address, tls=tls)) as client:
            if end is not None:
                await client.end(end, "tried")
            return await client.jobs()

    return asyncio.run(finish_within(ask(), BOUND_S))


def test_a_workers_host_is_proven_by_its_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    service, ann = authority.settings("service"), authority.settings("ann", Role.USER)
    eve = authority.settings("eve", Role.USER, None, Right.OPERATE)
    workers = {host: authority.settings(host, Role.WORKER, host) for host in ("h1", "h2")}
    with run_service(tmp_path, address="127.0.0.1:0", tls=service) as here:
        liar = here.join("h2", 2, tls=workers["h1"])
        with pytest.raises(AllReduceError, match=r"h1 \(worker h1\) may not attend as host h2"):
            liar.result(BOUND_S)
        with pytest.raises(AllReduceError, match=r"ann \(user\) may not call Attend: .* permission to attend"):
            here.join("h1", 2, tls=ann).result(BOUND_S)
        joined = [here.join(host, 2, tls=tls) for host, tls in workers.items()]
        assert {tuple(member.result(BOUND_S).members) for member in joined} == {("h1", "h2")}
        assert len(asked(here.address, ann)) == 1
        with pytest.raises(JobError, match=r"h1 \(worker h1\) may not call ListJobs"):
            asked(here.address, workers["h1"])
        with pytest.raises(JobError, match=r"ann \(user\) may not call EndJob: .* permission to operate"):
            asked(here.address, ann, end="job")
        asked(here.address, eve, end="job")


def test_workers_do_not_go_to_other_machines_in_the_open(tmp_path: Path) -> None:
    with run_service(tmp_path) as here:
        with pytest.raises(AllReduceError, match="not loopback, and there is no tls"):
            here.join("h1", 1, address="192.0.2.1:9560").result(BOUND_S)
        with pytest.raises(AllReduceError, match="not loopback"):
            here.join("h1", 1, address="jobs.example:9560").result(BOUND_S)
