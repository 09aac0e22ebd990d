"""A task's owner is the authenticated caller, whatever the request says."""

from __future__ import annotations

from msgspec.structs import replace

from controller.apiserver.resources import Metadata, Task
from controller.apiserver.resources.task import Program, ProgramKind, TaskSpec, TaskStatus
from dataplane.rpc.access import Role
from tests.controller.apiserver.api_server import Play, Served


def task(name: str) -> Task:
    spec = TaskSpec(program=Program(kind=ProgramKind.SCRIPT, text="true"))
    return Task(metadata=Metadata(name=name), spec=spec, status=TaskStatus(user="somebody else"))


def test_task_keeps_its_submitter_whatever_is_written(play: Play) -> None:
    async def act(served: Served) -> None:
        async with await served.client_of(Role.USER, name="ada") as ada:
            assert (await ada.of(Task).create(task("a"))).status.user == "ada"
        made = await served.client.of(Task).create(task("b"))
        assert made.status.user == "local"
        current = await served.client.of(Task).get("a")
        await served.client.of(Task).replace_status(replace(current, status=replace(current.status, user="eve")))
        assert (await served.client.of(Task).get("a")).status.user == "ada"

    play(act)
