"""A host's link as its node reports it."""

from __future__ import annotations

from collectors.devices.values import InterfaceRates
from controller.api.resources.node import HostLink


def link_of(rates: InterfaceRates | None) -> HostLink | None:
    """Return what a network device's rates say of its link; None where nothing was measured."""
    if rates is None:
        return None
    return HostLink(sent_bps=rates.tx_bps, received_bps=rates.rx_bps, rate_bps=rates.link_rate_bps)
