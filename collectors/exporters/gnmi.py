"""Interface counters of OpenConfig devices, from gNMI notifications to figures of links; no session and no clock."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from finsy.gnmipath import GNMIPath
from finsy.proto import gnmi

from collectors.errors import CollectorError
from collectors.exporters.links import PortCounters
from collectors.exporters.settings import GnmiDeviceSettings
from dataplane.topology.values import Topology

_COUNTERS: Final = "interfaces/interface[name=*]/state/counters"
_NUMBERS: Final = ("interfaces/interface[name=*]/state/id", "interfaces/interface[name=*]/state/ifindex")
_STATE: Final = "interfaces/interface/state/"
_WANTED: Final = {"counters/in-octets", "counters/out-octets"}
_PACKETS: Final = ("unicast-pkts", "multicast-pkts", "broadcast-pkts")
_DEEPEST: Final = 16
"""Deeper JSON is no counter."""


def subscription(interval_ns: int, encoding: gnmi.Encoding.ValueType, *, with_numbers: bool) -> gnmi.SubscribeRequest:
    """Return the subscription to interfaces' counters, and to their numbers."""
    paths = (_COUNTERS, *(_NUMBERS if with_numbers else ()))
    sampled = gnmi.SubscriptionMode.SAMPLE
    wanted = [gnmi.Subscription(path=GNMIPath(path).path, mode=sampled, sample_interval=interval_ns) for path in paths]
    return gnmi.SubscribeRequest(subscribe=gnmi.SubscriptionList(subscription=wanted, encoding=encoding))


def encoding_of(capabilities: gnmi.CapabilityResponse) -> gnmi.Encoding.ValueType:
    """Return the encoding to ask for: plain values where the server has them, else JSON."""
    if gnmi.Encoding.PROTO in capabilities.supported_encodings:
        return gnmi.Encoding.PROTO
    return gnmi.Encoding.JSON_IETF


@dataclass(slots=True)
class _Interface:
    """Newest values of an interface by leaf, the device's time of the newest octets, and whether these are new.

    `is_arriving` says that more may belong to the same reading.
    """

    values: dict[str, int] = field(default_factory=dict)
    device_ns: int = 0
    is_new: bool = False
    is_arriving: bool = False


class InterfaceMirror:
    """Interfaces of one device, as its notifications have them."""

    def __init__(self, ports: Mapping[str, int] | None) -> None:
        """`ports` are those of interfaces by name; None: interfaces tell their own."""
        self._ports = ports
        self._interfaces: dict[str, _Interface] = {}
        self.has_counted = False
        """True once octets have come."""

    def take(self, notification: gnmi.Notification) -> None:
        """Take a notification; values that are not of interfaces, or no numbers, are passed over."""
        for update in notification.update:
            name, leaf = _place(notification.prefix, update.path)
            for under, value in _numbers(update.val):
                path = f"{leaf}/{under}" if under else leaf
                if name and path.startswith(_STATE):
                    self._note(name, path.removeprefix(_STATE), value, notification.timestamp)

    def _note(self, name: str, leaf: str, value: int, time_ns: int) -> None:
        interface = self._interfaces.setdefault(name, _Interface())
        interface.values[leaf] = value
        interface.is_arriving = True
        if leaf.endswith("-octets"):
            interface.device_ns, interface.is_new = time_ns, True
            self.has_counted = True

    def take_readings(self) -> Iterator[tuple[int, PortCounters]]:
        """Yield the new counters of ports, once nothing has come since the last call.

        A server may send each leaf in a message of its own, which together are one reading.
        """
        for name, interface in self._interfaces.items():
            is_arriving, interface.is_arriving = interface.is_arriving, False
            port, values = self._port(name, interface.values), interface.values
            if is_arriving or not interface.is_new or port is None or not values.keys() >= _WANTED:
                continue
            interface.is_new = False
            yield port, _counters(values, interface.device_ns)

    def _port(self, name: str, values: Mapping[str, int]) -> int | None:
        if self._ports is not None:
            return self._ports.get(name)
        return values.get("id", values.get("ifindex"))


def _counters(values: Mapping[str, int], device_ns: int) -> PortCounters:
    def counter(name: str) -> int:
        return values.get(f"counters/{name}", 0)

    def packets(way: str) -> int:
        total = values.get(f"counters/{way}-pkts")
        return sum(counter(f"{way}-{kind}") for kind in _PACKETS) if total is None else total

    lost = counter("out-discards") + counter("out-errors")
    inward = counter("in-octets"), packets("in"), counter("in-errors")
    return PortCounters(device_ns, *inward, counter("out-octets"), packets("out"), lost)


def _place(prefix: gnmi.Path, path: gnmi.Path) -> tuple[str, str]:
    """Return the interface that a path is of, "" for none, and the path without keys and models."""
    elems = [*prefix.elem, *path.elem]
    name = next((elem.key["name"] for elem in elems if "name" in elem.key), "")
    return name, "/".join(_bare(elem.name) for elem in elems)


def _bare(name: str) -> str:
    """Return a node's name without its model's."""
    return name.rpartition(":")[2]


def _numbers(value: gnmi.TypedValue) -> Iterator[tuple[str, int]]:
    """Yield the numbers of a value by the path below it."""
    kind = value.WhichOneof("value")
    if kind in {"uint_val", "int_val"}:
        yield "", getattr(value, kind)
    elif kind in {"json_val", "json_ietf_val"}:
        try:
            yield from _numbers_in(json.loads(getattr(value, kind)), "", _DEEPEST)
        except (ValueError, RecursionError):  # no JSON: it has no numbers
            return


def _numbers_in(value: object, path: str, depth: int) -> Iterator[tuple[str, int]]:
    if isinstance(value, dict) and depth:
        for name, inner in value.items():
            yield from _numbers_in(inner, f"{path}/{_bare(name)}".lstrip("/"), depth - 1)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield path, value
    elif isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= len(str(1 << 64)):
        yield path, int(value)  # JSON has 64-bit numbers as text (RFC 7951)


def check_devices(topology: Topology, devices: tuple[GnmiDeviceSettings, ...], key: str = "gnmi.devices") -> None:
    """Raise CollectorError, which names `key`, unless each device is a switch of the topology, and none is twice."""
    seen: set[str] = set()
    for number, device in enumerate(devices):
        if device.switch not in topology.switch:
            raise CollectorError(f"{key}[{number}]: there is no switch {device.switch!r} in {topology.name}")
        if device.switch in seen:
            raise CollectorError(f"{key}[{number}]: {device.switch} has a device already")
        seen.add(device.switch)
