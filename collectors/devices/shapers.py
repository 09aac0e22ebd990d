"""The rate to which a network device is shaped: its link's rate where a queueing discipline allows less.

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
            found = netlink.link_lookup(ifname=interface)
            if not found:
                raise CollectorError(f"network device {interface} does not exist")
            for one in netlink.get_qdiscs(found[0]):
                if one.get_attr("TCA_KIND") == "tbf":
                    return 8 * int(one.get_attr("TCA_OPTIONS").get_attr("TCA_TBF_PARMS")["rate"])
    except (OSError, NetlinkError) as error:
        raise CollectorError(f"network device {interface}: its queueing discipline cannot be read: {error}") from None
    return None
