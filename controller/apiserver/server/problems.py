"""Refusals over HTTP: RFC 9457, with the error's single line as `detail`."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any, Final

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException

from controller.apiserver.server.answers import Problem
from controller.common.errors import ApiError, TooManyError

LOGGER = logging.getLogger("millrace.api")

BODY: Final = "millrace.body"
"""Key for the gate to store a request's body."""
MEDIA_TYPE: Final = "application/problem+json"


def problem_of(status: int, detail: str) -> Problem:
    """Return a refusal."""
    return Problem(title=HTTPStatus(status).phrase, status=status, detail=" ".join(detail.split()))


def headers_of(error: ApiError) -> dict[str, str]:
    """Return the headers of a refusal."""
    headers = {"Cache-Control": "no-store"}
    if isinstance(error, TooManyError):
        headers["Retry-After"] = str(max(1, round(error.wait_s)))
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="millrace"'
    return headers


def encoded(problem: Problem) -> bytes:
    """Encode the body of a refusal."""
    return msgspec.json.encode(problem) + b"\n"


def refused(_: Request[Any, Any, Any], error: ApiError) -> Response[bytes]:
    """Answer one of this project's errors."""
    problem = problem_of(error.status, str(error))
    return Response(encoded(problem), status_code=error.status, media_type=MEDIA_TYPE, headers=headers_of(error))


def malformed(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """Answer a refusal by Litestar: an unknown route, or a parameter or body that violates the schema."""
    extra: Any = error.extra
    lines = [_in_words(part) for part in extra] if isinstance(extra, list) else []
    if isinstance(extra, list) and any(isinstance(part, dict) and part.get("source") == "body" for part in extra):
        lines = _wrong_in_body(request) or lines
    detail = "; ".join(lines) or error.detail or HTTPStatus(error.status_code).phrase
    problem = problem_of(error.status_code, detail)
    return Response(encoded(problem), status_code=error.status_code, media_type=MEDIA_TYPE)


def too_deep(_: Request[Any, Any, Any], __: Exception) -> Response[bytes]:
    """Answer a body that is nested too deeply."""
    problem = problem_of(400, "the body is nested too deeply")
    return Response(encoded(problem), status_code=400, media_type=MEDIA_TYPE)


def failed(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Answer an internal error: the log has the details."""
    LOGGER.error("%s %s: %s: %s", request.method, request.url.path, type(error).__name__, error)
    LOGGER.debug("where", exc_info=error)
    problem = problem_of(500, "internal error, see the server's log")
    return Response(encoded(problem), status_code=500, media_type=MEDIA_TYPE)


def _wrong_in_body(request: Request[Any, Any, Any]) -> list[str]:
    """Return the errors in a body, in msgspec's own words: Litestar shortens the key."""
    schema = request.route_handler.parsed_fn_signature.parameters["data"].annotation
    try:
        msgspec.json.decode(request.scope["state"][BODY], type=schema)
    except msgspec.MsgspecError as error:
        message, _, key = str(error).partition(" - at `$")
        return [_in_words({"message": message, "key": key.rstrip("`").lstrip(".")})]
    return []


def _in_words(part: Any) -> str:  # noqa: ANN401 - Litestar's messages
    if not isinstance(part, dict):
        return str(part)
    message, key = str(part.get("message", "")), str(part.get("key", ""))
    message = message.replace("Object contains unknown field", "unknown key").replace("Object missing", "missing")
    return f"{key}: {message}" if key else message
