"""A user's token, a node's token, hostile tasks and pods, and a stranger, against daemons as processes.

The daemons are an API server, a centre's agent, and with a storage of podman's a node's manager.

What belongs to somebody else is looked at before and after: objects, files, what was said of them, and whether a node
and the centre were heard all the time. An effect is a line; there are to be none.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from controller.api.client import ApiClient
from controller.api.registry.dispatches import Dispatch, DispatchRequest
from controller.api.registry.placements import Binding, BindingRequest
from controller.api.resources import Metadata, Node, Pod, PodGroup, Project, Task
from controller.api.resources.pod import Container, Phase, PodSpec, Restart
from controller.api.resources.task import TASK_ENDED, Program, ProgramKind, TaskPhase, TaskSpec
from tests.controller.nodes.conftest import PodmanStorage

CANARY: Final = "canary-8b1f0c"
"""What only its owner is to read."""
ATTACK: Final = Path(__file__).with_name("task_attack.py")
_VERDICT: Final = """
could = sorted(what for what, could in main(*sys.argv[1:]).items() if could is True)
sys.exit(None if could == ["writes its own", "writes scratch"] else f"it {', '.join(could)}")
"""
"""What a task adds to its attack, so that it fails where it could do more than it may."""
_ESCAPE: Final = """
could=0
for path in {precious}/secret /proc/1/root{precious}/secret /proc/kcore /dev/mem /proc/sysrq-trigger; do
  cat $path > /dev/null 2>&1 && could=1
done
mount -t tmpfs none /tmp 2> /dev/null && could=1
mount -t proc none /proc 2> /dev/null && could=1
echo c > /proc/sysrq-trigger 2> /dev/null && could=1
echo 1 > /proc/sys/kernel/panic 2> /dev/null && could=1
ls {precious} > /dev/null 2>&1 && could=1
exit $could
"""
"""A container's attack on its machine: it ends with 0 where nothing of it could be done."""
_AT_ONCE: Final = 12
_KINDS: Final = ("pods", "podgroups", "tasks", "projects", "decisions", "nodes", "centres", "probekernels", "unitpools")
_ACTIONS: Final = ("bindings", "releases", "evictions", "dispatches", "picks", "completions", "batches/bindings")


