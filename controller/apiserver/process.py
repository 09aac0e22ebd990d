"""The API server as a process: serves the resources in a storage over HTTP until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from litestar import Router

from controller.apiserver.listing import IndexedRegistry
from controller.apiserver.oidc import OidcIdentities
from controller.apiserver.overload import monitor_of
from controller.apiserver.registry.cache import ResourceCache
from controller.apiserver.registry.registry import Registry
from controller.apiserver.retention import keep_within
from controller.apiserver.server.application import application
from controller.apiserver.server.audit import AuditLog
from controller.apiserver.server.gate import Asgi, Gate
from controller.apiserver.server.metrics import Metrics
from controller.apiserver.service import Service
from controller.apiserver.sessions.board import SessionBoard
from controller.apiserver.sessions.service import SessionService
from controller.apiserver.settings import ApiLimits, ApiSettings, AuditSettings, StoragePlace
from controller.apiserver.storage import Storage
from controller.apiserver.storage.sqlite import SqliteStorage
from controller.apiserver.tokens import Identities, Tokens
from controller.apiserver.watching import WatchLimits
from controller.common.errors import ApiError, StorageError
from controller.common.http_connections import ConnectionBook
from controller.common.http_server import HttpServer, address_of, listening_at
from controller.common.standby.lease import Lease
from controller.common.standby.pair import Member, ready_once, serve_in_pair, until_active
from dataplane.clock import MonotonicClock
from dataplane.daemon import Daemon, Lifecycle, Reload
from dataplane.errors import MillraceError
from dataplane.metrics_server import registry_of, serve_metrics
from dataplane.rpc.access.tls import TlsFiles, check_current, load_into, server_context
from dataplane.rpc.addresses import is_unix
from dataplane.running import collect_seldom, run_until
from dataplane.version import VERSION

if TYPE_CHECKING:
    from controller.apiserver.view.following import Follow
    from controller.apiserver.view.routes import Page

LOGGER = logging.getLogger("millrace.api")

_DAY_S = 86_400.0
_OWN_FILES = 256
"""Files that the server opens besides connections: storage, logs, files being read, sockets being closed."""


def _make_room(limits: ApiLimits) -> None:
    """Raise the limit on open files to fit all connections and the server's own: strangers must not take them all."""
    wanted = limits.connections + limits.strangers + _OWN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        LOGGER.warning("%d files may be open, but limits.connections and limits.strangers need %d", hard, wanted)
        wanted = hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def serve(
    settings: ApiSettings,
    stop: asyncio.Event,
    on_ready: Callable[[str], None] | None = None,
    *,
    again: asyncio.Event | None = None,
    follow: Follow | None = None,
    token: int | None = None,
) -> None:
    """Serve until `stop` is set; raise MillraceError for an unusable address, file or storage.

    `token` is the fencing token of a server in a pair.

    `on_ready` gets one line with the address, once resources and tokens have been read. Whenever `again` is set the
    certificates are reloaded and the audit log is reopened. `follow` keeps the page's network current instead of the
    services that the settings name.
    """
    clock, limits = MonotonicClock(), settings.limits
    files, context = _tls(settings)
    async with AsyncExitStack() as stack:
        audit = _audit_log(settings.audit)
        stack.callback(audit.close)
        storage = await stack.enter_async_context(opened(settings.storage, token))
        listening = [
            (address, stack.enter_context(listening_at(address, "cannot serve the API", ApiError)))
            for address in settings.addresses
        ]
        # With several servers on one etcd, memory may lag behind what another server has acknowledged.
        is_own = settings.storage.sqlite is not None
        indexed = IndexedRegistry(storage, time.time_ns)
        registry, tokens = indexed if is_own else Registry(storage, time.time_ns), Tokens(storage, time.time_ns)
        cache = ResourceCache(registry, clock.now_ns, capacity=limits.watch_events)
        indexed.follow(cache)
        service = Service(registry, cache, WatchLimits(limits.heartbeat_s, limits.watches), settings.quota)
        board = SessionBoard(limits.session, clock.now_ns)
        metrics = Metrics(service, audit, board)
        more, shown = await _optional(settings, _page_urls(listening, context), service, stack, follow)
        sessions = SessionService(service, board)
        inner = application(service, tokens, sessions, metrics, version=VERSION, more=more)
        identities = Identities(tokens, OidcIdentities(settings.oidc))
        gate = Gate(
            inner,
            identities.principal_of,
            limits,
            clock,
            audit=audit,
            metrics=metrics,
            audit_reads=settings.audit is not None and settings.audit.reads,
            prepare=identities.prepare,
        )
        metrics.user_watches = gate.watches
        metrics.connections = book = ConnectionBook(limits.held)
        where = serve_metrics(registry_of(metrics.families), settings.metrics, stack, ApiError)
        remote = gate.remote if shown is None else _browsers(settings, shown, gate, identities)
        servers = [
            HttpServer(
                gate.local if is_unix(address) else remote,
                listener,
                limits.http,
                None if is_unix(address) else context,
                on_slow=metrics.note_slow_request,
                book=book,
            )
            for address, listener in listening
        ]
        monitor = monitor_of(
            service,
            storage,
            limits,
            metrics=metrics,
            audit=audit,
            sessions=board,
            connections=lambda: book.known,
            log=LOGGER,
        )
        metrics.read_load = lambda: monitor.load

        async def work() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(service.run())
                group.create_task(tokens.run())
                group.create_task(keep_within(settings.retention, registry, cache))
                group.create_task(audit.keep())
                group.create_task(_keep_certificate(files))
                group.create_task(monitor.run())
                await cache.loaded.wait()
                await tokens.loaded.wait()
                for server in servers:
                    await server.start()
                if again is not None:
                    group.create_task(_reload(again, audit, files, context))
                if on_ready is not None:
                    on_ready(f"API at {_urls(listening, context)}{where}")

        try:
            await run_until(work(), stop)
        finally:
            service.stop()
            board.stop()
            await asyncio.gather(*(server.stop() for server in servers))


