"""Routes of a resource kind: list and watch, get, create, replace, replace the status, delete."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from litestar import MediaType, Request, Response, delete, get, post, put
from litestar.params import FromPath, HeaderParameter, JSONBody, QueryParameter
from litestar.response import Stream

from controller.apiserver.listing import next_piece
from controller.apiserver.registry.encoding import key_of
from controller.apiserver.registry.events import EventType, WatchEvent, line_of
from controller.apiserver.registry.registry import Listing
from controller.apiserver.registry.selection import Selection
from controller.apiserver.resources import Kind
from controller.apiserver.server.answers import ResourceList
from controller.apiserver.server.audit import Changed
from controller.apiserver.server.callers import Caller, caller_of
from controller.apiserver.server.gate import CHANGED, WHAT
from controller.apiserver.service import Service
from controller.common.errors import InvalidError, UnauthorizedError
from dataplane.clock import NS_PER_S
from dataplane.rpc.access import Principal

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler

    Body = Any

NDJSON: Final = "application/x-ndjson"
MOST_LISTED: Final = 1000
_AT_ONCE: Final = 64
"""Resources to encode before yielding to other tasks."""
_PAGE_BYTES: Final = 8 << 20
_ENCODER: Final = msgspec.json.Encoder()

_Asked = Request[Principal, None, Any]
_Name = FromPath[str]
_Limit = Annotated[int, QueryParameter(ge=1, le=MOST_LISTED, description="Maximum number of items.")]
_Labels = Annotated[
    str, QueryParameter(max_length=2048, description="Label selector: a=b, a!=b, a, !a; separate several with commas.")
]
_Fields = Annotated[
    str, QueryParameter(max_length=2048, description="Field selector: as labels, for the fields that the kind names.")
]
_Continue = Annotated[str, QueryParameter(name="continue", max_length=512, description="Start of the next page.")]
_Watch = Annotated[bool, QueryParameter(description="Answer with one line of JSON per event.")]
_After = Annotated[int | None, QueryParameter(ge=0, le=(1 << 53), description="Watch from after this revision.")]
IfMatch = Annotated[
    str | None, HeaderParameter(name="If-Match", max_length=32, description="The expected revision, or *.")
]


class _PageStart(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Start of a page: after a name, at a revision."""

    revision: Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
    after: str


def handlers_of(kind: Kind[Any], service: Service) -> list[HTTPRouteHandler]:
    """Return the routes of a kind."""
    base, item_path = f"/v1/{kind.plural}", f"/v1/{kind.plural}/{{name:str}}"
    common: dict[str, Any] = {"signature_namespace": {"Body": kind.type}, "tags": [kind.name]}

    @get(base, operation_id=f"list{kind.name}", **common, summary=f"List, or watch, {kind.plural}.")
    async def list_or_watch(  # noqa: PLR0917 - parameters of HTTP
        request: _Asked,
        labels: _Labels = "",
        fields: _Fields = "",
        limit: _Limit = MOST_LISTED,
        page: _Continue = "",
        watch: _Watch = False,
        after: _After = None,
    ) -> Response[ResourceList[Body]]:
        selection = Selection.parse(kind, labels, fields)
        if watch:
            caller = caller_of(request)
            caller.hold_watch()
            lines = await service.watch(request.user, kind, selection, after)
            told = _while_it_counts(caller, lines, service)
            stream: Any = Stream(told, media_type=NDJSON, headers={"Cache-Control": "no-store"})
            return stream  # type: ignore[no-any-return]
        start = _page_start(page) if page else None
        listing, age_ns = await service.list(
            request.user,
            kind,
            selection,
            revision=None if start is None else start.revision,
            after="" if start is None else start.after,
            limit=limit,
        )
        body: Any = await _page_of(listing)
        return Response(body, media_type=MediaType.JSON, headers=_aged(age_ns))

    @get(item_path, operation_id=f"get{kind.name}", **common, summary=f"Get a {kind.name}.")
    async def get_one(request: _Asked, name: _Name) -> Response[Body]:
        resource, age_ns = await service.get(request.user, kind, name)
        return Response(resource, headers=_aged(age_ns) | _tagged(resource))

    @post(base, operation_id=f"create{kind.name}", **common, summary=f"Create a {kind.name}.")
    async def create(request: _Asked, data: JSONBody[Body]) -> Response[Body]:
        request.scope["state"][WHAT] = f"{kind.name} {data.metadata.name}"
        resource = await service.create(request.user, kind, data)
        _note(request, resource, resource.spec)
        location = f"{base}/{resource.metadata.name}"
        return Response(resource, headers={"Location": location} | _tagged(resource))

    @put(item_path, operation_id=f"replace{kind.name}", **common, summary="Replace labels and spec.")
    async def replace(request: _Asked, name: _Name, data: JSONBody[Body], if_match: IfMatch = None) -> Response[Body]:
        resource = await service.replace(request.user, kind, name, data, expected=expected_of(if_match))
        _note(request, resource, resource.spec)
        return Response(resource, headers=_tagged(resource))

    @put(f"{item_path}/status", operation_id=f"replaceStatusOf{kind.name}", **common, summary="Replace the status.")
    async def replace_status(
        request: _Asked, name: _Name, data: JSONBody[Body], if_match: IfMatch = None
    ) -> Response[Body]:
        resource = await service.replace_status(request.user, kind, name, data, expected=expected_of(if_match))
        _note(request, resource, resource.status)
        return Response(resource, headers=_tagged(resource))

    @delete(item_path, operation_id=f"delete{kind.name}", **common, status_code=200, summary=f"Delete a {kind.name}.")
    async def delete_one(request: _Asked, name: _Name, if_match: IfMatch = None) -> Response[Body]:
        key_of(kind, name)
        resource = await service.delete(request.user, kind, name, expected=expected_of(if_match))
        _note(request, resource, resource.spec)
        return Response(resource)

    return [list_or_watch, get_one, create, replace, replace_status, delete_one]


