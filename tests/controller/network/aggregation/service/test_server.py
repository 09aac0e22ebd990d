"""Workers in threads join the job service over gRPC, sum over UDP, die and return."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import numpy as np
import pytest
from msgspec import structs

from controller.apps.cli import main
from controller.common.errors import JobError
from controller.network.aggregation.service.client import JobClient, JobClientSettings
from controller.network.daemon_settings import DaemonSettings
from dataplane.allreduce.engine import Engine
from dataplane.allreduce.errors import JobRefusedError, RemovedError
from dataplane.allreduce.membership import Membership
from dataplane.allreduce.reference.aggregator import Aggregator, Multicast
from dataplane.config import loads
from dataplane.errors import AllReduceError, MillraceError
from dataplane.wire.aggregation import Aggregation
from tests.controller.network.aggregation.service.serving_jobs import (
    BOUND_S,
    SETTINGS,
    RunningService,
    cut,
    run_service,
    vanish,
)
from tests.dataplane.allreduce.serving import Server
from tests.waiting import wait_until

T = TypeVar("T")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder with a short name: a unix socket's path has about 100 bytes."""
    with TemporaryDirectory(prefix="jobs") as name:
        yield Path(name)


def sums(members: Sequence[Membership], size: int = 300) -> list[float]:
    futures = [member.reducer.all_reduce(np.ones(size, np.float32)) for member in members]
    return [float(future.result(BOUND_S)[-1]) for future in futures]


def until_members(members: Sequence[Membership], count: int) -> None:
    wait_until(lambda: all(len(member.members) == count for member in members), f"not all have {count} members")


def until_held(member: Membership) -> None:
    """Wait until a member holds its all-reduces for a joiner."""
    wait_until(lambda: member._held_until_s is not None, "no all-reduce is held")


def test_job_survives_a_dead_worker_and_takes_it_back(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "millrace.allreduce"), run_service(folder) as here:
        members = here.together("h1", "h2", "h3", "h4")
        assert sums(members) == [4.0] * 4
        vanish(members.pop(1))
        assert sums(members) == [3.0] * 3
        until_members(members, 3)
        back = here.join("h2", 4)
        until_members(members, 4)
        members.append(back.result(BOUND_S))
        assert members[-1].first_count == 2
        assert sums(members) == [4.0] * 4
        assert members[0].members == ("h1", "h2", "h3", "h4")
        assert "h2 is no longer a member: a mean is over 3 workers" in caplog.text
        assert "h2 is a member: a mean is over 4 workers" in caplog.text


class ForgettingOnce(Server):
    """Sends the result of one item to the first child only, then forgets everything."""

    item: int | None = None
    has_forgotten = False

    def _take(self, packet: Aggregation, child: int) -> None:
        if packet.item != self.item or self.has_forgotten:
            super()._take(packet, child)
            return
        answer = self.switch.from_child(child, packet)
        if isinstance(answer, Multicast):
            self._put(answer.packet.encode(), next(at for at, number in self.children.items() if number == 0))
            self.switch, self.has_forgotten = Aggregator(self.switch.jobs), True


def test_leaving_worker_sends_results_that_a_switch_forgot(folder: Path) -> None:
    with run_service(folder, make_server=ForgettingOnce) as here:
        members = here.together("h1", "h2")
        assert sums(members) == [2.0] * 2
        assert isinstance(here.server, ForgettingOnce)
        here.server.item = members[0].reducer.next_item + 2  # after the exponents and the first block
        first, second = (member.reducer.all_reduce(np.ones(300, np.float32)) for member in members)
        assert first.result(BOUND_S)[-1] == 2
        leaving = here._pool.submit(members[0].close)
        assert second.result(BOUND_S)[-1] == 2
        leaving.result(BOUND_S)
        assert here.server.has_forgotten
        assert sums(members[1:]) == [1.0]


def test_joiner_waits_for_begun_all_reduces(folder: Path) -> None:
    with run_service(folder) as here:
        first, second = here.together("h1", "h2", capacity=3)
        begun = first.reducer.all_reduce(np.ones(5, np.float32))
        wait_until(lambda: first.engine.begun > 0, "no all-reduce begins")
        joiner = here.join("h3", 2, capacity=3)
        until_held(first)
        assert second.reducer.all_reduce(np.ones(5, np.float32)).result(BOUND_S)[0] == 2
        assert begun.result(BOUND_S)[0] == 2
        third = joiner.result(BOUND_S)
        assert third.first_count == 1
        assert sums([first, second, third]) == [3.0] * 3


