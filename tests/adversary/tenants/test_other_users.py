"""A user's token reaches only that user's objects: tests of every way in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import pytest
from msgspec.structs import replace

from controller.apiserver.client.values import Event
from controller.apiserver.registry.placements import Binding, BindingRequest, NewDecision, Release, ReleaseRequest
from controller.apiserver.resources import Decision, Metadata, Node, Pod, PodGroup, Project, Task
from controller.apiserver.resources.decision import DecisionSpec, Outcome
from controller.apiserver.resources.hardware import Hardware, Request
from controller.apiserver.resources.node import NodeSpec
from controller.apiserver.resources.pod import Container, PodSpec, PodStatus
from controller.apiserver.resources.pod_group import PodGroupSpec
from controller.apiserver.resources.project import ProjectSpec, Quota
from controller.apiserver.resources.task import Program, ProgramKind, TaskSpec
from controller.common.errors import ApiError, ForbiddenError, InvalidError, StaleError
from dataplane.rpc.access import Right, Role
from tests.controller.apiserver.api_server import Play, Served

Act = Callable[[Served], Awaitable[None]]


def pod(name: str, **metadata: object) -> Pod:
    return Pod(metadata=Metadata(name=name, **metadata), spec=PodSpec(containers=(Container(name="m", image="i"),)))  # type: ignore[arg-type]


def task(name: str) -> Task:
    program = Program(kind=ProgramKind.SCRIPT, text="true", environment={"KEY": "secret"})
    return Task(metadata=Metadata(name=name), spec=TaskSpec(program=program))


async def node(served: Served, name: str) -> None:
    spec = NodeSpec(hardware=Hardware(cpu_milli=8_000))
    await served.client.of(Node).create(Node(metadata=Metadata(name=name), spec=spec))


def bound(name: str, on: str, decision: str = "d") -> BindingRequest:
    spec = DecisionSpec(subject_kind="pod", subjects=(name,), outcome=Outcome.BOUND)
    return BindingRequest(bindings=(Binding(pod=name, node=on),), decision=NewDecision(name=decision, spec=spec))


async def refused(awaitable: Awaitable[object], why: str = "another user") -> None:
    with pytest.raises(ForbiddenError, match=why):
        await awaitable


def test_what_is_another_users_stays_so(play: Play) -> None:
    async def act(served: Served) -> None:
        await node(served, "h1")
        ada, eve = (
            await served.client_of(Role.USER, name="ada"),
            await served.client_of(Role.USER, name="eve", rights=(Right.EXEC, Right.KERNELS)),
        )
        async with ada, eve:
            mine, work = await ada.of(Pod).create(pod("p")), await ada.of(Task).create(task("t"))
            group = await ada.of(PodGroup).create(PodGroup(metadata=Metadata(name="g"), spec=PodGroupSpec(size=1)))
            await served.client.bind(bound("p", "h1"))
            for kind, resource in ((Pod, mine), (Task, work), (PodGroup, group)):
                theirs, name = eve.of(kind), resource.metadata.name
                await refused(theirs.get(name))
                await refused(theirs.replace(replace(resource, metadata=Metadata(name=name, labels={"a": "b"}))))
                await refused(theirs.delete(name))
                assert (await theirs.list()).items == ()
                assert [listed.metadata.name for listed in (await ada.of(kind).list()).items] == [name]
            await refused(eve.of(Decision).get("d"))
            assert (await eve.of(Decision).list()).items == ()
            assert (await ada.of(Decision).get("d")).metadata.owner == "ada"
            await refused(_first(eve.logs("p")))
            with pytest.raises(ForbiddenError, match="may not"):
                await eve.of(Pod).replace_status(replace(mine, status=PodStatus()))
            assert (await served.client.of(Pod).get("p")).metadata.labels == {}

    play(act)


def test_a_watch_tells_of_nobody_else(play: Play) -> None:
    async def act(served: Served) -> None:
        ada, eve = await served.client_of(Role.USER, name="ada"), await served.client_of(Role.USER, name="eve")
        async with ada, eve:
            begin = (await eve.of(Pod).list()).revision
            await ada.of(Pod).create(pod("a"))
            own = await eve.of(Pod).create(pod("b"))
            await ada.of(Pod).delete("a")
            await eve.of(Pod).delete("b")
            told: list[Event[Pod]] = []
            async with aclosing(eve.of(Pod).watch(begin)) as watch:
                async for event in watch:
                    told += [event] if event.name else []
                    if len(told) == 2:
                        break
            assert [(event.type.value, event.name) for event in told] == [("PUT", "b"), ("DELETE", "b")]
            assert told[0].resource == own

    play(act)


def test_a_project_shares_what_is_its(play: Play) -> None:
    async def act(served: Served) -> None:
        ada = await served.client_of(Role.USER, name="ada", projects=("vision", "audio"))
        bob = await served.client_of(Role.USER, name="bob", projects=("vision",))
        async with ada, bob:
            assert (await ada.of(Pod).create(pod("a"))).metadata.project == "vision"
            assert (await ada.of(Pod).create(pod("b", project="audio"))).metadata.project == "audio"
            assert [pod.metadata.name for pod in (await bob.of(Pod).list()).items] == ["a"]
            await bob.of(Pod).delete("a")
            await refused(bob.of(Pod).delete("b"))
            await refused(bob.of(Pod).create(pod("c", project="audio")), "is not a member of project audio")

    play(act)


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ({"owner": "ada"}, "the server sets the owner of a new resource"),
        ({"part_of": "g"}, "the server sets the group that a pod follows"),
        ({"labels": {"millrace.pod": "p"}}, "names that begin with millrace. or millrace/ are reserved for services"),
        ({"labels": {"millrace/group": "g"}}, "names that begin with millrace. or millrace/ are reserved for services"),
    ],
)
def test_nobody_passes_for_another(play: Play, metadata: dict[str, object], problem: str) -> None:
    async def act(served: Served) -> None:
        async with await served.client_of(Role.USER, name="eve") as eve:
            with pytest.raises(InvalidError, match=problem):
                await eve.of(Pod).create(pod("p", **metadata))

    play(act)


def test_a_user_named_like_a_service_is_a_user(play: Play) -> None:
    async def act(served: Served) -> None:
        await served.client.of(Pod).create(pod("p"))
        async with await served.client_of(Role.USER, name="local") as local:
            await refused(local.of(Pod).get("p"))

    play(act)


def test_a_pod_joins_no_group_of_others(play: Play) -> None:
    async def act(served: Served) -> None:
        await node(served, "h1")
        ada, eve = await served.client_of(Role.USER, name="ada"), await served.client_of(Role.USER, name="eve")
        async with ada, eve:
            await ada.of(PodGroup).create(PodGroup(metadata=Metadata(name="g"), spec=PodGroupSpec(size=1)))
            joining = pod("p")
            await eve.of(Pod).create(replace(joining, spec=replace(joining.spec, group="g")))
            with pytest.raises(StaleError, match="Pod p belongs to owner eve, its PodGroup g does not"):
                await served.client.bind(bound("p", "h1"))

    play(act)


def test_a_node_writes_itself_alone(play: Play) -> None:
    async def act(served: Served) -> None:
        await node(served, "h1")
        await node(served, "h2")
        for name, on in (("a", "h1"), ("b", "h2")):
            await served.client.of(Pod).create(pod(name))
            await served.client.bind(bound(name, on, f"d-{name}"))
        before = await served.client.of(Node).get("h2")
        spec = DecisionSpec(subject_kind="pod", subjects=("a",), outcome=Outcome.RELEASED)
        async with await served.client_of(Role.NODE, "h1") as h1:
            for release in (Release(pod="a", node="h2"), Release(pod="b"), Release(pod="gone", node="h2")):
                with pytest.raises(ApiError):
                    await h1.release(ReleaseRequest(releases=(release,)))
            decided = ReleaseRequest(releases=(Release(pod="a"),), decision=NewDecision(name="mine", spec=spec))
            await refused(h1.release(decided), "may not create a Decision")
            await h1.release(ReleaseRequest(releases=(Release(pod="a"),)))
        assert await served.client.of(Node).get("h2") == before

    play(act)


def test_no_terminal_is_told_what_to_do(play: Play) -> None:
    async def act(served: Served) -> None:
        await node(served, "h1")
        async with await served.client_of(Role.USER, name="eve") as eve:
            for text in ("\x1b]0;owned\x07", "\x9b31m", "a\x7f", "\b"):
                evil = replace(task("t"), spec=TaskSpec(program=Program(kind=ProgramKind.SCRIPT, text=text)))
                with pytest.raises(InvalidError, match="control character"):
                    await eve.of(Task).create(evil)
            plain = Program(kind=ProgramKind.SCRIPT, text="é\t\\u001b\n")
            await eve.of(Task).create(replace(task("t"), spec=TaskSpec(program=plain)))
        await served.client.of(Pod).create(pod("p"))
        answer = await served.client.bind(bound("p", "h1"))
        async with await served.client_of(Role.NODE, "h1") as h1:
            mine = await h1.of(Pod).get("p")
            changed = replace(mine, status=replace(mine.status, reasons=("\x1b[2Jgone",)))
            await h1.of(Pod).replace_status(changed)
            assert (await h1.of(Pod).get("p")).status.reasons == ("\ufffd[2Jgone",)
        assert answer.pods == ("p",)

    play(act)


def test_secrets_are_of_projects(play: Play) -> None:
    async def act(served: Served) -> None:
        secret = Container(name="m", image="i", secrets={"KEY": "api-key"})
        named = Pod(metadata=Metadata(name="p"), spec=PodSpec(containers=(secret,)))
        program = Program(kind=ProgramKind.SCRIPT, text="true", secrets={"KEY": "api-key"})
        async with await served.client_of(Role.USER, name="eve") as eve:
            for resource in (named, PodGroup(metadata=named.metadata, spec=PodGroupSpec(size=1, template=named.spec))):
                with pytest.raises(InvalidError, match="p names secrets, but belongs to no project"):
                    await eve.of(type(resource)).create(resource)
            with pytest.raises(InvalidError, match="Task t names secrets, but belongs to no project"):
                await eve.of(Task).create(Task(metadata=Metadata(name="t"), spec=TaskSpec(program=program)))
            await eve.of(Pod).create(pod("p"))
            with pytest.raises(InvalidError, match="p names secrets, but belongs to no project"):
                await eve.of(Pod).replace(named)
        async with await served.client_of(Role.USER, name="ada", projects=("vision",)) as ada:
            made = await ada.of(Task).create(Task(metadata=Metadata(name="t"), spec=TaskSpec(program=program)))
            assert made.spec.program.secrets == {"KEY": "api-key"}

    play(act)


def test_quotas_bound_what_one_may_have(play: Play) -> None:
    async def act(served: Served) -> None:
        quota = Quota(pods=4, cpu_milli=2_000, pending=3)
        await served.client.of(Project).create(Project(metadata=Metadata(name="small"), spec=ProjectSpec(quota=quota)))
        user = await served.client_of(Role.USER, name="ada", projects=("small",))
        async with user:
            pods = user.of(Pod)
            tries = await asyncio.gather(*(pods.create(pod(f"p{n}")) for n in range(6)), return_exceptions=True)
            assert sum(isinstance(outcome, Pod) for outcome in tries) == 3
            assert {str(outcome) for outcome in tries if isinstance(outcome, BaseException)} == {
                "the quota of project small is exhausted: pending: 4, at most 3"
            }
            made = next(outcome for outcome in tries if isinstance(outcome, Pod))
            big = replace(made, spec=replace(made.spec, request=Request(cpu_milli=3_000)))
            await refused(pods.replace(big), "the quota of project small is exhausted: cpu_milli: 3000, at most 2000")
            assert (await user.of(Project).get("small")).status.used.pods == 3
            await pods.delete(made.metadata.name)
            template = PodGroupSpec(size=2, template=made.spec)
            await refused(user.of(PodGroup).create(PodGroup(metadata=Metadata(name="g"), spec=template)), "pending: 4")
            await pods.create(pod("again"))
            await served.client.of(Pod).create(pod("theirs", project="small"))

    play(act)


async def _first(frames: AsyncGenerator[object, None]) -> None:
    async with aclosing(frames) as opened:
        await anext(opened)
