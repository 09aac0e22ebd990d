"""Requests and answers of the clients, without a connection: encoding, decoding and errors."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from controller.apiserver.client.place import Place
from controller.apiserver.client.values import Event
from controller.apiserver.registry.batches import BindingOutcome, DispatchOutcome
from controller.apiserver.registry.dispatches import DispatchRequest
from controller.apiserver.registry.events import EventType, WatchEvent
from controller.apiserver.registry.placements import BindingRequest
from controller.apiserver.resources import KINDS, Kind
from controller.apiserver.resources.base import R
from controller.apiserver.server.answers import Problem
from controller.common.errors import (
    ApiError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    StaleError,
    TooLargeError,
    TooManyError,
    UnauthorizedError,
    UnavailableError,
)
from dataplane.malformed import MALFORMED

T = TypeVar("T")

PAGE: Final = 500
CONNECT_S: Final = 5.0
ANSWER_S: Final = 30.0
SILENCE_S: Final = 35.0
"""Timeout of a silent watch; the server sends something every 10 s."""
TRIES: Final = 5
LIMITS: Final = httpx.Limits(max_connections=256, max_keepalive_connections=20)
"""A node uses two connections for each of its sessions."""
FIRST_WAIT_NS: Final = 100_000_000
LONGEST_WAIT_NS: Final = 5_000_000_000
_ERRNO: Final = re.compile(r"^\[Errno \d+\] ")

_ERRORS: Final[dict[int, type[ApiError]]] = {
    kind.status: kind
    for kind in (
        InvalidError,
        UnauthorizedError,
        ForbiddenError,
        NotFoundError,
        StaleError,
        GoneError,
        TooLargeError,
        UnavailableError,
    )
}


@dataclass(frozen=True, slots=True)
class Call:
    """A request; it may be repeated if `is_safe`."""

    method: str
    path: str
    parameters: dict[str, str | int] = field(default_factory=dict)
    body: bytes | None = None
    expected: int | None = None
    is_repeatable: bool = False
    """True if the request is idempotent although it writes."""

    @property
    def is_safe(self) -> bool:
        """True if the request may be repeated without knowing its outcome."""
        return self.method == "GET" or self.is_repeatable

    @property
    def headers(self) -> dict[str, str]:
        """Headers specific to this request."""
        fields = {} if self.body is None else {"Content-Type": "application/json"}
        return fields if self.expected is None else fields | {"If-Match": f'"{self.expected}"'}


def segment(name: str) -> str:
    """Return a name as one path segment, with every special character quoted."""
    return quote(name, safe="")


def kind_of(resource: type[R]) -> Kind[R]:
    """Return the kind of a resource type."""
    return KINDS.of_type(resource)


def options_of(place: Place, answer_s: float = ANSWER_S) -> dict[str, Any]:
    """Return the options common to both httpx clients."""
    headers = {"Accept": "application/json"}
    if place.token is not None:
        headers["Authorization"] = f"Bearer {place.token}"
    timeout = httpx.Timeout(answer_s, connect=min(answer_s, CONNECT_S))
    return {"base_url": place.url, "headers": headers, "timeout": timeout, "trust_env": False}


def verify_of(place: Place) -> ssl.SSLContext | bool:
    """Return how to verify the server's certificate; False if there is none, as loading the authorities is slow."""
    return place.context() if place.scheme == "https" else False


def listing(kind: Kind[Any], labels: str, fields: str, page: str | None) -> Call:
    """Return the request for a page of a list."""
    parameters = {**_selection(labels, fields), "limit": PAGE}
    return Call("GET", f"/v1/{kind.plural}", {**parameters, "continue": page} if page else parameters)


def watching(kind: Kind[Any], labels: str, fields: str, after: int | None) -> Call:
    """Return the request for a watch."""
    parameters = {**_selection(labels, fields), "watch": "true"}
    return Call("GET", f"/v1/{kind.plural}", parameters if after is None else {**parameters, "after": after})


def writing(method: str, path: str, body: object, expected: int | None = None) -> Call:
    """Return a request with a body."""
    return Call(method, path, body=msgspec.json.encode(body), expected=expected)


