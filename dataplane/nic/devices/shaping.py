"""Traffic shaping of a device by tc: the rate that all its output is limited to (tc-htb(8), tc-tbf(8))."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

_BITS: Final = 8
_PARAMETERS: Final = {"htb": "TCA_HTB_PARMS", "tbf": "TCA_TBF_PARMS"}


def shaped_rate_bps(device: str) -> int | None:
    """Return the rate in bit/s to which tc limits all that a device sends; None if it does not, or not uniformly.

    Recognised are tbf, and htb with one class.
    """
    try:
        rates = [_rate(parameters) for parameters in _shapers(device)]
    except NetlinkError:
        return None
    return rates[0] * _BITS if len(rates) == 1 else None


def _shapers(device: str) -> Iterator[Mapping[str, int]]:
    """Yield the parameters of whatever limits a device's rate: a discipline or a class."""
    with IPRoute() as netlink:
        for index in netlink.link_lookup(ifname=device):
            for shaper in (*netlink.get_qdiscs(index=index), *netlink.get_classes(index=index)):
                options, name = shaper.get_attr("TCA_OPTIONS"), _PARAMETERS.get(shaper.get_attr("TCA_KIND"))
                parameters = None if options is None or name is None else options.get_attr(name)
                if parameters is not None:
                    yield parameters


def _rate(parameters: Mapping[str, int]) -> int:
    """Return bytes per second; an htb class may borrow up to its ceiling."""
    return max(parameters["rate"], parameters.get("ceil", 0))
