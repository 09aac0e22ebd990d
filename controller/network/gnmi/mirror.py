"""A switch's ports from its gNMI notifications, and the settings that bring their hellos to the desired ones.

No session and no clock: the session's owner hands over notifications and sends requests.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final

from finsy.gnmipath import GNMIPath
from finsy.proto import gnmi

from dataplane.errors import SwitchError
from dataplane.switch.ports.states import (
    NS_PER_US,
    Diagnostic,
    HelloSession,
    HelloSettings,
    HelloState,
    OperStatus,
    PortState,
)

Value = str | int | bool

_PATHS: Final = (
    "interfaces/interface[name=*]/state/id",
    "interfaces/interface[name=*]/state/admin-status",
    "interfaces/interface[name=*]/state/oper-status",
    "interfaces/interface[name=*]/state/last-change",
    "interfaces/interface[name=*]/ethernet/state/port-speed",
    "bfd/interfaces/interface[id=*]/config",
    "bfd/interfaces/interface[id=*]/peers/peer[local-discriminator=*]/state",
)

_SPEEDS: Final = {"MB": 10**6, "GB": 10**9}
_DIAGNOSTICS: Final = {diagnostic.value: diagnostic for diagnostic in Diagnostic} | {
    "DETECTION_TIMEOUT": Diagnostic.CONTROL_DETECTION_EXPIRED,
    "NEIGHBOR_DOWN": Diagnostic.NEIGHBOR_SIGNALED_DOWN,
}

_OPERS: Final = {status.value: status for status in OperStatus}
_HELLO_STATES: Final = {state.value: state for state in HelloState}

_STATE: Final = "interfaces/interface/state/"
_SPEED: Final = "interfaces/interface/ethernet/state/port-speed"
_CONFIG: Final = "bfd/interfaces/interface/config/"
_PEER: Final = "bfd/interfaces/interface/peers/peer/state/"


def subscription() -> gnmi.SubscribeRequest:
    """Return the subscription to all that a mirror needs: the current state, and each change."""
    wanted = [gnmi.Subscription(path=_parsed(path), mode=gnmi.SubscriptionMode.ON_CHANGE) for path in _PATHS]
    return gnmi.SubscribeRequest(subscribe=gnmi.SubscriptionList(subscription=wanted, encoding=gnmi.Encoding.PROTO))


@cache
def _parsed(path: str) -> gnmi.Path:
    """Parse a path once: that takes almost a millisecond, and each switch has the same."""
    return GNMIPath(path).path


@dataclass(slots=True)
class _Interface:
    """Reported state of an interface: values by path without keys."""

    values: dict[str, Value] = field(default_factory=dict)
    reported: PortState | None = None
    """Port state derived from the values at the last query."""


class PortMirror:
    """A switch's ports; times are nanoseconds since 1970."""

    def __init__(self) -> None:
        self._interfaces: dict[str, _Interface] = {}

    def take(self, notification: gnmi.Notification) -> list[PortState]:
        """Take a switch's notification; return the ports that have changed, in the order of their numbers.

        Raises SwitchError for an invalid notification.
        """
        touched: set[str] = set()
        for path in notification.delete:
            name, leaf = _interface_leaf(path)
            touched.add(name)
            self._forget(name, leaf)
        for update in notification.update:
            name, leaf = _interface_leaf(update.path)
            touched.add(name)
            self._interfaces.setdefault(name, _Interface()).values[leaf] = _scalar(update.val)
        return self._news(touched)

    def states(self) -> list[PortState]:
        """Return all known ports, in the order of their numbers."""
        reported = [interface.reported for interface in self._interfaces.values() if interface.reported is not None]
        return sorted(reported, key=lambda state: state.port)

    def missing(self, wanted: Mapping[int, HelloSettings | None]) -> list[int]:
        """Return the ports that should send hellos, but do not exist."""
        there = {state.port for state in self.states()}
        return sorted(port for port, settings in wanted.items() if settings is not None and port not in there)

    def corrections(self, wanted: Mapping[int, HelloSettings | None]) -> gnmi.SetRequest | None:
        """Return the request for the desired hellos, None if they are set; other ports are left alone."""
        updates = []
        for name, interface in sorted(self._interfaces.items()):
            if interface.reported is None or interface.reported.port not in wanted:
                continue
            settings = wanted[interface.reported.port]
            if settings != _configured(interface.values):
                path = gnmi.Path(elem=[gnmi.PathElem(name="bfd"), gnmi.PathElem(name="interfaces")])
                path.elem.add(name="interface", key={"id": name})
                path.elem.add(name="config")
                updates.append(gnmi.Update(path=path, val=_config(settings)))
        return gnmi.SetRequest(update=updates) if updates else None

    def _forget(self, name: str, leaf: str) -> None:
        """Forget a leaf, or all below a node."""
        interface = self._interfaces.get(name)
        if interface is not None:
            gone = [path for path in interface.values if path == leaf or path.startswith(f"{leaf}/")]
            for path in gone:
                del interface.values[path]

    def _news(self, names: Iterable[str]) -> list[PortState]:
        news = []
        for name in names:
            interface = self._interfaces.get(name)
            if interface is None:
                continue
            state = _state(name, interface.values)
            if state is None and interface.reported is not None:  # the switch has removed it
                state = replace(interface.reported, oper=OperStatus.NOT_PRESENT, hello=None)
            if state is not None and state != interface.reported:
                interface.reported = state
                news.append(state)
        return sorted(news, key=lambda state: state.port)


