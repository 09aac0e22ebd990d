"""A gRPC server of ours, the twin of `client`: an address that is free, services of a .proto, limits, health, an end.

Beside our own services it answers grpc.health.v1.Health and gRPC's reflection, so that tools that have never seen a
.proto of ours can ask. With TLS what a call needs is checked (dataplane/rpc/access). Without it whoever can connect may
do everything: at a UNIX socket, which is its user's alone, on loopback, and at addresses that say they are plain.
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
"""How long answers that are being made may take once the server stops; streams end at once."""

_OTHERS: Final = 0o177
_UMASK: Final = threading.Lock()
"""The umask is the process's: of two servers that listen at a time, one must not keep the other's."""


class RpcServer:
    """Serves services at one address; construct and use it inside a running event loop.

    `purpose` is what an error begins with ("cannot serve the feed"), `error` its type; it is raised for an address that
    cannot be had, or that others can reach without `tls`, before anything runs; ConfigError or AccessError for files
    of TLS. `address` is the one that is served, with the port where 0 was asked for. A client that is silent for
    `keepalive_ms` is asked, and its connection closed when it takes as long to answer.
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
        needs = {f"/{one.descriptor.full_name}/{name}": need for one in services for name, need in one.needs.items()}
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
        """Begin to serve."""
        await self._health.begin()
        await self._server.start()

    async def stop(self) -> None:
        """End every stream, let calls that have begun end within `GRACE_S`, and serve no more."""
        await self._health.end()
        self._streams.end()
        await self._server.stop(GRACE_S)


class ServedHealth:
    """Has a server answer grpc.health.v1 and gRPC's reflection for services of these names."""

    def __init__(self, server: grpc.aio.Server, names: Sequence[str]) -> None:
        self._names = ("", *names)
        self._servicer = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)
        reflection.enable_server_reflection((*names, health.SERVICE_NAME, reflection.SERVICE_NAME), server)

    async def begin(self) -> None:
        """Say of each service, and of the server ("" to those who ask), that it serves."""
        for name in self._names:
            await self._servicer.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def end(self) -> None:
        """Say of each that it serves no more, whatever else is said."""
        await self._servicer.enter_graceful_shutdown()


def guards_of(files: TlsFiles | None, needs: Mapping[str, Permission], unmarked: Principal | None = None) -> list[Any]:
    """Return what a server over TLS has in front of each call; nothing without TLS.

    `unmarked` is who shows a certificate without a role of ours; None: he is refused.
    """
    if files is None or (files.client_ca is None and files.tokens is None):
        return []
    from dataplane.rpc.access.guard import Guard, callers_of  # noqa: PLC0415 - takes a while to load

    return [Guard(callers_of(files, unmarked), needs)]


def bind(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None = None) -> int:
    """Have a server listen; return the port. A socket is its user's alone."""
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
