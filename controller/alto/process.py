"""What `millrace alto serve` runs: the ALTO server until it is to stop."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import closing
from ipaddress import ip_address
from pathlib import Path

import uvicorn

from collectors.signals import stop_on_signals
from controller.alto.http import application
from controller.alto.service import AltoService
from controller.alto.settings import AltoSettings
from controller.cluster.cost_map import CostModel
from controller.errors import ControllerError
from controller.network_state.follower import follow
from controller.running import run_until
from dataplane.clock import Clock, MonotonicClock
from dataplane.config import load
from dataplane.rpc.addresses import unavailable
from dataplane.topology.file import load_topology
from dataplane.topology.values import Topology

_GRACE_S = 2


def load_settings(path: Path) -> AltoSettings:
    """Return a settings file's content; raise ConfigError with file, line and key."""
    return load(path, AltoSettings)


def run(settings: AltoSettings, on_ready: Callable[[str], None] | None = None) -> None:
    """Serve until SIGINT or SIGTERM; `on_ready` gets one line: where the directory is."""
    asyncio.run(_until_signalled(settings, load_topology(settings.topology), on_ready))


async def _until_signalled(settings: AltoSettings, topology: Topology, on_ready: Callable[[str], None] | None) -> None:
    await serve(settings, topology, MonotonicClock(), stop_on_signals(), on_ready=on_ready)


async def serve(
    settings: AltoSettings,
    topology: Topology,
    clock: Clock,
    stop: asyncio.Event,
    *,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until `stop` is set; raise ControllerError for an address that cannot be had or that others can reach."""
    model = CostModel(topology)
    with closing(listen(settings.listen)) as listening:
        base = _base(settings, listening)
        async with follow(model, settings.network_state, clock=clock) as follower:
            service = AltoService(model, follower, clock.now_ns, base=base, most_pairs=settings.most_pairs)
            server = _server(settings, service)
            where = f"ALTO directory at {_shown(settings, listening)}"
            await run_until(_serve(server, listening, lambda: on_ready and on_ready(where)), stop)


def _server(settings: AltoSettings, service: AltoService) -> uvicorn.Server:
    timeout_s = settings.request_timeout_ns / 1e9
    app = application(service, request_bytes=settings.request_bytes, timeout_s=timeout_s)
    config = uvicorn.Config(
        app,
        access_log=False,
        log_config=None,
        lifespan="off",
        server_header=False,
        limit_concurrency=settings.connections,
        timeout_keep_alive=max(1, round(timeout_s)),
        timeout_graceful_shutdown=_GRACE_S,
        ws="none",
        proxy_headers=False,
    )
    return uvicorn.Server(config)


async def _serve(server: uvicorn.Server, listening: socket.socket, on_ready: Callable[[], object]) -> None:
    """Serve until cancelled; signals are left to who runs this."""
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup(sockets=[listening])
    on_ready()
    try:
        await server.main_loop()
    finally:
        await server.shutdown(sockets=[listening])


def listen(address: str) -> socket.socket:
    """Return a socket that listens at a UNIX path, for its user only, or at a loopback address; ControllerError."""
    problem = unavailable(address)
    if problem is None and not address.startswith("unix:"):
        problem = _exposed(address)
    if problem is not None:
        raise ControllerError(f"cannot serve ALTO at {address}: {problem}")
    try:
        return _unix(Path(address.removeprefix("unix:"))) if address.startswith("unix:") else _loopback(address)
    except OSError as error:
        raise ControllerError(f"cannot serve ALTO at {address}: {error.strerror or error}") from error


def _exposed(address: str) -> str | None:
    """Return why an address is none to listen at without authentication."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        is_loopback = ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    return None if is_loopback else "others can reach it and nothing authenticates them; use loopback or unix:PATH"


def _unix(path: Path) -> socket.socket:
    if path.is_socket():
        path.unlink()  # left by a server that was killed: `unavailable` found that nobody listens there
    found = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        found.bind(str(path))
    finally:
        os.umask(before)
    return found


def _loopback(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    family, kind, protocol, _, place = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
    found = socket.socket(family, kind, protocol)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind(place)
    return found


def _base(settings: AltoSettings, listening: socket.socket) -> str:
    """Return what URIs begin with: over a UNIX socket they are paths alone."""
    if settings.base is not None:
        return settings.base.rstrip("/")
    if listening.family == socket.AF_UNIX:
        return ""
    return f"http://{settings.listen.rpartition(':')[0]}:{listening.getsockname()[1]}"


def _shown(settings: AltoSettings, listening: socket.socket) -> str:
    if listening.family == socket.AF_UNIX:
        return f"/directory, {settings.listen}"
    return f"{_base(settings, listening)}/directory"
