"""Queries to one switch about its ports, by gNMI: for users at a terminal, independent of the controller."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import grpc.aio
from finsy.gnmipath import GNMIPath
from finsy.proto import gnmi, gnmi_grpc

from controller.common.errors import ControllerError, UnservedError
from controller.network.gnmi.grpc_session import open_channel
from controller.network.gnmi.mirror import PortMirror, subscription
from dataplane.errors import AccessError, ConfigError, SwitchError
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.call_errors import reason_of
from dataplane.rpc.channels import uncallable
from dataplane.switch.ports.states import PortState

TIMEOUT_S: Final = 10.0
_Read = Callable[[], Awaitable[object]]


async def read_ports(address: str, tls: TlsSettings | None = None) -> list[PortState]:
    """Return a switch's ports as they are; raise ControllerError."""
    async with _mirrored(address, tls) as (mirror, _):
        return mirror.states()


async def watch_ports(address: str, tls: TlsSettings | None = None) -> AsyncIterator[PortState]:
    """Yield each port's current state, then each change until the switch ends it; raise ControllerError."""
    async with _mirrored(address, tls) as (mirror, more):
        for state in mirror.states():
            yield state
        with _failures(address):
            while isinstance(message := await more(), gnmi.SubscribeResponse):
                for state in mirror.take(message.update):
                    yield state
    raise ControllerError(f"switch at {address}: it ended the subscription")


async def set_port(address: str, name: str, *, up: bool, tls: TlsSettings | None = None) -> None:
    """Take a port out of use or back into it, by the name of its device; raise ControllerError."""
    path = gnmi.Path(elem=[gnmi.PathElem(name="interfaces"), gnmi.PathElem(name="interface", key={"name": name})])
    path.elem.extend(GNMIPath("config").path.elem)
    value = gnmi.TypedValue(json_ietf_val=json.dumps({"enabled": up}).encode())
    with _failures(address):
        async with _connected(address, tls) as stub:
            await stub.Set(gnmi.SetRequest(update=[gnmi.Update(path=path, val=value)]), timeout=TIMEOUT_S)


async def read_counts(address: str, tls: TlsSettings | None = None) -> dict[str, dict[str, int]]:
    """Return the counters of each port by the name of its device, as OpenConfig names them; raise ControllerError."""
    path = GNMIPath("interfaces/interface[name=*]/state/counters").path
    request = gnmi.GetRequest(path=[path], encoding=gnmi.Encoding.PROTO)
    counts: dict[str, dict[str, int]] = {}
    with _failures(address):
        async with _connected(address, tls) as stub:
            answer = await stub.Get(request, timeout=TIMEOUT_S)
    for update in (update for notification in answer.notification for update in notification.update):
        device, counter = update.path.elem[1].key["name"], update.path.elem[-1].name
        counts.setdefault(device, {})[counter] = update.val.uint_val
    return counts


async def read_not_joined(address: str, tls: TlsSettings | None = None) -> dict[str, str]:
    """Return why ports do not join TCP segments, "" if they do, by the names of their devices.

    Ports that cannot are left out, as are all of a switch that does not support the query. Raises ControllerError.
    """
    path = GNMIPath("interfaces/interface[name=*]/state/not-joined").path
    request = gnmi.GetRequest(path=[path], encoding=gnmi.Encoding.PROTO)
    try:
        with _failures(address):
            async with _connected(address, tls) as stub:
                answer = await stub.Get(request, timeout=TIMEOUT_S)
    except UnservedError:
        return {}
    updates = [update for notification in answer.notification for update in notification.update]
    return {update.path.elem[1].key["name"]: update.val.string_val for update in updates}


@asynccontextmanager
async def _connected(address: str, tls: TlsSettings | None) -> AsyncIterator[gnmi_grpc.gNMIAsyncStub]:
    problem = uncallable(address, tls)
    if problem is not None:
        raise ControllerError(f"switch at {address!r}: {problem}")
    async with open_channel(address, tls) as channel:
        stub = gnmi_grpc.gNMIStub(channel)
        await stub.Capabilities(gnmi.CapabilityRequest(), timeout=TIMEOUT_S)
        yield stub


@asynccontextmanager
async def _mirrored(address: str, tls: TlsSettings | None) -> AsyncIterator[tuple[PortMirror, _Read]]:
    """Yield the mirror of a switch's ports once it is complete, and a function that continues reading."""
    mirror = PortMirror()
    with _failures(address):
        async with _connected(address, tls) as stub:
            stream = stub.Subscribe()  # type: ignore[call-arg]  # the stubs insist on an iterator
            await stream.write(subscription())
            async with asyncio.timeout(TIMEOUT_S):
                while isinstance(message := await stream.read(), gnmi.SubscribeResponse):
                    mirror.take(message.update)
                    if message.sync_response:
                        break
            yield mirror, stream.read


@contextmanager
def _failures(address: str) -> Iterator[None]:
    """Turn any failure of a call into a ControllerError of one line."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            raise UnservedError(f"switch at {address}: it does not serve gNMI") from error
        raise ControllerError(f"switch at {address}: {reason_of(error)}") from error
    except TimeoutError as error:
        raise ControllerError(f"switch at {address}: no answer within {TIMEOUT_S:g} s") from error
    except SwitchError as error:
        raise ControllerError(f"switch at {address}: {error}") from error
    except (OSError, ValueError, ConfigError, AccessError) as error:
        raise ControllerError(f"switch at {address}: TLS: {error}") from error
