"""Access check before every call of a gRPC server over TLS: identify the caller and check its role's permissions.

Methods that are not listed are refused, except health and reflection, which anyone who can connect may call.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import grpc
import grpc.aio
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection

from dataplane.errors import AccessError
from dataplane.rpc.access.caller import CALLER
from dataplane.rpc.access.names import principal_of_pem
from dataplane.rpc.access.permissions import Permission, check
from dataplane.rpc.access.tls import TlsFiles
from dataplane.rpc.access.token_files import TokenFile
from dataplane.rpc.access.tokens import bearer
from dataplane.rpc.access.values import LOCAL, Principal
from dataplane.rpc.addresses import is_unix

_OPEN: Final = (f"/{health.SERVICE_NAME}/", f"/{reflection.SERVICE_NAME}/")
_Context = Any
"""gRPC's context, for any message types."""


@dataclass(frozen=True, slots=True)
class Callers:
    """Identifies callers: by tokens if the server has some, else by certificates.

    `unmarked` is the principal for a certificate without a role; None: refuse it.
    """

    tokens: TokenFile | None = None
    unmarked: Principal | None = None

    def identified(self, context: _Context) -> Principal:
        """Return the caller; raise AccessError. Anyone who can open the server's UNIX socket is its user."""
        if is_unix(context.peer()):
            return LOCAL
        if self.tokens is not None:
            header = next((value for key, value in context.invocation_metadata() or () if key == "authorization"), None)
            if header is None:
                raise AccessError("a bearer token is needed")
            return self.tokens.principal_of(bearer(str(header)))
        shown = context.auth_context().get("x509_pem_cert")
        if not shown:
            raise AccessError("a certificate is needed")
        principal = principal_of_pem(shown[0]) or self.unmarked
        if principal is None:
            raise AccessError("this certificate has no role (urn:millrace:role:...) among its names")
        return principal


def callers_of(files: TlsFiles, unmarked: Principal | None = None) -> Callers:
    """Return the identification of callers for a server with these files; raise AccessError for unreadable tokens."""
    return Callers(None if files.tokens is None else TokenFile(files.tokens, time.time_ns), unmarked)


class Guard(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic only in its stubs
    """Refuses calls with UNAUTHENTICATED or PERMISSION_DENIED; `needs` is keyed by "/package.Service/Method"."""

    def __init__(self, callers: Callers, needs: Mapping[str, Permission]) -> None:
        self._callers, self._needs = callers, needs

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:  # noqa: ANN401 - a handler of whatever messages
        """Return the method's handler, preceded by the check."""
        handler, method = await continuation(handler_call_details), str(handler_call_details.method)
        if handler is None or method.startswith(_OPEN):
            return handler
        needed = self._needs.get(method)

        async def admit(context: _Context) -> None:
            await self._admit(method, needed, context)

        return _behind(admit, handler)

    async def _admit(self, method: str, needed: Permission | None, context: _Context) -> None:
        try:
            principal = self._callers.identified(context)
        except AccessError as error:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
        try:
            if needed is None:
                raise AccessError(f"nobody may call {method} here")
            check(principal, needed, method.rpartition("/")[2])
        except AccessError as error:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        CALLER.set(principal)


def _behind(admit: Callable[[_Context], Awaitable[None]], handler: Any) -> Any:  # noqa: ANN401
    """Return a handler that reads and answers once `admit` has returned.

    It takes a stream of requests even for unary methods: gRPC would read and parse a unary request before calling us,
    whatever its size and however long it takes to arrive, from any sender.
    """
    is_stream = handler.request_streaming
    if handler.response_streaming:
        stream = _streaming(admit, handler.stream_stream if is_stream else handler.unary_stream, is_stream=is_stream)
        return handler._replace(request_streaming=True, unary_stream=None, stream_stream=stream)
    single = handler.stream_unary if is_stream else handler.unary_unary

    async def answer(requests: AsyncIterator[Any], context: _Context) -> Any:  # noqa: ANN401
        await admit(context)
        return await single(requests if is_stream else await _only(requests, context), context)

    return handler._replace(request_streaming=True, unary_unary=None, stream_unary=answer)


def _streaming(admit: Callable[[_Context], Awaitable[None]], stream: Any, *, is_stream: bool) -> Any:  # noqa: ANN401
    """Return it in either style: answers are generated, or written by functions to their context."""
    if not inspect.isasyncgenfunction(stream):

        async def write(requests: AsyncIterator[Any], context: _Context) -> None:
            await admit(context)
            await stream(requests if is_stream else await _only(requests, context), context)

        return write

    async def answers(requests: AsyncIterator[Any], context: _Context) -> AsyncIterator[Any]:
        await admit(context)
        asked = requests if is_stream else await _only(requests, context)
        async with aclosing(stream(asked, context)) as replies:
            async for answer in replies:
                yield answer

    return answers


async def _only(requests: AsyncIterator[Any], context: _Context) -> Any:  # noqa: ANN401
    """Return the single request of a unary method."""
    async for request in requests:
        return request
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a request is missing")
    raise AssertionError  # an abort raises
