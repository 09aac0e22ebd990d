"""Links and switches drained, and put back, from the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from litestar import Response, get, post
from litestar.params import JSONBody, QueryParameter

from controller.apiserver.server.gate import WHAT
from controller.apiserver.view.changes.events import Asked, Text, check_may, json_response, refusals
from controller.apiserver.view.state import NetworkView, flow_text
from controller.network.intents import FlowSpec
from controller.network.paths.records.values import DrainChange, DrainEffect, StayingFlow
from controller.network.paths.service.client import RouteClient
from dataplane.config import Strict
from dataplane.topology.values import LinkKey

_MOST: Final = 200
"""Flows of each kind in an answer; it says how many there are."""
_Element = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class DrainRequest(Strict, frozen=True):
    """An element to drain or to put back; `revision` is that of the effect that was shown."""

    element: _Element
    drained: bool = True
    note: Text = ""
    revision: Annotated[str, msgspec.Meta(max_length=64)] | None = None


def drain_changes(view: NetworkView, routes: RouteClient) -> list[Any]:
    """Return the routes by which drains are read, foreseen and changed."""

    @get("/drains", operation_id="viewDrains", summary="What is drained, and which flows stay there.")
    async def drains() -> Response[bytes]:
        with refusals():
            answer = await routes.drains()
        view.take_drains(answer.drains)
        value = {"drains": answer.drains, "stays": _stays(answer.stays), "stays_of": len(answer.stays)}
        return json_response({**value, "revision": answer.revision})

    @get("/drains/effect", operation_id="foreseeDrain", summary="The effect that a drain would have; nothing changes.")
    async def effect(
        element: Annotated[str, QueryParameter(min_length=1, max_length=256, description="A->B, A<->B or a switch.")],
        drained: Annotated[bool, QueryParameter(description="False foresees that it is put back.")] = True,
    ) -> Response[bytes]:
        with refusals():
            return json_response(_value(await routes.foresee_drain(DrainChange(element, drained))))

    @post("/drains", operation_id="drain", status_code=200, summary="Drain a link or a switch, or put it back.")
    async def change(request: Asked, data: JSONBody[DrainRequest]) -> Response[bytes]:
        check_may(request.user, "drain", "Drain")
        note = f": {data.note}" if data.note else ""
        request.scope["state"][WHAT] = f"{'drain' if data.drained else 'put back'} {data.element}{note}"
        asked = DrainChange(data.element, data.drained, request.user.name, data.note, data.revision)
        with refusals():
            made = await routes.drain(asked)
            view.take_drains((await routes.drains()).drains)
        return json_response(_value(made))

    return [drains, effect, change]


def _value(effect: DrainEffect) -> dict[str, Any]:
    moves = [move for move in effect.moves if move.old_path != move.new_path]
    return {
        "drain": effect.drain,
        "is_change": effect.is_change,
        "moves": [
            {**_flow(move.flow), "old": list(move.old_path), "new": list(move.new_path), "reason": move.reason}
            for move in moves[:_MOST]
        ],
        "moves_of": len(moves),
        "stays": _stays(effect.stays),
        "stays_of": len(effect.stays),
        "others": effect.others,
        "hosts": list(effect.hosts),
        "before": _fullest(effect.fullest_before, effect.utilisation_before),
        "after": _fullest(effect.fullest_after, effect.utilisation_after),
        "revision": effect.revision,
    }


def _stays(stays: Sequence[StayingFlow]) -> list[dict[str, Any]]:
    return [{**_flow(stay.flow), "path": list(stay.path), "reason": stay.reason} for stay in stays[:_MOST]]


def _flow(flow: FlowSpec) -> dict[str, str]:
    return {"text": flow_text(flow.src_host, flow.dst_host, flow.src_port, flow.dst_port)}


def _fullest(link: LinkKey | None, share: float) -> dict[str, Any]:
    return {"link": None if link is None else str(link), "share": share}
