"""A P4 program of one's own on the built-in switch, driven by finsy, which makes routes when packets ask for them.

own_program/forwarder.p4 sends packets to destinations without a route to the controller; own_program/*.json and the
P4Info are what p4c-bm2-ss made of it. The switch compiles that to machine code and answers P4Runtime, so everything
below `control` is an ordinary finsy program, which would drive simple_switch_grpc just as well. Frames come over
cables in memory, which need no root; with devices, start `millrace switch -i 1@veth1 -i 2@veth2 ...` instead
(docs/network/switch.md).

    python docs/examples/own_program.py

prints

    controller: port 1 asks for 10.0.0.2, which is at port 2
    controller: port 2 asks for 10.0.0.1, which is at port 1
    switch: 99 of 100 packets to 10.0.0.2/32
    switch: 99 of 100 packets to 10.0.0.1/32
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from tempfile import TemporaryDirectory

import finsy as fy

from dataplane.local.deadline import local_timeout
from dataplane.nic import NicPort, memory_pair
from dataplane.program.loader import load_program
from dataplane.switch.compiled.program import Purpose, compile_program
from dataplane.switch.compiled.switch import NativeSwitch
from dataplane.switch.gnmi import GnmiCore
from dataplane.switch.gnmi.service import GnmiService
from dataplane.switch.p4runtime import P4RuntimeCore
from dataplane.switch.p4runtime.server import P4RuntimeServer
from dataplane.switch.traffic import PortSettings
from dataplane.wire.packet import udp_frame

PROGRAM = Path(__file__).with_name("own_program")
PORT_OF = {IPv4Address("10.0.0.1"): 1, IPv4Address("10.0.0.2"): 2}
FRAMES = 100


@contextmanager
def running_switch(address: str) -> Iterator[dict[int, NicPort]]:
    """Run a switch with ports 1 and 2, its P4Runtime service at `address`; yield the far ends of its cables."""
    cables = {number: memory_pair((f"switch.{number}", f"host.{number}")) for number in (1, 2)}
    near = {number: cable[0] for number, cable in cables.items()}
    with NativeSwitch(1, [PortSettings(number) for number in cables], near) as switch:
        ports = GnmiService(GnmiCore(switch))  # asked by finsy for the ports' names
        with P4RuntimeServer(P4RuntimeCore(switch), [address], beside=[ports]):
            yield {number: cable[1] for number, cable in cables.items()}


async def control(switch: fy.Switch) -> None:
    """Answer the switch's questions: write a route to the destination, and send the packet on its way."""
    routed: set[IPv4Address] = set()
    async for packet in switch.read_packets():
        destination = IPv4Address(packet.payload[30:34])
        port = PORT_OF[destination]
        if destination not in routed:
            print(f"controller: port {packet['ingress_port']} asks for {destination}, which is at port {port}")
            match, action = fy.P4TableMatch(dst_addr=destination), fy.P4TableAction("forward", port=port)
            await switch.write([+fy.P4TableEntry("routes", match=match, action=action)])
            routed.add(destination)
        # Only now: whatever this packet sets off shall find the route.
        await switch.write([fy.P4PacketOut(packet.payload, egress_port=port)])


async def exchange(ports: dict[int, NicPort], sender: int, receiver: int) -> None:
    """Send one frame after the other from port to port, each once the one before has arrived."""
    ends = {port: address for address, port in PORT_OF.items()}
    macs = {"src_mac": 0x020000000000 + sender, "dst_mac": 0x020000000000 + receiver}
    frame = udp_frame(**macs, src=ends[sender], dst=ends[receiver], src_port=1000, dst_port=2000, payload=b"hello")
    async with local_timeout(10, "the exchange of frames"):  # waits longer on a busy machine
        for _ in range(FRAMES):
            ports[sender].send([frame])
            while not (arrived := ports[receiver].receive(1)):
                await asyncio.sleep(0.001)
            assert arrived == [frame]


async def main() -> None:
    """Let two hosts talk, then ask the switch what it has counted."""
    p4info, blob = PROGRAM / "forwarder.p4info.txtpb", PROGRAM / "forwarder.json"
    options = fy.SwitchOptions(p4info=p4info, p4blob=blob)
    # The first time machine code takes seconds to make, on a busy machine more than finsy waits; then it is cached.
    compile_program(load_program(blob, p4info), Purpose.FORWARDING)
    with TemporaryDirectory() as folder:
        socket = f"unix:{folder}/s1.sock"
        with running_switch(socket) as ports:
            async with fy.Switch("s1", socket, options) as switch:
                controller = asyncio.create_task(control(switch))
                await exchange(ports, 1, 2)
                await exchange(ports, 2, 1)
                routes = fy.P4TableEntry("routes", counter_data=fy.P4CounterData())
                async for entry in switch.read(routes):  # type: ignore[attr-defined]  # finsy's overloads
                    (address, length), counted = entry.match["dst_addr"], entry.counter_data
                    print(f"switch: {counted.packet_count} of {FRAMES} packets to {IPv4Address(address)}/{length}")
                controller.cancel()


if __name__ == "__main__":
    asyncio.run(main())
