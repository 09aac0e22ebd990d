"""The `millrace scheduler extend` process: the extender over HTTP, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final

from controller.apiserver.settings import TlsSettings
from controller.common.errors import SchedulerError
from controller.common.http_server import HttpServer, address_of, listening_at, send_in_time
from controller.scheduling.costs import costs_of
from controller.scheduling.extender import objects
from controller.scheduling.extender.books import Books
from controller.scheduling.extender.hardware import kinds_of
from controller.scheduling.extender.http import Callers, application
from controller.scheduling.extender.kube_api import KubernetesApi
from controller.scheduling.extender.metrics import Metrics
from controller.scheduling.extender.service import ExtenderService
from controller.scheduling.extender.settings import ExtenderSettings
from controller.scheduling.pods import PodProfile
from dataplane.clock import NS_PER_S, MonotonicClock
from dataplane.daemon import Daemon, Lifecycle
from dataplane.errors import MillraceError
from dataplane.given import SECRET_BYTES, read_given_text
from dataplane.metrics_server import serve_metrics
from dataplane.rpc.access.tls import TlsFiles, check_current, load_into, server_context
from dataplane.rpc.addresses import is_unix
from dataplane.running import run_until

LOGGER: Final = logging.getLogger("millrace.extender")
_LEAST_TOKEN: Final = 16


async def serve(settings: ExtenderSettings, stop: asyncio.Event, on_ready: Callable[[str], None] | None = None) -> None:
    """Serve until `stop` is set; raise MillraceError for invalid settings.

    `on_ready` gets one line, once nodes and pods have been listed if there is an API server.
    """
    profiles, clock = PodProfile.by_name(settings.profiles), MonotonicClock()
    token = None if settings.token_file is None else _token(Path(settings.token_file))
    files = None if settings.tls is None else _files(settings.tls)
    context = None if files is None else _context(files)
    books = Books(kinds_of(settings.devices), settings.host_label)
    contacts = _LastMessages(clock)
    metrics = Metrics(books, None if settings.kubernetes is None else contacts.age_s)
    async with AsyncExitStack() as stack:
        listening = stack.enter_context(listening_at(settings.listen, "cannot serve the extender", SchedulerError))
        costs = await stack.enter_async_context(costs_of(settings.topology, settings.network, LOGGER))
        worker = stack.enter_context(ThreadPoolExecutor(max_workers=1, thread_name_prefix="extender"))
        api = None
        if settings.kubernetes is not None:
            api = await stack.enter_async_context(KubernetesApi(settings.kubernetes, on_contact=contacts.note))
        where = serve_metrics(metrics.registry, settings.metrics, stack, SchedulerError)
        service = ExtenderService(
            settings,
            profiles,
            books,
            api=api,
            costs=costs,
            metrics=metrics,
            clock=clock,
            now_ns=time.time_ns,
            worker=worker,
        )
        callers = Callers(token, settings.names, is_local=settings.is_open)
        routes = application(service, settings.limits, metrics, callers)
        server = HttpServer(
            _with_send_timeout(routes, settings, metrics), listening, settings.limits.http,
            None if is_unix(settings.listen) else context, on_slow=metrics.slow.inc,
        )  # fmt: skip

        async def work() -> None:
            async with asyncio.TaskGroup() as group:
                if files is not None and context is not None:
                    group.create_task(_keep_certificate(files, context, settings.certificate_check_s))
                if api is not None:
                    # Answer nobody before all nodes and pods are known.
                    await _listed(group, api, books, service.unbound.wake)
                await server.start()
                if on_ready is not None:
                    on_ready(f"extender at {_url(settings, address_of(settings.listen, listening))}{where}")
                await asyncio.get_running_loop().create_future()

        try:
            await run_until(work(), stop)
        finally:
            await server.stop()


async def _listed(group: asyncio.TaskGroup, api: KubernetesApi, books: Books, on_pods: Callable[[], None]) -> None:
    """Start to follow nodes and pods; return once all have been listed."""
    listed = [asyncio.Event(), asyncio.Event()]
    group.create_task(_follow_nodes(api, books, listed[0]))
    group.create_task(_follow_pods(api, books, listed[1], on_pods))
    for event in listed:
        await event.wait()
    LOGGER.info("listed %d nodes and %d pods on them", len(books.nodes), len(books.pods))


async def _follow_nodes(api: KubernetesApi, books: Books, listed: asyncio.Event) -> None:
    async for change in api.follow(objects.Node):
        if change.all is not None:
            books.keep_nodes(node.metadata.name for node in change.all)
            for node in change.all:
                books.take_node(node)
            listed.set()
        elif change.is_gone:
            books.remove_node(change.one.metadata.name)
        else:
            books.take_node(change.one)
        _log_problems(books)


async def _follow_pods(api: KubernetesApi, books: Books, listed: asyncio.Event, on_pods: Callable[[], None]) -> None:
    async for change in api.follow(objects.Pod):
        if change.all is not None:
            books.keep_pods(pod.metadata.uid for pod in change.all)
            for pod in change.all:
                books.take_pod(pod)
            listed.set()
        elif change.is_gone:
            books.remove_pod(change.one.metadata.uid)
        else:
            books.take_pod(change.one)
        on_pods()
        _log_problems(books)


def _log_problems(books: Books) -> None:
    for problem in books.new_problems():
        LOGGER.warning("%s", problem)


class _LastMessages:
    """Times of the watches' last messages."""

    def __init__(self, clock: MonotonicClock) -> None:
        self._clock, self._began_ns = clock, clock.now_ns()
        self._last_ns: dict[str, int] = {}

    def note(self, kind: str) -> None:
        """Record a message."""
        self._last_ns[kind] = self._clock.now_ns()

    def age_s(self, kind: str) -> float:
        """Return the time since the last message."""
        return (self._clock.now_ns() - self._last_ns.get(kind, self._began_ns)) / NS_PER_S


