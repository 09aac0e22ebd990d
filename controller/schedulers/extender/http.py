"""The extender over HTTP: kube-scheduler POSTs JSON to the verbs below its urlPrefix.

Where an answer has no place for an error it is a line of text: 400 for a body that cannot be read, 422 for a pod that
cannot be decided about, 503 for what was not decided in time.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from litestar import Litestar, Request, Response, get, post
from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException, NotAuthorizedException
from litestar.handlers import BaseRouteHandler
from litestar.params import FromPath

from controller.errors import ControllerError
from controller.schedulers.extender.messages import MalformedError
from controller.schedulers.extender.metrics import Metrics
from controller.schedulers.extender.service import ExtenderService
from controller.schedulers.extender.settings import ExtenderLimits

_Asked = Request[Any, Any, Any]
_JSON: Final = "application/json"
_TEXT: Final = "text/plain"
VERBS: Final = ("filter", "prioritize", "preempt", "bind")


def application(service: ExtenderService, limits: ExtenderLimits, metrics: Metrics, *, token: str | None) -> Litestar:
    """Return the application; with a token, whoever calls has to show it."""
    guard = _guard(token, metrics)
    verbs = {
        "filter": service.filter,
        "prioritize": service.prioritize,
        "preempt": service.preempt,
        "bind": service.bind,
    }
    handlers = [_verb(name, verbs[name], service, limits, metrics) for name in VERBS]
    return Litestar(
        route_handlers=[*handlers, _decision(service), _health()],
        guards=[] if token is None else [guard],
        request_max_body_size=limits.request_bytes,
        exception_handlers={
            MalformedError: _malformed_body,
            ControllerError: _refused,
            HTTPException: _malformed,
            TimeoutError: _late,
        },
        openapi_config=None,
        logging_config=None,
        debug=False,
    )


def _verb(
    name: str,
    answer: Callable[[bytes], Awaitable[bytes]],
    service: ExtenderService,
    limits: ExtenderLimits,
    metrics: Metrics,
) -> Any:  # noqa: ANN401 - Litestar's
    @post(f"/{name}", status_code=200, name=name)
    async def handle(request: _Asked) -> Response[bytes]:
        try:
            async with asyncio.timeout(limits.body_s):
                body = await request.body()
        except TimeoutError:
            raise HTTPException(status_code=408, detail=f"the body did not come within {limits.body_s:g} s") from None
        begun_s = time.perf_counter()
        try:
            async with asyncio.timeout(limits.answer_s):
                found = await answer(body)
        except TimeoutError:
            service.note_late(name)
            raise TimeoutError(f"{name}: nothing was decided within {limits.answer_s:g} s") from None
        finally:
            metrics.seconds.labels(name).observe(time.perf_counter() - begun_s)
        return Response(found, media_type=_JSON)

    return handle


def _decision(service: ExtenderService) -> Any:  # noqa: ANN401 - Litestar's
    @get("/pods/{namespace:str}/{name:str}")
    async def decision(namespace: FromPath[str], name: FromPath[str]) -> Response[bytes]:
        found = service.recent.get(f"{namespace}/{name}")
        if found is None:
            raise HTTPException(status_code=404, detail=f"nothing is kept about pod {namespace}/{name}")
        return Response(msgspec.json.encode(found), media_type=_JSON)

    return decision


def _health() -> Any:  # noqa: ANN401 - Litestar's
    @get("/healthz")
    async def health() -> Response[bytes]:
        return Response(b"ok\n", media_type=_TEXT)

    return health


def _guard(token: str | None, metrics: Metrics) -> Any:  # noqa: ANN401 - Litestar's
    expected = (token or "").encode()

    def guard(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        shown = _shown(connection.headers.get("authorization", ""))
        if not hmac.compare_digest(shown, expected):
            metrics.strangers.inc()
            raise NotAuthorizedException(detail="a token that counts is needed")

    return guard


def _shown(header: str) -> bytes:
    """Return the token of a header: a bearer's, or the password of Basic, which is what a URL with a user sends."""
    scheme, _, rest = header.partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip().encode()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(rest.strip(), validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""


def _malformed_body(_: _Asked, error: MalformedError) -> Response[bytes]:
    return Response(_line(str(error)), status_code=400, media_type=_TEXT)


def _refused(_: _Asked, error: ControllerError) -> Response[bytes]:
    return Response(_line(str(error)), status_code=422, media_type=_TEXT)


def _malformed(_: _Asked, error: HTTPException) -> Response[bytes]:
    return Response(_line(error.detail), status_code=error.status_code, media_type=_TEXT)


def _late(_: _Asked, error: TimeoutError) -> Response[bytes]:
    return Response(_line(str(error)), status_code=503, media_type=_TEXT)


def _line(text: str) -> bytes:
    return " ".join(text.split()).encode() + b"\n"
