"""Gate in front of all routes: authenticates callers, limits rate and size, and writes the audit log."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from collectors.token_bucket import TokenBucket
from controller.apiserver.listing import PIECES
from controller.apiserver.server.audit import AuditLog, AuditRecord, Changed
from controller.apiserver.server.callers import CALLER, Caller, WatchBook
from controller.apiserver.server.fairness import FairQueue, Seat, is_user
from controller.apiserver.server.metrics import Metrics
from controller.apiserver.server.problems import BODY, MEDIA_TYPE, encoded, headers_of, problem_of
from controller.apiserver.settings import ApiLimits
from controller.apiserver.storage.fences import FENCE, Fence
from controller.apiserver.storage.fences import HEADER as FENCE_HEADER
from controller.common.errors import (
    ApiError,
    ForbiddenError,
    InvalidError,
    TooLargeError,
    TooManyError,
    UnauthorizedError,
    UnavailableError,
)
from controller.common.http_connections import group_of
from controller.common.http_server import ADMIT, CERTIFICATE, send_in_time
from dataplane.clock import NS_PER_S, Clock
from dataplane.errors import AccessError
from dataplane.rpc.access import Principal
from dataplane.rpc.access.names import principal_of_der
from dataplane.rpc.access.tokens import bearer
from dataplane.rpc.access.values import LOCAL, Role

Scope = dict[str, Any]
Receive = Callable[[], Any]
Send = Callable[[Any], Any]
Asgi = Callable[[Any, Any, Any], Any]

_FENCE: Final = FENCE_HEADER.lower().encode()
_MOST_BUCKETS: Final = 4096
_BODILESS: Final = ("GET", "HEAD")
_REFUSED: Final = (401, 403, 429, 503)
WHAT: Final = "millrace.what"
"""Key for a route to name its subject for the audit log."""
PARTS: Final = "millrace.parts"
"""Key for a route to list the subject and status of each request in a batch: one audit line each."""
CHANGED: Final = "millrace.changed"
"""Key for a route to store the changed resource for the audit log."""
AUDITED: Final = "millrace.audited"
"""Key for a route to request auditing although it only reads."""
PATIENCE_S: Final = "millrace.patience_s"
"""Key for a route to set how long its reader may stall."""
_DAMPED_S: Final = (1.0, 3.0)
"""Delay of a rate-limit refusal, randomised, so that clients retrying at once cost little and spread out."""
_DRAINED_BYTES: Final = 256 << 10
_DRAINED_S: Final = 1.0
_STREAMED: Final = re.compile(r"/v1/((nodes|centres)/[^/]+/sessions/[^/]+/output|execs/[^/]+/input)")
"""Routes that stream their request body, with limits of their own."""


class Buckets:
    """Token buckets by name; the least recently used make room for others."""

    def __init__(self, per_s: int, clock: Clock) -> None:
        self._per_s, self._clock = per_s, clock
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def take(self, name: str) -> bool:
        """Take a token; return False if there is none."""
        # Reinsert at the end: the dictionary is in order of last use.
        bucket = self._buckets.pop(name, None) or TokenBucket(self._per_s, self._clock)
        self._buckets[name] = bucket
        if len(self._buckets) > _MOST_BUCKETS:
            self._buckets.popitem(last=False)
        return bucket.take(1) == 1


@dataclass(slots=True)
class _Asked:
    """A request and what is known about it so far."""

    client: str
    principal: Principal | None = None
    status: int = 0
    what: str = ""
    parts: Sequence[tuple[str, int]] = ()
    changed: Changed | None = None


class _StreamedBody:
    """A streamed request body. An answer ends its connection: a client still writing would see it too late."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self._is_whole = receive, False

    async def receive(self) -> Any:  # noqa: ANN401 - ASGI's messages
        """Return the next part."""
        message = await self._receive()
        self._is_whole = message["type"] == "http.disconnect" or not message.get("more_body")
        return message

    def answering(self, send: Send) -> Send:
        """Wrap `send` to drain a little of the unread body first, so that the writer gets to read the answer."""

        async def answer(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                await self._drain()
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(message)

        return answer

    async def _drain(self) -> None:
        left = _DRAINED_BYTES
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAINED_S):
                while left > 0 and not self._is_whole:
                    left -= len((await self.receive()).get("body", b""))


