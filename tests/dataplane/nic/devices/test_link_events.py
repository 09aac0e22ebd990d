"""Devices that change: kernel events, and their states."""

from __future__ import annotations

import select
from collections.abc import Iterator

import pytest
from pyroute2 import IPRoute

from dataplane.errors import PortError
from dataplane.fabric.kernel import namespaces
from dataplane.nic import LinkStatus
from dataplane.nic.devices import ethernet
from dataplane.nic.devices.device import DeviceWatch, find_device
from dataplane.nic.devices.link_events import LinkEvents
from tests.network_namespace import network_namespace

pytestmark = pytest.mark.root
DEADLINE_MS = 20_000


@pytest.fixture
def namespace() -> Iterator[str]:
    """A namespace with a cable here-there, both ends up."""
    with network_namespace(("here", "there")) as name:
        yield name


def until(events: LinkEvents, watch: DeviceWatch, status: LinkStatus) -> None:
    """Wait for news until a device is in this state."""
    waiting = select.poll()
    waiting.register(events.fileno(), select.POLLIN)
    while watch.link_status is not status:
        assert waiting.poll(DEADLINE_MS), f"no news, and it is {watch.link_status}"
        events.take()


def speed_bps(watch: DeviceWatch) -> int | None:
    return watch.speed_bps


def test_each_loss_of_a_device_is_reported_by_its_status(namespace: str) -> None:
    events, watch = namespaces.call(namespace, lambda: (LinkEvents(), DeviceWatch("here", find_device("here").index)))
    until(events, watch, LinkStatus.UP)
    assert speed_bps(watch) == 10_000_000_000
    for device, is_up, status in (
        ("here", False, LinkStatus.DOWN),
        ("here", True, LinkStatus.UP),
        ("there", False, LinkStatus.NO_CARRIER),
        ("there", True, LinkStatus.UP),
    ):
        namespaces.call(namespace, lambda device=device, is_up=is_up: ethernet.set_up(device, is_up=is_up))  # type: ignore[misc]
        until(events, watch, status)
    namespaces.call(namespace, _remove)
    until(events, watch, LinkStatus.GONE)
    assert speed_bps(watch) is None
    while events.take():
        pass
    assert not events.take()
    events.close()
    watch.close()


def _remove() -> None:
    with IPRoute() as netlink:
        netlink.link("del", index=netlink.link_lookup(ifname="here")[0])


def test_a_subscription_that_can_no_longer_be_read_is_an_error() -> None:
    events = LinkEvents()
    events.close()
    with pytest.raises(PortError, match=r"^device changes cannot be watched: Bad file descriptor$"):
        events.take()
