"""Widget: an added kind in one file, with schema, strategy and `Kind`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from msgspec.structs import replace

from controller.apiserver.resources import KINDS
from controller.apiserver.resources.base import Count, Name, Resource
from controller.apiserver.resources.kind import Kind, Own, Rights, Server, Strategy, Usage, Verb
from controller.common.errors import InvalidError, StaleError
from dataplane.config import Strict
from dataplane.rpc.access import Principal, Role


class WidgetSpec(Strict, frozen=True):
    """Colour, size, and a deletion lock."""

    colour: Name = "red"
    size: Count = 1
    is_locked: bool = False


class WidgetStatus(Strict, frozen=True):
    """Its maker, its node, and what it holds."""

    maker: str = ""
    node: Name | None = None
    holds: Count = 0


class Widget(Resource, frozen=True):
    """A widget."""

    spec: WidgetSpec = WidgetSpec()
    status: WidgetStatus = WidgetStatus()
    serial: Count = 0
    kind: Literal["Widget"] = "Widget"


class WidgetStrategy(Strategy[Widget]):
    """Strategy of widgets; each hook has an effect that a test can observe."""

    def __init__(self) -> None:
        self.written: list[tuple[str, int]] = []

    def prepare(self, new: Widget, principal: Principal, server: Server) -> Widget:
        return replace(new, status=WidgetStatus(maker=principal.name))

    def validate(self, found: Widget | None, wanted: Widget) -> None:
        name = wanted.metadata.name
        if wanted.spec.size > 9:
            raise InvalidError(f"spec.size: Widget {name} has {wanted.spec.size}, at most 9")
        if found is not None and found.spec.colour != wanted.spec.colour:
            raise StaleError(f"Widget {name} stays {found.spec.colour}")

    def prepare_status(self, found: Widget, wanted: Widget, principal: Principal, server: Server) -> Widget:
        return replace(wanted, status=replace(wanted.status, maker=found.status.maker))

    def after_write(self, written: Widget, server: Server) -> None:
        self.written.append((written.metadata.name, written.metadata.revision))

    async def check_unused(self, found: Widget, server: Server) -> None:
        users = [user.metadata.name for user in await server.selected(WIDGET, "colour", found.metadata.name)]
        if users:
            raise StaleError(f"Widget {found.metadata.name} is used by {users[0]}")

    def may_delete(self, found: Widget) -> None:
        if found.spec.is_locked:
            raise StaleError(f"Widget {found.metadata.name} is locked")

    def is_held(self, found: Widget) -> bool:
        return found.status.holds > 0

    def usage(self, resource: Widget) -> Usage:
        return Usage(units=resource.spec.size)

    def shown(self, resource: Widget, server: Server) -> Widget:
        return replace(resource, serial=server.used(resource.metadata.account).units)


WIDGET = Kind(
    "Widget",
    "widgets",
    Widget,
    fields={"colour": lambda widget: widget.spec.colour, "node": lambda widget: widget.status.node},
    initial=("serial",),
    columns={"colour": lambda widget: widget.spec.colour, "size": lambda widget: widget.spec.size},
    rights=Rights(
        is_private=True,
        users_write=True,
        own={Role.NODE: Own("node", frozenset({Verb.READ, Verb.STATUS}))},
        roles={Role.PLACEMENT: frozenset({Verb.READ})},
    ),
    strategy=WidgetStrategy(),
)


@contextmanager
def widgets() -> Iterator[None]:
    """Register widgets as a row in the table of kinds would."""
    KINDS.add(WIDGET)
    try:
        yield
    finally:
        KINDS.remove(WIDGET)
