"""Routes for batches: several requests in one, each carried out or refused separately."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from litestar import Request, post
from litestar.params import JSONBody

from controller.apiserver.registry.batches import (
    BindingBatch,
    BindingOutcome,
    BindingOutcomes,
    DispatchBatch,
    DispatchOutcome,
    DispatchOutcomes,
)
from controller.apiserver.server.gate import PARTS
from controller.apiserver.service import Service
from controller.common.errors import ApiError
from dataplane.rpc.access import Principal

_Asked = Request[Principal, None, Any]
_DONE = 200


def batch_routes(service: Service) -> list[Any]:
    """Return the routes of all batches."""
    common: dict[str, Any] = {"tags": ["actions"], "status_code": _DONE}

    @post("/v1/batches/bindings", operation_id="bindEach", **common, summary="Place pods, each request on its own.")
    async def bind_each(request: _Asked, data: JSONBody[BindingBatch]) -> BindingOutcomes:
        outcomes = await service.bind_each(request.user, data)
        words = [", ".join(f"{binding.pod} -> {binding.node}" for binding in part.bindings) for part in data.requests]
        _note(request, words, outcomes)
        return BindingOutcomes(
            outcomes=tuple(
                BindingOutcome(status=outcome.status, detail=_line(outcome))
                if isinstance(outcome, ApiError)
                else BindingOutcome(answer=outcome)
                for outcome in outcomes
            )
        )

    @post(
        "/v1/batches/dispatches",
        operation_id="dispatchEach",
        **common,
        summary="Dispatch tasks, each request on its own.",
    )
    async def dispatch_each(request: _Asked, data: JSONBody[DispatchBatch]) -> DispatchOutcomes:
        outcomes = await service.dispatch_each(request.user, data)
        words = [", ".join(f"{item.task} -> {item.centre}" for item in part.dispatches) for part in data.requests]
        _note(request, words, outcomes)
        return DispatchOutcomes(
            outcomes=tuple(
                DispatchOutcome(status=outcome.status, detail=_line(outcome))
                if isinstance(outcome, ApiError)
                else DispatchOutcome(answer=outcome)
                for outcome in outcomes
            )
        )

    return [bind_each, dispatch_each]


def _note(request: _Asked, words: Sequence[str], outcomes: Sequence[object]) -> None:
    """Record the outcome of each request for the audit log."""
    statuses = [outcome.status if isinstance(outcome, ApiError) else _DONE for outcome in outcomes]
    request.scope["state"][PARTS] = tuple(zip(words, statuses, strict=True))


def _line(error: ApiError) -> str:
    return " ".join(str(error).split())[:1024]
