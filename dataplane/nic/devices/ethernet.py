"""State and settings of Ethernet devices: rtnetlink and ethtool netlink through pyroute2.

Everything acts in the network namespace of the calling thread. Whatever a device, its driver or the kernel does not
support raises a PortError that names the device and the setting.
"""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from dataplane.errors import PortError
from dataplane.nic.devices.device import find_link, refusal, request_for
from dataplane.nic.devices.ethtool import EthtoolSocket, explain
from dataplane.nic.run_off_loop import run_off_loop

_RUN_NETNS = Path("/run/netns")
SIOCETHTOOL, _GET_DRIVER = 0x8946, 3
_DRIVER = struct.Struct("=I32s160s")
"""struct ethtool_drvinfo: cmd, driver, fields we ignore. Netlink does not report the driver's name."""
_SIOCSHWTSTAMP = 0x89B0
_STAMP_REQUEST = struct.Struct("=iii")
"""struct hwtstamp_config: flags, kind of transmit stamps, filter of receive stamps."""
_NO_TRANSMIT_STAMPS, _STAMP_ALL_FRAMES = 0, 1
_TX_HARDWARE, _TX_SOFTWARE, _RX_HARDWARE, _RX_SOFTWARE = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_RAW_HARDWARE = 1 << 6


@dataclass(frozen=True, slots=True)
class Channels:
    """Queues of a device: receive, transmit, and combined ones; the `most_` fields are its maximums."""

    rx: int
    tx: int
    combined: int
    most_rx: int
    most_tx: int
    most_combined: int

    @property
    def receive_queues(self) -> int:
        """Return the number of queues that receive."""
        return max(self.rx + self.combined, 1)


@dataclass(frozen=True, slots=True)
class RingSizes:
    """Sizes of a device's own rings, in frames."""

    rx: int
    tx: int
    most_rx: int
    most_tx: int


@dataclass(frozen=True, slots=True)
class Timestamping:
    """Points where a device's frames can be stamped; `clock` is the number of its own (/dev/ptp), None without one."""

    receive_software: bool
    transmit_software: bool
    receive_hardware: bool
    transmit_hardware: bool
    receives_all: bool
    """Its own clock can stamp every incoming frame, not only PTP frames."""
    clock: int | None


@dataclass(frozen=True, slots=True)
class EthernetDevice:
    """Properties read from a device; None where its driver does not report one."""

    name: str
    index: int
    driver: str
    address: str
    mtu: int
    is_up: bool
    has_link: bool
    channels: Channels | None
    rings: RingSizes | None
    features: Mapping[str, bool]
    timestamping: Timestamping
    indirection: tuple[int, ...] | None
    """The queue for each value of a flow's hash."""
    xdp_program: int | None
    """The number of the XDP program on it."""


@run_off_loop
def read_device(interface: str) -> EthernetDevice:
    """Return all known properties of a device; raise PortError if there is none of that name."""
    link = find_link(interface)
    xdp = link.get_attr("IFLA_XDP")
    with EthtoolSocket(interface) as ethtool:
        return EthernetDevice(
            name=interface,
            index=link["index"],
            driver=_read_driver(interface),
            address=link.get_attr("IFLA_ADDRESS") or "",
            mtu=link.get_attr("IFLA_MTU"),
            is_up=bool(link["flags"] & 1),
            has_link=ethtool.has_link(),
            channels=_channels(ethtool.read_channels()),
            rings=_rings(ethtool.read_rings()),
            features=ethtool.read_features(),
            timestamping=_timestamping(*ethtool.read_timestamping()),
            indirection=ethtool.read_indirection(),
            xdp_program=None if xdp is None else xdp.get_attr("IFLA_XDP_PROG_ID"),
        )


def list_devices() -> list[str]:
    """Return the names of the namespace's devices."""
    return sorted(name for _, name in socket.if_nameindex())


@run_off_loop
def read_channels(interface: str) -> Channels | None:
    """Return a device's queues, None if it does not report them: then it has one."""
    with EthtoolSocket(interface) as ethtool:
        return _channels(ethtool.read_channels())


@run_off_loop
def read_timestamping(interface: str) -> Timestamping:
    """Return the points at which a device's frames can be stamped."""
    with EthtoolSocket(interface) as ethtool:
        return _timestamping(*ethtool.read_timestamping())


@run_off_loop
def set_channels(interface: str, *, rx: int | None = None, tx: int | None = None, combined: int | None = None) -> None:
    """Set a device's numbers of queues; None leaves a kind as it is."""
    counts = {"rx_count": rx, "tx_count": tx, "combined_count": combined}
    with EthtoolSocket(interface) as ethtool:
        ethtool.set_channels(_given_settings(interface, "channels", counts))


@run_off_loop
def set_ring(interface: str, *, rx: int | None = None, tx: int | None = None) -> None:
    """Set the sizes of a device's own rings, in frames."""
    with EthtoolSocket(interface) as ethtool:
        ethtool.set_rings(_given_settings(interface, "rings", {"rx": rx, "tx": tx}))


