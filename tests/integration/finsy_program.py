"""A finsy program as a user would write it: a controller that routes, answers LLDP frames, and prints what it saw.

Arguments: address, P4Info file, bmv2 JSON file, and "packets" to wait for frames. What it reads comes out as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import finsy as fy

LLDP = 0x88CC
GOODBYE = b"goodbye"
REMOTE = "02:00:00:00:00:99"


async def fill(switch: fy.Switch) -> None:
    """Empty the switch and write ports, an ECMP group with one member, a route to it, and a flow's own path."""
    await switch.delete_all()
    to_two = fy.P4TableAction("forward", egress_port=2, dst_mac=REMOTE)
    await switch.write(
        [
            +fy.P4ActionProfileMember("ipv4_ecmp", member_id=1, action=to_two),
            +fy.P4TableEntry("punt", match=fy.P4TableMatch(ether_type=LLDP), action=fy.P4TableAction("send_to_cpu")),
            *(
                +fy.P4TableEntry(
                    "egress_ports",
                    match=fy.P4TableMatch(egress_port=port),
                    action=fy.P4TableAction(
                        "set_egress_port", src_mac=f"02:00:00:00:00:0{port}", sink=0, mtu_bytes=0, strip_at_mtu=0
                    ),
                )
                for port in (1, 2)
            ),
        ]
    )
    await switch.write(
        [+fy.P4ActionProfileGroup("ipv4_ecmp", group_id=1, max_size=8, members=[fy.P4Member(1, weight=1)])]
    )
    flow = fy.P4TableMatch(src_addr="10.0.1.1/&255.255.255.255", dst_addr="10.0.3.1/&255.255.255.255")
    await switch.write(
        [
            +fy.P4TableEntry(
                "ipv4_routes", match=fy.P4TableMatch(dst_addr="10.0.2.0/24"), action=fy.P4IndirectAction(group_id=1)
            ),
            +fy.P4TableEntry("ipv4_flow_paths", match=flow, priority=5, action=to_two),
        ]
    )


async def answer_lldp(switch: fy.Switch) -> list[int]:
    """Send every LLDP frame on to the other port until one says goodbye; return the ports that they came from."""
    ports = []
    async for packet in switch.read_packets(eth_types={LLDP}):
        ports.append(packet["ingress_port"])
        await switch.write([fy.P4PacketOut(packet.payload, egress_port=3 - packet["ingress_port"], pad=0)])
        if GOODBYE in packet.payload:
            break
    return ports


async def read(
    switch: fy.Switch, *entities: fy.P4TableEntry | fy.P4CounterEntry | fy.P4ActionProfileMember
) -> list[Any]:
    """Return everything that some entities select."""
    return [entity async for entity in switch.read(entities)]  # type: ignore[attr-defined]  # finsy's overloads


async def look(switch: fy.Switch) -> dict[str, object]:
    """Read back what was written, and what the switch counted."""
    routes, flows = (
        await read(switch, fy.P4TableEntry("ipv4_routes")),
        await read(switch, fy.P4TableEntry("ipv4_flow_paths")),
    )
    dropped = await read(switch, fy.P4CounterEntry("drop_no_route"))
    try:
        await switch.insert(routes)
        second = "accepted"
    except fy.P4ClientError as error:
        second = error.details[0].canonical_code.name
    return {
        "routes": [entry.match for entry in routes],
        "groups": [entry.action.group_id for entry in routes],
        "flows": [(entry.priority, entry.action.args["egress_port"]) for entry in flows],
        "second_insert": second,
        "dropped": [entry.packet_count for entry in dropped],
    }


async def main(address: str, p4info: str, program: str, *words: str) -> None:
    """Run the controller until the work is done."""
    done: asyncio.Future[dict[str, object]] = asyncio.get_running_loop().create_future()

    async def on_ready(switch: fy.Switch) -> None:
        await fill(switch)
        answering = asyncio.create_task(answer_lldp(switch))
        # The task's first step opens the queue of packets; earlier ones are lost.
        await asyncio.sleep(0)
        print("filled", flush=True)
        ports = await answering if "packets" in words else []
        answering.cancel()
        seen = await look(switch)
        await switch.delete_all()
        left = await read(switch, fy.P4TableEntry(), fy.P4ActionProfileMember("ipv4_ecmp"))
        done.set_result({**seen, "packet_in_ports": ports, "left": len(left), "primary": switch.is_primary})

    options = fy.SwitchOptions(p4info=Path(p4info), p4blob=Path(program), ready_handler=on_ready, fail_fast=True)
    async with fy.Controller([fy.Switch("s1", address, options)]):
        print(json.dumps(await asyncio.wait_for(done, 100)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
