"""Packets by our own rings on a device, routed as the kernel knows, and frames not for a worker."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from ipaddress import IPv4Address
from typing import Any

import numpy as np
import pytest

from dataplane.allreduce.checks import check_of_one
from dataplane.allreduce.engine import Engine, EngineSettings, Rings
from dataplane.allreduce.errors import NoResultError
from dataplane.allreduce.next_hop import NextHop, find_next_hop
from dataplane.allreduce.transports import RingTransport
from dataplane.errors import AllReduceError
from dataplane.fabric.kernel import namespaces
from dataplane.nic import PortKind, memory_pair
from dataplane.wire.aggregation import UDP_PORT, Aggregation, Kind, Operation, decode
from dataplane.wire.ipv4 import Ipv4
from dataplane.wire.packet import decode_udp_frame, udp_frame
from tests.dataplane.allreduce.cabling import cabled
from tests.dataplane.allreduce.serving import JOB, Server, Weather

WORKER, SWITCH = "10.77.0.1", "10.77.0.2"
MACS = {WORKER: 0x020000007701, SWITCH: 0x020000007702}


@pytest.fixture(scope="module")
def cable() -> Iterator[dict[str, str]]:
    """Two namespaces by the address that a device `eth0` has in each; no neighbour is known."""
    with cabled("mr-rings", MACS) as names:
        yield names


def _settings(**more: object) -> EngineSettings:
    wanted: dict[str, object] = {"patience_s": 9.0, "rings": Rings()} | more
    return EngineSettings(SWITCH, JOB, 16, 2, 1, **wanted)  # type: ignore[arg-type]


@pytest.mark.root
@pytest.mark.parametrize("kinds", [[PortKind.PACKET_V2, None], [PortKind.PACKET_V3, None], [PortKind.XDP]])
def test_sums_come_by_rings_on_a_device_as_by_a_socket(cable: dict[str, str], kinds: list[PortKind | None]) -> None:
    server = namespaces.call(cable[SWITCH], lambda: Server(len(kinds), 16, Weather(loss=0.01), at=(SWITCH, UDP_PORT)))
    values = [np.arange(number, number + 5000, dtype=np.float32) for number in range(len(kinds))]
    targets = [np.zeros_like(mine) for mine in values]
    with server, ExitStack() as stack:
        engines = [
            stack.enter_context(_engine(cable[WORKER], rings=None if kind is None else Rings(kind))) for kind in kinds
        ]
        with ThreadPoolExecutor(len(kinds)) as threads:
            list(threads.map(Engine.all_reduce, engines, values, targets))
        assert {engine.local_address[0] for engine in engines} == {WORKER}
        assert not server.too_early
    for target in targets:
        assert np.allclose(target, sum(values), rtol=1e-6)


def _engine(namespace: str, **more: object) -> Engine:
    return namespaces.call(namespace, lambda: Engine(_settings(**more)))


@pytest.mark.root
def test_next_hop_is_the_kernels_and_silent_ones_are_named(cable: dict[str, str]) -> None:
    def find(to: str, deadline_s: float = 3.0) -> NextHop:
        return namespaces.call(cable[WORKER], lambda: find_next_hop(to, deadline_s=deadline_s))

    assert find(SWITCH) == NextHop("eth0", IPv4Address(WORKER), MACS[WORKER], MACS[SWITCH])
    with pytest.raises(AllReduceError, match=r"10\.77\.0\.9 on eth0 did not answer for its MAC address within 0\.1 s"):
        find("10.77.0.9", 0.1)
    with pytest.raises(AllReduceError, match=r"no route to 10\.99\.0\.1"):
        find("10.99.0.1")
    with pytest.raises(AllReduceError, match="this machine's own"):
        find(WORKER)
    with pytest.raises(AllReduceError, match=r"job 7: no route to 10\.99\.0\.1"):
        _engine_to("10.99.0.1", cable[WORKER])


def _engine_to(address: str, namespace: str) -> Engine:
    settings = replace(_settings(), aggregator=address)
    return namespaces.call(namespace, lambda: Engine(settings))


@pytest.mark.root
def test_a_way_that_is_given_needs_no_routing_table(cable: dict[str, str]) -> None:
    next_hop = NextHop("eth0", IPv4Address(WORKER), MACS[WORKER], MACS[SWITCH])
    with _engine(cable[WORKER], rings=Rings(next_hop=next_hop)) as engine:
        assert engine.local_address[0] == WORKER
    with pytest.raises(AllReduceError, match="job 7: interface nowhere: no such device"):
        _engine(cable[WORKER], rings=Rings(next_hop=replace(next_hop, interface="nowhere")))


_RIGHT: dict[str, Any] = {"src": SWITCH, "dst": WORKER, "src_port": UDP_PORT, "dst_port": 40000}


@pytest.mark.parametrize(
    "wrong",
    [{"src": "10.77.0.3"}, {"dst": "10.77.0.3"}, {"src_port": 9}, {"dst_port": 9}, {"cut": 1}, {"vlan_id": 3}, {}],
    ids=str,
)
def test_what_is_not_the_aggregators_answer_is_left_alone(wrong: dict[str, Any]) -> None:
    here, there = memory_pair()
    next_hop = NextHop("there", IPv4Address(WORKER), MACS[WORKER], MACS[SWITCH])
    carried = RingTransport(there, next_hop, 40000)
    check = check_of_one(nonce=0, item=0)
    payload = Aggregation(Kind.RESULT, JOB, 0, 1, operation=Operation.MAX, values=bytes(1024), check=check).encode()
    fields = _RIGHT | {name: value for name, value in wrong.items() if name != "cut"}
    addresses: dict[str, Any] = {"src": IPv4Address(fields.pop("src")), "dst": IPv4Address(fields.pop("dst"))}
    frame = udp_frame(src_mac=1, dst_mac=MACS[WORKER], payload=payload, **addresses, **fields)
    settings = replace(_settings(patience_s=0.05), port=UDP_PORT)
    values = np.zeros(256, np.float32)
    with here, Engine(settings, carried) as engine:
        here.send([frame[: len(frame) - wrong.get("cut", 0)]])
        if wrong:
            with pytest.raises(NoResultError):
                engine.all_reduce(values, values)
            assert engine.statistics.received == 1
            assert engine.statistics.malformed == 0
        else:
            engine.all_reduce(values, values)
        sent = decode_udp_frame(here.receive(1)[0])
    assert sent is not None
    assert (str(sent.ip.src), str(sent.ip.dst), sent.src_port, sent.dst_port) == (WORKER, SWITCH, 40000, UDP_PORT)
    assert (sent.ethernet.dst, sent.ethernet.src) == (MACS[SWITCH], MACS[WORKER])
    assert isinstance(sent.ip, Ipv4)
    assert sent.ip.valid
    assert decode(sent.payload).kind is Kind.CONTRIBUTION


def test_frames_too_long_for_the_device_are_an_error() -> None:
    here, there = memory_pair(slot_bytes=1000)
    next_hop = NextHop("there", IPv4Address(WORKER), MACS[WORKER], MACS[SWITCH])
    values = np.ones(256, np.float32)
    with (
        here,
        Engine(_settings(), RingTransport(there, next_hop, 1)) as engine,
        pytest.raises(AllReduceError, match=r"rings to 10\.77\.0\.2:19777 failed: Message too long"),
    ):
        engine.all_reduce(values, values)
