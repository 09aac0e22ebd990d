"""The ends of sessions of nodes and centres, like their agents', with answers from the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager

from msgspec.structs import replace

from controller.apiserver.client import ApiClient
from controller.apiserver.client.sessions import Requested
from controller.apiserver.registry.dispatches import Dispatch, DispatchRequest
from controller.apiserver.registry.placements import Binding, BindingRequest
from controller.apiserver.resources import Centre, Metadata, Node, Pod, Task
from controller.apiserver.resources.centre import CentreStatus, UnitType
from controller.apiserver.resources.hardware import Hardware
from controller.apiserver.resources.node import NodeSpec
from controller.apiserver.resources.pod import Container, PodSpec
from controller.apiserver.resources.task import Program, ProgramKind, TaskSpec
from controller.apiserver.sessions.frames import Frame
from controller.apiserver.sessions.values import (
    Answerer,
    AnswererKind,
    NodeSessionRequest,
    PodSessionRequest,
    TaskSessionRequest,
)

H1 = Answerer(AnswererKind.NODE, "h1")
Answer = Callable[[Requested], AsyncIterator[Frame]]


async def bound_pod(admin: ApiClient, pod: str = "a", node: str = "h1", *containers: str) -> None:
    """Create a node unless it exists, and a pod bound to it."""
    if node not in {each.metadata.name for each in (await admin.of(Node).list()).items}:
        spec = NodeSpec(hardware=Hardware(cpu_milli=8000))
        await admin.of(Node).create(Node(metadata=Metadata(name=node), spec=spec))
    parts = tuple(Container(name=name, image="busybox") for name in containers or ("main",))
    await admin.of(Pod).create(
        Pod(metadata=Metadata(name=pod, owner="user", project="play"), spec=PodSpec(containers=parts))
    )
    await admin.bind(BindingRequest(bindings=(Binding(pod=pod, node=node),)))


async def dispatched_task(admin: ApiClient, task: str = "t", centre: str = "c1", *, owner: str = "user") -> None:
    """Create a ready centre unless it exists, and a task of a user dispatched to it."""
    if centre not in {each.metadata.name for each in (await admin.of(Centre).list()).items}:
        made = await admin.of(Centre).create(Centre(metadata=Metadata(name=centre)))
        units = (UnitType(name="core", count=8),)
        await admin.of(Centre).replace_status(replace(made, status=CentreStatus(ready=True, units=units)))
    spec = TaskSpec(program=Program(kind=ProgramKind.SCRIPT, text="true"))
    await admin.of(Task).create(Task(metadata=Metadata(name=task, owner=owner, project="play"), spec=spec))
    await dispatch(admin, task, centre)


async def dispatch(admin: ApiClient, task: str, centre: str) -> None:
    item = Dispatch(task=task, centre=centre, unit="core")
    await admin.dispatch(DispatchRequest(dispatches=(item,)))


def answering(
    client: ApiClient, node: str, answer: Answer[PodSessionRequest]
) -> AbstractAsyncContextManager[list[BaseException]]:
    """Answer a node's session requests until the context ends; yield the errors of failed answers."""
    return _answering(client, Answerer(AnswererKind.NODE, node), _of_pods(client.node_sessions(node)), answer)


async def _of_pods(requests: AsyncGenerator[NodeSessionRequest, None]) -> AsyncGenerator[PodSessionRequest, None]:
    async with aclosing(requests):
        async for request in requests:
            assert isinstance(request, PodSessionRequest)
            yield request


def answering_tasks(
    client: ApiClient, centre: str, answer: Answer[TaskSessionRequest]
) -> AbstractAsyncContextManager[list[BaseException]]:
    """Answer a centre's session requests in the same way."""
    return _answering(client, Answerer(AnswererKind.CENTRE, centre), client.centre_sessions(centre), answer)


@asynccontextmanager
async def _answering(
    client: ApiClient, answerer: Answerer, requests: AsyncGenerator[Requested, None], answer: Answer[Requested]
) -> AsyncIterator[list[BaseException]]:
    failed: list[BaseException] = []

    async def answer_one(request: Requested) -> None:
        try:
            await client.answer_session(answerer, request.number, answer(request))
        except Exception as error:  # noqa: BLE001 - the test looks at it
            failed.append(error)

    async def listen() -> None:
        async with asyncio.TaskGroup() as group, aclosing(requests):
            async for request in requests:
                group.create_task(answer_one(request))

    task = asyncio.create_task(listen())
    try:
        yield failed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