def _audit_log(audit: AuditSettings | None) -> AuditLog:
    if audit is None:
        return AuditLog(None, time.time_ns)
    return AuditLog(Path(audit.file), time.time_ns, max_bytes=audit.max_bytes, kept=audit.kept)


async def _optional(
    settings: ApiSettings, urls: tuple[str, ...], service: Service, stack: AsyncExitStack, follow: Follow | None
) -> tuple[list[Router], Page | None]:
    """Start what the settings add to the API; return its routes, and the operators' page."""
    more, shown = list[Router](), None
    if settings.alto is not None:
        from controller.apiserver.server.alto import alto_view  # noqa: PLC0415 - a third of all imports

        more.append(await stack.enter_async_context(alto_view(settings.alto, settings.limits)))
    if settings.view is not None:
        # Imports what follows the network.
        from controller.apiserver.view.following import followed  # noqa: PLC0415
        from controller.apiserver.view.routes import page  # noqa: PLC0415

        audit = None if settings.audit is None else Path(settings.audit.file)
        shown = await stack.enter_async_context(page(settings.view, urls, service, follow or followed, audit))
        more.append(shown.router)
    return more, shown


def _browsers(settings: ApiSettings, shown: Page, gate: Gate, identities: Identities) -> Asgi:
    from controller.apiserver.view.browsers import Browsers  # noqa: PLC0415 - as above

    assert settings.view is not None, "a page was made from these settings"
    named = (address.rpartition(":")[0].strip("[]") for address in settings.addresses if not is_unix(address))
    return Browsers(
        gate,
        shown.sign_ins,
        shown.files,
        settings.limits,
        hosts=(*settings.view.hosts, *named),
        principal_of=identities.principal_of,
        prepare=identities.prepare,
        now_ns=time.time_ns,
    )


