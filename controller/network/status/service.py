"""The controller's gRPC service, and its client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from controller.common.errors import ControllerError
from controller.network.status import controller_pb2 as pb
from controller.network.status.values import ControllerStatus
from dataplane.config import Strict
from dataplane.rpc.access.permissions import Permission
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.client import Peer, ServiceClient
from dataplane.rpc.own_folder import default_address
from dataplane.rpc.server import RpcServer
from dataplane.rpc.service import Service
from dataplane.rpc.values import Mirror

STATUS: Final = Mirror(ControllerStatus, pb.Status)
ADDRESS: Final = default_address("controller")
"""Default address of the controller's clients."""
_DESCRIPTOR: Final = pb.DESCRIPTOR.services_by_name["Controller"]
_PEER: Final = Peer(_DESCRIPTOR.full_name, "controller", ControllerError)
_TIMEOUT_S: Final = 5.0


class StatusServer:
    """Serves the result of `read`; construct and use it inside a running event loop."""

    def __init__(self, address: str, read: Callable[[], ControllerStatus], tls: TlsSettings | None = None) -> None:
        """Raise ControllerError for an unusable address."""
        self._read = read
        service = Service(_DESCRIPTOR, {"GetStatus": self._get_status}, {"GetStatus": Permission.READ})
        self._server = RpcServer(address, [service], purpose="cannot serve the status", error=ControllerError, tls=tls)
        self.address = self._server.address

    async def start(self) -> None:
        """Start serving."""
        await self._server.start()

    async def stop(self) -> None:
        """Stop serving."""
        await self._server.stop()

    async def _get_status(self, _request: pb.GetStatusRequest) -> pb.Status:
        return STATUS.message(self._read())


class ControllerClientSettings(Strict, frozen=True):
    """Settings of a controller client."""

    address: str = ADDRESS
    """Its gRPC address: unix:PATH, HOST:PORT or plain:HOST:PORT."""
    tls: TlsSettings | None = None
    """Certificates for HOST:PORT; null: those that the environment names."""
    first_wait_ns: int = 100_000_000
    """Wait before the first retry of a connection."""
    longest_wait_ns: int = 1_000_000_000
    """Waits grow no longer than this."""


class ControllerClient(ServiceClient):
    """Client of a controller; use it as an async context manager."""

    def __init__(self, settings: ControllerClientSettings) -> None:
        super().__init__(_PEER, settings, timeout_s=_TIMEOUT_S)

    async def status(self) -> ControllerStatus:
        """Return its status; raise ControllerError when it cannot be reached."""
        with self._decoding():
            return STATUS.value(await self._ask("GetStatus", pb.GetStatusRequest(), pb.Status))
