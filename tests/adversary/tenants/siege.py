"""A user's token, a node's token, hostile tasks and pods, and a stranger, against daemons as processes.

Which daemons there are is up to besieged.py; what tasks and pods of the attacker's try is in engine_attacks.py.

What belongs to somebody else is looked at before and after: objects, files, what was said of them, and whether a node
and the centres were heard all the time. An effect is a line; there are to be none.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from controller.apiserver.client import ApiClient
from controller.apiserver.resources import Centre, Node, Pod, PodGroup, Project, Task
from tests.adversary.tenants.reporter import ADDRESS, TOKEN, Answer

ROOT: Final = Path(__file__).parents[3]
CANARY: Final = "canary-8b1f0c"
"""Secret that only its owner may read."""
Attack = Callable[[], Awaitable[None]]
"""A round of one."""
_AT_ONCE: Final = 12
_LOWEST: Final = 19
"""Priority of the attackers, which in a network use processors of their own."""
_LONGEST_S: Final = 5.0
"""An answer is read no longer than this: a watch of nodes that report never falls silent."""
_KINDS: Final = ("pods", "podgroups", "tasks", "projects", "decisions", "nodes", "centres", "probekernels", "unitpools")
_ACTIONS: Final = ("bindings", "releases", "evictions", "dispatches", "picks", "completions", "batches/bindings")


@dataclass
class TenantSiege:
    """Attacks of one seed; `effects` has what came of them."""

    folder: Path
    url: str
    admin: ApiClient
    ada: ApiClient
    eve: httpx.AsyncClient
    node: httpx.AsyncClient
    stranger: httpx.AsyncClient
    random: random.Random
    forged: Counter[str] = field(default_factory=Counter)
    effects: list[str] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    """Answers to the node's reports, one a request."""
    attacks: list[Attack] = field(default_factory=list)
    """Each runs round after round, concurrently with all others."""
    nodes: list[str] = field(default_factory=list)
    centres: list[str] = field(default_factory=list)
    """Those with a daemon, which must be ready at the end."""

    async def play(self, seconds: float, pause_s: float = 0.0) -> None:
        """Attack for `seconds`, each attacker pausing between its attacks, and compare everything else afterwards."""
        before = await self._objects(), self._files()
        until_s = time.monotonic() + seconds
        kinds: tuple[Attack, ...] = (
            self._ask_for_others,
            self._change_others,
            self._pass_for_another,
            self._decide,
            self._babble,
            self._knock,
            self._release_elsewhere,
        )

        async def any_kind() -> None:
            await self.random.choice(kinds)()

        async def repeat(attack: Attack) -> None:
            while time.monotonic() < until_s:
                await attack()
                await asyncio.sleep(pause_s)

        async with self._reporting():
            priority = os.getpriority(os.PRIO_PROCESS, 0)
            # The reporter and all daemons keep theirs.
            os.setpriority(os.PRIO_PROCESS, 0, _LOWEST)
            try:
                async with asyncio.TaskGroup() as group:
                    for attack in (*self.attacks, *[any_kind] * _AT_ONCE):
                        group.create_task(repeat(attack))
            finally:
                os.setpriority(os.PRIO_PROCESS, 0, priority)
        assert self.answers, "the node reports"
        await self._look_at_daemons()
        self.effects += [f"{path} was written" for path in (self.folder / "open").iterdir()]
        after = await self._objects(), self._files()
        for name, one in {**before[0], **before[1]}.items():
            if {**after[0], **after[1]}.get(name) != one:
                self.effects.append(f"{name} is another one")

    async def _look_at_daemons(self) -> None:
        """Note which of the reporting ones are no longer ready."""
        for name in self.nodes:
            node = (await self.admin.of(Node).get(name)).status
            if not node.ready:
                self.effects.append(f"node {name} is not ready: {node.reason}")
        for name in self.centres:
            centre = (await self.admin.of(Centre).get(name)).status
            if not centre.ready:
                self.effects.append(f"centre {name} is not ready: {centre.reason}")

    async def _objects(self) -> dict[str, bytes]:
        """Return Ada's and unowned objects as stored."""
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

    def slowest(self, number: int) -> list[Answer]:
        """Return the slowest answers to the node's reports."""
        return sorted(self.answers, reverse=True)[:number]

    @asynccontextmanager
    async def _reporting(self) -> AsyncIterator[None]:
        """Report as node h1 does, from a process of its own, and note how long each answer takes."""
        reporter = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.adversary.tenants.reporter"),
            env=os.environ | {ADDRESS: self.url, TOKEN: self.node.headers["Authorization"].removeprefix("Bearer ")},
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        assert reporter.stdout is not None
        reading = asyncio.create_task(self._read_answers(reporter.stdout))
        try:
            yield
        finally:
            reporter.terminate()
            await reporter.wait()
            await reading

    async def _read_answers(self, lines: asyncio.StreamReader) -> None:
        async for line in lines:
            answer = msgspec.json.decode(line, type=Answer)
            self.answers.append(answer)
            if answer.problem:
                self.effects.append(f"node h1 cannot report: {answer.problem}")

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
        await self.send("read", self.eve, "GET", path)

    async def _change_others(self) -> None:
        """Write, delete and run what is Ada's."""
        method, path, body = self.random.choice(
            (
                ("DELETE", "/v1/pods/ada-pod", None),
                ("DELETE", "/v1/tasks/ada-task", None),
                ("DELETE", "/v1/podgroups/ada-group", None),
                ("DELETE", "/v1/projects/vision", None),
                ("PUT", "/v1/pods/ada-pod", pod_named("ada-pod")),
                ("PUT", "/v1/pods/ada-pod/status", {**pod_named("ada-pod"), "status": {"phase": "failed"}}),
                ("PUT", "/v1/tasks/ada-task", task_named("ada-task")),
                ("PUT", "/v1/tasks/ada-task/status", {**task_named("ada-task"), "status": {"phase": "succeeded"}}),
                ("PUT", "/v1/nodes/h2/status", {"kind": "Node", "metadata": {"name": "h2"}, "spec": {}}),
                ("POST", "/v1/pods/ada-pod/exec", {"command": ["id"]}),
                ("POST", "/v1/projects", {"kind": "Project", "metadata": {"name": "mine"}}),
                ("POST", "/v1/tokens", {"name": "root", "role": "admin"}),
            )
        )
        await self.send("change", self.eve, method, path, body)

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
        pod = pod_named(f"eve-{number}")
        pod["metadata"].update(self.random.choice(claims))
        await self.send("pass for", self.eve, "POST", "/v1/pods", pod, may_succeed=False)

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
        await self.send("decide", self.eve, "POST", f"/v1/{action}", body, may_succeed=False)

    async def _babble(self) -> None:
        """Send what is no request, or a large one, or one in the wrong place."""
        junk = self.random.choice(
            (
                b"{" * 10_000,
                b"\xff" * 1000,
                json.dumps(pod_named("x" * 300)).encode(),
                json.dumps(
                    {**pod_named("eve-x"), "spec": {"containers": [{"name": "m", "image": "\x1b]0;x\x07"}]}}
                ).encode(),
                b"0" * (1 << 21),
                b"",
            )
        )
        path = self.random.choice(("/v1/pods", "/v1/tasks", "/v1/bindings", "/v1/nodes/h1/sessions/1/output", "/v1"))
        headers = {"Content-Type": "application/json"}
        await self.send("babble", self.eve, "POST", path, content=junk, headers=headers, may_succeed=False)

    async def _knock(self) -> None:
        """Ask without a token that counts, or do not finish asking."""
        if self.random.random() < 0.5:
            token = self.random.choice(("", "millrace_000000000000_" + "a" * 43, "a.b.c", "\xff"))
            headers = {"Authorization": b"Bearer " + token.encode("latin-1")}
            await self.send("knock", self.stranger, "GET", "/v1/pods", headers=headers, may_succeed=False)
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
        await self.send("release", self.node, "POST", "/v1/releases", body, may_succeed=False)

    async def create(self, made: Pod | Task) -> bool:
        """Create what is Eve's; return whether the server took it."""
        path = "/v1/pods" if isinstance(made, Pod) else "/v1/tasks"
        with suppress(httpx.HTTPError):
            headers = {"Content-Type": "application/json"}
            answer = await self.eve.post(path, content=msgspec.json.encode(made), headers=headers)
            return answer.status_code == httpx.codes.CREATED
        return False

    async def send(
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
                # By the clock, not by a cancellation: httpx may leave a cancelled request's connection open.
                ends_s = time.monotonic() + _LONGEST_S
                with suppress(httpx.ReadTimeout):  # a watch goes on
                    async for part in answer.aiter_bytes():
                        data += part
                        if time.monotonic() > ends_s:
                            break
        except httpx.HTTPError:
            return  # a connection that the server ends is its right
        if CANARY.encode() in data:
            self.effects.append(f"{method} {path} says what only Ada is to read")
        if answer.status_code < 400 and (not may_succeed or method != "GET"):
            self.effects.append(f"{method} {path} {str(body)[:200]}: {answer.status_code}")
        if answer.status_code >= 500 and answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
            self.effects.append(f"{method} {path}: {answer.status_code} {bytes(data[:200])!r}")


def pod_named(name: str) -> dict[str, Any]:
    """Return a dummy pod in wire format."""
    spec = {"containers": [{"name": "m", "image": "i"}]}
    return {"kind": "Pod", "metadata": {"name": name}, "spec": spec}


def task_named(name: str) -> dict[str, Any]:
    """Return a dummy task in wire format."""
    return {"kind": "Task", "metadata": {"name": name}, "spec": {"program": {"kind": "script", "text": "true"}}}
