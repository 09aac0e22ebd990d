"""The extender over HTTP: kube-scheduler POSTs JSON to the verbs below its urlPrefix.

If an answer has no field for an error, the error is a line of text: 400 for an unreadable body, 422 for a pod that
cannot be decided, 503 for a decision that took too long.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec
from cryptography import x509
from litestar import Litestar, Request, Response, get, post
from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException, NotAuthorizedException, PermissionDeniedException
from litestar.handlers import BaseRouteHandler
from litestar.params import FromPath

from controller.common.errors import ControllerError
from controller.common.http_server import CERTIFICATE
from controller.scheduling.extender.messages import MalformedError
from controller.scheduling.extender.metrics import Metrics
from controller.scheduling.extender.service import ExtenderService
from controller.scheduling.extender.settings import ExtenderLimits
from dataplane.rpc.access.names import alternative_names, common_name
from dataplane.rpc.addresses import is_loopback

_Request = Request[Any, Any, Any]
_JSON: Final = "application/json"
_TEXT: Final = "text/plain"
_CLOSING: Final = {"Connection": "close"}
"""Closes the connection of an unauthorised caller."""
_LONGEST_HOST: Final = 100
VERBS: Final = ("filter", "prioritize", "preempt", "bind")


@dataclass(frozen=True, slots=True)
class Callers:
    """The allowed callers. If a token is set, callers must present it; `names` are certificate names, None: any.

    `is_local`: anyone who can connect may call, so requests sent by browsers for web pages are refused.
    """

    token: str | None = None
    names: frozenset[str] | None = None
    is_local: bool = False


def application(service: ExtenderService, limits: ExtenderLimits, metrics: Metrics, callers: Callers) -> Litestar:
    """Return the application for the allowed callers."""
    verbs = {
        "filter": service.filter,
        "prioritize": service.prioritize,
        "preempt": service.preempt,
        "bind": service.bind,
    }
    handlers = [_verb(name, verbs[name], service, limits, metrics) for name in VERBS]
    return Litestar(
        route_handlers=[*handlers, _decision(service), _health()],
        guards=[_guard(callers, metrics)],
        request_max_body_size=limits.request_bytes,
        exception_handlers={
            MalformedError: _malformed_body,
            ControllerError: _refused,
            HTTPException: _malformed,
            TimeoutError: _timed_out,
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
    async def handle(request: _Request) -> Response[bytes]:
        try:
            async with asyncio.timeout(limits.body_s):
                body = await request.body()
        except TimeoutError:
            raise HTTPException(status_code=408, detail=f"the body did not arrive within {limits.body_s:g} s") from None
        begun_s = time.perf_counter()
        try:
            async with asyncio.timeout(limits.answer_s):
                reply = await answer(body)
        except TimeoutError:
            service.note_timeout(name)
            raise TimeoutError(f"{name}: no decision within {limits.answer_s:g} s") from None
        finally:
            metrics.seconds.labels(name).observe(time.perf_counter() - begun_s)
        return Response(reply, media_type=_JSON)

    return handle


def _decision(service: ExtenderService) -> Any:  # noqa: ANN401 - Litestar's
    @get("/pods/{namespace:str}/{name:str}")
    async def decision(namespace: FromPath[str], name: FromPath[str]) -> Response[bytes]:
        record = service.recent.get(f"{namespace}/{name}")
        if record is None:
            raise HTTPException(status_code=404, detail=f"no decision about pod {namespace}/{name} is kept")
        return Response(msgspec.json.encode(record), media_type=_JSON)

    return decision


def _health() -> Any:  # noqa: ANN401 - Litestar's
    @get("/healthz")
    async def health() -> Response[bytes]:
        return Response(b"ok\n", media_type=_TEXT)

    return health


def _guard(callers: Callers, metrics: Metrics) -> Any:  # noqa: ANN401 - Litestar's
    expected = None if callers.token is None else callers.token.encode()

    def guard(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        headers = connection.headers
        problem: HTTPException | None = None
        # In constant time: the duration must not reveal how much of a guess is right.
        if expected is not None and not hmac.compare_digest(_token_of(headers.get("authorization", "")), expected):
            problem = NotAuthorizedException(detail="a valid token is required", headers=_CLOSING)
        elif callers.names is not None and callers.names.isdisjoint(names := _names_of(connection)):
            shown = ", ".join(sorted(names)) or "nobody"
            detail = f"the certificate names {shown}, none of callers: {', '.join(sorted(callers.names))}"
            problem = PermissionDeniedException(detail=detail, headers=_CLOSING)
        # A web page reaches a local port by its own name (DNS rebinding), and browsers send Origin.
        elif callers.is_local and ("origin" in headers or not _is_local(headers.get("host", ""))):
            detail = f"Host {headers.get('host', '')[:_LONGEST_HOST]!r} is not this machine, and there is no token_file"
            problem = PermissionDeniedException(detail=detail, headers=_CLOSING)
        if problem is not None:
            metrics.unauthorized.inc()
            raise problem
        content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        if connection.scope.get("method") == "POST" and content_type != _JSON:
            raise HTTPException(status_code=415, detail=f"Content-Type must be {_JSON}")

    return guard


def _names_of(connection: ASGIConnection[Any, Any, Any, Any]) -> frozenset[str]:
    """Return the names in a certificate: its common name, DNS names and URIs."""
    shown: bytes | None = connection.scope.get(CERTIFICATE)  # type: ignore[assignment]
    return frozenset() if shown is None else _names_in(shown)


@lru_cache(maxsize=1024)
def _names_in(der: bytes) -> frozenset[str]:
    certificate = x509.load_der_x509_certificate(der)
    kinds = (x509.DNSName, x509.UniformResourceIdentifier)
    return frozenset(
        (common_name(certificate), *(str(name) for kind in kinds for name in alternative_names(certificate, kind)))
    )


def _is_local(host: str) -> bool:
    """Return whether a Host header names this machine: a page elsewhere may resolve its own name to it."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    return is_loopback(f"{name}:0")


def _token_of(header: str) -> bytes:
    """Return the token of a header: a bearer token, or the Basic password that a URL with a user sends."""
    scheme, _, rest = header.partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip().encode()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(rest.strip(), validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""


def _malformed_body(_: _Request, error: MalformedError) -> Response[bytes]:
    return Response(_line(str(error)), status_code=400, media_type=_TEXT)


def _refused(_: _Request, error: ControllerError) -> Response[bytes]:
    return Response(_line(str(error)), status_code=422, media_type=_TEXT)


def _malformed(_: _Request, error: HTTPException) -> Response[bytes]:
    return Response(_line(error.detail), status_code=error.status_code, media_type=_TEXT, headers=error.headers)


def _timed_out(_: _Request, error: TimeoutError) -> Response[bytes]:
    return Response(_line(str(error)), status_code=503, media_type=_TEXT)


def _line(text: str) -> bytes:
    return " ".join(text.split()).encode() + b"\n"