async def _while_it_counts(caller: Caller, lines: Any, service: Service) -> AsyncIterator[bytes]:  # noqa: ANN401
    """Yield a watch's lines, at least one per heartbeat, until its caller's token becomes invalid."""
    async with aclosing(lines):
        async for line in lines:
            try:
                caller.check()
            except UnauthorizedError as error:
                revision = service.cache.ring.revision
                yield line_of(WatchEvent(EventType.ERROR, revision, status=error.status, detail=str(error)))
                return
            yield line


async def _page_of(listing: Listing[Any]) -> bytes:
    """Return a `ResourceList` as JSON; yields to other tasks between pieces.

    A page ends before it exceeds `_PAGE_BYTES`, however few resources it has.
    """
    parts, size, after = list[bytes](), 0, listing.after
    for start in range(0, len(listing.items), _AT_ONCE):
        for resource in listing.items[start : start + _AT_ONCE]:
            part = _ENCODER.encode(resource)
            size += len(part)
            # The first resource goes out whatever its size, or paging would never get past it.
            if parts and size > _PAGE_BYTES:
                break
            parts.append(part)
        if size > _PAGE_BYTES and len(parts) < len(listing.items):
            after = listing.items[len(parts) - 1].metadata.name
            break
        await next_piece()
    more = None if after is None else _token(_PageStart(listing.revision, after))
    rest = _ENCODER.encode({"revision": listing.revision, "continue": more})
    return b'{"items":[' + b",".join(parts) + b"]," + rest[1:]


def _note(request: _Asked, resource: Any, written: Any) -> None:  # noqa: ANN401 - a resource
    """Record the resource for the audit log, with a digest of what was written."""
    metadata = resource.metadata
    digest = hashlib.sha256(_ENCODER.encode([metadata.labels, written])).hexdigest()
    request.scope["state"][CHANGED] = Changed(
        kind=resource.kind, name=metadata.name, uid=metadata.uid, revision=metadata.revision, digest=digest
    )


def expected_of(if_match: str | None) -> int | None:
    """Return the revision in If-Match; raise InvalidError."""
    if if_match is None or if_match.strip() == "*":
        return None
    text = if_match.strip().strip('"')
    if not (text.isascii() and text.isdigit()):
        raise InvalidError(f"If-Match: {if_match!r} is not a revision")
    return int(text)


def _aged(age_ns: int | None) -> dict[str, str]:
    """Return the header with an answer's age if it was served without the storage."""
    if age_ns is None:
        return {}
    return {"Age": str(age_ns // NS_PER_S), "Millrace-Storage": "away"}


def _tagged(resource: Any) -> dict[str, str]:  # noqa: ANN401 - a resource
    return {"ETag": f'"{resource.metadata.revision}"'}


def _token(start: _PageStart) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(start)).decode()


def _page_start(token: str) -> _PageStart:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(token), type=_PageStart)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise InvalidError("continue: not a continuation of a list of this server") from None
