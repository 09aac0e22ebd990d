"""Misbehaving centres: each can write only its own resources, once, and can forge nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from controller.apiserver.client import ApiClient
from controller.apiserver.registry.completions import Completion, CompletionRequest, NewResult
from controller.apiserver.registry.dispatches import Dispatch, DispatchRequest, Pick
from controller.apiserver.resources import Centre, Metadata, Node, ProbeResult, Task
from controller.apiserver.resources.centre import CentreSpec, UnitShare, UnitType
from controller.apiserver.resources.operator_devices import OperatorDevice
from controller.apiserver.resources.probe_result import ProbeResultSpec, ProbeResultStatus, ProbeRun
from controller.apiserver.resources.task import Program, ProgramKind, TaskPhase, TaskSpec
from controller.common.errors import ApiError, ForbiddenError, NotFoundError, StaleError
from dataplane.rpc.access import Role
from dataplane.topology.values import DeviceKind
from tests.controller.apiserver.api_server import Play, Served

RESULT = NewResult(status=ProbeResultStatus(runs=(ProbeRun(units=1, run_times_s=(0.001,)),)))


async def refused(error: type[ApiError], problem: str, *asked: Awaitable[object]) -> None:
    for request in asked:
        with pytest.raises(error, match=problem):
            await request


def done(task: str, epoch: int = 1, **more: object) -> CompletionRequest:
    item = Completion(task=task, epoch=epoch, phase=TaskPhase.SUCCEEDED, **more)  # type: ignore[arg-type]
    return CompletionRequest(completions=(item,))


async def report(client: ApiClient, name: str, **status: object) -> Centre:
    centre = await client.of(Centre).get(name)
    units = (UnitType(name="small", count=2),)
    wanted = {"ready": True, "units": units, "heartbeat_ns": (centre.status.heartbeat_ns or 0) + 1} | status
    return await client.of(Centre).replace_status(replace(centre, status=replace(centre.status, **wanted)))


@asynccontextmanager
async def two_centres(served: Served) -> AsyncIterator[tuple[ApiClient, ApiClient]]:
    """Create both centres, with probes `p1` and `p2` dispatched to them."""
    async with await served.client_of(Role.CENTRE, "c1") as first, await served.client_of(Role.CENTRE, "c2") as second:
        for client, name in ((first, "c1"), (second, "c2")):
            await client.of(Centre).create(Centre(metadata=Metadata(name=name)))
            await report(client, name)
        for number in (1, 2):
            spec = TaskSpec(program=Program(kind=ProgramKind.PROBE, entry="solve"), is_probe=True)
            await served.client.of(Task).create(Task(metadata=Metadata(name=f"p{number}"), spec=spec))
            item = Dispatch(task=f"p{number}", centre=f"c{number}", unit="small")
            await served.client.dispatch(DispatchRequest(dispatches=(item,)))
        yield first, second


def test_centre_completes_its_own_task_with_its_measurement(play: Play) -> None:
    async def act(served: Served) -> None:
        async with two_centres(served) as (mine, _):
            (task,) = (await mine.of(Task).list(fields="centre=c1")).items
            answer = await mine.complete(done("p1", result=RESULT))
            (name,) = answer.results
            result = await mine.of(ProbeResult).get(name)
            assert (result.spec.centre, result.spec.task, result.spec.probe) == ("c1", "p1", "solve")
            assert result.metadata.uid
            assert name == f"p1.{task.metadata.uid[:8]}.1"
            assert (await mine.of(Centre).get("c1")).shares == ()
            assert (await served.client.of(Task).get("p1")).status.result == name

    play(act)


def test_a_centre_touches_no_task_and_no_result_of_another(play: Play) -> None:
    async def act(served: Served) -> None:
        async with two_centres(served) as (mine, other):
            theirs = await other.of(Task).get("p2")
            anyhow = replace(theirs.metadata, revision=0)
            running = replace(theirs, metadata=anyhow, status=replace(theirs.status, phase=TaskPhase.RUNNING))
            await other.complete(done("p2", result=RESULT))
            (result,) = (await other.of(ProbeResult).list(fields="centre=c2")).items
            await refused(
                ForbiddenError,
                "c1 .* may not",
                mine.of(Task).get("p2"),
                mine.of(Task).list(),
                mine.of(Task).list(fields="centre=c2"),
                mine.of(Task).replace_status(running),
                mine.of(Task).delete("p1"),
                mine.complete(done("p2")),
                mine.complete(done("nobody")),
                mine.pick(Pick(task="p2", epoch=1, unit="small")),
                mine.dispatch(DispatchRequest(dispatches=(Dispatch(task="p1", centre="c2"),))),
                mine.of(ProbeResult).get(result.metadata.name),
                mine.of(ProbeResult).list(),
                mine.of(Centre).create(Centre(metadata=Metadata(name="c3"))),
                report(mine, "c2"),
                mine.of(Node).list(),
            )

    play(act)


def test_one_task_of_another_in_a_request_spoils_all_of_it(play: Play) -> None:
    async def act(served: Served) -> None:
        async with two_centres(served) as (mine, _):
            both = CompletionRequest(completions=(*done("p1").completions, *done("p2").completions))
            await refused(ForbiddenError, "may not complete", mine.complete(both))
            assert (await mine.of(Task).get("p1")).status.phase is TaskPhase.DISPATCHED

    play(act)


def test_results_come_only_with_completions_and_are_immutable(play: Play) -> None:
    async def act(served: Served) -> None:
        async with two_centres(served) as (mine, _):
            (name,) = (await mine.complete(done("p1", result=RESULT))).results
            result = await mine.of(ProbeResult).get(name)
            better = replace(result.status, score=100.0)
            made_up = ProbeResult(metadata=Metadata(name="r"), spec=ProbeResultSpec(probe="solve", centre="c1"))
            await refused(
                ForbiddenError,
                "may not",
                mine.of(ProbeResult).create(made_up),
                mine.of(ProbeResult).replace_status(replace(result, status=better)),
                mine.of(ProbeResult).delete(name),
            )
            # A second time, and for a future epoch.
            await refused(StaleError, "holds nothing", mine.complete(done("p1", result=RESULT)))
            await refused(StaleError, "epoch 1, no longer in 2", mine.complete(done("p1", 2, result=RESULT)))

    play(act)


def test_runs_of_an_older_epoch_no_longer_count(play: Play) -> None:
    async def act(served: Served) -> None:
        async with two_centres(served) as (mine, other):
            held = await served.client.of(Task).get("p1")
            lost = Completion(task="p1", epoch=1, phase=TaskPhase.PENDING, reasons=("its centre is silent",))
            await served.client.complete(CompletionRequest(completions=(lost,)))
            late = replace(held, status=replace(held.status, phase=TaskPhase.RUNNING))
            late = replace(late, metadata=replace(late.metadata, revision=0))
            for request in (mine.complete(done("p1")), mine.of(Task).replace_status(late), mine.of(Task).get("p1")):
                await refused(ForbiddenError, "may not", request)
            await served.client.dispatch(DispatchRequest(dispatches=(Dispatch(task="p1", centre="c1", unit="small"),)))
            await refused(StaleError, "epoch 2, no longer in 1", mine.complete(done("p1", 1)))
            await refused(StaleError, "epoch 2, no longer in 1", mine.of(Task).replace_status(late))
            assert (await mine.complete(done("p1", 2))).tasks == ("p1",)
            assert len((await other.of(Centre).get("c2")).shares) == 1

    play(act)


def test_centres_cannot_write_shares_and_specs(play: Play) -> None:
    async def act(served: Served) -> None:
        async with two_centres(served) as (mine, _):
            centre = await mine.of(Centre).get("c1")
            share = UnitShare(task="x", uid="u", epoch=1, unit="small", units=2)
            await mine.of(Centre).replace_status(replace(centre, shares=(share,), shares_version=9))
            after = await mine.of(Centre).get("c1")
            assert (after.shares, after.shares_version) == (centre.shares, centre.shares_version)
            forever = replace(after, spec=CentreSpec(lease_s=1e9))
            await refused(ForbiddenError, "may not", mine.of(Centre).replace(forever), mine.of(Centre).delete("c1"))
            held = "Centre c1 has shares held by p1"
            await refused(StaleError, held, served.client.of(Centre).delete("c1"))

    play(act)


def test_two_agents_are_no_centre(play: Play) -> None:
    async def act(served: Served) -> None:
        async with two_centres(served) as (mine, _):
            await report(mine, "c1", agent="here")
            problem = "Centre c1 has an agent, of state folder here, whose lease has not expired"
            await refused(StaleError, problem, report(mine, "c1", agent="there"))
            await report(mine, "c1", agent="here", signed_off=True)
            assert (await report(mine, "c1", agent="there", signed_off=False)).status.agent == "there"

    play(act)


def test_held_task_goes_once_its_centre_has_stopped_it(play: Play) -> None:
    async def act(served: Served) -> None:
        async with two_centres(served) as (mine, _):
            theirs = await served.client.of(Task).get("p1")
            told = replace(theirs.status, operator_devices=(OperatorDevice(operator="product", device=DeviceKind.GPU),))
            forged = replace(theirs, metadata=Metadata(name="new"), status=told)
            made = await served.client.of(Task).create(forged)
            assert (made.status.phase, made.status.centre, made.status.operator_devices) == (
                TaskPhase.PENDING,
                None,
                (),
            )
            mines = replace(theirs, status=replace(told, phase=TaskPhase.RUNNING))
            assert (await mine.of(Task).replace_status(mines)).status.operator_devices == ()
            marked = await served.client.of(Task).delete("p1")
            assert marked.metadata.deleting_ns is not None
            assert (await mine.of(Task).get("p1")).metadata.deleting_ns is not None
            await mine.complete(done("p1"))
            await refused(NotFoundError, "there is no Task p1", served.client.of(Task).get("p1"))

    play(act)


def test_spec_of_a_task_with_units_does_not_change(play: Play) -> None:
    async def act(served: Served) -> None:
        async with two_centres(served) as (_, _):
            task = await served.client.of(Task).get("p1")
            other = replace(task.spec, program=Program(kind=ProgramKind.SCRIPT, text="rm"), limit_s=5.0)
            problem = "Task p1 is dispatched: its program and limit_s cannot change"
            await refused(StaleError, problem, served.client.of(Task).replace(replace(task, spec=other)))
            await served.client.of(Task).replace(replace(task, spec=replace(task.spec, priority=5)))

    play(act)


def test_only_schedulers_dispatch_and_users_complete_nothing(play: Play) -> None:
    async def act(served: Served) -> None:
        async with two_centres(served), await served.client_of(Role.USER) as user:
            await refused(
                ForbiddenError,
                "may not",
                user.dispatch(DispatchRequest(dispatches=(Dispatch(task="p1", centre="c1"),))),
                user.complete(done("p1")),
                user.complete(done("nobody")),
                user.pick(Pick(task="p1", epoch=1, unit="small")),
            )

    play(act)
