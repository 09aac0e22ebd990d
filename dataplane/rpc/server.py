"""Our gRPC server, the counterpart of `client`: a free address, services of a .proto, limits, health, shutdown.

Besides our own services it answers grpc.health.v1.Health and gRPC's reflection, so that generic tools without our
.proto files can query it. With TLS the permissions of each call are checked (dataplane/rpc/access). Without it anyone
who can connect may do everything: at a UNIX socket, which only its user can open, on loopback, and at addresses
marked as plain.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from dataplane.errors import MillraceError
from dataplane.rpc.access.permissions import Permission
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.access.tls import TlsFiles, files_of, server_credentials
from dataplane.rpc.access.values import Principal
from dataplane.rpc.addresses import exposed, is_plain, is_unix, target_of, unavailable
from dataplane.rpc.admission import Admission
from dataplane.rpc.limits import Limits
from dataplane.rpc.options import KEEPALIVE_MS, server_options
from dataplane.rpc.service import Service, Streams, handlers_of

GRACE_S: Final = 0.5
"""Time that unary calls in progress have to finish once the server stops; streams end at once."""

_OTHERS: Final = 0o177
_UMASK: Final = threading.Lock()
"""The umask belongs to the process: of two servers that bind at once, one must not keep the other's."""


class RpcServer:
    """Serves services at one address; construct and use it inside a running event loop.

    `purpose` is the beginning of its errors ("cannot serve the feed"), `error` their type. It is raised, before
    anything runs, for an address that cannot be bound, or that others can reach without `tls`; ConfigError or
    AccessError for TLS files. `address` is the bound one, with the actual port if 0 was requested. A client that is
    silent for `keepalive_ms` is probed, and disconnected if it takes as long to answer.
    """

    def __init__(
        self,
        address: str,
        services: Sequence[Service],
        *,
        purpose: str,
        error: Callable[[str], MillraceError],
        limits: Limits | None = None,
        keepalive_ms: int = KEEPALIVE_MS,
        tls: TlsSettings | None = None,
    ) -> None:
        problem = unavailable(address) or exposed(address, has_tls=tls is not None)
        if problem is not None:
            raise error(f"{purpose} at {address}: {problem}")
        limits = limits or Limits()
        files = None if tls is None or is_unix(address) or is_plain(address) else files_of(tls)
        needs = {
            f"/{service.descriptor.full_name}/{name}": need
            for service in services
            for name, need in service.needs.items()
        }
        self._server = grpc.aio.server(
            options=server_options(limits, keepalive_ms),
            maximum_concurrent_rpcs=limits.calls,
            interceptors=[*guards_of(files, needs), Admission(limits.request_bytes, limits.pending_bytes)],
        )
        self._streams = Streams(limits)
        self._server.add_generic_rpc_handlers(tuple(handlers_of(service, self._streams) for service in services))
        self._health = ServedHealth(self._server, [service.descriptor.full_name for service in services])
        try:
            port = bind(self._server, address, None if files is None else server_credentials(files))
        except (RuntimeError, OSError) as problem_found:
            raise error(f"{purpose} at {address}: {problem_found}") from problem_found
        self.address = address if is_unix(address) else f"{address.rpartition(':')[0]}:{port}"

    async def start(self) -> None:
        """Start serving."""
        await self._health.begin()
        await self._server.start()

    async def report_serving(self, *, ready: bool) -> None:
        """Report the services to grpc.health.v1 as serving, or not while they stand by; the server itself stays so."""
        await self._health.report(ready=ready)

    async def stop(self) -> None:
        """End every stream, give running calls `GRACE_S` to finish, and stop serving."""
        await self._health.end()
        self._streams.end()
        await self._server.stop(GRACE_S)


class ServedHealth:
    """Answers grpc.health.v1 and gRPC's reflection for the services with these names."""

    def __init__(self, server: grpc.aio.Server, names: Sequence[str]) -> None:
        self._names = ("", *names)
        self._servicer = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)
        reflection.enable_server_reflection((*names, health.SERVICE_NAME, reflection.SERVICE_NAME), server)

    async def begin(self) -> None:
        """Report each service, and the server itself (""), as serving."""
        for name in self._names:
            await self._servicer.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def report(self, *, ready: bool) -> None:
        """Report the services as serving or not."""
        status = health_pb2.HealthCheckResponse
        for name in self._names[1:]:
            await self._servicer.set(name, status.SERVING if ready else status.NOT_SERVING)

    async def end(self) -> None:
        """Report each as not serving, permanently."""
        await self._servicer.enter_graceful_shutdown()


def guards_of(files: TlsFiles | None, needs: Mapping[str, Permission], unmarked: Principal | None = None) -> list[Any]:
    """Return the interceptors of a server over TLS; none without TLS.

    `unmarked` is the principal for a certificate without one of our roles; None: refuse it.
    """
    if files is None or (files.client_ca is None and files.tokens is None):
        return []
    from dataplane.rpc.access.guard import Guard, callers_of  # noqa: PLC0415 - takes a while to load

    return [Guard(callers_of(files, unmarked), needs)]


def bind(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None = None) -> int:
    """Bind a server to an address; return the port. A socket is accessible only to its user."""
    if not is_unix(address):
        return _listening(server, target_of(address), credentials)
    with _UMASK:
        mask = os.umask(_OTHERS)
        try:
            return _listening(server, address, credentials)
        finally:
            os.umask(mask)


def _listening(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> int:
    if credentials is None:
        return server.add_insecure_port(address)
    return server.add_secure_port(address, credentials)