def _with_send_timeout(routes: Any, settings: ExtenderSettings, metrics: Metrics) -> Any:  # noqa: ANN401 - ASGI's
    async def serve_with_timeout(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's
        async def answer(message: Any) -> None:  # noqa: ANN401 - ASGI's
            await send_in_time(scope, send, message, settings.limits.send_s, metrics.slow.inc)

        await routes(scope, receive, answer)

    return serve_with_timeout


def _token(file: Path) -> str:
    try:
        token = read_given_text(file, SECRET_BYTES, encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SchedulerError(f"token_file: {file}: {getattr(error, 'strerror', None) or 'is not ASCII'}") from None
    if len(token) < _LEAST_TOKEN:
        raise SchedulerError(
            f"token_file: {file}: a token of {len(token)} characters is too short; at least {_LEAST_TOKEN}"
        )
    return token


def _files(tls: TlsSettings) -> TlsFiles:
    ca = None if tls.client_ca is None else Path(tls.client_ca)
    return TlsFiles(Path(tls.certificate), Path(tls.private_key), ca)


def _context(files: TlsFiles) -> ssl.SSLContext:
    context = server_context(files)
    check_current(files.certificate)
    return context


async def _keep_certificate(files: TlsFiles, context: ssl.SSLContext, interval_s: float) -> None:
    """Reload the certificates whenever their files change, as Kubernetes does with those of a Secret."""
    used, reported = _versions(files), ""
    while True:
        await asyncio.sleep(interval_s)
        if (now := _versions(files)) == used:
            continue
        try:
            check_current(files.certificate)
            load_into(context, files)
        except MillraceError as error:
            if str(error) != reported:
                reported = str(error)
                LOGGER.warning("reload failed; keeping the previous certificate: %s", reported)
            continue
        used, reported = now, ""
        LOGGER.info("certificate %s is in use", files.certificate)


def _versions(files: TlsFiles) -> tuple[tuple[int, int], ...]:
    """Return a value that changes when one of the files does; missing files are ignored."""
    versions = []
    for file in (files.certificate, files.private_key, files.client_ca):
        with suppress(OSError):
            if file is not None:
                about = file.stat()
                versions.append((about.st_mtime_ns, about.st_ino))
    return tuple(versions)


def _url(settings: ExtenderSettings, address: str) -> str:
    return address if is_unix(address) else f"{'http' if settings.tls is None else 'https'}://{address}"


async def _serve(settings: ExtenderSettings, lifecycle: Lifecycle[ExtenderSettings]) -> None:
    await serve(settings, lifecycle.stop, lifecycle.ready)


DAEMON: Final = Daemon("extender", ExtenderSettings, _serve)
load_settings: Final = DAEMON.load_settings
