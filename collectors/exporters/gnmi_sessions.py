"""gNMI subscriptions to devices' interface counters: one stream each, opened again whenever it ends."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Final

import grpc
import grpc.aio
from finsy.proto import gnmi, gnmi_grpc

from collectors.collector import Collector
from collectors.errors import CollectorError
from collectors.exporters.gnmi import InterfaceMirror, check_devices, encoding_of, subscription
from collectors.exporters.links import ExportedLinks
from collectors.exporters.settings import GnmiDeviceSettings, GnmiSettings
from collectors.values import LoadSource
from dataplane.clock import NS_PER_S, Clock
from dataplane.errors import AccessError, ConfigError
from dataplane.event_loop.deadlines import loop_timeout
from dataplane.given import read_given
from dataplane.rpc.backoff import Backoff
from dataplane.rpc.call_errors import reason_of
from dataplane.rpc.channels import open_aio_channel, uncallable
from dataplane.rpc.options import foreign_options
from dataplane.running import until_first_ends
from dataplane.topology.values import Endpoint, Topology

LOGGER: Final = logging.getLogger("millrace.collector")

Stream = grpc.aio.StreamStreamCall[gnmi.SubscribeRequest, gnmi.SubscribeResponse]

_FIRST_WAIT_NS: Final = 200_000_000
_LONGEST_WAIT_NS: Final = 10 * NS_PER_S
_PASSWORD_BYTES: Final = 4096
_SETTLES: Final = 8
"""Readings are taken this many times within an interval."""


class GnmiReceiver:
    """Subscribes until cancelled; raises CollectorError for devices that do not fit the topology."""

    def __init__(self, collector: Collector, topology: Topology, settings: GnmiSettings, clock: Clock) -> None:
        check_devices(topology, settings.devices)
        for device in settings.devices:
            problem = uncallable(device.address, device.tls)
            if problem is not None:
                raise CollectorError(f"gnmi: device {device.switch} at {device.address!r}: {problem}")
        self._links = ExportedLinks(topology, LoadSource.GNMI, settings.stale_after_ns)
        self._settings, self._clock = settings, clock
        collector.complete_by(self._links.complete)

    def __str__(self) -> str:
        count = len(self._settings.devices)
        return f"gNMI of {count} device{'s' if count != 1 else ''}"

    async def run(self) -> None:
        """Subscribe until cancelled."""
        async with asyncio.TaskGroup() as group:
            for device in self._settings.devices:
                group.create_task(self._follow(device))

    def close(self) -> None:
        """Release nothing: streams end with `run`."""

    async def _follow(self, device: GnmiDeviceSettings) -> None:
        backoff, told = Backoff(_FIRST_WAIT_NS, _LONGEST_WAIT_NS, random.Random()), ""
        while True:
            mirror = InterfaceMirror(device.interfaces)
            try:
                await self._session(device, mirror)
                problem = "it ended the subscription"
            except grpc.aio.AioRpcError as error:
                problem = reason_of(error)
            except TimeoutError:
                problem = f"nothing for {self._settings.timeout_ns / NS_PER_S:g} s"
            except (AccessError, ConfigError, OSError, UnicodeDecodeError) as error:
                problem = str(error)
            if mirror.has_counted:
                backoff.reset()
                told = ""
            if problem != told:
                LOGGER.warning("gNMI of %s at %s: %s: trying again", device.switch, device.address, problem)
                told = problem
            await asyncio.sleep(backoff.next_s())

    async def _session(self, device: GnmiDeviceSettings, mirror: InterfaceMirror) -> None:
        """Follow a device's counters until its stream ends."""
        timeout_s, metadata = self._settings.timeout_ns / NS_PER_S, _metadata(device)
        async with open_aio_channel(device.address, device.tls, foreign_options()) as channel:
            stub = gnmi_grpc.gNMIStub(channel)
            async with loop_timeout(timeout_s):
                known = await stub.Capabilities(gnmi.CapabilityRequest(), metadata=metadata)
            stream = stub.Subscribe(metadata=metadata)  # type: ignore[call-arg]  # the stubs insist on an iterator
            with_numbers = device.interfaces is None
            await stream.write(subscription(self._settings.interval_ns, encoding_of(known), with_numbers=with_numbers))
            await until_first_ends(self._read(stream, mirror), self._settle(device.switch, mirror))

    async def _read(self, stream: Stream, mirror: InterfaceMirror) -> None:
        silence_s = (self._settings.interval_ns + self._settings.timeout_ns) / NS_PER_S
        while True:
            async with loop_timeout(silence_s):
                message = await stream.read()
            if not isinstance(message, gnmi.SubscribeResponse):
                return
            mirror.take(message.update)

    async def _settle(self, switch: str, mirror: InterfaceMirror) -> None:
        """Pass readings on, a little after they came."""
        while True:
            await asyncio.sleep(self._settings.interval_ns / NS_PER_S / _SETTLES)
            now_ns = self._clock.now_ns()
            for port, counters in mirror.take_readings():
                self._links.take(Endpoint(switch, port), counters, now_ns)


def _metadata(device: GnmiDeviceSettings) -> tuple[tuple[str, str], ...]:
    if device.username is None:
        return ()
    if device.password_file is None:
        return (("username", device.username),)
    password = read_given(device.password_file, _PASSWORD_BYTES).decode().strip()
    return ("username", device.username), ("password", password)
