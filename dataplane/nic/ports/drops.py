"""Reasons why frames do not pass a queue of a device, and the queue's counters for them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from dataplane.nic.port import (
    PORT_DOWN,
    RECEIVED_TOO_LONG,
    RECEIVED_TOO_SHORT,
    SEND_QUEUE_FULL,
    SEND_REFUSED,
    SOCKET_FULL,
    TOO_LONG,
)
from dataplane.nic.ports.queue import PortQueue

_MISSED: Final = MappingProxyType(
    {SOCKET_FULL: "rx_dropped", RECEIVED_TOO_LONG: "rx_too_long", RECEIVED_TOO_SHORT: "rx_too_short"}
)
_NOT_SENT: Final = MappingProxyType(
    {SEND_QUEUE_FULL: "tx_full", TOO_LONG: "tx_too_long", SEND_REFUSED: "tx_refused", PORT_DOWN: "tx_down"}
)


def missed(queue: PortQueue) -> dict[str, int]:
    """Return the frames that reached the device but not the driver, by reason."""
    return _read(queue, _MISSED)


def not_sent(queue: PortQueue) -> dict[str, int]:
    """Return the frames for the device that did not leave, by reason."""
    return _read(queue, _NOT_SENT)


def _read(queue: PortQueue, fields: Mapping[str, str]) -> dict[str, int]:
    return {reason: getattr(queue, field) for reason, field in fields.items()}