@run_off_loop
def set_features(interface: str, wanted: Mapping[str, bool]) -> None:
    """Switch features (the names of `EthernetDevice.features`) on or off; raise PortError unless all took effect."""
    with EthtoolSocket(interface) as ethtool:
        unknown = sorted(wanted.keys() - ethtool.read_features().keys())
        if unknown:
            raise PortError(f"interface {interface}: this kernel has no feature {', '.join(unknown)}")
        ethtool.set_features(wanted)
        now = ethtool.read_features()
    refused = [f"{name} {'on' if is_on else 'off'}" for name, is_on in wanted.items() if now[name] != is_on]
    if refused:
        raise PortError(f"interface {interface}: its driver cannot switch {', '.join(refused)}")


def set_mtu(interface: str, mtu: int) -> None:
    """Set the maximum number of bytes after a frame's Ethernet header."""
    _set_link(interface, f"an MTU of {mtu}", mtu=mtu)


def set_up(interface: str, *, is_up: bool) -> None:
    """Set a device up or down."""
    _set_link(interface, "up" if is_up else "down", state="up" if is_up else "down")


def move_to_namespace(interface: str, namespace: str) -> None:
    """Move a device, which goes down, into a namespace: a name as `ip netns` knows it, or a path.

    Raises PortError naming the namespace that does not exist, or the device that cannot be moved.
    """
    try:
        descriptor = os.open(_RUN_NETNS / namespace, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise PortError(f"interface {interface}: network namespace {namespace}: {error.strerror}") from error
    try:
        _set_link(interface, f"network namespace {namespace}", net_ns_fd=descriptor)
    finally:
        os.close(descriptor)


def stamp_all_frames(interface: str) -> None:
    """Have the device's own clock stamp every incoming frame; raise PortError if it cannot."""
    if not read_timestamping(interface).receives_all:
        raise PortError(f"interface {interface}: has no clock to stamp frames with: ask for software stamps")
    argument = array.array("B", _STAMP_REQUEST.pack(0, _NO_TRANSMIT_STAMPS, _STAMP_ALL_FRAMES))
    try:
        ask_driver(interface, _SIOCSHWTSTAMP, argument)
    except OSError as error:
        raise refusal(interface, "hardware time stamps", error) from error


@run_off_loop
def _set_link(interface: str, setting: str, **values: object) -> None:
    index = find_link(interface)["index"]
    try:
        with IPRoute(ext_ack=True) as netlink:
            netlink.link("set", index=index, **values)
    except NetlinkError as error:
        raise explain(interface, f"{setting} cannot be set", error) from error
    except OSError as error:
        raise refusal(interface, f"{setting} cannot be set", error) from error


def _given_settings(interface: str, what: str, values: Mapping[str, int | None]) -> dict[str, int]:
    """Return the settings that are not None."""
    given = {name: value for name, value in values.items() if value is not None}
    if not given or any(value < 0 for value in given.values()):
        raise PortError(f"interface {interface}: {what}: give numbers of 0 or more, not {given or 'nothing'}")
    return given


def _read_driver(interface: str) -> str:
    """Return the driver's name, "" for a device that has none."""
    argument = array.array("B", _DRIVER.pack(_GET_DRIVER, b"", b""))
    with suppress(OSError):
        ask_driver(interface, SIOCETHTOOL, argument)
    name: bytes = _DRIVER.unpack(argument.tobytes())[1]
    return name.rstrip(b"\0").decode(errors="replace")


def ask_driver(interface: str, command: int, argument: array.array[int]) -> None:
    """Run an ioctl on a struct that it changes in place; raises OSError."""
    request = struct.pack("16sP", request_for(interface)[:16], argument.buffer_info()[0]).ljust(40, b"\0")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control.fileno(), command, request)


def _channels(read: Mapping[str, int] | None) -> Channels | None:
    if read is None:
        return None
    counts = (read.get(f"{kind}_count", 0) for kind in ("rx", "tx", "combined"))
    return Channels(*counts, *(read.get(f"{kind}_max", 0) for kind in ("rx", "tx", "combined")))


def _rings(read: Mapping[str, int] | None) -> RingSizes | None:
    if read is None:
        return None
    return RingSizes(read.get("rx", 0), read.get("tx", 0), read.get("rx_max", 0), read.get("tx_max", 0))


def _timestamping(what: int, types: int, filters: int, clock: int | None) -> Timestamping:
    raw = bool(what & _RAW_HARDWARE)
    return Timestamping(
        receive_software=bool(what & _RX_SOFTWARE),
        transmit_software=bool(what & _TX_SOFTWARE),
        receive_hardware=raw and bool(what & _RX_HARDWARE),
        transmit_hardware=raw and bool(what & _TX_HARDWARE) and types > 1,
        receives_all=raw and bool(what & _RX_HARDWARE) and bool(filters >> _STAMP_ALL_FRAMES & 1),
        clock=clock,
    )
