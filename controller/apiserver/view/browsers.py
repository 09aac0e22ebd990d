"""Gate for browsers, in front of the API's own: the page's files, signing in, and requests with the session's cookie.

Only the page itself may act with the cookie. It is SameSite=Strict; besides, a request with a cookie must name a host
of this server (or a name that resolves here could be anybody's: DNS rebinding), and one that changes something must
come from the page's origin, with a header of its own, which no form and no other origin can send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from ipaddress import ip_address
from typing import Final

import msgspec

from controller.apiserver.server.gate import Asgi, Gate, Receive, Scope, Send
from controller.apiserver.server.problems import MEDIA_TYPE, encoded, headers_of, problem_of
from controller.apiserver.settings import ApiLimits
from controller.apiserver.view.files import HEADERS, PageFile, PageFiles
from controller.apiserver.view.signing_in import Confirm, SignedIn, SignIns, cookie_in, cookie_name, cookie_of
from controller.common.errors import ApiError, ForbiddenError, InvalidError, TooLargeError, UnauthorizedError
from dataplane.clock import NS_PER_S
from dataplane.config import Strict
from dataplane.errors import AccessError
from dataplane.rpc.access import Principal

SESSION_PATH: Final = "/v1/view/session"
_OWN_HEADER: Final = (b"x-millrace", b"page")
_READS: Final = ("GET", "HEAD")
_SIGN_IN_BYTES: Final = 8 << 10


class SignInRequest(Strict, frozen=True):
    """A code, once, or a token."""

    code: str = ""
    token: str = ""


class Browsers:
    """ASGI application of a network address: browsers' requests; all others go on to the API's gate."""

    def __init__(
        self,
        gate: Gate,
        sign_ins: SignIns,
        files: PageFiles,
        limits: ApiLimits,
        *,
        hosts: Iterable[str],
        principal_of: Callable[[str], Principal],
        prepare: Callable[[str], Awaitable[None]],
        now_ns: Callable[[], int],
    ) -> None:
        """`hosts` are names by which browsers may reach the server, besides loopback's and IP addresses."""
        self._gate, self._sign_ins, self._files, self._limits = gate, sign_ins, files, limits
        self._hosts = {"localhost", *(host.lower() for host in hosts)}
        self._principal_of, self._prepare, self._now_ns = principal_of, prepare, now_ns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        try:
            serve = self._chosen(scope, headers)
        except ApiError as error:
            await _refuse(error, send)
            return
        await serve(scope, receive, send)

    def _chosen(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Asgi:
        """Return what serves a request; raise ApiError."""
        path, method = scope["path"], scope["method"]
        file = self._files.by_path.get(path) if method in _READS else None
        if file is not None:
            self._check_host(headers)
            return _File(file, path)
        if path == SESSION_PATH and method == "POST":
            self._check_host(headers)
            _check_origin(headers)
            return self._sign_in
        if b"authorization" in headers or b"cookie" not in headers:
            return self._gate.remote
        is_tls = scope.get("scheme") == "https"
        name = cookie_name(headers.get(b"host", b"").decode("latin-1"), is_tls=is_tls)
        secret = cookie_in(headers[b"cookie"].decode("latin-1"), name)
        if secret is None:
            return self._gate.remote
        self._check_host(headers)
        if method not in _READS:
            _check_origin(headers)
        if path == SESSION_PATH and method == "DELETE":
            return self._signing_out(secret, name, is_tls=is_tls)

        async def as_signed_in(scope: Scope, receive: Receive, send: Send) -> None:
            await self._gate.confirmed(scope, receive, send, lambda: self._sign_ins.principal_of(secret))

        return as_signed_in

    def _check_host(self, headers: Mapping[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and not host.endswith("]") else host
        if name in self._hosts:
            return
        try:
            # No name resolves to a page at an address.
            ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            raise ForbiddenError(
                f"the page is not served as {name[:80]!r}: add the name to view.hosts of the API server's settings"
            ) from None

    async def _sign_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = (scope.get("client") or ("",))[0]
        try:
            session = await self._session_of(await _body(receive, self._limits.body_s), client)
        except ApiError as error:
            await _refuse(error, send)
            return
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        is_tls = scope.get("scheme") == "https"
        lasts_s = max(0, session.expires_ns - self._now_ns()) // NS_PER_S
        cookie = cookie_of(cookie_name(host, is_tls=is_tls), session.secret, lasts_s=lasts_s, is_tls=is_tls)
        answer = {
            "name": session.principal.name,
            "role": session.principal.role.value,
            "expires_ns": session.expires_ns,
        }
        headers = {"Content-Type": "application/json", "Cache-Control": "no-store", "Set-Cookie": cookie}
        await _send(send, 200, headers, msgspec.json.encode(answer))

    async def _session_of(self, body: bytes, client: str) -> SignedIn:
        try:
            asked = msgspec.json.decode(body, type=SignInRequest)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise InvalidError(str(error)) from None
        if bool(asked.code) == bool(asked.token):
            raise InvalidError("either a code or a token")
        try:
            return (
                self._sign_ins.by_code(asked.code)
                if asked.code
                else self._sign_ins.new(await self._by_token(asked.token))
            )
        except (UnauthorizedError, AccessError) as error:
            raise self._gate.refusal(client, str(error)) from None

    async def _by_token(self, token: str) -> Confirm:
        await self._prepare(token)
        return lambda: self._principal_of(token)

    def _signing_out(self, secret: str, name: str, *, is_tls: bool) -> Asgi:
        async def sign_out(_scope: Scope, _receive: Receive, send: Send) -> None:
            self._sign_ins.end(secret)
            cookie = cookie_of(name, "", lasts_s=0, is_tls=is_tls)
            await _send(send, 204, {"Cache-Control": "no-store", "Set-Cookie": cookie}, b"")

        return sign_out


class _File:
    """Serves one of the page's files."""

    def __init__(self, file: PageFile, path: str) -> None:
        self._file = file
        # The index names the other files, whose names change with what is in them.
        self._cached = "no-cache" if path in {"/", "/index.html"} else "public, max-age=31536000, immutable"

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        file, asked = self._file, dict(scope["headers"])
        headers = {**HEADERS, "ETag": file.tag, "Cache-Control": self._cached, "Vary": "Accept-Encoding"}
        if asked.get(b"if-none-match", b"").decode("latin-1") == file.tag:
            await _send(send, 304, headers, b"")
            return
        packed = b"gzip" in asked.get(b"accept-encoding", b"")
        if packed:
            headers["Content-Encoding"] = "gzip"
        headers["Content-Type"] = file.media_type
        await _send(send, 200, headers, file.gzip if packed else file.body, is_head=scope["method"] == "HEAD")


def _check_origin(headers: Mapping[bytes, bytes]) -> None:
    """Raise ForbiddenError for a request that changes something and is not from the page."""
    site, origin, host = (headers.get(name) for name in (b"sec-fetch-site", b"origin", b"host"))
    is_same = site == b"same-origin" if site is not None else True
    if origin is not None:
        is_same = is_same and host is not None and origin.partition(b"://")[2] == host
    if not is_same or (site is None and origin is None) or headers.get(_OWN_HEADER[0]) != _OWN_HEADER[1]:
        raise ForbiddenError("only the page itself may do this: the request comes from elsewhere")


async def _body(receive: Receive, timeout_s: float) -> bytes:
    body = b""
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise InvalidError("the connection ended within the body")
                body += bytes(message.get("body", b""))
                if len(body) > _SIGN_IN_BYTES:
                    raise TooLargeError(f"the body has more than {_SIGN_IN_BYTES} bytes")
                if not message.get("more_body"):
                    return body
    except TimeoutError:
        raise InvalidError(f"the body did not arrive within {timeout_s:g} s") from None


async def _refuse(error: ApiError, send: Send) -> None:
    headers = {**headers_of(error), "Content-Type": MEDIA_TYPE, "Connection": "close"}
    await _send(send, error.status, headers, encoded(problem_of(error.status, str(error))))


async def _send(send: Send, status: int, headers: Mapping[str, str], body: bytes, *, is_head: bool = False) -> None:
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    raw.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": b"" if is_head else body})
