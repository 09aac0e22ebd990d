"""The ALTO server over HTTP: Litestar routes over `service`; they can also be mounted in another application.

Answers are computed outside the event loop, one at a time. A refusal has ALTO's type (application/alto-error+json);
while the network's state is unknown, the answer is 503 with the reason in one line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from litestar import HttpMethod, Litestar, Request, Response, Router, post, route
from litestar.exceptions import HTTPException
from litestar.params import FromPath

from controller.cluster.alto import answers
from controller.cluster.alto.requests import client_address
from controller.cluster.alto.service import AltoService, Answer
from controller.cluster.alto.values import (
    COST_FILTER_TYPE,
    COST_MAP_TYPE,
    DIRECTORY_TYPE,
    ENDPOINT_COST_PARAMETERS_TYPE,
    ENDPOINT_COST_TYPE,
    ERROR_TYPE,
    NETWORK_FILTER_TYPE,
    NETWORK_MAP_TYPE,
    PROPERTY_PARAMETERS_TYPE,
    PROPERTY_TYPE,
)
from controller.common.errors import AltoError, CostMapError
from dataplane.clock import NS_PER_S

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler
    from litestar.types import Guard

_Asked = Request[Any, Any, Any]
_READS: Final = (HttpMethod.GET, HttpMethod.HEAD)
_TEXT: Final = "text/plain"


def application(service: AltoService, *, request_bytes: int, timeout_s: float) -> Litestar:
    """Return the server as a separate application."""
    return Litestar(
        route_handlers=[router(service, request_bytes=request_bytes, timeout_s=timeout_s)],
        openapi_config=None,
        logging_config=None,
        debug=False,
    )


def router(
    service: AltoService, *, request_bytes: int | None, timeout_s: float, path: str = "/", guards: Sequence[Guard] = ()
) -> Router:
    """Return the routes below a path; the mounting application controls access, by guards or beforehand."""
    worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="alto")
    routes = [*_get_routes(service, worker), *_post_routes(service, worker, timeout_s)]
    return Router(
        path=path,
        guards=guards,
        include_in_schema=False,  # the directory lists the resources
        route_handlers=routes,
        request_max_body_size=request_bytes,
        exception_handlers={
            AltoError: _refused,
            CostMapError: _unavailable,
            TimeoutError: _too_slow,
            HTTPException: _malformed,
        },
    )


def _get_routes(service: AltoService, worker: Executor) -> list[HTTPRouteHandler]:
    @route("/directory", http_method=_READS)
    async def directory(request: _Asked) -> Response[bytes]:
        _check_accept(request, DIRECTORY_TYPE)
        return _response(request, service.directory())

    @route("/networkmap/{network:str}", http_method=_READS)
    async def network_map(request: _Asked, network: FromPath[str]) -> Response[bytes]:
        _check_accept(request, NETWORK_MAP_TYPE)
        return _response(request, service.network_map(network))

    @route("/costmap/{network:str}/{type_name:str}", http_method=_READS)
    async def cost_map(request: _Asked, network: FromPath[str], type_name: FromPath[str]) -> Response[bytes]:
        _check_accept(request, COST_MAP_TYPE)
        return _response(request, await _run(worker, service.cost_map, network, type_name))

    return [directory, network_map, cost_map]


def _post_routes(service: AltoService, worker: Executor, timeout_s: float) -> list[HTTPRouteHandler]:
    async def answer(
        request: _Asked, accepts: str, gives: str, make: Callable[[bytes], Answer | None]
    ) -> Response[bytes]:
        _check_accept(request, gives)
        if _media_type(request.headers.get("content-type", "")) != accepts:
            raise HTTPException(status_code=415, detail=f"the body must be {accepts}")
        async with asyncio.timeout(timeout_s):
            body = await request.body()
        return _response(request, await _run(worker, make, body))

    @post("/networkmap/{network:str}/filtered", status_code=200)
    async def filtered_network_map(request: _Asked, network: FromPath[str]) -> Response[bytes]:
        make = partial(service.filtered_network_map, network)
        return await answer(request, NETWORK_FILTER_TYPE, NETWORK_MAP_TYPE, make)

    @post("/costmap/{network:str}/filtered", status_code=200)
    async def filtered_cost_map(request: _Asked, network: FromPath[str]) -> Response[bytes]:
        return await answer(request, COST_FILTER_TYPE, COST_MAP_TYPE, partial(service.filtered_cost_map, network))

    @post("/endpointcost/lookup", status_code=200)
    async def endpoint_costs(request: _Asked) -> Response[bytes]:
        client = client_address(None if request.client is None else request.client.host)
        make = partial(service.endpoint_costs, client=client)
        return await answer(request, ENDPOINT_COST_PARAMETERS_TYPE, ENDPOINT_COST_TYPE, make)

    @post("/endpointprop/lookup", status_code=200)
    async def endpoint_properties(request: _Asked) -> Response[bytes]:
        return await answer(request, PROPERTY_PARAMETERS_TYPE, PROPERTY_TYPE, service.endpoint_properties)

    return [filtered_network_map, filtered_cost_map, endpoint_costs, endpoint_properties]


async def _run(worker: Executor, call: Callable[..., Answer | None], *arguments: object) -> Answer | None:
    return await asyncio.get_running_loop().run_in_executor(worker, call, *arguments)


def _response(request: _Asked, answer: Answer | None) -> Response[bytes]:
    """Return a response: 304 if the client has the content, 404 if there is none."""
    if answer is None:
        raise HTTPException(status_code=404, detail="no such resource; the directory lists all resources")
    headers = {"Cache-Control": "no-cache"}
    if answer.age_ns is not None:
        headers["Age"] = str(answer.age_ns // NS_PER_S)
    if answer.tag is not None:
        headers["ETag"] = etag = f'W/"{answer.tag}"'
        tags = [tag.strip() for tag in request.headers.get("if-none-match", "").split(",")]
        # If-None-Match compares weakly, so W/ does not count (RFC 9110, section 13.1.2).
        if request.method in _READS and (etag in tags or etag.removeprefix("W/") in tags or "*" in tags):
            return Response(b"", status_code=304, headers=headers)
    return Response(answer.body, media_type=answer.media_type, headers=headers)


def _check_accept(request: _Asked, gives: str) -> None:
    """Raise HTTPException if the client does not accept the media type."""
    wanted = [_media_type(part) for part in request.headers.get("accept", "*/*").split(",")]
    if not {"*/*", "application/*", gives} & set(wanted):
        raise HTTPException(status_code=406, detail=f"this resource is {gives}")


def _media_type(text: str) -> str:
    return text.partition(";")[0].strip().lower()


def _refused(_: _Asked, error: AltoError) -> Response[bytes]:
    return Response(answers.error(error), status_code=400, media_type=ERROR_TYPE)


def _unavailable(_: _Asked, error: CostMapError) -> Response[bytes]:
    return Response(_line(str(error)), status_code=503, media_type=_TEXT, headers={"Retry-After": "5"})


def _too_slow(_: _Asked, error: TimeoutError) -> Response[bytes]:
    return Response(_line(str(error) or "the request took too long to arrive"), status_code=408, media_type=_TEXT)


def _malformed(_: _Asked, error: HTTPException) -> Response[bytes]:
    return Response(_line(error.detail), status_code=error.status_code, media_type=_TEXT)


def _line(text: str) -> bytes:
    return " ".join(text.split()).encode() + b"\n"