def test_newcomers_join_between_rounds_and_get_the_state(folder: Path) -> None:
    state = np.linspace(-3, 3, 1001)
    with run_service(folder) as here:
        members = here.together("h1", "h2", capacity=3, boundaries=True)
        assert [member.boundary() for member in members] == [False] * 2
        sums(members)
        joiner = here.join("h3", 2, capacity=3, boundaries=True)
        until_held(members[0])
        assert sums(members) == [2.0] * 2
        waiting = [here._pool.submit(member.boundary) for member in members]
        third = joiner.result(BOUND_S)
        assert [future.result(BOUND_S) for future in waiting] == [True] * 2
        assert third.boundary()
        given = [state, state, np.zeros(1001)]
        shared = [here._pool.submit(member.share, mine) for member, mine in zip([*members, third], given, strict=True)]
        assert all(np.array_equal(future.result(BOUND_S), state) for future in shared)
        assert sums([*members, third]) == [3.0] * 3


def test_a_connection_that_breaks_is_made_again(folder: Path) -> None:
    patient = structs.replace(SETTINGS, reconnect_ns=SETTINGS.lease_ns)
    with run_service(folder, settings=patient, address="127.0.0.1:0") as here:
        members = here.together("h1", "h2", "h3")
        cut(members[0])
        assert sums(members) == [3.0] * 3
        ask(here, lambda client: client.remove("job", "h3", "to see whether the others hear"))
        until_members(members[:2], 2)
        assert sums(members[:2]) == [2.0] * 2


def test_worker_at_a_boundary_learns_that_the_job_ended(folder: Path) -> None:
    with run_service(folder) as here:
        members = here.together("h1", "h2", capacity=3, boundaries=True)
        here.join("h3", 2, capacity=3, boundaries=True)
        until_held(members[0])
        waiting = here._pool.submit(members[0].boundary)
        ask(here, lambda client: client.end("job", "its owner has gone home"))
        with pytest.raises(AllReduceError, match=r"^job job has ended: its owner has gone home$"):
            waiting.result(BOUND_S)
        with pytest.raises(AllReduceError, match="its owner has gone home"):
            members[1].boundary()


def test_the_main_server_gets_final_sums(folder: Path) -> None:
    with run_service(folder) as here:
        members = here.together("h1", "h2", server=("h5", free_port()))
        sums(members)
        settings = here.here(members[0].for_server())
        totals = np.zeros(5000, np.float32)
        with Engine(settings) as server:
            reading = here._pool.submit(server.read, totals)
            for member in members:
                member.reducer.all_reduce(np.full(5000, 3, np.float32), final=True)
            reading.result(BOUND_S)
        assert (totals == 6).all()


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_all_get_the_reason_when_there_is_no_place(folder: Path) -> None:
    with run_service(folder, places=0) as here:
        waiting = [here.join(host, 2) for host in ("h1", "h2")]
        for future in waiting:
            with pytest.raises(JobRefusedError, match=r"^job job: switch s1 has no cells left$"):
                future.result(BOUND_S)


def test_worker_of_a_short_job_gets_the_list_of_joined(folder: Path) -> None:
    with (
        run_service(folder) as here,
        pytest.raises(JobRefusedError, match=r"only 1 of 3 workers \(h1\) joined in time"),
    ):
        here.join("h1", 3, deadline_s=1.0).result(BOUND_S)


def test_without_a_service_the_wait_has_an_end(folder: Path) -> None:
    with pytest.raises(AllReduceError, match=r"^job job: no answer from the job service at .*: cannot connect: "):
        Membership.join(f"unix:{folder}/none", job="job", host="h1", workers=2, deadline_s=0.3)
    with pytest.raises(AllReduceError, match="is neither unix:PATH nor HOST:PORT"):
        Membership.join("nowhere", job="job", host="h1", workers=2)


