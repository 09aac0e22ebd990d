"""Routes of the page below /v1/view, behind the API's gate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from litestar import Request, Response, Router, get, post
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.params import FromPath, JSONBody, QueryParameter
from litestar.response import Stream

from controller.apiserver.server.answers import CodeRequest, NewCode
from controller.apiserver.server.callers import Caller, caller_of
from controller.apiserver.service import Service
from controller.apiserver.settings import ViewSettings
from controller.apiserver.view.answers import (
    decided_answer,
    flows_answer,
    link_answer,
    link_of,
    spec_of,
    unmanaged_answer,
    why_answer,
)
from controller.apiserver.view.changes.drains import drain_changes
from controller.apiserver.view.changes.events import event_changes, json_response, may_of, rule_changes
from controller.apiserver.view.changes.pins import pin_changes
from controller.apiserver.view.changes.pods import pod_changes
from controller.apiserver.view.costs import MOST_HOSTS, Costs
from controller.apiserver.view.files import PageFiles
from controller.apiserver.view.following import Follow, followed
from controller.apiserver.view.jobs import jobs_value
from controller.apiserver.view.signing_in import SignIns, as_viewer
from controller.apiserver.view.state import MOST_FLOWS, NetworkView
from controller.apiserver.view.streaming import Broadcast
from controller.apiserver.view.system import (
    audit_value,
    entries_value,
    ports_value,
    system_value,
    tables_value,
    why_no_audit,
)
from controller.common.errors import (
    ForbiddenError,
    NotFoundError,
    PathError,
    UnauthorizedError,
    UnavailableError,
)
from controller.network.daemon_settings import switch_addresses
from controller.network.intents import FlowSpec
from controller.network.paths.service.client import RouteClient
from dataplane.clock import NS_PER_S
from dataplane.config import Strict
from dataplane.rpc.access import Principal
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.access.values import SUBJECTS
from dataplane.topology.file import load_topology
from dataplane.version import VERSION

if TYPE_CHECKING:
    from controller.apiserver.view.past import Past

STREAM_TYPE: Final = "application/vnd.millrace.view"
_PREFIX: Final = "/v1/view"
_SERIES_NS: Final = 3600 * NS_PER_S
_NO_HISTORY: Final = "no history: view.history of the API server's settings names no folder of a collector"

_Asked = Request[Principal, None, Any]
_Host = Annotated[str, QueryParameter(max_length=256, description="A host's name or address.")]
_From = Annotated[int | None, QueryParameter(name="from", ge=0, le=1 << 62, description="Begin of the series (ns).")]
_To = Annotated[int | None, QueryParameter(name="to", ge=0, le=1 << 62, description="End of the series (ns).")]
_Begin = Annotated[int, QueryParameter(name="from", ge=0, le=1 << 62, description="Begin of the span, ns since 1970.")]
_End = Annotated[int, QueryParameter(name="to", ge=0, le=1 << 62, description="End of the span, ns since 1970.")]
_At = Annotated[int | None, QueryParameter(ge=0, le=1 << 62, description="Time, ns since 1970; default: now.")]
_Speed = Annotated[float, QueryParameter(gt=0, description="Seconds of it in a second.")]
_Number = Annotated[int | None, QueryParameter(ge=0, le=65_535)]


class Whoami(Strict, frozen=True):
    """Caller of the page, as the page shows it."""

    name: str
    role: str
    version: str
    build: str
    now_ns: int
    may: tuple[str, ...]
    recorded: tuple[int, int] | None = None
    """Times of the first and the last state of a recording, where the page shows nothing else."""


@dataclass(frozen=True, slots=True)
class Page:
    """The page as served: its routes, its files, and who is signed in."""

    router: Router
    files: PageFiles
    sign_ins: SignIns


@asynccontextmanager
async def page(
    settings: ViewSettings,
    urls: tuple[str, ...],
    service: Service,
    follow: Follow = followed,
    audit: Path | None = None,
) -> AsyncIterator[Page]:
    """Follow what the page shows while the block runs; raise ConfigError, FeedError, PathError.

    `service` makes the changes of resources; `urls` are those by which the server's own machine reaches the page;
    `follow` keeps a view current, `audit` is the server's audit log.
    """
    now_ns, files = time.time_ns, PageFiles()
    sign_ins = SignIns(now_ns, lasts_ns=round(settings.session_s * NS_PER_S), most=settings.sessions)
    view = clients = routes = past = None
    async with AsyncExitStack() as stack:
        if settings.topology:
            view = NetworkView(load_topology(settings.topology), now_ns, _sources(settings))
            clients = await stack.enter_async_context(follow(view, settings, now_ns))
            routes = None if clients is None else clients.routes
        if view is not None and settings.history is not None:
            from controller.apiserver.view.past import Past  # noqa: PLC0415 - DuckDB

            past = Past(Path(settings.history), view)
            stack.callback(past.close)
        recorded = None
        if past is not None and settings.network_state is None and follow is followed:
            recorded = await past.span()
            if recorded is None:
                raise UnavailableError(f"{settings.history}: the history has no state of the network")
        broadcast = Broadcast(view, files.build, now_ns, most=settings.viewers)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        stack.callback(group.create_task(broadcast.run()).cancel)
        network = _Network(view, routes, past, files.build, now_ns)
        handlers = [
            *_people(sign_ins, files, now_ns, urls, recorded),
            *_present(network, broadcast),
            *_in_time(network),
            *_system(network, settings, audit),
        ]
        if recorded is None:
            handlers += pod_changes(service)
        if view is not None and clients is not None:
            handlers += [*event_changes(view, clients.feed), *rule_changes(view, clients.feed)]
            if clients.routes is not None:
                handlers += [*pin_changes(view, clients.routes), *drain_changes(view, clients.routes)]
        yield Page(Router(_PREFIX, route_handlers=handlers, guards=[_may_read], tags=["page"]), files, sign_ins)


def _sources(settings: ViewSettings) -> list[str]:
    """Return the names of what the page follows."""
    state = settings.network_state
    named = {
        "collector": state,
        "path server": state and state.path_server,
        "controller": settings.controller,
        "job service": settings.job_service,
    }
    return [name for name, followed_one in named.items() if followed_one is not None]


def _people(
    sign_ins: SignIns,
    files: PageFiles,
    now_ns: Callable[[], int],
    urls: tuple[str, ...],
    recorded: tuple[int, int] | None,
) -> list[Any]:
    @post("/codes", operation_id="newCode", summary="Make a code to open the page with.")
    async def new_code(request: _Asked, data: JSONBody[CodeRequest]) -> Response[NewCode]:
        confirm = _confirmed(caller_of(request))
        code, expires_ns = sign_ins.new_code(as_viewer(confirm) if data.viewer else confirm)
        return Response(NewCode(code, expires_ns, urls), headers={"Cache-Control": "no-store"})

    @get("/me", operation_id="whoami", summary="Who is signed in.")
    async def whoami(request: _Asked) -> Response[Whoami]:
        principal = request.user
        may = () if recorded is not None else may_of(principal)
        answer = Whoami(principal.name, principal.role.value, VERSION, files.build, now_ns(), may, recorded)
        return Response(answer, headers={"Cache-Control": "no-store"})

    return [new_code, whoami]


@dataclass(frozen=True, slots=True)
class _Network:
    """The network as the page shows it; no view: the settings name no topology."""

    view: NetworkView | None
    routes: RouteClient | None
    past: Past | None
    build: str
    now_ns: Callable[[], int]

    @property
    def known(self) -> NetworkView:
        """The view; raises NotFoundError."""
        if self.view is None:
            raise NotFoundError("no network: view.topology of the API server's settings names none")
        return self.view


def _present(network: _Network, broadcast: Broadcast) -> list[Any]:
    @get("/stream", operation_id="viewStream", summary="What the page shows, as frames.")
    async def stream(request: _Asked) -> Stream:
        caller = caller_of(request)
        caller.hold_watch()
        return _stream(_while_valid(caller, broadcast.open()))

    @get("/flows", operation_id="viewFlows", summary="The flows of the highest rate.")
    async def flows(
        limit: Annotated[int, QueryParameter(ge=1, le=MOST_FLOWS)] = MOST_FLOWS, at: _At = None
    ) -> Response[bytes]:
        if at is None:
            return json_response(flows_answer(network.known, limit))
        if network.past is None:
            raise NotFoundError(_NO_HISTORY)
        return json_response(await network.past.flows(at, limit))

    @get("/why", operation_id="viewWhy", summary="Why a flow is where it is.")
    async def why(
        src: _Host, dst: _Host, protocol: _Number = None, src_port: _Number = None, dst_port: _Number = None
    ) -> Response[bytes]:
        flow = spec_of(network.known, FlowSpec(src, dst, protocol, src_port, dst_port))
        if network.routes is None and (move := network.known.newest_move(flow)) is not None:
            return json_response(decided_answer(move))
        if network.routes is None:
            raise NotFoundError("no path server: view.network_state of the API server's settings names none")
        try:
            return json_response(why_answer(await network.routes.why(flow)))
        except PathError as error:
            # Not a refusal: that nobody manages the flow is the answer.
            return json_response(unmanaged_answer(network.known, flow, str(error)))

    return [stream, flows, why]


def _in_time(network: _Network) -> list[Any]:
    @get("/links/{src:str}/{dst:str}", operation_id="viewLink", summary="Exact figures of a link.")
    async def link(src: FromPath[str], dst: FromPath[str], begin: _From = None, end: _To = None) -> Response[bytes]:
        key = link_of(network.known, src, dst)
        series: Any = None
        problem: str | None = _NO_HISTORY
        if network.past is not None:
            until_ns = network.now_ns() if end is None else end
            since_ns = until_ns - _SERIES_NS if begin is None else begin
            try:
                series, problem = await network.past.series(key, since_ns, until_ns), None
            except UnavailableError as error:
                problem = str(error)
        return json_response({**link_answer(network.known, key), "series": series, "why_no_series": problem})

    @get("/replay", operation_id="viewReplay", summary="A span of the past, as frames.")
    async def replay(request: _Asked, begin: _Begin, end: _End, speed: _Speed = 1.0) -> Stream:
        if network.past is None:
            raise NotFoundError(_NO_HISTORY)
        caller = caller_of(request)
        caller.hold_watch()
        told = network.past.frames(network.build, begin, end, speed)
        # The first frame is read here, so that a refusal has its status.
        return _stream(_while_valid(caller, _after(await anext(told), told)))

    @get("/jobs", operation_id="viewJobs", summary="Jobs that switches add up for, with their workers.")
    async def jobs(at: _At = None) -> Response[bytes]:
        view = network.known
        if at is not None:
            if network.past is None:
                raise NotFoundError(_NO_HISTORY)
            return json_response(
                {"at_ns": at, "jobs": jobs_value((), await network.past.jobs(at), view.topology.host, at)}
            )
        rows, heard_ns = view.jobs
        states = {} if view.snapshot is None else view.snapshot.jobs
        return json_response(
            {"at_ns": network.now_ns(), "jobs": jobs_value(rows, states, view.topology.host, heard_ns)}
        )

    costs_of = None if network.view is None else Costs(network.view, network.routes)

    @get("/costs", operation_id="viewCosts", summary="The cost map between hosts.")
    async def costs(hosts: Annotated[int, QueryParameter(ge=1, le=MOST_HOSTS)] = MOST_HOSTS) -> Response[bytes]:
        _ = network.known  # raises NotFoundError
        assert costs_of is not None, "a known network has costs"
        return json_response(await costs_of.value(hosts))

    return [link, replay, jobs, costs]


def _system(network: _Network, settings: ViewSettings, audit: Path | None) -> list[Any]:
    state, topology = settings.network_state, None if network.view is None else network.view.topology
    tls = None if state is None else state.tls
    addresses = switch_addresses(settings.switches, topology) if settings.switches and topology is not None else {}

    def reached(switch: str) -> tuple[str, int, TlsSettings | None]:
        ports_value(network.known, switch)  # raises NotFoundError for a switch that is not there
        if switch not in addresses:
            raise NotFoundError("no tables: view.switches of the API server's settings names no address of the switch")
        return addresses[switch], network.known.topology.switch[switch].node_id, tls

    @get("/system", operation_id="viewSystem", summary="Whether switches and daemons are well.")
    async def system(request: _Asked) -> Response[bytes]:
        drops, problem = None, None if network.past is not None else _NO_HISTORY
        if network.past is not None:
            now_ns = network.now_ns()
            try:
                drops = await network.past.drops(now_ns - _SERIES_NS, now_ns)
            except UnavailableError as error:
                problem = str(error)
        known = system_value(network.known)
        told = {"why_no_drops": problem, "why_no_audit": why_no_audit(audit, request.user)}
        return json_response({**known, "drops": drops, **told})

    @get("/switches/{switch:str}/ports", operation_id="viewPorts", summary="A switch's ports.")
    async def ports(switch: FromPath[str]) -> Response[bytes]:
        return json_response({"ports": ports_value(network.known, switch)})

    @get("/switches/{switch:str}/tables", operation_id="viewTables", summary="The tables of a switch.")
    async def tables(switch: FromPath[str]) -> Response[bytes]:
        return json_response({"tables": await tables_value(*reached(switch))})

    @get("/switches/{switch:str}/tables/{table:str}", operation_id="viewEntries", summary="A table's entries.")
    async def entries(switch: FromPath[str], table: FromPath[str]) -> Response[bytes]:
        return json_response(await entries_value(*reached(switch), table))

    @get("/audit", operation_id="viewAudit", summary="The newest records of the audit log.")
    async def records(request: _Asked, limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 200) -> Response[bytes]:
        return json_response({"records": audit_value(audit, request.user, limit)})

    return [system, ports, tables, entries, records]


def _stream(frames: AsyncIterator[bytes]) -> Stream:
    return Stream(frames, media_type=STREAM_TYPE, headers={"Cache-Control": "no-store"})


def _confirmed(caller: Caller) -> Callable[[], Principal]:
    def confirm() -> Principal:
        caller.confirm()  # raises AccessError once the credentials are no longer valid
        return caller.principal

    return confirm


async def _after(first: bytes, others: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(others):
        yield first
        async for frame in others:
            yield frame


async def _while_valid(caller: Caller, frames: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    """Yield frames until the caller's session or token becomes invalid."""
    async with aclosing(frames):
        async for frame in frames:
            try:
                caller.check()
            except UnauthorizedError:
                return
            yield frame


def _may_read(connection: ASGIConnection[Any, Principal, Any, Any], _: BaseRouteHandler) -> None:
    """Raise ForbiddenError for nodes, centres and workers: their tokens only cover their own resources."""
    principal = connection.user
    if principal.role in SUBJECTS:
        raise ForbiddenError(f"{principal.name} ({principal.role.value} {principal.subject}) may not see the page")
