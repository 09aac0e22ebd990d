"""Item 13: the server's checks of tasks' predecessors; bad ones are refused in one line."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from controller.apiserver.registry.dispatches import Dispatch, DispatchRequest
from controller.apiserver.resources import Centre, Metadata, Task
from controller.apiserver.resources.centre import CentreStatus, UnitType
from controller.apiserver.resources.predecessors import DataInput, DataOutput
from controller.apiserver.resources.task import Program, ProgramKind, TaskSpec
from controller.common.errors import InvalidError, StaleError
from dataplane.rpc.access import Role
from tests.controller.apiserver.api_server import Play, Served


def task(name: str, *after: str, **spec: object) -> Task:
    program = Program(kind=ProgramKind.SCRIPT, text="true")
    return Task(metadata=Metadata(name=name), spec=TaskSpec(program=program, after=after, **spec))  # type: ignore[arg-type]


def test_cycle_is_refused_in_one_line_that_names_it(play: Play) -> None:
    """One closes only where the name of a deleted task is used again."""

    async def act(served: Served) -> None:
        tasks = served.client.of(Task)
        for made in (task("a"), task("b", "a"), task("c", "b")):
            await tasks.create(made)
        await tasks.delete("a")
        with pytest.raises(InvalidError) as caught:
            await tasks.create(task("a", "c"))
        assert str(caught.value).endswith("Task a: after: a cycle: a -> c -> b -> a")
        with pytest.raises(InvalidError, match=r"Task d: after: a cycle: d -> d$"):
            await tasks.create(task("d", "d"))
        await tasks.create(task("a"))

    play(act)


def test_unknown_predecessors_and_outputs_are_refused(play: Play) -> None:
    async def act(served: Served) -> None:
        tasks = served.client.of(Task)
        await tasks.create(task("a", outputs=(DataOutput(name="rows", nbytes=9),)))
        for made, problem in (
            (task("b", "a", "gone"), r"Task b: after: there is no task gone$"),
            (task("b", inputs=(DataInput(task="a", output="x"),)), "task a has no output x; it has rows$"),
            (task("b", inputs=(DataInput(task="a"),)), "inputs: from a either an output or a size is read$"),
            (task("b", "a", is_probe=True), "after: a probe has no predecessors$"),
            (task("b", outputs=(DataOutput(name="x", nbytes=1),) * 2), "outputs: x is given twice$"),
        ):
            with pytest.raises(InvalidError, match=problem):
                await tasks.create(made)
        made = await tasks.create(task("b", inputs=(DataInput(task="a", output="rows"),)))
        with pytest.raises(
            InvalidError, match="Task b: its after and inputs cannot change: delete it and submit it anew"
        ):
            await tasks.replace(replace(made, spec=replace(made.spec, after=("a",), inputs=())))

    play(act)


def test_tasks_of_others_are_no_predecessors(play: Play) -> None:
    async def act(served: Served) -> None:
        await served.client.of(Task).create(task("secret"))
        async with (
            await served.client_of(Role.USER, name="ada") as ada,
            await served.client_of(Role.USER, name="bob") as bob,
        ):
            await ada.of(Task).create(task("mine"))
            await ada.of(Task).create(task("next", "mine"))
            for name in ("secret", "mine"):
                with pytest.raises(InvalidError, match=f"Task eve: after: there is no task {name}$"):
                    await bob.of(Task).create(task("eve", name))

    play(act)


def test_dispatch_before_its_predecessors_is_refused(play: Play) -> None:
    async def act(served: Served) -> None:
        centres, tasks = served.client.of(Centre), served.client.of(Task)
        made = await centres.create(Centre(metadata=Metadata(name="c1")))
        status = CentreStatus(ready=True, units=(UnitType(name="cpu", count=4),))
        await centres.replace_status(replace(made, status=status))
        await tasks.create(task("a"))
        await tasks.create(task("b", "a"))
        request = DispatchRequest(dispatches=(Dispatch(task="b", centre="c1", unit="cpu"),))
        with pytest.raises(StaleError, match="Task b runs after a, which is pending"):
            await served.client.dispatch(request)
        (refused,) = await served.client.dispatch_each([request])
        assert isinstance(refused, StaleError)
        await tasks.delete("a")
        with pytest.raises(StaleError, match="Task b runs after a, which does not exist"):
            await served.client.dispatch(request)

    play(act)
