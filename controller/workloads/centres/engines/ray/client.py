"""Requests to Ray's dashboard, each with a deadline; answers as values, failures as errors of one line.

Source: the Ray Jobs REST API (docs.ray.io, "Ray Jobs REST API"), and the requests of `ray list nodes` and `ray status`
to the dashboard (/api/v0/nodes, /api/cluster_status) in Ray 2.60.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from controller.workloads.centres.engines.ray.settings import RaySettings
from controller.workloads.centres.errors import EngineError
from dataplane.given import SECRET_BYTES, read_given_text
from dataplane.malformed import MALFORMED

T = TypeVar("T")

_MOST_BYTES: Final = 64 << 20
_NOT_FOUND: Final = 404
_REFUSED: Final = 400
_LONGEST: Final = 400
_MOST_NODES: Final = 10_000


class Node(msgspec.Struct, frozen=True):
    """A node, and its resources by Ray's names."""

    node_id: str
    state: str
    resources_total: dict[str, float] = {}
    address: str = msgspec.field(default="", name="node_ip")

    @property
    def works(self) -> bool:
        """True if it takes work."""
        return self.state == "ALIVE"


class RayJob(msgspec.Struct, frozen=True):
    """A submitted job, as Ray reports it."""

    status: str
    submission_id: str | None = None
    message: str | None = None
    metadata: dict[str, str] | None = None
    driver_exit_code: int | None = None


class _NodeList(msgspec.Struct, frozen=True):
    result: tuple[Node, ...]


class _NodeData(msgspec.Struct, frozen=True):
    result: _NodeList


class _Nodes(msgspec.Struct, frozen=True):
    data: _NodeData


class RayClient:
    """Client of a cluster's dashboard."""

    def __init__(self, settings: RaySettings) -> None:
        self._settings = settings
        self._http: httpx.AsyncClient | None = None

    async def open(self) -> None:
        """Read the token, if one is needed; raise EngineError if that fails."""
        headers = {}
        if (file := self._settings.token_file) is not None:
            try:
                headers["Authorization"] = f"Bearer {read_given_text(file, SECRET_BYTES, encoding='ascii').strip()}"
            except (OSError, UnicodeDecodeError) as error:
                problem = getattr(error, "strerror", None) or "is not a token"
                raise EngineError("ray", f"{file}: {problem.lower()}") from error
        await self.close()
        limits = httpx.Limits(
            max_keepalive_connections=0
        )  # a kept connection may lead to a cluster that has ended since
        self._http = httpx.AsyncClient(
            base_url=self._settings.address, headers=headers, limits=limits, trust_env=False, follow_redirects=False
        )

    async def close(self) -> None:
        """Close connections."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    async def nodes(self) -> tuple[Node, ...]:
        """Return all nodes, including those that have gone."""
        answer = await self._asked("listing its nodes", "GET", f"/api/v0/nodes?detail=true&limit={_MOST_NODES}")
        return _decoded(answer, _Nodes, "nodes").data.result.result

    async def used(self) -> Mapping[str, Mapping[str, float]]:
        """Return the resources in use, by node id and Ray's resource names; empty if not reported.

        The dashboard spells resource names in this answer as JSON keys: some_thing is someThing.
        """
        told = _decoded(await self._asked("reading its load", "GET", "/api/cluster_status"), dict[str, Any], "load")
        for key in ("data", "clusterStatus", "loadMetricsReport", "usageByNode"):
            told = told.get(key) or {}
            if not isinstance(told, dict):
                return {}
        try:
            by_node = msgspec.convert(told, dict[str, dict[str, tuple[float, float]]])
        except msgspec.ValidationError:
            return {}
        return {node: {name: pair[0] for name, pair in has.items()} for node, has in by_node.items()}

    async def jobs(self) -> tuple[RayJob, ...]:
        """Return all jobs of all users."""
        return _decoded(await self._asked("listing its jobs", "GET", "/api/jobs/"), tuple[RayJob, ...], "jobs")

    async def job(self, name: str) -> RayJob | None:
        """Return a job; None if Ray does not know it."""
        answer = await self._ask("reading a job", "GET", _path(name), fine=_NOT_FOUND)
        return None if answer is None else _decoded(answer, RayJob, "job")

    async def submit(self, request: Mapping[str, object]) -> None:
        """Queue a job; raise EngineError if it is rejected."""
        await self._asked("queueing a job", "POST", "/api/jobs/", body=request)

    async def stop(self, name: str) -> None:
        """End a job; an ended or unknown one is fine."""
        await self._ask("ending a job", "POST", f"{_path(name)}/stop", fine=_NOT_FOUND)

    async def delete(self, name: str) -> None:
        """Have Ray forget an ended job; an unknown one is fine."""
        await self._ask("forgetting a job", "DELETE", _path(name), fine=_NOT_FOUND)

    async def _asked(self, doing: str, method: str, path: str, *, body: object = None) -> bytes:
        answer = await self._ask(doing, method, path, body=body)
        assert answer is not None, "no status is tolerated"
        return answer

    async def _ask(self, doing: str, method: str, path: str, *, body: object = None, fine: int = 0) -> bytes | None:
        """Return the answer's body, None for the tolerated status."""
        if self._http is None:
            await self.open()
        http, deadline_s = self._http, self._settings.deadline_s
        assert http is not None
        content = None if body is None else msgspec.json.encode(body)
        try:
            async with (
                asyncio.timeout(deadline_s),
                http.stream(method, path, content=content, headers=_JSON, timeout=deadline_s) as answer,
            ):
                text = b""
                async for part in answer.aiter_bytes():
                    text += part
                    if len(text) > _MOST_BYTES:
                        raise EngineError("ray", f"{doing}: the answer has more than {_MOST_BYTES} bytes")
        except (TimeoutError, httpx.TimeoutException) as error:
            raise EngineError("ray", f"{doing}: no answer within {deadline_s:g} s") from error
        except httpx.HTTPError as error:
            raise EngineError("ray", f"{doing}: {self._settings.address}: {_line(str(error))}") from error
        if answer.status_code == fine:
            return None
        if answer.status_code >= _REFUSED:
            raise EngineError("ray", f"{doing}: {_line(text.decode('utf-8', 'replace')) or answer.status_code}")
        return text


_JSON: Final = {"Content-Type": "application/json"}


def _path(name: str) -> str:
    return f"/api/jobs/{quote(name, safe='')}"


def _decoded(answer: bytes, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except MALFORMED as error:
        raise EngineError("ray", f"reading its {what}: invalid answer: {error}") from error


def _line(text: str) -> str:
    """Return the end of a text, which in a stack trace is the error, as one line."""
    lines = [" ".join(line.split()) for line in re.split(r"\r?\n|\\n", text) if re.search(r"\w", line)]
    return lines[-1][:_LONGEST] if lines else ""
