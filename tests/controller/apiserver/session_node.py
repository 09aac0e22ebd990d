"""The node's end of sessions, like a container manager's, with answers from the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from controller.apiserver.client import ApiClient
from controller.apiserver.registry.placements import Binding, BindingRequest
from controller.apiserver.resources import Metadata, Node, Pod
from controller.apiserver.resources.hardware import Hardware
from controller.apiserver.resources.node import NodeSpec
from controller.apiserver.resources.pod import Container, PodSpec
from controller.apiserver.sessions.frames import Frame
from controller.apiserver.sessions.values import Answerer, AnswererKind, PodSessionRequest

H1 = Answerer(AnswererKind.NODE, "h1")
Answer = Callable[[PodSessionRequest], AsyncIterator[Frame]]


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


@asynccontextmanager
async def answering(client: ApiClient, node: str, answer: Answer) -> AsyncIterator[list[BaseException]]:
    """Answer a node's session requests until the context ends; yield the errors of failed answers."""
    failed: list[BaseException] = []

    async def answer_one(request: PodSessionRequest) -> None:
        try:
            await client.answer_session(Answerer(AnswererKind.NODE, node), request.number, answer(request))
        except Exception as error:  # noqa: BLE001 - the test looks at it
            failed.append(error)

    async def listen() -> None:
        async with asyncio.TaskGroup() as group:
            async for request in client.node_sessions(node):
                group.create_task(answer_one(request))

    task = asyncio.create_task(listen())
    try:
        yield failed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
