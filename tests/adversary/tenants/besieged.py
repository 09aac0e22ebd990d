"""Targets of a siege: an API server, a centre's agent, more agents on request, and Ada's resources."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx

from controller.apiserver.client import ApiClient, Place
from controller.apiserver.registry.placements import Binding, BindingRequest
from controller.apiserver.resources import Metadata, Node, Pod, PodGroup, Project, Task
from controller.apiserver.resources.hardware import Hardware
from controller.apiserver.resources.node import NodeSpec, NodeStatus
from controller.apiserver.resources.pod import Container, PodSpec
from controller.apiserver.resources.pod_group import PodGroupSpec
from controller.apiserver.resources.task import Program, ProgramKind, TaskSpec
from controller.apiserver.tokens import TokenRequest
from dataplane.rpc.access import Right, Role
from tests.adversary.tenants.besieged_engines import add_containers, add_slurm, attack_words
from tests.adversary.tenants.daemons import Daemons, daemon
from tests.adversary.tenants.engine_attacks import PodAttack, TaskAttack
from tests.adversary.tenants.siege import CANARY, TenantSiege
from tests.controller.workloads.nodes.conftest import PodmanStorage


@asynccontextmanager
async def besieged(
    folder: Path, seed: int = 1, storage: PodmanStorage | None = None, *, engines: bool = False
) -> AsyncIterator[TenantSiege]:
    """Start daemons, with Ada's objects and files, for as long as the block lasts.

    With a storage there is a node with podman, with `engines` also centres whose tasks run on Slurm and in containers.
    The folder must then be one that any user may pass through.
    """
    for name, mode in (("precious", 0o700), ("open", 0o777)):
        (folder / name).mkdir()
        (folder / name).chmod(mode)
    secret = folder / "precious" / "secret"
    secret.write_text(CANARY)
    secret.chmod(0o600)
    settings = {
        "storage": {"sqlite": f"{folder}/api.db"},
        "listen": [f"unix:{folder}/api.sock", "127.0.0.1:0"],
        "retention": {"ended_tasks": 10},
    }
    async with AsyncExitStack() as stack:
        _, line = await stack.enter_async_context(daemon(folder, "api", "api", settings))
        admin = await stack.enter_async_context(ApiClient(Place(f"unix:{folder}/api.sock")))
        url = line.rpartition(", ")[2].strip()
        requests = (
            TokenRequest("ada", Role.USER, projects=("vision",)),
            TokenRequest("eve", Role.USER, rights=(Right.EXEC, Right.KERNELS)),
            TokenRequest("h1", Role.NODE, "h1"),
        )
        ada_token, eve_token, node_token = [(await admin.create_token(request)).token for request in requests]
        ada = await stack.enter_async_context(ApiClient(Place(url, ada_token)))
        await _fill(admin, ada)
        siege = TenantSiege(
            folder=folder,
            url=url,
            admin=admin,
            ada=ada,
            eve=await stack.enter_async_context(_client(url, eve_token)),
            node=await stack.enter_async_context(_client(url, node_token)),
            stranger=await stack.enter_async_context(_client(url, None)),
            random=random.Random(seed),
        )
        daemons = Daemons(folder, url, admin, stack)
        await _add_centre(siege, daemons)
        if storage is not None:
            await _add_node(siege, daemons, storage)
        if engines:
            await add_slurm(siege, daemons)
            await add_containers(siege, daemons)
        yield siege


async def _fill(admin: ApiClient, ada: ApiClient) -> None:
    for name in ("h1", "h2"):
        spec, status = NodeSpec(hardware=Hardware(cpu_milli=8_000)), NodeStatus(ready=True)
        await admin.of(Node).create(Node(metadata=Metadata(name=name), spec=spec, status=status))
    await admin.of(Project).create(Project(metadata=Metadata(name="vision")))
    labels = {"who": "ada"}
    container = Container(name="m", image="i", environment={"KEY": CANARY})
    spec_ = PodSpec(containers=(container,))
    await ada.of(Pod).create(Pod(metadata=Metadata(name="ada-pod", labels=labels), spec=spec_))
    group = PodGroupSpec(size=1, template=spec_)
    await ada.of(PodGroup).create(PodGroup(metadata=Metadata(name="ada-group", labels=labels), spec=group))
    program = Program(kind=ProgramKind.SCRIPT, text="true", environment={"KEY": CANARY})
    await ada.of(Task).create(Task(metadata=Metadata(name="ada-task", labels=labels), spec=TaskSpec(program=program)))
    await admin.bind(BindingRequest(bindings=(Binding(pod="ada-pod", node="h2"),)))


async def _add_centre(siege: TenantSiege, daemons: Daemons) -> None:
    """Add a centre whose tasks are processes of this machine."""
    agent = await daemons.centre("c1", {"units": [{"name": "core", "count": 1}]})
    words = attack_words(siege, "c1", agent, outside=siege.folder / "open", folders=False)
    siege.centres.append("c1")
    siege.attacks.append(TaskAttack(siege, "c1", "core", words).attack)


async def _add_node(siege: TenantSiege, daemons: Daemons, storage: PodmanStorage) -> None:
    """Add a node that runs pods with podman."""
    folders = [str(folder) for folder in storage.image_folders]
    runtime = {"environment": storage.environment, "image_folders": folders, "bundle_folders": folders}
    await daemons.node("h3", {"runtime": runtime})
    siege.nodes.append("h3")
    siege.attacks.append(PodAttack(siege, "h3", storage).attack)


@asynccontextmanager
async def _client(url: str, token: str | None) -> AsyncIterator[httpx.AsyncClient]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    timeout = httpx.Timeout(30.0, read=1.0 if token is None else 2.0)
    async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=timeout) as client:
        yield client