def test_a_job_that_moves_goes_on_under_another_number(folder: Path) -> None:
    with run_service(folder) as here:
        members = here.together("h1", "h2")
        assert sums(members) == [2.0] * 2
        number = members[0].number
        on_loop(here, "should_move", number, "s1 is busy")
        wait_until(lambda: all(member.number != number for member in members), "the job keeps its number")
        assert sums(members) == [2.0] * 2
        assert list(here.server.switch.jobs) != [number]


def on_loop(here: RunningService, event: str, number: int, reason: str) -> None:
    assert here._loop is not None
    here._loop.call_soon_threadsafe(getattr(here.reconciler.listeners[0], event), number, reason)


def test_a_job_that_switches_give_up_fails_with_their_reason(folder: Path) -> None:
    with run_service(folder) as here:
        members = here.together("h1", "h2")
        waiting = members[0].reducer.all_reduce(np.ones(5, np.float32))
        on_loop(here, "failed", members[0].number, "switch s1 has been unreachable for 5 s")
        with pytest.raises(AllReduceError, match=r"^job job has ended: switch s1 has been unreachable for 5 s$"):
            waiting.result(BOUND_S)


def test_workers_are_notified_of_a_restarted_service(folder: Path) -> None:
    with run_service(folder) as here:
        members = here.together("h1", "h2")
        here.stop()
        assert sums(members) == [2.0] * 2
        here.start()
        waiting = members[0].reducer.all_reduce(np.ones(5, np.float32))
        with pytest.raises(AllReduceError, match="job job has ended: the controller does not know its number 1"):
            waiting.result(BOUND_S)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ("{window: 100}", "jobs.window: 100 is not a power of two"),
        ("{lease: 1ns}", r"jobs.lease: expected a time >= 100ms"),
        ("{leases: 1}", "jobs.leases: unknown key"),
    ],
)
def test_settings_that_cannot_be(settings: str, problem: str) -> None:
    def read() -> None:
        daemon_settings = loads(f"topology: x\nswitches: {{}}\njobs: {settings}\n", DaemonSettings)
        assert daemon_settings.jobs is not None
        daemon_settings.jobs.check()

    with pytest.raises(MillraceError, match=problem):
        read()


def test_people_see_jobs_and_interfere(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with run_service(folder) as here:
        members = here.together("h1", "h2", "h3", "h4", job="resnet")
        assert json.loads(millrace(capsys, "list", here, "--format", "json"))[0] == {
            "job": "resnet",
            "number": 1,
            "state": "running",
            "members": 4,
            "workers": 4,
            "epoch": 1,
            "window": 16,
            "capacity": 4,
            "switches": ["leaf1"],
        }
        millrace(capsys, "remove", here, "resnet", "h3", "--reason", "its card is broken")
        with pytest.raises(RemovedError, match="h3 was removed from job resnet: its card is broken"):
            members[2].reducer.all_reduce(np.ones(5, np.float32)).result(BOUND_S)
        shown = json.loads(millrace(capsys, "show", here, "resnet", "--json"))
        assert [row["host"] for row in shown["members"]] == ["h1", "h2", "h4"]
        assert "h4" in millrace(capsys, "show", here, "resnet")
        millrace(capsys, "end", here, "resnet")
        assert ask(here, lambda client: client.jobs())[-1].reason == "requested by an operator"
        assert "ended" in millrace(capsys, "list", here, "--all")
        assert re.search(r"ended \d+ s ago: requested by an operator", millrace(capsys, "show", here, "resnet"))
        with pytest.raises(JobError, match="there is no job 'resnet'"):
            ask(here, lambda client: client.end("resnet", "again"))
        with pytest.raises(JobError, match="there is no worker 'h1' in job 'resnet'"):
            ask(here, lambda client: client.remove("resnet", "h1", "again"))


def ask(here: RunningService, question: Callable[[JobClient], Awaitable[T]]) -> T:
    async def asked() -> T:
        async with JobClient(JobClientSettings(address=here.address)) as client:
            return await question(client)

    return asyncio.run(asked())


def millrace(capsys: pytest.CaptureFixture[str], command: str, here: RunningService, *more: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["millrace", "job", command, *more, "--server", here.address])
        with pytest.raises(SystemExit) as end:
            main()
    output = capsys.readouterr()
    assert not end.value.code, output.err
    return output.out
