"""Interface counters over gNMI: from our own switches' servers, and as other servers send them."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from finsy.gnmipath import GNMIPath
from finsy.proto import gnmi

from collectors.collector import Collector
from collectors.errors import CollectorError
from collectors.exporters.gnmi import InterfaceMirror
from collectors.exporters.gnmi_sessions import GnmiReceiver
from collectors.exporters.links import PortCounters
from collectors.exporters.settings import GnmiDeviceSettings, GnmiSettings
from collectors.values import LinkState, LoadSource
from dataplane.clock import MonotonicClock, VirtualClock
from dataplane.switch.gnmi import GnmiCore, GnmiService
from dataplane.switch.gnmi.core import NO_COUNTERS
from dataplane.switch.p4runtime.core import P4RuntimeCore
from dataplane.switch.p4runtime.server import P4RuntimeServer
from dataplane.switch.ports.states import PortCounters as SwitchCounters
from dataplane.switch.switch import PortSettings, Switch
from dataplane.topology.values import LinkKey
from tests.collectors.reports import build_topology
from tests.dataplane.switch.gnmi.boards import Board
from tests.waiting import HANG_S, finish_within, until

INTERVAL_NS = 100_000_000
KEY = LinkKey("s1", "s2")


def _collector() -> Collector:
    return Collector(build_topology(), MonotonicClock())


def _receiver(collector: Collector, address: str, **more: object) -> GnmiReceiver:
    device = GnmiDeviceSettings("s1", address, **more)  # type: ignore[arg-type]
    settings = GnmiSettings((device,), interval_ns=INTERVAL_NS)
    return GnmiReceiver(collector, build_topology(), settings, MonotonicClock())


class Sending(Board):
    """A board whose second port has sent 1 Mbit more whenever its counters are read, by its clock a millisecond on."""

    def port_counters(self) -> dict[int, SwitchCounters]:
        self.clock.advance_to(self.clock.now_ns() + 1_000_000)
        before = self.counters.get(2, NO_COUNTERS)
        sent = replace(before, tx_frames=before.tx_frames + 100, tx_bytes=before.tx_bytes + 12_500)
        self.counters[2] = sent
        return dict(self.counters)


@pytest.mark.parametrize("interfaces", [None, {"west": 2}])
def test_our_switches_are_read(tmp_path: Path, interfaces: dict[str, int] | None) -> None:
    address, board = f"unix:{tmp_path}/s1.sock", Sending()
    core = P4RuntimeCore(Switch(1, [PortSettings(1)], MonotonicClock()))

    async def scenario() -> LinkState:
        collector = _collector()
        running = asyncio.create_task(_receiver(collector, address, interfaces=interfaces).run())
        try:
            await until(lambda: collector.snapshot().links[KEY].load_source is not None, "no counters came")
            return collector.snapshot().links[KEY]
        finally:
            running.cancel()
            await asyncio.wait([running], timeout=HANG_S)

    gnmi_core = GnmiCore(board, epoch_ns=board.epoch_ns)
    with P4RuntimeServer(core, [address], beside=[GnmiService(gnmi_core)]):
        link = asyncio.run(scenario())
    # 100 kbit within a millisecond of the switch's clock, whenever it was that they came.
    assert (link.load_source, link.utilisation, link.loss) == (LoadSource.GNMI, 0.1, 0.0)


def test_a_device_that_is_away_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    address, board = f"unix:{tmp_path}/s1.sock", Sending()
    core = P4RuntimeCore(Switch(1, [PortSettings(1)], MonotonicClock()))

    async def scenario() -> None:
        collector = _collector()
        running = asyncio.create_task(_receiver(collector, address).run())
        await until(lambda: "trying again" in caplog.text, "not a word about it")
        with P4RuntimeServer(core, [address], beside=[GnmiService(GnmiCore(board, epoch_ns=board.epoch_ns))]):
            await until(lambda: collector.snapshot().links[KEY].load_source is not None, "no counters came")
        caplog.clear()
        await until(lambda: "trying again" in caplog.text, "not a word about its end")
        running.cancel()
        await finish_within(asyncio.wait([running]), HANG_S)

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert f"gNMI of s1 at {address}: " in caplog.text


def _notification(time_ns: int, path: str, value: gnmi.TypedValue) -> gnmi.Notification:
    elems = GNMIPath(path).path.elem
    prefix, rest = gnmi.Path(origin="openconfig", elem=elems[:1]), gnmi.Path(elem=elems[1:])
    return gnmi.Notification(timestamp=time_ns, prefix=prefix, update=[gnmi.Update(path=rest, val=value)])


def test_containers_as_json_are_read() -> None:
    mirror = InterfaceMirror({"Ethernet0": 3})
    counters = {"openconfig-interfaces:counters": {"in-octets": "18446744073709551615", "out-octets": "7"}}
    more = {"in-unicast-pkts": "5", "in-multicast-pkts": "6", "out-pkts": 9, "out-discards": "2", "last-clear": "x"}
    counters["openconfig-interfaces:counters"].update(more)  # type: ignore[arg-type]
    value = gnmi.TypedValue(json_ietf_val=json.dumps(counters).encode())
    mirror.take(_notification(17, "openconfig-interfaces:interfaces/interface[name=Ethernet0]/state", value))
    assert list(mirror.take_readings()) == []
    assert list(mirror.take_readings()) == [(3, PortCounters(17, 2**64 - 1, 11, 0, 7, 9, 2))]
    assert list(mirror.take_readings()) == []


def test_leaves_in_messages_of_their_own_are_one_reading() -> None:
    mirror = InterfaceMirror(None)
    for number, (leaf, value) in enumerate((("ifindex", 4), ("counters/in-octets", 1), ("counters/out-octets", 2))):
        path = f"interfaces/interface[name=eth4]/state/{leaf}"
        mirror.take(_notification(number, path, gnmi.TypedValue(uint_val=value)))
        assert list(mirror.take_readings()) == []
    assert list(mirror.take_readings()) == [(4, PortCounters(2, 1, 0, 0, 2, 0, 0))]


@pytest.mark.parametrize(
    "value",
    [
        gnmi.TypedValue(json_val=b"{"),
        gnmi.TypedValue(json_val=b"[" * 4000),
        gnmi.TypedValue(json_val=b'{"in-octets": "1e9", "out-octets": true}'),
        gnmi.TypedValue(json_val=b'{"in-octets": "' + b"9" * 5000 + b'"}'),
        gnmi.TypedValue(string_val="7"),
        gnmi.TypedValue(),
    ],
)
def test_what_is_no_counter_is_passed_over(value: gnmi.TypedValue) -> None:
    mirror = InterfaceMirror({"eth0": 1})
    mirror.take(_notification(1, "interfaces/interface[name=eth0]/state/counters", value))
    mirror.take_readings()
    assert list(mirror.take_readings()) == []


@pytest.mark.parametrize(
    ("devices", "problem"),
    [
        (("s9",), "gnmi.devices[0]: there is no switch 's9' in triangle"),
        (("s1", "s1"), "gnmi.devices[1]: s1 has a device already"),
    ],
)
def test_wrong_devices_are_refused(devices: tuple[str, ...], problem: str) -> None:
    settings = GnmiSettings(tuple(GnmiDeviceSettings(name, "unix:/s.sock") for name in devices))
    with pytest.raises(CollectorError) as caught:
        GnmiReceiver(_collector(), build_topology(), settings, VirtualClock())
    assert str(caught.value) == problem


def test_an_address_beyond_this_machine_wants_tls() -> None:
    with pytest.raises(CollectorError, match=r"gnmi: device s1 at '192.0.2.1:8080': "):
        _receiver(_collector(), "192.0.2.1:8080")
