"""Users against a centre whose jobs are pods: they take the names of pods that the centre's agent has removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.apiserver.client import ApiClient
from controller.apiserver.resources import Metadata, Node, Pod
from controller.apiserver.resources.hardware import Hardware
from controller.apiserver.resources.node import NodeSpec, NodeStatus
from controller.apiserver.resources.pod import Container, PodSpec
from controller.apiserver.tokens import TokenRequest
from controller.common.errors import ForbiddenError
from controller.workloads.centres.engines.base import JobMark, JobOrder, JobPhase
from controller.workloads.centres.engines.containers import ContainersEngine, ContainersSettings
from dataplane.rpc.access import Role
from tests.controller.apiserver.api_server import Play, Served


async def engine_of(served: Served) -> ContainersEngine:
    """Return a started engine that makes pods as a user, and has room for them."""
    spec, status = NodeSpec(hardware=Hardware(cpu_milli=8000)), NodeStatus(ready=True)
    await served.client.of(Node).create(Node(metadata=Metadata(name="h1"), spec=spec, status=status))
    token = served.folder / "token"
    token.touch(0o600)
    token.write_text((await served.client.create_token(TokenRequest("c1-pods", Role.USER))).token)
    settings = ContainersSettings(api=served.url, token_file=str(token), bundle="/bundle")
    engine = ContainersEngine(settings, centre="c1", records=served.folder / "records")
    await engine.start()
    return engine


def order(folder: Path, task: str) -> JobOrder:
    mark = JobMark("c1", task, f"uid-{task}", 1)
    return JobOrder(mark=mark, argv=("true",), folder=folder / task, unit="core", units=1)


async def take(user: ApiClient, name: str) -> None:
    """Make a pod with a name."""
    spec = PodSpec(containers=(Container(name="m", image="i"),))
    await user.of(Pod).create(Pod(metadata=Metadata(name=name), spec=spec))


def test_a_taken_name_of_a_removed_pod_is_no_failure(play: Play) -> None:
    async def act(served: Served) -> None:
        engine = await engine_of(served)
        async with await served.client_of(Role.USER, name="eve") as eve:
            try:
                gone, stays = [await engine.submit(order(served.folder, task)) for task in ("gone", "stays")]
                await served.client.of(Pod).delete(gone)
                await take(eve, gone)
                phases = {state.id: state.phase for state in await engine.jobs()}
                assert phases == {gone: JobPhase.LOST, stays: JobPhase.QUEUED}
                await engine.cancel(gone, 0.0)
                await engine.forget(gone)
                assert [state.id for state in await engine.jobs()] == [stays]
            finally:
                await engine.close()
            assert (await eve.of(Pod).get(gone)).metadata.owner == "eve"
            with pytest.raises(ForbiddenError, match="it belongs to another user"):
                await eve.of(Pod).delete(stays)

    play(act)
