"""The process of `millrace alto serve`: runs the ALTO server until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, aclosing
from typing import Any, Final

from controller.cluster.alto.http import application
from controller.cluster.alto.service import AltoService
from controller.cluster.alto.settings import AltoSettings
from controller.cluster.cost_map import CostModel
from controller.cluster.network_state.follower import CostMapFollower, follow
from controller.common.errors import ControllerError
from controller.common.http_server import HttpLimits, HttpServer, listening_at, send_in_time
from dataplane.clock import NS_PER_S, Clock, MonotonicClock
from dataplane.daemon import Daemon, Lifecycle
from dataplane.rpc.addresses import is_loopback, is_plain, is_unix, unavailable
from dataplane.topology.file import load_topology
from dataplane.topology.values import Topology

LOGGER = logging.getLogger("millrace.alto")

_PURPOSE: Final = "cannot serve ALTO"
_HEADER_BYTES: Final = 16 << 10


async def serve(
    settings: AltoSettings,
    topology: Topology,
    clock: Clock,
    stop: asyncio.Event,
    *,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until `stop` is set; raise ControllerError for an address that is unusable or reachable by others.

    `on_ready` is called once costs are known. Maps of the network alone are served before that.
    """
    model = CostModel(topology)
    with listen(settings.listen) as listening:
        base = _base(settings, listening)
        async with follow(model, settings.network_state, clock=clock) as follower:
            service = AltoService(model, follower, clock.now_ns, base=base, most_pairs=settings.most_pairs)
            server = _server(settings, service, listening)
            where = f"ALTO directory at {_url(settings, listening)}"
            try:
                await server.start()
                LOGGER.info("%s: waiting for the network's first costs", where)
                if await _has_costs(follower, stop) and on_ready is not None:
                    on_ready(where)
                await stop.wait()
            finally:
                await server.stop()


async def _has_costs(follower: CostMapFollower, stop: asyncio.Event) -> bool:
    """Return True once a cost map is known, False if `stop` is set first."""
    async with aclosing(follower.maps()) as maps:
        ended, first = asyncio.create_task(stop.wait()), asyncio.ensure_future(anext(maps))
        try:
            await asyncio.wait((ended, first), return_when=asyncio.FIRST_COMPLETED)
            return first.done()
        finally:
            for task in (ended, first):
                task.cancel()
            await asyncio.gather(ended, first, return_exceptions=True)


def _server(settings: AltoSettings, service: AltoService, listening: socket.socket) -> HttpServer:
    timeout_s = settings.request_timeout_ns / NS_PER_S
    routes = application(service, request_bytes=settings.request_bytes, timeout_s=timeout_s)

    async def serve_with_timeout(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's
        async def answer(message: Any) -> None:  # noqa: ANN401 - ASGI's
            await send_in_time(scope, send, message, timeout_s, _log_slow)

        await routes(scope, receive, answer)

    limits = HttpLimits(_HEADER_BYTES, timeout_s, timeout_s, timeout_s, settings.connections)
    return HttpServer(serve_with_timeout, listening, limits, None, on_slow=_log_slow)


def _log_slow() -> None:
    LOGGER.info("closed a connection: the client was too slow")


def listen(address: str) -> AbstractContextManager[socket.socket]:
    """Listen at a UNIX path, for its owner only, or at a loopback address; raise ControllerError for any other."""
    problem = unavailable(address)
    if problem is None and not is_unix(address) and (is_plain(address) or not is_loopback(address)):
        problem = "others can reach it and nothing authenticates them; use loopback or unix:PATH"
    if problem is not None:
        raise ControllerError(f"{_PURPOSE} at {address}: {problem}")
    return listening_at(address, _PURPOSE, ControllerError)


def _base(settings: AltoSettings, listening: socket.socket) -> str:
    """Return the prefix of URIs: over a UNIX socket they are just paths."""
    if settings.base is not None:
        return settings.base.rstrip("/")
    if listening.family == socket.AF_UNIX:
        return ""
    return f"http://{settings.listen.rpartition(':')[0]}:{listening.getsockname()[1]}"


def _url(settings: AltoSettings, listening: socket.socket) -> str:
    if listening.family == socket.AF_UNIX:
        return f"/directory, {settings.listen}"
    return f"{_base(settings, listening)}/directory"


async def _serve(settings: AltoSettings, lifecycle: Lifecycle[AltoSettings]) -> None:
    topology = load_topology(settings.topology)
    await serve(settings, topology, MonotonicClock(), lifecycle.stop, on_ready=lifecycle.ready)


DAEMON: Final = Daemon("alto", AltoSettings, _serve)
load_settings: Final = DAEMON.load_settings
