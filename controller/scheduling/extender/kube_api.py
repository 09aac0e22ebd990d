"""The part of the Kubernetes API that a placement needs: list and watch nodes and pods, and bind pods."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import httpx
import msgspec

from controller.common.errors import SchedulerError
from controller.scheduling.extender.objects import (
    Node,
    ObjectList,
    Pod,
    Status,
    WatchEvent,
    binding_of,
)
from controller.scheduling.extender.settings import KubernetesSettings
from dataplane.given import SECRET_BYTES, read_given_text
from dataplane.malformed import MALFORMED
from dataplane.rpc.backoff import Backoff

LOGGER: Final = logging.getLogger("millrace.extender")

T = TypeVar("T", Node, Pod)

_PAGE: Final = 500
_CONNECT_S: Final = 2.0
_WATCH_S: Final = 290
"""Duration for which the API server keeps a watch; it is then resumed from where it ended."""
_SILENCE_S: Final = 120.0
"""A watch that is silent for this long is dead: bookmarks arrive about every minute."""
_MOST_LINE: Final = 16 << 20
_FIRST_WAIT_NS: Final = 200_000_000
_LONGEST_WAIT_NS: Final = 10_000_000_000
_GONE: Final = 410

NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/pods"
_ON_NODES: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


class KubernetesError(SchedulerError):
    """The API server is unreachable or refuses the request; `code` is HTTP's, 0 without a response."""

    def __init__(self, text: str, code: int = 0) -> None:
        self.code = code
        super().__init__(text)


class Change(msgspec.Struct, frozen=True):
    """A message of a watch: all objects of a kind as a list, or one object that exists or was deleted."""

    all: tuple[Any, ...] | None = None
    one: Any = None
    is_gone: bool = False


