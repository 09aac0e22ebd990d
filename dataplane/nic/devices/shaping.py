"""What tc makes of what a device sends: the rate that all of it is shaped to (tc-htb(8), tc-tbf(8))."""

from __future__ import annotations

from typing import Any, Final

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

_BITS: Final = 8


def shaped_rate_bps(device: str) -> int | None:
    """Return the rate in bit/s to which a device's root discipline holds it; None if it does not, or not all alike.

    Those are tbf, and htb with one class.
    """
    try:
        with IPRoute() as netlink:
            found = netlink.link_lookup(ifname=device)
            if not found:
                return None
            rates = [_tbf_rate(one) for one in netlink.get_qdiscs(index=found[0])]
            rates += [_htb_rate(one) for one in netlink.get_classes(index=found[0])]
    except NetlinkError:
        return None
    known = [rate for rate in rates if rate]
    return known[0] * _BITS if len(known) == 1 else None


def _tbf_rate(qdisc: Any) -> int | None:
    parameters = _parameters(qdisc, "tbf", "TCA_TBF_PARMS")
    return None if parameters is None else int(parameters["rate"])


def _htb_rate(found: Any) -> int | None:
    """Return what a class may send at most, as it borrows what others leave."""
    parameters = _parameters(found, "htb", "TCA_HTB_PARMS")
    return None if parameters is None else max(int(parameters["rate"]), int(parameters["ceil"]))


def _parameters(found: Any, kind: str, name: str) -> Any:
    options = found.get_attr("TCA_OPTIONS")
    return options.get_attr(name) if found.get_attr("TCA_KIND") == kind and options is not None else None