@asynccontextmanager
async def opened(place: StoragePlace, token: int | None = None) -> AsyncIterator[Storage]:
    """Open a storage for the duration of the context, of a pair with a fencing token; raise StorageError."""
    if place.etcd is not None:
        from controller.apiserver.storage.etcd import EtcdSettings, EtcdStorage  # noqa: PLC0415 - an extra

        settings = EtcdSettings(
            place.etcd.target, place.etcd.root, place.etcd.credentials(StorageError), place.etcd.timeout_s
        )
        storage: Storage = EtcdStorage(settings)
    else:
        storage = await SqliteStorage.open(str(place.sqlite), token)
    async with storage:
        yield storage


def _take_sockets(addresses: Sequence[str]) -> None:
    """Remove the sockets of the one that was active: it may be stopped, and connections to it would only wait."""
    for address in addresses:
        if is_unix(address):
            path = Path(address.removeprefix("unix:").removeprefix("//"))
            if path.is_socket():
                path.unlink(missing_ok=True)


def _tls(settings: ApiSettings) -> tuple[TlsFiles | None, ssl.SSLContext | None]:
    if settings.tls is None:
        return None, None
    tls = settings.tls
    ca = None if tls.client_ca is None else Path(tls.client_ca)
    files = TlsFiles(Path(tls.certificate), Path(tls.private_key), ca)
    context = server_context(files)
    check_current(files.certificate)
    return files, context


async def _keep_certificate(files: TlsFiles | None) -> None:
    """Warn every day of a certificate that expires soon or has expired."""
    while files is not None:
        await asyncio.sleep(_DAY_S)
        try:
            check_current(files.certificate)
        except MillraceError as error:
            LOGGER.warning("%s", error)


async def _reload(
    again: asyncio.Event, audit: AuditLog, files: TlsFiles | None, context: ssl.SSLContext | None
) -> None:
    """Reopen the audit log and reload the certificate files each time `again` is set."""
    while True:
        await again.wait()
        # Clear before reloading, so that a signal during the reload triggers another one.
        again.clear()
        try:
            audit.reopen()
            if files is not None and context is not None:
                check_current(files.certificate)
                load_into(context, files)
                LOGGER.info("certificate %s loaded", files.certificate)
        except MillraceError as error:
            LOGGER.warning("reload failed; keeping the previous certificates: %s", error)


def _urls(listening: Sequence[tuple[str, socket.socket]], context: ssl.SSLContext | None) -> str:
    return ", ".join(_url_of(address, listener, context) for address, listener in listening)


def _page_urls(listening: Sequence[tuple[str, socket.socket]], context: ssl.SSLContext | None) -> tuple[str, ...]:
    """Return the addresses that a browser can open."""
    return tuple(_url_of(*pair, context) for pair in listening if not is_unix(pair[0]))


def _url_of(configured: str, listening: socket.socket, context: ssl.SSLContext | None) -> str:
    address = address_of(configured, listening)
    return address if is_unix(address) else f"{'http' if context is None else 'https'}://{address}"


async def _serve(settings: ApiSettings, lifecycle: Lifecycle[ApiSettings]) -> None:
    collect_seldom()
    _make_room(settings.limits)
    again = asyncio.Event()
    lifecycle.on_hangup(again.set)
    # Certificates and the audit log are read again even if the settings cannot be; of the settings nothing is applied.
    lifecycle.reload(Reload(lambda _: "", "the settings do not apply and cannot be read", keys=()))
    ready, told = ready_once(lifecycle.ready), settings.addresses[0]

    async def serve_once(lease: Lease | None, stop: asyncio.Event) -> None:
        token = None
        if lease is not None:
            ready(f"in a pair, API at {', '.join(settings.addresses)} while active")
            await run_until(until_active(lease), stop)
            if stop.is_set():
                return
            token = lease.check()
            _take_sockets(settings.addresses)
        await serve(settings, stop, ready, again=again, token=token)

    await serve_in_pair(settings.standby, Member("api", told, LOGGER), serve_once, lifecycle.stop)


DAEMON: Final = Daemon("api", ApiSettings, _serve)
load_settings: Final = DAEMON.load_settings
