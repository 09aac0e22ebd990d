"""The application: routes of all kinds, actions, OpenAPI, health."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from litestar import Litestar, Request, Response, Router, delete, get, post, put
from litestar.exceptions import HTTPException
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.params import FromPath, JSONBody
from prometheus_client import CONTENT_TYPE_LATEST

from controller.apiserver.access import check_tokens
from controller.apiserver.registry.completions import CompletionRequest
from controller.apiserver.registry.dispatches import DispatchRequest, Pick
from controller.apiserver.registry.evictions import EvictionRequest
from controller.apiserver.registry.placements import BindingRequest, PlacementAnswer, ReleaseRequest
from controller.apiserver.registry.pools.shares import UnitShares
from controller.apiserver.registry.task_state import DispatchAnswer
from controller.apiserver.resources import KINDS, UnitPool
from controller.apiserver.resources.unit_pool import HolderStatus
from controller.apiserver.server.answers import HealthAnswer, TokenList
from controller.apiserver.server.batches import batch_routes
from controller.apiserver.server.gate import WHAT
from controller.apiserver.server.handlers import IfMatch, expected_of, handlers_of
from controller.apiserver.server.metrics import Metrics
from controller.apiserver.server.problems import failed, malformed, refused, too_deep
from controller.apiserver.server.sessions import session_routes
from controller.apiserver.service import Service
from controller.apiserver.sessions.service import SessionService
from controller.apiserver.tokens import NewToken, TokenRequest, Tokens, TokenShown
from controller.common.errors import ApiError, InvalidError
from dataplane.rpc.access import Principal

_Asked = Request[Principal, None, Any]
_Name = FromPath[str]


def application(
    service: Service,
    tokens: Tokens,
    sessions: SessionService,
    metrics: Metrics,
    *,
    version: str,
    more: Sequence[Router] = (),
) -> Litestar:
    """Return the application over a service, with additional routers."""
    routes = [handler for kind in KINDS for handler in handlers_of(kind, service)]
    return Litestar(
        route_handlers=[
            *routes,
            *_actions(service),
            *session_routes(sessions),
            *_health(service, metrics),
            *_tokens(tokens),
            *more,
        ],
        exception_handlers={ApiError: refused, HTTPException: malformed, RecursionError: too_deep, Exception: failed},
        openapi_config=OpenAPIConfig(
            title="Millrace: API server",
            version=version,
            path="/",
            render_plugins=[JsonRenderPlugin(path="/openapi.json")],
        ),
        request_max_body_size=None,  # limited by the gate
        logging_config=None,
        debug=False,
    )


def _actions(service: Service) -> list[Any]:
    @post("/v1/bindings", operation_id="bind", tags=["actions"], status_code=200, summary="Place pods, all or none.")
    async def bind(request: _Asked, data: JSONBody[BindingRequest]) -> PlacementAnswer:
        request.scope["state"][WHAT] = ", ".join(f"{binding.pod} -> {binding.node}" for binding in data.bindings)
        return await service.bind(request.user, data)

    @post("/v1/releases", operation_id="release", tags=["actions"], status_code=200, summary="Release shares.")
    async def release(request: _Asked, data: JSONBody[ReleaseRequest]) -> PlacementAnswer:
        request.scope["state"][WHAT] = ", ".join(item.pod for item in data.releases)
        return await service.release(request.user, data)

    @post("/v1/evictions", operation_id="evict", tags=["actions"], status_code=200, summary="Evict pods.")
    async def evict(request: _Asked, data: JSONBody[EvictionRequest]) -> PlacementAnswer:
        request.scope["state"][WHAT] = ", ".join(eviction.pod for eviction in data.evictions)
        return await service.evict(request.user, data)

    return [bind, release, evict, *batch_routes(service), *_pool_actions(service), *_task_actions(service)]


def _pool_actions(service: Service) -> list[Any]:
    path = "/v1/unitpools/{name:str}"
    common: dict[str, Any] = {"tags": ["actions"]}

    @put(f"{path}/shares", operation_id="shareUnits", **common, summary="Allocate units of a pool.")
    async def share(request: _Asked, name: _Name, data: JSONBody[UnitShares], if_match: IfMatch = None) -> UnitPool:
        request.scope["state"][WHAT] = ", ".join(f"{holding.holder}: {holding.units}" for holding in data.shares)
        return await service.share_units(request.user, name, data, expected=expected_of(if_match))

    @put(
        f"{path}/holders/{{holder:str}}", operation_id="reportUnits", **common, summary="Report the units of a holder."
    )
    async def report(request: _Asked, name: _Name, holder: _Name, data: JSONBody[HolderStatus]) -> UnitPool:
        if holder != data.holder:
            raise InvalidError(f"holder: {data.holder} is written to {holder}")
        return await service.report_units(request.user, name, data)

    return [share, report]


def _task_actions(service: Service) -> list[Any]:
    common: dict[str, Any] = {"tags": ["actions"], "status_code": 200}

    @post("/v1/dispatches", operation_id="dispatch", **common, summary="Dispatch tasks to centres, all or none.")
    async def dispatch(request: _Asked, data: JSONBody[DispatchRequest]) -> DispatchAnswer:
        request.scope["state"][WHAT] = ", ".join(f"{item.task} -> {item.centre}" for item in data.dispatches)
        return await service.dispatch(request.user, data)

    @post("/v1/picks", operation_id="pick", **common, summary="Pick the units of a task that was left to a centre.")
    async def pick(request: _Asked, data: JSONBody[Pick]) -> DispatchAnswer:
        request.scope["state"][WHAT] = f"{data.task} -> {data.unit}"
        return await service.pick(request.user, data)

    @post("/v1/completions", operation_id="complete", **common, summary="Complete tasks and release their units.")
    async def complete(request: _Asked, data: JSONBody[CompletionRequest]) -> DispatchAnswer:
        request.scope["state"][WHAT] = ", ".join(
            f"{completion.task}: {completion.phase.value}" for completion in data.completions
        )
        return await service.complete(request.user, data)

    return [dispatch, pick, complete]


def _health(service: Service, metrics: Metrics) -> list[Any]:
    @get("/healthz", operation_id="health", tags=["operation"], summary="Whether the server is up, and its storage.")
    async def health() -> Response[HealthAnswer]:
        away, cache = service.health.problem, service.cache
        return Response(
            HealthAnswer(
                status="ok" if away is None else "degraded",
                storage="answers" if away is None else f"away: {away}",
                revision=cache.ring.revision,
                age_ns=None if away is None else cache.age_ns,
                overloads=tuple(map(str, metrics.read_load().overloads)),
            )
        )

    @get(
        "/readyz",
        operation_id="ready",
        tags=["operation"],
        summary="Whether the server can answer and write; otherwise 503.",
    )
    async def ready() -> Response[HealthAnswer]:
        answer = await health.fn()
        is_ready = service.cache.loaded.is_set() and not service.health.is_away
        answer.status_code = 200 if is_ready else 503
        return answer  # type: ignore[no-any-return]

    @get("/metrics", operation_id="metrics", tags=["operation"], summary="Counters, for Prometheus.")
    async def read_metrics() -> Response[bytes]:
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return [health, ready, read_metrics]


def _tokens(tokens: Tokens) -> list[Any]:
    common: dict[str, Any] = {"tags": ["tokens"]}

    @get("/v1/tokens", operation_id="listTokens", summary="List tokens, without their secrets.", **common)
    async def list_tokens(request: _Asked) -> TokenList:
        check_tokens(request.user)
        return TokenList(items=await tokens.list())

    @post("/v1/tokens", operation_id="createToken", summary="Create a token; it is shown only once.", **common)
    async def create_token(request: _Asked, data: JSONBody[TokenRequest]) -> Response[NewToken]:
        check_tokens(request.user)
        made = await tokens.create(data)
        request.scope["state"][WHAT] = f"token {made.shown.id} of {made.shown.name}"
        return Response(made, headers={"Cache-Control": "no-store"})

    @delete("/v1/tokens/{number:str}", operation_id="revokeToken", summary="Revoke a token.", status_code=200, **common)
    async def revoke_token(request: _Asked, number: FromPath[str]) -> TokenShown:
        check_tokens(request.user)
        return await tokens.revoke(number)

    return [list_tokens, create_token, revoke_token]
