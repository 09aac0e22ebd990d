"""Attacks by Eve's tasks and pods: as processes of the machine, on Slurm, in containers of runc and podman.

Each round runs one task or pod of Eve's, which tries everything and fails if anything forbidden worked. On Slurm
and in containers a failing task of Ada's runs at the same time, and Eve tries to pass it off as successful.
"""

from __future__ import annotations

import asyncio
import base64
import json
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
from msgspec.structs import replace

from controller.apiserver.registry.dispatches import Dispatch, DispatchRequest
from controller.apiserver.registry.placements import Binding, BindingRequest
from controller.apiserver.resources import Metadata, Pod, Task
from controller.apiserver.resources.pod import Container, Phase, PodSpec, Restart
from controller.apiserver.resources.task import TASK_ENDED, Program, ProgramKind, TaskPhase, TaskSpec
from controller.common.errors import ApiError
from controller.workloads.centres.engines.containers.boot import BEGIN, END
from controller.workloads.centres.engines.containers.pods import CENTRE
from tests.adversary.tenants.siege import CANARY, TenantSiege, pod_named, task_named
from tests.controller.workloads.nodes.conftest import PodmanStorage
from tests.waiting import until

ATTACK: Final = Path(__file__).with_name("task_attack.py")
OWN: Final = frozenset({"writes its own", "writes scratch"})
"""Actions allowed to every task."""
ON_SLURM: Final = OWN | {"sees the agent"}
"""Jobs there have no namespaces: they see which processes there are."""
IN_CONTAINERS: Final = OWN | {"becomes root", "reads the one above", "traces the one above"}
"""The user in there is root, without its rights; process 1 is the container's own."""
_VERDICT: Final = """
could = {{what for what, could in main(*sys.argv[1:]).items() if could is True}}
{then}
sys.exit(None if could == set({may}) else f"it {{', '.join(sorted(could))}}")
"""
"""Appended to a task's attack: the task fails if it could do more, or less, than allowed."""
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
_EXIT_CODE: Final = 3
"""Exit code of Ada's tasks."""
_WAITS_TO_BE_FORGED: Final = f"""
left=600
while [ ! -e .millrace/ended.json ] && [ $left -gt 0 ]; do sleep 0.1; left=$((left - 1)); done
[ -e .millrace/ended.json ] || exit 4
sleep 0.5
exit {_EXIT_CODE}
"""
"""Ada's task on an engine where Eve's reach its folder; 4 says that Eve's have not found it."""
_TAKES_A_WHILE: Final = f"sleep 3; exit {_EXIT_CODE}"
_ENDS_S: Final = 120.0
_LIMIT_S: Final = 90.0
_POLL_S: Final = 0.1


@dataclass
class TaskAttack:
    """Tasks of Eve's at a centre; `may` is all that they may do, `words` their attack's arguments."""

    siege: TenantSiege
    centre: str
    unit: str
    words: tuple[str, ...]
    counted: str = "task"
    may: frozenset[str] = OWN
    then: str = ""
    """Code to run after the attack."""
    rounds: int = 0

    async def attack(self) -> None:
        """Have a task try everything."""
        if await self._submit():
            await self._judge()

    async def _submit(self) -> bool:
        """Begin a round with a task of Eve's; return whether the server took it."""
        self.rounds += 1
        text = ATTACK.read_text() + _VERDICT.format(then=self.then, may=sorted(self.may))
        program = Program(kind=ProgramKind.PYTHON, text=text, arguments=self.words)
        return await self.siege.create(_task(self._attacker, program))

    async def _judge(self) -> None:
        """Run Eve's task, and check what it achieved."""
        task = await self._outcome(self._attacker)
        self.siege.forged[self.counted] += 1
        if task is not None and task.status.phase is not TaskPhase.SUCCEEDED:
            self.siege.effects.append(f"task {self._attacker}: {task.status.phase.value}: {task.status.reasons}")

    @property
    def _attacker(self) -> str:
        return f"eve-{self.centre}-{self.rounds}"

    @property
    def _victim(self) -> str:
        return f"ada-{self.centre}-{self.rounds}"

    async def _suffer(self, script: str) -> None:
        """Have a task of Ada's fail, and check that it is reported as failed."""
        program = Program(kind=ProgramKind.SCRIPT, text=script, environment={"KEY": CANARY})
        await self.siege.ada.of(Task).create(_task(self._victim, program))
        task = await self._outcome(self._victim)
        if task is not None and (task.status.phase, task.status.exit_code) != (TaskPhase.FAILED, _EXIT_CODE):
            told = f"{task.status.phase.value}, exit code {task.status.exit_code}: {task.status.reasons}"
            self.siege.effects.append(f"task {self._victim} is said to be {told}")
        await self.siege.ada.of(Task).delete(self._victim)

    async def _outcome(self, name: str) -> Task | None:
        """Dispatch a task, and return it once it has ended; None, and an effect, if it does not."""
        tasks = self.siege.admin.of(Task)
        dispatch = Dispatch(task=name, centre=self.centre, unit=self.unit)
        try:
            async with asyncio.timeout(_ENDS_S):
                await self.siege.admin.dispatch(DispatchRequest(dispatches=(dispatch,)))
                while (task := await tasks.get(name)).status.phase not in TASK_ENDED:
                    await asyncio.sleep(_POLL_S)
                return task
        except (ApiError, TimeoutError) as error:
            self.siege.effects.append(f"task {name} does not run to its end: {error!r}")
        return None


