"""A kind added by one row of the table gets everything that other kinds have."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import controller.apiserver
from controller.apiserver.registry.events import EventType
from controller.apiserver.resources import KINDS, Metadata, Project
from controller.apiserver.resources.project import ProjectSpec, Quota
from controller.common.errors import ForbiddenError, InvalidError, NotFoundError, StaleError
from dataplane.rpc.access import Role
from tests.controller.apiserver.api_server import Play, Served
from tests.controller.apiserver.widget import WIDGET, Widget, WidgetSpec, WidgetStatus, WidgetStrategy, widgets


@pytest.fixture(autouse=True)
def _known() -> Iterator[None]:
    with widgets():
        yield


def widget(name: str, colour: str = "red", size: int = 1, **spec: bool) -> Widget:
    return Widget(metadata=Metadata(name=name), spec=WidgetSpec(colour=colour, size=size, **spec), serial=99)


def test_new_kind_is_written_selected_and_watched(play: Play) -> None:
    async def run(served: Served) -> None:
        widgets = served.client.of(Widget)
        events = widgets.watch()
        assert (await anext(events)).type is EventType.BOOKMARK
        made = await widgets.create(widget("a"))
        assert (made.status.maker, made.serial) == ("local", 0)
        await widgets.create(widget("b", "blue", 2))
        assert [each.metadata.name for each in (await widgets.list(fields="colour=blue")).items] == ["b"]
        with pytest.raises(
            InvalidError, match=r"widgets cannot be selected by size; known: name, owner, project, colo"
        ):
            await widgets.list(fields="size=2")
        changed = await widgets.replace(Widget(metadata=made.metadata, spec=WidgetSpec(size=3)))
        reported = await widgets.replace_status(
            Widget(metadata=changed.metadata, status=WidgetStatus(maker="x", holds=1))
        )
        assert (reported.status, reported.spec.size) == (WidgetStatus(maker="local", holds=1), 3)
        seen = [await anext(events) for _ in range(4)]
        assert [event.name for event in seen] == ["a", "b", "a", "a"]
        assert seen[-1].resource == reported
        await events.aclose()
        strategy = WIDGET.strategy
        assert isinstance(strategy, WidgetStrategy)
        assert ("a", reported.metadata.revision) in strategy.written

    play(run)


def test_new_kind_is_validated_and_guarded(play: Play) -> None:
    async def run(served: Served) -> None:
        widgets = served.client.of(Widget)
        with pytest.raises(InvalidError, match=r"spec\.size: Widget a has 10, at most 9"):
            await widgets.create(widget("a", size=10))
        made = await widgets.create(widget("a", is_locked=True))
        with pytest.raises(StaleError, match="Widget a stays red"):
            await widgets.replace(Widget(metadata=made.metadata, spec=WidgetSpec(colour="blue")))
        with pytest.raises(StaleError, match="Widget a is locked"):
            await widgets.delete("a")
        await widgets.replace(Widget(metadata=made.metadata))
        await widgets.create(widget("b", "a"))
        with pytest.raises(StaleError, match="Widget a is used by b"):
            await widgets.delete("a")
        await widgets.replace_status(Widget(metadata=Metadata(name="b"), status=WidgetStatus(holds=1)))
        assert (await widgets.delete("b")).metadata.deleting_ns is not None
        await widgets.replace_status(Widget(metadata=Metadata(name="b")))
        await widgets.delete("b")
        await widgets.delete("a")
        with pytest.raises(NotFoundError, match="there is no Widget a"):
            await widgets.get("a")

    play(run)


def test_new_kind_has_rights_owners_and_quotas(play: Play) -> None:
    async def run(served: Served) -> None:
        await served.client.of(Project).create(
            Project(metadata=Metadata(name="p"), spec=ProjectSpec(quota=Quota(units=5, objects=2)))
        )
        async with (
            await served.client_of(Role.USER, name="ann", projects=("p",)) as ann,
            await served.client_of(Role.USER, name="bob") as bob,
            await served.client_of(Role.NODE, "h1") as node,
            await served.client_of(Role.PLACEMENT) as placement,
            await served.client_of(Role.CENTRE, "c1") as centre,
        ):
            made = await ann.of(Widget).create(widget("a", size=4))
            assert (made.metadata.owner, made.metadata.project, made.status.maker) == ("ann", "p", "ann")
            assert (await ann.of(Widget).get("a")).serial == 4
            with pytest.raises(ForbiddenError, match="the quota of project p is exhausted: units: 6, at most 5"):
                await ann.of(Widget).create(widget("b", size=2))
            assert (await bob.of(Widget).list()).items == ()
            with pytest.raises(ForbiddenError, match=r"may not read Widget a: it belongs to another user"):
                await bob.of(Widget).get("a")
            with pytest.raises(ForbiddenError, match="may not write the status of a Widget"):
                await ann.of(Widget).replace_status(made)
            with pytest.raises(ForbiddenError, match="may not read widgets but with fields=node=h1"):
                await node.of(Widget).list()
            await served.client.of(Widget).replace_status(
                Widget(metadata=made.metadata, status=WidgetStatus(node="h1"))
            )
            assert [each.metadata.name for each in (await node.of(Widget).list(fields="node=h1")).items] == ["a"]
            await node.of(Widget).replace_status(Widget(metadata=Metadata(name="a"), status=WidgetStatus(node="h1")))
            assert [each.metadata.name for each in (await placement.of(Widget).list()).items] == ["a"]
            with pytest.raises(ForbiddenError, match="may not delete a Widget"):
                await placement.of(Widget).delete("a")
            with pytest.raises(ForbiddenError, match="may not read widgets"):
                await centre.of(Widget).list()

    play(run)


def test_server_knows_no_kind_by_its_type() -> None:
    """Other code must use strategies, not kinds; manifests name two kinds for their format."""
    folder = Path(controller.apiserver.__path__[0])
    types = {kind.type.__name__ for kind in KINDS}
    names = {"isinstance", "issubclass"}
    for path in folder.rglob("*.py"):
        if path.relative_to(folder).parts[0] in {"resources", "manifests"}:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_check = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
            if is_check or isinstance(node, ast.MatchClass):
                named = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
                assert not named & types, f"{path}: {ast.unparse(node)}"


def test_documents_list_every_kind() -> None:
    page = (Path(__file__).parents[3] / "docs/cluster/service-api.md").read_text(encoding="utf-8")
    assert [kind.plural for kind in KINDS if kind is not WIDGET and f"`{kind.plural}`" not in page] == []