def batch(path: str, body: object, requests: Sequence[BindingRequest | DispatchRequest]) -> Call:
    """Return the request for a batch, repeatable if the server can recognise repeats by their decisions."""
    is_repeatable = all(request.decision is not None for request in requests)
    return Call("POST", path, body=msgspec.json.encode(body), is_repeatable=is_repeatable)


def answer_of(outcome: BindingOutcome | DispatchOutcome) -> Any:  # noqa: ANN401 - the answer of either
    """Return the answer in an outcome, or its ApiError."""
    if outcome.answer is not None:
        return outcome.answer
    return _ERRORS.get(outcome.status, ApiError)(outcome.detail)


def answered(place: Place, answer: httpx.Response, schema: type[T]) -> T:
    """Return a decoded answer; raise ApiError if it is a refusal."""
    check(place, answer)
    try:
        return msgspec.json.decode(answer.content, type=schema)
    except MALFORMED as error:
        raise ApiError(f"API at {place.address}: this version does not understand the answer: {error}") from None


def check(place: Place, answer: httpx.Response) -> None:
    """Raise the ApiError that an answer stands for, if any."""
    if answer.is_success:
        return
    try:
        detail = msgspec.json.decode(answer.content, type=Problem).detail
    except MALFORMED:
        # HTTPStatus raises ValueError for a code that is not registered, as a proxy's may be.
        phrase = HTTPStatus(answer.status_code).phrase if answer.status_code in set(HTTPStatus) else ""
        detail = f"API at {place.address}: {answer.status_code} {phrase}".strip()
    if answer.status_code == TooManyError.status:
        # Retry-After may also be a date (RFC 9110, section 10.2.3): then wait one second.
        wait = answer.headers.get("Retry-After", "1")
        raise TooManyError(detail, float(wait) if wait.isdigit() else 1.0)
    raise _ERRORS.get(answer.status_code, ApiError)(detail)


def unreachable(place: Place, error: httpx.HTTPError) -> UnavailableError:
    """Return the error for a failed connection."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return UnavailableError(f"API at {place.address}: certificate rejected: {cause.verify_message}")
        cause = cause.__cause__ or cause.__context__
    reason = str(error) or type(error).__name__
    if isinstance(error, httpx.ConnectError):
        reason = f"cannot connect: {_ERRNO.sub('', reason)}"
    return UnavailableError(f"API at {place.address}: {' '.join(reason.split())}")


def unnameable(error: httpx.InvalidURL) -> InvalidError:
    """Return the error for a name that cannot appear in a request."""
    return InvalidError(f"invalid name: {error}")


@contextmanager
def telling(place: Place) -> Iterator[None]:
    """Translate httpx errors in the block to ApiError: a failed connection, or a name no request can have."""
    try:
        yield
    except httpx.HTTPError as error:
        raise unreachable(place, error) from None
    except httpx.InvalidURL as error:
        raise unnameable(error) from None


def may_retry(call: Call, error: ApiError, cause: httpx.HTTPError | None) -> bool:
    """Return whether to retry a request: only if it cannot have had an effect."""
    if isinstance(error, TooManyError) or isinstance(cause, httpx.ConnectError | httpx.ConnectTimeout):
        return "certificate" not in str(error)
    return call.is_safe and isinstance(error, UnavailableError)


def age_of(answer: httpx.Response) -> int | None:
    """Return the age in seconds of an answer served without the storage; else None."""
    age = answer.headers.get("Age", "")
    return int(age) if age.isdigit() else None


def event_of(kind: Kind[R], line: str) -> Event[R]:
    """Return the event in a line of a watch; raise ApiError if the line is an error."""
    event = msgspec.json.decode(line, type=WatchEvent)
    if event.type is EventType.ERROR:
        raise _ERRORS.get(event.status or 0, ApiError)(event.detail)
    resource = None if not bytes(event.object) else msgspec.json.decode(event.object, type=kind.type)
    return Event(event.type, event.name, event.revision, resource)


def _selection(labels: str, fields: str) -> dict[str, str | int]:
    parameters: dict[str, str | int] = {"labels": labels, "fields": fields}
    return {name: value for name, value in parameters.items() if value}