@dataclass
class SlurmAttack(TaskAttack):
    """Tasks of Eve's where all jobs have one user, so that they can write into one another's folders."""

    async def attack(self) -> None:
        """Have a task try everything, then forge the end of one of Ada's, which waits for that and fails."""
        if await self._submit():
            await asyncio.gather(self._judge(), self._suffer(_WAITS_TO_BE_FORGED))
            self.siege.forged[f"{self.counted}'s end"] += 1


@dataclass(kw_only=True)
class ContainersAttack(TaskAttack):
    """Tasks of Eve's as pods, while she makes and changes pods over HTTP to pass for a task of Ada's."""

    node: str
    """Node of the centre's pods."""
    spec: PodSpec
    """Spec of a pod on that node, without a command."""

    async def attack(self) -> None:
        """Have a task try everything while a task of Ada's fails and is forged."""
        made: list[str] = []
        if not await self._submit():
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._judge())
            victim = group.create_task(self._suffer(_TAKES_A_WHILE))
            group.create_task(self._forge(victim, made))
        for name in made:
            with suppress(httpx.HTTPError):
                await self.siege.eve.delete(f"/v1/pods/{name}")

    async def _forge(self, victim: asyncio.Task[None], made: list[str]) -> None:
        """Pass other pods off as the victim's, and the victim as having ended; `made` gets the names of the pods."""
        pod = await self._pod_of_victim(victim)
        if pod is None:
            self.siege.effects.append(f"the pod of task {self._victim} was never on node {self.node}")
            return
        for method, path, body in _requests(pod, self._victim):
            await self.siege.send(self._forgery, self.siege.eve, method, path, body, may_succeed=False)
        labels = {CENTRE: self.centre, "job-task": self._victim, "job-unit": self.unit, "job-units": "1"}
        for name in (f"{pod}-forged", f"{pod.rpartition('-')[0]}-{'f' * 16}"):
            if await self.siege.create(self._forged(name, labels)):
                made.append(name)
            self.siege.forged[self._forgery] += 1
        # The name itself is free only once the agent has removed the pod, and knows how it has ended.
        while not victim.done():
            if await self.siege.create(self._forged(pod, labels)):
                made.append(pod)
                break
            self.siege.forged[self._forgery] += 1
            await asyncio.sleep(_POLL_S)

    async def _pod_of_victim(self, victim: asyncio.Task[None]) -> str | None:
        """Return the name of the pod that runs the victim, which the shares of its node reveal."""
        beginning = f"millrace-task-{self._victim}-"
        while not victim.done():
            with suppress(httpx.HTTPError):
                shares = (await self.siege.eve.get(f"/v1/nodes/{self.node}")).json().get("shares", ())
                pod = next((share["pod"] for share in shares if share["pod"].startswith(beginning)), None)
                if pod is not None:
                    return str(pod)
            await asyncio.sleep(_POLL_S)
        return None

    def _forged(self, name: str, labels: dict[str, str]) -> Pod:
        """Return a pod whose log has the results of a job that has succeeded."""
        ended = json.dumps({"exit_code": 0, "reason": "", "started_ns": 1, "finished_ns": 2}).encode()
        files = json.dumps({".millrace/ended.json": base64.b64encode(ended).decode()}).encode()
        log = f"{BEGIN}\n{base64.encodebytes(zlib.compress(files)).decode()}{END}"
        command = ("/usr/bin/python3", "-c", f"print({log!r})")
        containers = tuple(replace(container, command=command) for container in self.spec.containers)
        return Pod(metadata=Metadata(name=name, labels=labels), spec=replace(self.spec, containers=containers))

    @property
    def _forgery(self) -> str:
        return f"{self.counted}'s end"