class KubernetesApi:
    """Client of the API server, an async context manager. Raises KubernetesError with a one-line message."""

    def __init__(
        self,
        settings: KubernetesSettings,
        *,
        rng: random.Random | None = None,
        on_contact: Callable[[str], None] | None = None,
    ) -> None:
        self.server = settings.server.rstrip("/") if settings.server is not None else _in_cluster()
        self._settings, self._rng = settings, rng or random.Random()
        self._on_contact = on_contact or (lambda _: None)
        self._token, self._token_version = "", (0, 0)
        timeout = httpx.Timeout(settings.timeout_s, connect=min(_CONNECT_S, settings.timeout_s))
        self._http = httpx.AsyncClient(
            base_url=self.server, verify=_verify(self.server, settings), timeout=timeout, trust_env=False
        )

    async def bind(self, namespace: str, pod: str, uid: str, node: str) -> None:
        """Bind a pod to a node; succeed also if it is already there, as after a lost response."""
        body = msgspec.json.encode(binding_of(namespace, pod, uid, node))
        path = f"/api/v1/namespaces/{_part(namespace)}/pods/{_part(pod)}"
        try:
            await self._ask("POST", f"{path}/binding", content=body)
        except KubernetesError as error:
            # Any of these may follow a binding that was carried out, so look before failing.
            if error.code not in {0, 409, 500, 502, 503, 504}:
                raise
            if not await self._is_there(path, uid, node):
                raise

    async def _is_there(self, path: str, uid: str, node: str) -> bool:
        """Return whether a pod is on a node, according to the API server."""
        try:
            pod = _decoded(await self._ask("GET", path), Pod)
        except KubernetesError:
            return False
        return pod.spec.node_name == node and (not uid or pod.metadata.uid == uid)

    async def follow(self, kind: type[T]) -> AsyncGenerator[Change, None]:
        """Yield all matching objects of a kind, then each change, indefinitely; log failures."""
        backoff, reported, version = Backoff(_FIRST_WAIT_NS, _LONGEST_WAIT_NS, self._rng), "", ""
        name = kind.__name__.lower()
        while True:
            try:
                if not version:
                    version, objects = await self._list(kind)
                    self._on_contact(name)
                    yield Change(all=objects)
                async with aclosing(self._watch(kind, version)) as events:
                    async for event in events:
                        self._on_contact(name)
                        if event is None:
                            reported = _note_recovery(name, reported)
                            continue
                        backoff.reset()
                        item = _decoded(event.object, kind)
                        version = item.metadata.resource_version or version
                        if event.type != "BOOKMARK":
                            yield Change(one=item, is_gone=event.type == "DELETED")
            except KubernetesError as error:
                # The version was compacted: list everything again.
                if error.code == _GONE:
                    version = ""
                if str(error) != reported and error.code != _GONE:
                    reported = str(error)
                    LOGGER.warning("watch of %ss failed: %s", name, reported)
            await asyncio.sleep(backoff.next_s())

    async def _list(self, kind: type[T]) -> tuple[str, tuple[T, ...]]:
        """Return all objects of a kind, and the version of the list."""
        items: list[T] = []
        params: dict[str, str | int] = {"limit": _PAGE, **_selection(kind)}
        while True:
            page = _decoded(await self._ask("GET", _path(kind), params=params), ObjectList)
            items += [_decoded(raw, kind) for raw in page.items or ()]
            if not page.metadata.continue_:
                return page.metadata.resource_version, tuple(items)
            params["continue"] = page.metadata.continue_

    async def _watch(self, kind: type[T], version: str) -> AsyncGenerator[WatchEvent | None, None]:
        """Yield None once the API server has accepted the watch, then each event."""
        params: dict[str, str | int] = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": _WATCH_S,
            **_selection(kind),
        }
        timeout = httpx.Timeout(_SILENCE_S, connect=_CONNECT_S)
        try:
            async with self._http.stream(
                "GET", _path(kind), params=params, headers=self._headers(), timeout=timeout
            ) as answer:
                if not answer.is_success:
                    raise self._refused("GET", _path(kind), answer.status_code, await answer.aread())
                yield None
                async for line in _lines(answer.aiter_bytes()):
                    event = _decoded(line, WatchEvent)
                    if event.type == "ERROR":
                        status = _decoded(event.object, Status)
                        raise KubernetesError(f"{self.server}: a watch ended: {status.message}", status.code)
                    yield event
        except httpx.ReadTimeout:
            return  # nothing has happened for a while: watch again from the same version
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None

    async def _ask(self, method: str, path: str, **more: Any) -> bytes:  # noqa: ANN401 - httpx's
        try:
            answer = await self._http.request(method, path, headers=self._headers(), **more)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None
        if not answer.is_success:
            raise self._refused(method, path, answer.status_code, answer.content)
        return answer.content

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        file = self._settings.token_file
        if file is None or self._settings.certificate is not None:
            return headers
        try:
            # Kubernetes replaces a pod's token before it expires, so check before each request.
            about = Path(file).stat()
            if (about.st_mtime_ns, about.st_ino) != self._token_version:
                self._token = read_given_text(file, SECRET_BYTES, encoding="ascii").strip()
                self._token_version = (about.st_mtime_ns, about.st_ino)
        except (OSError, UnicodeDecodeError) as error:
            # The token that was read before may still be valid.
            if not self._token:
                raise KubernetesError(f"cannot read the token {file}: {_line(error)}") from None
        return headers | {"Authorization": f"Bearer {self._token}"}

    def _refused(self, method: str, path: str, code: int, body: bytes) -> KubernetesError:
        try:
            message = msgspec.json.decode(body, type=Status).message
        except MALFORMED:
            message = body[:200].decode("utf-8", "replace")
        return KubernetesError(f"{self.server}: {method} {path}: {code}: {' '.join(message.split())[:512]}", code)

    def _unreachable(self, error: httpx.HTTPError) -> KubernetesError:
        return KubernetesError(f"{self.server} does not answer: {_line(error)}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()


def _note_recovery(name: str, reported: str) -> str:
    """Log the recovery of a watch whose failure was reported; return the cleared report."""
    if reported:
        LOGGER.info("watch of %ss recovered", name)
    return ""


def _in_cluster() -> str:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise SchedulerError(
            "kubernetes: no server is given, and this is not a pod of a cluster: KUBERNETES_SERVICE_HOST is not set"
        )
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _verify(server: str, settings: KubernetesSettings) -> ssl.SSLContext | bool:
    if server.startswith("http://"):
        return True
    file = settings.ca
    try:
        context = ssl.create_default_context(cafile=file)
        if settings.certificate is not None and settings.private_key is not None:
            file = settings.certificate
            # Without a callback OpenSSL would ask for a passphrase on the terminal.
            context.load_cert_chain(settings.certificate, settings.private_key, password=lambda: "")
    except (OSError, ValueError) as error:
        raise SchedulerError(f"kubernetes: {file}: {_line(error)}") from None
    return context


def _path(kind: type[Node | Pod]) -> str:
    return NODES if kind is Node else PODS


def _selection(kind: type[Node | Pod]) -> dict[str, str | int]:
    return {} if kind is Node else {"fieldSelector": _ON_NODES}


def _part(name: str) -> str:
    """Return a name as a path segment; raise KubernetesError for one that would change the path."""
    if not name or not all(letter.isalnum() or letter in "-." for letter in name) or set(name) == {"."}:
        raise KubernetesError(f"{name[:60]!r} is not a valid name")
    return name


async def _lines(parts: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    rest = bytearray()
    async for part in parts:
        rest += part
        if len(rest) > _MOST_LINE:
            raise KubernetesError(f"a message of a watch exceeds {_MOST_LINE} bytes")
        *whole, last = rest.split(b"\n")
        for line in whole:
            if line.strip():
                yield bytes(line)
        rest = bytearray(last)


_S = TypeVar("_S", bound=msgspec.Struct)


def _decoded(raw: bytes | msgspec.Raw, kind: type[_S]) -> _S:
    try:
        return msgspec.json.decode(raw, type=kind)
    except MALFORMED as error:
        raise KubernetesError(f"cannot read a {kind.__name__} from the API server: {_line(error)}") from None


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
