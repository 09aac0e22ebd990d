"""To what a device is shaped, in a namespace of the test's own."""

from __future__ import annotations

import pytest
from pyroute2 import IPRoute

from collectors.devices.shapers import shaped_rate_bps
from collectors.errors import CollectorError
from dataplane.fabric.kernel import namespaces
from tests.network_namespace import network_namespace


@pytest.mark.root
def test_shaped_rate_is_that_of_the_token_bucket() -> None:
    def shape() -> None:
        with IPRoute() as netlink:
            index = netlink.link_lookup(ifname="v0")[0]
            netlink.tc("add", "tbf", index, 0x10000, rate=2_500_000, burst=32 << 10, limit=1 << 20)

    with network_namespace(("v0", "v1")) as name:
        assert namespaces.call(name, lambda: shaped_rate_bps("v0")) is None
        namespaces.call(name, shape)
        assert namespaces.call(name, lambda: shaped_rate_bps("v0")) == 20_000_000
        assert namespaces.call(name, lambda: shaped_rate_bps("v1")) is None
        with pytest.raises(CollectorError, match="network device v7 does not exist"):
            namespaces.call(name, lambda: shaped_rate_bps("v7"))
