"""Rate to which a network device is shaped: the rate of its link if a queueing discipline lowers it.

Queried from the kernel by rtnetlink (tc-tbf(8)); a virtual device has no speed, and this rate changes immediately.
"""

from __future__ import annotations

import sys

from collectors.errors import CollectorError


def shaped_rate_bps(interface: str) -> int | None:
    """Return the rate of the token bucket at a device's root, None where it has none; raise CollectorError.

    Of the network namespace that the calling thread is in.
    """
    if sys.platform != "linux":
        return None
    from pyroute2 import IPRoute, NetlinkError  # noqa: PLC0415 - Linux alone has it

    try:
        with IPRoute() as netlink:
            indices = netlink.link_lookup(ifname=interface)
            if not indices:
                raise CollectorError(f"network device {interface} does not exist")
            for qdisc in netlink.get_qdiscs(indices[0]):
                if qdisc.get_attr("TCA_KIND") == "tbf":
                    return 8 * int(qdisc.get_attr("TCA_OPTIONS").get_attr("TCA_TBF_PARMS")["rate"])
    except (OSError, NetlinkError) as error:
        raise CollectorError(f"network device {interface}: its queueing discipline cannot be read: {error}") from None
    return None
