"""HTTP requests to podman's REST service over its UNIX socket, each with a deadline; answers and errors as our types.

Source: the libpod API, version 4 (docs.podman.io/en/latest/_static/api.html).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

import httpx
import msgspec

from controller.workloads.nodes.runtimes.errors import (
    ContainerError,
    NoSuchContainerError,
    RuntimeAwayError,
    RuntimeTimeoutError,
)
from controller.workloads.nodes.runtimes.processes import one_line
from dataplane.local.deadline import local_timeout

_PREFIX: Final = "http://podman/v4.0.0/libpod/"
_NOT_FOUND: Final = 404
_REFUSED: Final = 400

Content = bytes | AsyncIterator[bytes] | None
Query = Mapping[str, str]


class PodmanClient:
    """Client of the service behind a socket; `deadline_s` is the default for a whole call."""

    def __init__(self, socket: Path, deadline_s: float) -> None:
        self.socket, self._deadline_s = socket, deadline_s
        # No pool: a kept connection may lead to a service that has ended since.
        limits = httpx.Limits(max_keepalive_connections=0)
        transport = httpx.AsyncHTTPTransport(uds=str(socket), limits=limits)
        # Each call has its own deadline, which a busy machine stretches.
        self._http = httpx.AsyncClient(transport=transport, timeout=None, trust_env=False)  # noqa: S113

    async def close(self) -> None:
        """Close connections."""
        await self._http.aclose()

    async def call(
        self,
        method: str,
        path: str,
        doing: str,
        *,
        query: Query | None = None,
        body: object = None,
        content: Content = None,
        deadline_s: float | None = None,
    ) -> bytes:
        """Return the answer's body; `doing` describes the operation in errors."""
        deadline_s = deadline_s or self._deadline_s
        sent = msgspec.json.encode(body) if body is not None else content
        headers = {"content-type": "application/x-tar" if body is None else "application/json"}
        with _translated(doing, deadline_s):
            async with local_timeout(deadline_s, f"podman: {doing}"):
                answer = await self._http.request(method, _PREFIX + path, params=query, content=sent, headers=headers)
        raise_for(answer.status_code, answer.content, doing)
        return answer.content


_CAUSES: Final = ("no space left on device", "disk quota exceeded", "read-only file system")


def raise_for(status: int, content: bytes, doing: str) -> None:
    """Raise the error in an answer."""
    if status < _REFUSED:
        return
    try:
        text = json.loads(content)["message"]
    except (ValueError, KeyError, TypeError):
        text = content.decode("utf-8", "replace")
    cause = next((cause for cause in _CAUSES if cause in str(text)), None)
    if cause is not None:  # podman tries all formats of an image, and mentions this late
        text = f"{cause}: {text}"
    kind = NoSuchContainerError if status == _NOT_FOUND else ContainerError
    raise kind(f"podman: {doing}: {one_line(str(text)) or status}")


class _translated:  # noqa: N801 - used as a statement
    """Turn what httpx and asyncio raise into our errors."""

    def __init__(self, doing: str, deadline_s: float) -> None:
        self._doing, self._deadline_s = doing, deadline_s

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TimeoutError):
            raise RuntimeTimeoutError("podman", self._doing, self._deadline_s) from error
        if isinstance(error, httpx.TransportError):
            cause = one_line(str(error)) or type(error).__name__
            raise RuntimeAwayError(f"podman: {self._doing}: its service is away: {cause}") from error
