"""Flows pinned to a path, and released, from the page."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Response, post
from litestar.params import JSONBody

from controller.apiserver.server.gate import WHAT
from controller.apiserver.view.answers import spec_of
from controller.apiserver.view.changes.events import Asked, check_may, json_response, refusals
from controller.apiserver.view.state import NetworkView, flow_text
from controller.network.intents import FlowSpec
from controller.network.paths.service.client import RouteClient
from dataplane.config import Strict

_Host = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
_Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
_Protocol = Annotated[int, msgspec.Meta(ge=0, le=255)]


class FlowRequest(Strict, frozen=True):
    """A flow, by names or addresses of its hosts."""

    src: _Host
    dst: _Host
    protocol: _Protocol | None = None
    src_port: _Port | None = None
    dst_port: _Port | None = None

    @property
    def spec(self) -> FlowSpec:
        """The flow as it is stated."""
        return FlowSpec(self.src, self.dst, self.protocol, self.src_port, self.dst_port)


class PinRequest(FlowRequest, frozen=True, kw_only=True):
    """A flow, and all switches of its path."""

    path: Annotated[tuple[_Host, ...], msgspec.Meta(min_length=1, max_length=256)]


def pin_changes(view: NetworkView, routes: RouteClient) -> list[Any]:
    """Return the routes by which flows are pinned and released."""

    @post("/pins", operation_id="pinFlow", status_code=200, summary="Pin a flow to a path until it is released.")
    async def pin(request: Asked, data: JSONBody[PinRequest]) -> Response[bytes]:
        check_may(request.user, "pin", "Pin")
        flow = spec_of(view, data.spec)
        request.scope["state"][WHAT] = f"pin {_name(flow)} to {'-'.join(data.path)}"
        with refusals():
            await routes.pin(flow, data.path)
        return json_response({"path": list(data.path)})

    @post("/pins/release", operation_id="releaseFlow", status_code=200, summary="Return a flow to the path server.")
    async def release(request: Asked, data: JSONBody[FlowRequest]) -> Response[bytes]:
        check_may(request.user, "pin", "Release")
        flow = spec_of(view, data.spec)
        request.scope["state"][WHAT] = f"release {_name(flow)}"
        with refusals():
            await routes.release(flow)
        return json_response({})

    return [pin, release]


def _name(flow: FlowSpec) -> str:
    return flow_text(flow.src_host, flow.dst_host, flow.src_port, flow.dst_port)