@dataclass
class TenantSiege:
    """Attacks of one seed; `effects` has what came of them."""

    folder: Path
    url: str
    admin: ApiClient
    eve: httpx.AsyncClient
    node: httpx.AsyncClient
    stranger: httpx.AsyncClient
    random: random.Random
    forged: Counter[str] = field(default_factory=Counter)
    effects: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    """The longest that a report of the node took."""
    tasks: int = 0
    storage: PodmanStorage | None = None
    """Of the node that runs pods, None where none does."""
    pods: int = 0

    async def play(self, seconds: float) -> None:
        """Attack for so long, and look at what became of everything else."""
        before = await self._objects(), self._files()
        until_s = time.monotonic() + seconds
        reporting = asyncio.create_task(self._report())
        kinds: tuple[Callable[[], Awaitable[None]], ...] = (
            self._ask_for_others,
            self._change_others,
            self._pass_for_another,
            self._decide,
            self._babble,
            self._knock,
            self._release_elsewhere,
        )

        async def work() -> None:
            while time.monotonic() < until_s:
                await self.random.choice(kinds)()

        async def work_in_tasks() -> None:
            while time.monotonic() < until_s:
                await self._attack_from_a_task()

        async def work_in_pods(storage: PodmanStorage) -> None:
            while time.monotonic() < until_s:
                await self._attack_from_a_pod(storage)

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(work_in_tasks())
                if self.storage is not None:
                    group.create_task(work_in_pods(self.storage))
                for _ in range(_AT_ONCE):
                    group.create_task(work())
        finally:
            reporting.cancel()
            with suppress(asyncio.CancelledError):
                await reporting
        if self.storage is not None and not (await self.admin.of(Node).get("h3")).status.ready:
            self.effects.append("node h3 is not ready")
        after = await self._objects(), self._files()
        for name, one in {**before[0], **before[1]}.items():
            if {**after[0], **after[1]}.get(name) != one:
                self.effects.append(f"{name} is another one")

    async def _objects(self) -> dict[str, bytes]:
        """Return what belongs to Ada, and what is nobody's, as it is stored."""
        found: dict[str, bytes] = {}
        for kind in (Pod, PodGroup, Task, Project):
            for one in (await self.admin.of(kind).list()).items:
                if one.metadata.owner != "eve":
                    found[f"{kind.__name__} {one.metadata.name}"] = msgspec.json.encode(one)
        other = await self.admin.of(Node).get("h2")
        found["Node h2"] = msgspec.json.encode(other)
        found["tokens"] = msgspec.json.encode(await self.admin.tokens())
        return found

    def _files(self) -> dict[str, bytes]:
        """Return what files are worth that no task is to change."""
        found = {}
        for path in sorted((self.folder / "precious").rglob("*")):
            state = path.lstat()
            content = path.read_bytes() if path.is_file() else b""
            found[str(path)] = f"{state.st_mode} {state.st_uid} {hashlib.sha256(content).hexdigest()}".encode()
        return found

    async def _report(self) -> None:
        """Report as node h1 does, and note how long that takes."""
        while True:
            begun_s = time.monotonic()
            try:
                found = (await self.node.get("/v1/nodes/h1")).json()
                answer = await self.node.put("/v1/nodes/h1/status", json=found)
                if answer.status_code >= 400:
                    self.effects.append(f"node h1 cannot report: {answer.status_code} {answer.text[:200]}")
            except httpx.HTTPError as error:
                self.effects.append(f"node h1 cannot report: {error!r}")
            self.slowest_s = max(self.slowest_s, time.monotonic() - begun_s)
            await asyncio.sleep(0.25)

    async def _ask_for_others(self) -> None:
        """Read what is Ada's, each way there is."""
        kind = self.random.choice(_KINDS)
        name = self.random.choice(("ada-pod", "ada-group", "ada-task", "vision", "ada-decision"))
        path = self.random.choice(
            (
                f"/v1/{kind}",
                f"/v1/{kind}/{name}",
                f"/v1/{kind}?labels=who=ada",
                f"/v1/{kind}?fields=owner=ada",
                f"/v1/{kind}?fields=project=vision",
                f"/v1/pods/{name}/logs",
                f"/v1/{kind}?watch=1&after=0",
                f"/v1/{kind}/{name}%2f..%2f{name}",
                "/v1/tokens",
                "/metrics",
            )
        )
        await self._send("read", self.eve, "GET", path)

    async def _change_others(self) -> None:
        """Write, delete and run what is Ada's."""
        method, path, body = self.random.choice(
            (
                ("DELETE", "/v1/pods/ada-pod", None),
                ("DELETE", "/v1/tasks/ada-task", None),
                ("DELETE", "/v1/podgroups/ada-group", None),
                ("DELETE", "/v1/projects/vision", None),
                ("PUT", "/v1/pods/ada-pod", _pod("ada-pod")),
                ("PUT", "/v1/pods/ada-pod/status", {**_pod("ada-pod"), "status": {"phase": "failed"}}),
                ("PUT", "/v1/tasks/ada-task", _task("ada-task")),
                ("PUT", "/v1/tasks/ada-task/status", {**_task("ada-task"), "status": {"phase": "succeeded"}}),
                ("PUT", "/v1/nodes/h2/status", {"kind": "Node", "metadata": {"name": "h2"}, "spec": {}}),
                ("POST", "/v1/pods/ada-pod/exec", {"command": ["id"]}),
                ("POST", "/v1/projects", {"kind": "Project", "metadata": {"name": "mine"}}),
                ("POST", "/v1/tokens", {"name": "root", "role": "admin"}),
            )
        )
        await self._send("change", self.eve, method, path, body)

    async def _pass_for_another(self) -> None:
        """Create what is not to be Eve's."""
        number = self.random.randrange(1 << 30)
        claims: tuple[dict[str, object], ...] = (
            {"owner": "ada"},
            {"project": "vision"},
            {"part_of": "ada-group"},
            {"labels": {"millrace.task": "ada-task"}},
            {"labels": {"millrace/group": "ada-group"}},
            {"uid": "1"},
            {"revision": 1},
            {"deleting_ns": 1},
        )
        pod = _pod(f"eve-{number}")
        pod["metadata"].update(self.random.choice(claims))
        await self._send("pass for", self.eve, "POST", "/v1/pods", pod, may_succeed=False)

    async def _decide(self) -> None:
        """Do what schedulers, nodes and centres do."""
        action = self.random.choice(_ACTIONS)
        spec = {"subject_kind": "pod", "subjects": ["ada-pod"], "outcome": "released"}
        bodies: dict[str, dict[str, Any]] = {
            "bindings": {"bindings": [{"pod": "ada-pod", "node": "h1"}]},
            "releases": {"releases": [{"pod": "ada-pod", "phase": "succeeded"}]},
            "evictions": {"pods": {"ada-pod": 1}, "then": "failed"},
            "dispatches": {"dispatches": [{"task": "ada-task", "centre": "c1"}]},
            "picks": {"task": "ada-task", "epoch": 1, "unit": "core"},
            "completions": {"completions": [{"task": "ada-task", "epoch": 1, "phase": "succeeded"}]},
            "batches/bindings": {"requests": [{"bindings": [{"pod": "ada-pod", "node": "h1"}]}]},
        }
        body = bodies[action]
        if self.random.random() < 0.5:
            body["decision"] = {"name": f"eve-{self.random.randrange(1 << 30)}", "spec": spec}
        await self._send("decide", self.eve, "POST", f"/v1/{action}", body, may_succeed=False)

    async def _babble(self) -> None:
        """Send what is no request, or a large one, or one in the wrong place."""
        junk = self.random.choice(
            (
                b"{" * 10_000,
                b"\xff" * 1000,
                json.dumps(_pod("x" * 300)).encode(),
                json.dumps(
                    {**_pod("eve-x"), "spec": {"containers": [{"name": "m", "image": "\x1b]0;x\x07"}]}}
                ).encode(),
                b"0" * (1 << 21),
                b"",
            )
        )
        path = self.random.choice(("/v1/pods", "/v1/tasks", "/v1/bindings", "/v1/nodes/h1/sessions/1/output", "/v1"))
        headers = {"Content-Type": "application/json"}
        await self._send("babble", self.eve, "POST", path, content=junk, headers=headers, may_succeed=False)

    async def _knock(self) -> None:
        """Ask without a token that counts, or do not finish asking."""
        if self.random.random() < 0.5:
            token = self.random.choice(("", "millrace_000000000000_" + "a" * 43, "a.b.c", "\xff"))
            headers = {"Authorization": b"Bearer " + token.encode("latin-1")}
            await self._send("knock", self.stranger, "GET", "/v1/pods", headers=headers, may_succeed=False)
            return
        self.forged["knock"] += 1
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        with suppress(OSError):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"POST /v1/pods HTTP/1.1\r\nContent-Length: 100\r\n")
            await asyncio.sleep(self.random.random() / 10)
            writer.close()

    async def _release_elsewhere(self) -> None:
        """Write, with the token of node h1, what is node h2's."""
        release = self.random.choice(
            (
                {"pod": "ada-pod", "node": "h2"},
                {"pod": "ada-pod"},
                {"pod": "gone", "node": "h2"},
            )
        )
        body: dict[str, Any] = {"releases": [release]}
        if self.random.random() < 0.5:
            spec = {"subject_kind": "pod", "subjects": ["ada-pod"], "outcome": "bound"}
            body["decision"] = {"name": "h1-says", "spec": spec}
        await self._send("release", self.node, "POST", "/v1/releases", body, may_succeed=False)

    async def _attack_from_a_task(self) -> None:
        """Have a task of Eve's try all that the attack of tasks knows."""
        self.tasks += 1
        name = f"eve-task-{self.tasks}"
        secret, door = self.folder / "precious" / "secret", self.folder / "api.sock"
        words = [str(secret), str(door), str(self.folder / "open"), str(self.folder_process)]
        program = Program(kind=ProgramKind.PYTHON, text=ATTACK.read_text() + _VERDICT, arguments=tuple(words))
        answer = await self.eve.post(
            "/v1/tasks",
            content=msgspec.json.encode(Task(metadata=Metadata(name=name), spec=TaskSpec(program=program))),
            headers={"Content-Type": "application/json"},
        )
        if answer.status_code != httpx.codes.CREATED:
            return
        await self.admin.dispatch(DispatchRequest(dispatches=(Dispatch(task=name, centre="c1", unit="core"),)))
        while (found := await self.admin.of(Task).get(name)).status.phase not in TASK_ENDED:
            await asyncio.sleep(0.05)
        self.forged["task"] += 1
        said = self.folder / "open" / name
        if said.exists():
            self.effects.append(f"task {name} has written {said}")
        if found.status.phase is not TaskPhase.SUCCEEDED:
            self.effects.append(f"task {name}: {found.status.reasons}")

    async def _attack_from_a_pod(self, storage: PodmanStorage) -> None:
        """Have a pod of Eve's reach out of its container, or its node's manager trip over what it names."""
        self.pods += 1
        name = f"eve-pod-{self.pods}"
        precious = self.folder / "precious"
        container = self.random.choice(
            (
                Container(name="m", image=storage.image, command=("/bin/sh", "-c", _ESCAPE.format(precious=precious))),
                Container(name="conmon", image=storage.image, command=("/bin/sh", "-c", "exit 0")),
                Container(name="m", image="oci-archive:/proc/kmsg"),
                Container(name="m", image="oci-archive:/" + "a" * 900),
                Container(name="m", image=f"oci:{precious}"),
                Container(name="m", image=f"oci-archive:{precious}/secret"),
                Container(name="m", bundle="/"),
                Container(name="m", bundle=str(precious)),
                Container(name="m", bundle="/proc/self/root"),
            )
        )
        spec = PodSpec(containers=(container,), restart=Restart.NEVER)
        content = msgspec.json.encode(Pod(metadata=Metadata(name=name), spec=spec))
        answer = await self.eve.post("/v1/pods", content=content, headers={"Content-Type": "application/json"})
        if answer.status_code != httpx.codes.CREATED:
            return
        await self.admin.bind(BindingRequest(bindings=(Binding(pod=name, node="h3"),)))
        while (found := await self.admin.of(Pod).get(name)).status.phase not in (Phase.SUCCEEDED, Phase.FAILED):
            await asyncio.sleep(0.1)
        self.forged["pod"] += 1
        # Of its own it ends well; what names other things than images fails, in a line.
        if (found.status.phase is Phase.SUCCEEDED) != (container.image == storage.image):
            self.effects.append(f"pod {name}, {container.image or container.bundle}: {found.status.phase.value}")
        if CANARY in str(found.status):
            self.effects.append(f"pod {name} has read the secret")
        await self.eve.delete(f"/v1/pods/{name}")

    @property
    def folder_process(self) -> int:
        """The agent's process, which a task is not to see."""
        return int((self.folder / "agent.pid").read_text())

    async def _send(
        self,
        kind: str,
        client: httpx.AsyncClient,
        method: str,
        path: str,
        body: object = None,
        *,
        content: bytes | None = None,
        headers: dict[str, Any] | None = None,
        may_succeed: bool = True,
    ) -> None:
        """Send a request, and note what it should not have led to."""
        self.forged[kind] += 1
        if body is not None:
            content, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        try:
            async with client.stream(method, path, content=content, headers=headers) as answer:
                data = bytearray()
                with suppress(httpx.ReadTimeout):  # a watch goes on
                    async for part in answer.aiter_bytes():
                        data += part
        except httpx.HTTPError:
            return  # a connection that the server ends is its right
        if CANARY.encode() in data:
            self.effects.append(f"{method} {path} says what only Ada is to read")
        if answer.status_code < 400 and (not may_succeed or method != "GET"):
            self.effects.append(f"{method} {path} {str(body)[:200]}: {answer.status_code}")
        if answer.status_code >= 500 and answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
            self.effects.append(f"{method} {path}: {answer.status_code} {bytes(data[:200])!r}")


def _pod(name: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "m", "image": "i"}]}
    return {"kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _task(name: str) -> dict[str, Any]:
    return {"kind": "Task", "metadata": {"name": name}, "spec": {"program": {"kind": "script", "text": "true"}}}
