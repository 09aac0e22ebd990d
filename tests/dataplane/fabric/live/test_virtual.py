"""A long-running virtual fabric: gRPC services, reports to a socket, restarts on the same sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest
from finsy.proto import gnmi, gnmi_grpc, p4r, p4r_grpc

from dataplane.errors import ConfigError, FabricError, SwitchError
from dataplane.fabric.live.process import run
from dataplane.fabric.live.reports import ReportRelay
from dataplane.fabric.live.settings import FabricSettings
from dataplane.fabric.live.stats import make_folder, read_stats, switch_socket
from dataplane.fabric.live.values import FabricCounters, ReportCounters
from dataplane.fabric.live.virtual import LiveVirtualFabric
from dataplane.topology.addressing import report_source
from dataplane.topology.families import leaf_spine
from tests.waiting import until

TOPOLOGY = leaf_spine(1, 2, 1)


@pytest.fixture
def settings(tmp_path: Path) -> FabricSettings:
    demands = tmp_path / "demands.csv"
    demands.write_text("bit/s,h1,h2\nh1,0,4000000\nh2,0,0\n", encoding="utf-8")
    return FabricSettings(
        topology="leaf-spine",
        switches=str(tmp_path / "switches"),
        demands=str(demands),
        scale=2.0,
        stats_file=str(tmp_path / "stats.json"),
    )


@asynccontextmanager
async def running(settings: FabricSettings) -> AsyncIterator[LiveVirtualFabric]:
    make_folder(settings)
    fabric, ready = LiveVirtualFabric(settings, TOPOLOGY), asyncio.Event()
    task = asyncio.create_task(fabric.run(ready.set))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    try:
        if task.done():
            task.result()
        yield fabric
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_switches_answer_and_hosts_send(settings: FabricSettings) -> None:
    async def use() -> FabricCounters:
        async with running(settings) as fabric:
            for node in TOPOLOGY.switches:
                async with grpc.aio.insecure_channel(f"unix:{switch_socket(settings, node.name)}") as channel:
                    answer = await p4r_grpc.P4RuntimeStub(channel).Capabilities(p4r.CapabilitiesRequest())
                    assert answer.p4runtime_api_version.startswith("1.")
                    got = await gnmi_grpc.gNMIStub(channel).Get(gnmi.GetRequest(path=[gnmi.Path()]))
                    assert got.notification
            families = {family.name: family.samples for family in fabric.families()}
            ports = families["millrace_switch_port_up"]
            assert {sample.labels["switch"] for sample in ports} == {node.name for node in TOPOLOGY.switches}
            assert families["millrace_fabric_switches"][0].value == len(TOPOLOGY.switches)
            await until(lambda: fabric.counters.traffic.sent >= 3)
        assert settings.stats_file is not None
        assert read_stats(Path(settings.stats_file)).switches == len(TOPOLOGY.switches)
        return fabric.counters

    counters = asyncio.run(use())
    assert counters.pace.events > 0
    # Its sockets are free again.
    assert asyncio.run(use()).traffic.sent >= 3


def test_a_socket_that_is_taken_is_one_line(settings: FabricSettings) -> None:
    async def twice() -> None:
        async with running(settings), running(settings):
            pytest.fail("two fabrics listen at one address")

    with pytest.raises(ExceptionGroup) as failed:
        asyncio.run(twice())
    assert all(isinstance(error, SwitchError) for error in failed.value.exceptions)
    assert "another process listens there" in str(failed.value.exceptions[0])


def test_reports_are_relayed_and_refused_ones_counted() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as collector:
        collector.bind(("127.0.0.1", 0))
        counters = ReportCounters()
        relay = ReportRelay(TOPOLOGY, f"127.0.0.1:{collector.getsockname()[1]}", counters)
        node = TOPOLOGY.switches[0]
        report = b"\x20\0\0\0" + node.node_id.to_bytes(4, "big")
        relay.forward(report, report_source(node))
        assert collector.recv(100) == report
        collector.close()
        for _ in range(3):
            relay.forward(report, report_source(node))
        relay.close()
    # Linux reports the missing listener at the next call.
    assert counters.forwarded + counters.refused == 4
    assert counters.refused >= 1


def test_reports_from_a_foreign_source_are_not_relayed() -> None:
    switch, other = TOPOLOGY.switches[:2]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as collector:
        collector.bind(("127.0.0.1", 0))
        collector.settimeout(10)
        counters = ReportCounters()
        relay = ReportRelay(TOPOLOGY, f"127.0.0.1:{collector.getsockname()[1]}", counters)
        report, unknown = (b"\x20\0\0\0" + number.to_bytes(4, "big") for number in (switch.node_id, 0xFFFF_FFFF))
        for source in (report_source(other), TOPOLOGY.hosts[0].ipv4):
            relay.forward(report, source)
        relay.forward(unknown, report_source(switch))
        relay.forward(report[:7], report_source(switch))
        relay.forward(report, report_source(switch))
        assert collector.recv(100) == report
        relay.close()
    assert (counters.forged, counters.forwarded) == (4, 1)


@pytest.mark.parametrize("address", ["collector", "127.0.0.1:x", "no.such.host.invalid:1"])
def test_an_address_that_is_none_is_one_line(address: str) -> None:
    with pytest.raises(FabricError, match="reports to"):
        ReportRelay(TOPOLOGY, address, ReportCounters())


def test_settings_that_cannot_be_are_one_line(settings: FabricSettings, tmp_path: Path) -> None:
    demands = tmp_path / "bad.csv"
    demands.write_text("bit/s,h1,h99\nh1,0,1\nh99,0,0\n", encoding="utf-8")
    file = tmp_path / "fabric.yaml"
    file.write_text(f"topology: leaf-spine\nswitches: {settings.switches}\ndemands: {demands}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"bad.csv:1: h99: is not in the topology"):
        run(file, lambda _: None)
    (tmp_path / "file").write_text("", encoding="utf-8")
    file.write_text(f"topology: leaf-spine\nswitches: {tmp_path / 'file' / 'x'}\n", encoding="utf-8")
    with pytest.raises(FabricError, match="switches: "):
        run(file, lambda _: None)