def _interface_leaf(path: gnmi.Path) -> tuple[str, str]:
    """Return the interface of a path, and the path without keys."""
    leaf = "/".join(elem.name for elem in path.elem)
    for elem in path.elem:
        if elem.name == "interface" and elem.key:
            return next(iter(elem.key.values())), leaf
    raise SwitchError(f"path without an interface: {leaf[:200]}")


def _scalar(value: gnmi.TypedValue) -> Value:
    kind = value.WhichOneof("value")
    if kind not in {"string_val", "uint_val", "int_val", "bool_val"}:
        raise SwitchError(f"value of type {kind}, expected a scalar")
    scalar: Value = getattr(value, kind)
    return scalar


def _state(name: str, values: Mapping[str, Value]) -> PortState | None:
    """Return a port's state, None until it is reported completely."""
    port, admin, oper = (values.get(_STATE + leaf) for leaf in ("id", "admin-status", "oper-status"))
    if not isinstance(port, int) or admin is None or oper is None:
        return None
    return PortState(
        port=port,
        device=name,
        speed_bps=_speed(values.get(_SPEED)),
        admin_up=admin == "UP",
        oper=_OPERS.get(str(oper), OperStatus.DOWN),
        since_ns=_number(values, f"{_STATE}last-change"),
        hello=_hello(values),
    )


def _hello(values: Mapping[str, Value]) -> HelloSession | None:
    settings = _configured(values)
    if settings is None or f"{_PEER}session-state" not in values:
        return None
    state, remote_state = (
        _HELLO_STATES.get(str(values.get(_PEER + leaf)), HelloState.DOWN)
        for leaf in ("session-state", "remote-session-state")
    )
    diagnostic, remote_diagnostic = (
        _DIAGNOSTICS.get(str(values.get(_PEER + leaf)), Diagnostic.NO_DIAGNOSTIC)
        for leaf in ("local-diagnostic-code", "remote-diagnostic-code")
    )
    return HelloSession(
        settings,
        state,
        diagnostic,
        remote_state,
        remote_diagnostic,
        _discriminator(values, "local-discriminator"),
        _discriminator(values, "remote-discriminator"),
        was_up=values.get(f"{_PEER}was-up") is True,
        since_ns=_number(values, f"{_PEER}last-change"),
        sent=_number(values, f"{_PEER}async/transmitted-packets"),
        received=_number(values, f"{_PEER}async/received-packets"),
    )


def _configured(values: Mapping[str, Value]) -> HelloSettings | None:
    if values.get(f"{_CONFIG}enabled") is not True:
        return None
    default = HelloSettings()
    interval_us = _number(values, f"{_CONFIG}desired-minimum-tx-interval") or default.interval_ns // NS_PER_US
    multiplier = _number(values, f"{_CONFIG}detection-multiplier") or default.multiplier
    return HelloSettings(interval_us * NS_PER_US, multiplier)


def _config(settings: HelloSettings | None) -> gnmi.TypedValue:
    config: dict[str, Value] = {"enabled": settings is not None}
    if settings is not None:
        config["desired-minimum-tx-interval"] = settings.interval_ns // NS_PER_US
        config["detection-multiplier"] = settings.multiplier
    return gnmi.TypedValue(json_ietf_val=json.dumps(config).encode())


def _number(values: Mapping[str, Value], leaf: str) -> int:
    value = values.get(leaf, 0)
    return value if isinstance(value, int) else 0


def _discriminator(values: Mapping[str, Value], leaf: str) -> int:
    text = str(values.get(_PEER + leaf, ""))
    return int(text) if text.isdecimal() else 0


def _speed(value: Value | None) -> int | None:
    """Return the bit/s of `openconfig-if-ethernet:SPEED_2500MB`; None if it names no rate."""
    rate = str(value).rpartition("SPEED_")[2]
    number, unit = rate[:-2], _SPEEDS.get(rate[-2:])
    return int(number) * unit if unit is not None and number.isdecimal() else None