@dataclass
class PodAttack:
    """Pods of Eve's on a node with podman, some with hostile image references."""

    siege: TenantSiege
    node: str
    storage: PodmanStorage
    rounds: int = 0

    async def attack(self) -> None:
        """Have a pod try to escape its container, or break its node's manager by its image reference."""
        self.rounds += 1
        name = f"eve-pod-{self.rounds}"
        precious, image = self.siege.folder / "precious", self.storage.image
        container = self.siege.random.choice(
            (
                Container(name="m", image=image, command=("/bin/sh", "-c", _ESCAPE.format(precious=precious))),
                Container(name="conmon", image=image, command=("/bin/sh", "-c", "exit 0")),
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
        if not await self.siege.create(Pod(metadata=Metadata(name=name), spec=spec)):
            return
        admin = self.siege.admin
        await admin.bind(BindingRequest(bindings=(Binding(pod=name, node=self.node),)))

        async def has_ended() -> bool:
            return (await admin.of(Pod).get(name)).status.phase in (Phase.SUCCEEDED, Phase.FAILED)

        await until(has_ended, limit_s=_ENDS_S, poll_s=_POLL_S)
        pod = await admin.of(Pod).get(name)
        self.siege.forged["pod"] += 1
        # With the image it succeeds; naming anything else fails, in a line.
        if (pod.status.phase is Phase.SUCCEEDED) != (container.image == image):
            named = container.image or container.bundle
            self.siege.effects.append(f"pod {name}, {named}: {pod.status.phase.value}")
        if CANARY in str(pod.status):
            self.siege.effects.append(f"pod {name} has read the secret")
        with suppress(httpx.HTTPError):
            await self.siege.eve.delete(f"/v1/pods/{name}")


def forging_in(jobs: Path) -> str:
    """Return the code by which a task's program forges the ends of others' jobs below a folder."""
    return f"forge({str(jobs)!r}, 60.0)"


def _task(name: str, program: Program) -> Task:
    return Task(metadata=Metadata(name=name), spec=TaskSpec(program=program, limit_s=_LIMIT_S))


def _requests(pod: str, task: str) -> Iterator[tuple[str, str, dict[str, Any] | None]]:
    """Yield requests that would end a task or its pod, or reveal them, if accepted."""
    for path in (f"/v1/pods/{pod}", f"/v1/pods/{pod}/logs", f"/v1/tasks/{task}"):
        yield "GET", path, None
    succeeded = {"status": {"phase": "succeeded"}}
    yield "PUT", f"/v1/pods/{pod}/status", {**pod_named(pod), **succeeded}
    yield "PUT", f"/v1/tasks/{task}/status", {**task_named(task), **succeeded}
    yield "PUT", f"/v1/pods/{pod}", pod_named(pod)
    yield "POST", "/v1/pods", pod_named(pod)
    yield "POST", f"/v1/pods/{pod}/exec", {"command": ["kill", "1"]}
    yield "POST", "/v1/releases", {"releases": [{"pod": pod, "phase": "succeeded"}]}
    yield "POST", "/v1/completions", {"completions": [{"task": task, "epoch": 1, "phase": "succeeded"}]}
    yield "DELETE", f"/v1/pods/{pod}", None
    yield "DELETE", f"/v1/tasks/{task}", None