class Gate:
    """ASGI middleware that gives the application requests with a `user` and a complete body."""

    def __init__(
        self,
        application: Asgi,
        principal_of: Callable[[str], Principal],
        limits: ApiLimits,
        clock: Clock,
        *,
        audit: AuditLog,
        metrics: Metrics,
        audit_reads: bool = False,
        prepare: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """`prepare` is awaited before each `principal_of`, to load what it needs."""
        self._application, self._principal_of, self._limits = application, principal_of, limits
        self._prepare = prepare
        self._audit, self._metrics, self._audit_reads = audit, metrics, audit_reads
        self._requests = Buckets(limits.requests_per_s, clock)
        self._of_users = Buckets(limits.user_requests_per_s, clock)
        self._refusals = Buckets(limits.refusals_per_s, clock)
        self._queue = FairQueue(limits.user_seats, limits.user_queue, limits.queue_s, lambda: clock.now_ns() / NS_PER_S)
        self._pieces = asyncio.Lock()
        self.watches = WatchBook(limits.watches, limits.watches_of_one)

    async def local(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a socket that only its owner can open: without a token the caller is its administrator."""
        await self._serve(scope, receive, send, LOCAL)

    async def remote(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a network address: requests without a token are refused."""
        await self._serve(scope, receive, send, None)

    async def confirmed(self, scope: Scope, receive: Receive, send: Send, confirm: Callable[[], Principal]) -> None:
        """Serve a caller that something else than a token identifies; `confirm` raises AccessError when it is none."""
        await self._serve(scope, receive, send, None, confirm)

    def refusal(self, client: str, problem: str) -> ApiError:
        """Return the refusal of invalid credentials from an address, which may try only so many."""
        if not self._refusals.take(group_of(client)):
            return TooManyError("too many requests without a valid token")
        return UnauthorizedError(problem)

    async def _serve(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        without_token: Principal | None,
        confirm: Callable[[], Principal] | None = None,
    ) -> None:
        if scope["type"] != "http":
            return
        asked, started = _Asked((scope.get("client") or ("",))[0]), time.perf_counter()
        answer, caller, seat = self._answering(asked, scope, send), None, Seat()
        try:
            if self._prepare is not None and (header := _authorization(scope)) is not None:
                with contextlib.suppress(AccessError):  # the same token is refused for it below
                    await self._prepare(bearer(header))
            caller = self._identified(scope, asked, without_token, confirm)
            asked.principal = caller.principal
            self._admit(scope, caller.principal)
            FENCE.set(_fence(scope, caller.principal.role))
            scope["user"], scope["auth"] = caller.principal, None
            state = scope.setdefault("state", {})
            state[CALLER] = caller
            if scope["method"] == "POST" and _STREAMED.fullmatch(scope["path"]):
                body = _StreamedBody(receive)
                await self._application(scope, body.receive, body.answering(answer))
                return
            state[BODY] = await self._body(scope, receive)
            if is_user(caller.principal.role):
                PIECES.set(self._pieces)
                seat = await self._queue.take(str(caller.principal))
            await self._application(scope, _replayed(state[BODY], receive), _giving_back(seat, answer))
        except ApiError as error:
            if isinstance(error, TooManyError | UnavailableError):
                await asyncio.sleep(random.uniform(*_DAMPED_S))
            # The rest of the body is not read. Neither strangers nor callers without room keep their connection.
            stays = isinstance(error, TooManyError) and caller is not None and scope["method"] in _BODILESS
            await _refuse(error, answer, closes=not stays)
        finally:
            seat.release()
            if caller is not None:
                caller.leave()
            state = scope.get("state", {})
            asked.what, asked.parts = str(state.get(WHAT, "")), state.get(PARTS, ())
            asked.changed = state.get(CHANGED)
            self._note(scope, asked, time.perf_counter() - started)

    def _identified(
        self,
        scope: Scope,
        asked: _Asked,
        without_token: Principal | None,
        confirm: Callable[[], Principal] | None = None,
    ) -> Caller:
        header = _authorization(scope)
        certificate = scope.get(CERTIFICATE)

        def shown() -> Principal | None:
            if confirm is not None:
                return confirm()
            if header is not None:
                return self._principal_of(bearer(header))
            return without_token if certificate is None else principal_of_der(certificate)

        try:
            principal = shown()
        except AccessError as error:
            raise self.refusal(asked.client, str(error)) from None
        if principal is None:
            raise self.refusal(asked.client, "a bearer token or a certificate with a role is required")
        return Caller(principal, shown, self.watches)

    def _admit(self, scope: Scope, principal: Principal) -> None:
        """Assign the connection to a principal; raise TooManyError or UnavailableError if it has too many."""
        of_user, owner = is_user(principal.role), str(principal)
        problem = scope[ADMIT](owner, is_user=of_user)
        if problem is not None:
            self._metrics.note_refused_connection()
            raise UnavailableError(problem)
        per_s, buckets = (
            (self._limits.user_requests_per_s, self._of_users)
            if of_user
            else (self._limits.requests_per_s, self._requests)
        )
        if not buckets.take(owner):
            raise TooManyError(f"{principal.name} exceeds {per_s} requests per second")

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        most = self._limits.request_bytes
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        # Refuse before reading; a chunked body states no length and is counted below.
        if length.isdigit() and int(length) > most:
            raise TooLargeError(f"the body has {int(length)} bytes; at most {most} are accepted")
        parts, size = [], 0
        try:
            async with asyncio.timeout(self._limits.body_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise InvalidError("the connection ended within the body")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        raise TooLargeError(f"the body has more than {most} bytes")
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            self._metrics.note_slow_request()
            raise InvalidError(f"the body did not arrive within {self._limits.body_s:g} s") from None

    def _answering(self, asked: _Asked, scope: Scope, send: Send) -> Send:
        async def answer(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                asked.status = message["status"]
            send_s = scope.get("state", {}).get(PATIENCE_S, self._limits.send_s)
            await send_in_time(scope, send, message, send_s, self._metrics.note_slow_reader)

        return answer

    def _note(self, scope: Scope, asked: _Asked, seconds: float) -> None:
        method, path = scope["method"], scope["path"]
        self._metrics.note(method, path, asked.status, seconds)
        is_read = method in {"GET", "HEAD"} and not scope.get("state", {}).get(AUDITED, False)
        if is_read and asked.status not in _REFUSED and not self._audit_reads:
            return
        principal = asked.principal or Principal("unknown", LOCAL.role)
        for what, status in asked.parts or ((asked.what, asked.status),):
            record = AuditRecord(
                time_ns=self._audit.now_ns(),
                who=principal.name,
                role="" if asked.principal is None else principal.role.value,
                subject=principal.subject,
                client=asked.client,
                method=method,
                # The caller chooses how long a path is.
                path=path[:512],
                what=what[:1024],
                status=status,
                changed=asked.changed,
            )
            if status in _REFUSED:
                self._audit.refuse(record)
            else:
                self._audit.write(record)


def _giving_back(seat: Seat, send: Send) -> Send:
    """Wrap `send` to release the seat when the answer begins: reading may take long, a watch all day."""

    async def answer(message: dict[str, Any]) -> None:
        seat.release()
        await send(message)

    return answer


def _authorization(scope: Scope) -> str | None:
    header = next((value for name, value in scope["headers"] if name == b"authorization"), None)
    return None if header is None else header.decode("latin-1")


def _fence(scope: Scope, role: Role) -> Fence | None:
    """Return the fence of a request; raise ForbiddenError unless its caller is one that may run in a pair."""
    header = next((value for name, value in scope["headers"] if name == _FENCE), None)
    if header is None:
        return None
    if role not in {Role.SERVICE, Role.ADMIN}:
        raise ForbiddenError(f"{FENCE_HEADER}: only services run in pairs")
    return Fence.of(header.decode("latin-1"))


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that replays a body already read, then reports the connection's events."""
    given = False

    async def replay() -> Any:  # noqa: ANN401 - ASGI's messages
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _refuse(error: ApiError, send: Send, *, closes: bool) -> None:
    body = encoded(problem_of(error.status, str(error)))
    headers = {**headers_of(error), "Content-Type": MEDIA_TYPE, "Content-Length": str(len(body))}
    if closes:
        headers["Connection"] = "close"
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
