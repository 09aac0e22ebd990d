"""Daemons as processes, with what is Ada's in them, for a siege: API server, a centre's agent, and a node's manager."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import httpx
import yaml

from controller.api.client import ApiClient, Place
from controller.api.registry.placements import Binding, BindingRequest
from controller.api.resources import Centre, Metadata, Node, Pod, PodGroup, Project, Task
from controller.api.resources.hardware import Hardware
from controller.api.resources.node import NodeSpec, NodeStatus
from controller.api.resources.pod import Container, PodSpec
from controller.api.resources.pod_group import PodGroupSpec
from controller.api.resources.task import Program, ProgramKind, TaskSpec
from controller.api.tokens import TokenRequest
from controller.errors import ApiError
from dataplane.rpc.access import Right, Role
from tests.adversary.tenants.siege import CANARY, TenantSiege
from tests.controller.nodes.conftest import PodmanStorage

_WAIT_S: Final = 120.0


@asynccontextmanager
async def besieged(folder: Path, seed: int = 1, storage: PodmanStorage | None = None) -> AsyncIterator[TenantSiege]:
    """Start daemons, with Ada's objects and files, for as long as the block lasts; with a storage a node, too."""
    for name, mode in (("precious", 0o700), ("open", 0o777), ("centre", 0o700)):
        (folder / name).mkdir()
        (folder / name).chmod(mode)
    secret = folder / "precious" / "secret"
    secret.write_text(CANARY)
    secret.chmod(0o600)
    (folder / "api.yaml").write_text(
        f"storage: {{sqlite: {folder}/api.db}}\nlisten: ['unix:{folder}/api.sock', '127.0.0.1:0']\n"
        "retention: {ended_tasks: 10}\n"
    )
    async with _daemon(folder, "api", "serve") as (_, line), ApiClient(Place(f"unix:{folder}/api.sock")) as admin:
        url = line.rpartition(", ")[2].strip()
        tokens = {
            name: (await admin.create_token(request)).token
            for name, request in {
                "ada": TokenRequest("ada", Role.USER, projects=("vision",)),
                "eve": TokenRequest("eve", Role.USER, rights=(Right.EXEC, Right.KERNELS)),
                "h1": TokenRequest("h1", Role.NODE, "h1"),
                "c1": TokenRequest("c1", Role.CENTRE, "c1"),
                "h3": TokenRequest("h3", Role.NODE, "h3"),
            }.items()
        }
        await _fill(admin, url, tokens["ada"])
        token_file = folder / "centre" / "token"
        token_file.write_text(tokens["c1"])
        token_file.chmod(0o600)
        (folder / "centre.yaml").write_text(
            f"centre: c1\nstate: {folder}/centre/state\napi: '{url}'\ntoken_file: {token_file}\n"
            "units: [{name: core, count: 1}]\ntrial: {kernels: []}\n"
        )
        async with (
            _daemon(folder, "centre", "serve") as (process, _),
            _client(url, tokens["eve"]) as eve,
            _client(url, tokens["h1"]) as node,
            _client(url, None) as stranger,
        ):
            (folder / "agent.pid").write_text(str(process.pid))
            while not await _is_ready(admin):
                await asyncio.sleep(0.1)
            async with AsyncExitStack() as stack:
                if storage is not None:
                    _write_node(folder, url, tokens["h3"], storage)
                    await stack.enter_async_context(_daemon(folder, "node", "serve"))
                    while not await _is_node_ready(admin):
                        await asyncio.sleep(0.1)
                yield TenantSiege(folder, url, admin, eve, node, stranger, random.Random(seed), storage=storage)


async def _fill(admin: ApiClient, url: str, token: str) -> None:
    for name in ("h1", "h2"):
        spec, status = NodeSpec(hardware=Hardware(cpu_milli=8_000)), NodeStatus(ready=True)
        await admin.of(Node).create(Node(metadata=Metadata(name=name), spec=spec, status=status))
    await admin.of(Project).create(Project(metadata=Metadata(name="vision")))
    labels = {"who": "ada"}
    async with ApiClient(Place(url, token)) as ada:
        container = Container(name="m", image="i", environment={"KEY": CANARY})
        spec_ = PodSpec(containers=(container,))
        await ada.of(Pod).create(Pod(metadata=Metadata(name="ada-pod", labels=labels), spec=spec_))
        group = PodGroupSpec(size=1, template=spec_)
        await ada.of(PodGroup).create(PodGroup(metadata=Metadata(name="ada-group", labels=labels), spec=group))
        program = Program(kind=ProgramKind.SCRIPT, text="true", environment={"KEY": CANARY})
        await ada.of(Task).create(
            Task(metadata=Metadata(name="ada-task", labels=labels), spec=TaskSpec(program=program))
        )
    await admin.bind(BindingRequest(bindings=(Binding(pod="ada-pod", node="h2"),)))


async def _is_ready(admin: ApiClient) -> bool:
    with suppress(ApiError):
        return (await admin.of(Centre).get("c1")).status.ready
    return False


def _write_node(folder: Path, url: str, token: str, storage: PodmanStorage) -> None:
    (folder / "node").mkdir()
    (folder / "node").chmod(0o700)
    token_file = folder / "node" / "token"
    token_file.write_text(token)
    token_file.chmod(0o600)
    runtime = {
        "environment": storage.environment,
        "image_folders": [str(one) for one in storage.image_folders],
        "bundle_folders": [str(one) for one in storage.image_folders],
    }
    settings = {"node": "h3", "state": f"{folder}/node/state", "api": url, "token_file": str(token_file)}
    (folder / "node.yaml").write_text(yaml.safe_dump({**settings, "runtime": runtime, "on_stop": "stop"}))


async def _is_node_ready(admin: ApiClient) -> bool:
    with suppress(ApiError):
        return (await admin.of(Node).get("h3")).status.ready
    return False


@asynccontextmanager
async def _daemon(folder: Path, *words: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Run a daemon until the end of the block; yield it and its ready line."""
    command = [sys.executable, "-m", "controller.cli", *words, "--settings", str(folder / f"{words[0]}.yaml")]
    log = (folder / f"{words[0]}.log").open("wb")
    with log:
        process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, stderr=log)
    try:
        async with asyncio.timeout(_WAIT_S):
            while True:
                said = (folder / f"{words[0]}.log").read_text()
                line = next((one for one in said.splitlines() if ": ready: " in one), None)
                if line is not None:
                    break
                assert process.returncode is None, said
                await asyncio.sleep(0.05)
        yield process, line
        assert process.returncode is None, (folder / f"{words[0]}.log").read_text()[-2000:]
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


@asynccontextmanager
async def _client(url: str, token: str | None) -> AsyncIterator[httpx.AsyncClient]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    timeout = httpx.Timeout(30.0, read=1.0 if token is None else 2.0)
    async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=timeout) as client:
        yield client
