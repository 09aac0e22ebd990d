"""A device's own report of its state, expressed as port states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dataplane.nic import LinkStatus, Port
from dataplane.switch.ports.states import OperStatus, PortState
from dataplane.switch.traffic import PortSettings

OPER_STATUS = {
    LinkStatus.UP: OperStatus.UP,
    LinkStatus.DOWN: OperStatus.DOWN,
    LinkStatus.NO_CARRIER: OperStatus.LOWER_LAYER_DOWN,
    LinkStatus.GONE: OperStatus.NOT_PRESENT,
}


def first_states(ports: Iterable[PortSettings], devices: Mapping[int, Port], now_ns: int) -> list[PortState]:
    """Return the initial states of ports; a port without a device is up."""
    states = []
    for port in ports:
        device = devices.get(port.number)
        name = str(port.number) if device is None else device.name
        speed_bps = port.rate_bps or (None if device is None else device.speed_bps)
        states.append(PortState(port.number, name, speed_bps, since_ns=now_ns))
    return states


def read_oper(port: Port) -> OperStatus:
    """Return the current state of a port's device."""
    return OPER_STATUS[port.link_status]
