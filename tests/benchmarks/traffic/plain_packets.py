"""Cost of the source-address filter for a plain packet: fabric.p4 against the same program without the filter.

Both compiled, memory to memory, alternating in one process: packets of a host, without telemetry.
programs/fabric_without_filter.* is p4c's output for the earlier program, without source locations.
"""

from __future__ import annotations

import lzma
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from statistics import median

from dataplane.program.loader import load_program
from dataplane.program.model import Program
from dataplane.program.objects import ActionCall
from dataplane.switch.tables import ForwardingState, TableEntry
from dataplane.wire.packet import udp_frame
from tests.benchmarks.parts import Figures
from tests.benchmarks.traffic.memory import BURST, CompiledMemory

Address = IPv4Address | IPv6Address
BUILD = Path(__file__).parents[3] / "p4" / "build" / "fabric"
BEFORE = Path(__file__).parents[1] / "programs" / "fabric_without_filter"
HOST_PORT, UP_PORT = 1, 2
_HOSTS: dict[int, Address] = {4: IPv4Address("10.0.1.1"), 6: IPv6Address("fd00:0:0:1::1")}
_STEPS = {4: 1 << 8, 6: 1 << 64}
"""From a network of one switch to the next."""
_FLOWS = 32 * BURST
_PAYLOAD = bytes(86)
_ROUNDS = 151


def plain_packet_cost_ratio(placements: int = 9, *, version: int = 4) -> float:
    """Return the time of a plain packet of IPv4 or IPv6 with the filter over that without.

    A thousand packets pass one program and then the other, in less than a millisecond, so that what else the machine
    does meets both; the ratio is that of the medians of 151 such rounds. Where memory happens to lie makes 3 % more or
    less, so this is repeated with new memory, and the median returned.
    """
    programs = [(program, CompiledMemory(program)) for program in (program_now(), program_before())]
    frames = plain_frames(version)
    ratios = []
    for _ in range(placements):
        with ExitStack() as stack:
            now, before = (
                stack.enter_context(memory.passing(edge_state(program, version), frames, HOST_PORT))
                for program, memory in programs
            )
            ratios.append(_time_ratio(now, before, len(frames)))
    return median(ratios)


def _time_ratio(now: Callable[[], int], before: Callable[[], int], packets: int) -> float:
    times: dict[Callable[[], int], list[int]] = {now: [], before: []}
    for number in range(_ROUNDS):
        for side in (now, before) if number % 2 else (before, now):
            began_ns = time.perf_counter_ns()
            sent = side()
            times[side].append(time.perf_counter_ns() - began_ns)
            if sent != packets:
                raise RuntimeError(f"of {packets} plain packets {sent} were sent")
    return median(times[now]) / median(times[before])


def program_now() -> Program:
    """Return fabric.p4 as it is."""
    return load_program(BUILD.with_suffix(".json"), BUILD.with_suffix(".p4info.txtpb"))


def program_before() -> Program:
    """Return fabric.p4 as it was without the filter."""
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
        files = [Path(folder) / f"fabric.{kind}" for kind in ("json", "p4info.txtpb")]
        for file in files:
            kind = file.name.partition(".")[2]
            file.write_bytes(lzma.decompress(BEFORE.with_suffix(f".{kind}.xz").read_bytes()))
        return load_program(*files)


def edge_state(program: Program, version: int) -> ForwardingState:
    """Return the tables of a switch with a host, and with routes to a hundred others."""
    state = ForwardingState(program)
    names = {name.rpartition(".")[2]: name for name in (*program.tables, *program.actions, *state.profiles)}
    host = program.actions[names["set_source_port"]]
    own = (int(_HOSTS[4]), 2**32 - 1, int(_HOSTS[6]), 2**128 - 1)
    role = ActionCall(names["set_source_port"], own if host.parameters else ())
    state.tables[names["port_roles"]].insert(TableEntry((HOST_PORT,), call=role))
    state.tables[names["node"]].set_default(ActionCall(names["set_node"], (1,)))
    out = ActionCall(names["set_egress_port"], (0x02_00_00_00_00_02, 0, 0, 0))
    state.tables[names["egress_ports"]].insert(TableEntry((UP_PORT,), call=out))
    state.profiles[names[f"ipv{version}_ecmp"]].insert_member(
        1, ActionCall(names["forward"], (UP_PORT, 0x02_00_00_00_00_03))
    )
    routes = state.tables[names[f"ipv{version}_routes"]]
    for number in range(100):
        routes.insert(TableEntry(((int(_far(version, number)), 32 if version == 4 else 128),), member=1))
    return state


def plain_frames(version: int) -> list[bytes]:
    """Return UDP frames of one host, of as many flows, to a hundred hosts."""
    return [
        udp_frame(
            src_mac=0x02_00_00_00_01_00,
            dst_mac=0x02_00_00_00_02_00,
            src=_HOSTS[version],
            dst=_far(version, number % 100),
            src_port=1_000 + number,
            dst_port=2_000,
            payload=_PAYLOAD,
        )
        for number in range(_FLOWS)
    ]


def _far(version: int, number: int) -> Address:
    return type(_HOSTS[version])(int(_HOSTS[version]) + (number + 1) * _STEPS[version])


def measure(*, quick: bool = False) -> Figures:
    """Return the greater of the ratios of IPv4 and IPv6; quick is with memory allocated less often."""
    ratios = {version: plain_packet_cost_ratio(3 if quick else 9, version=version) for version in (4, 6)}
    for version, ratio in ratios.items():
        print(f"plain packets of IPv{version}: {ratio:.3f} of the time without the check of source addresses")
    return {"plain_packet_cost_ratio": round(max(ratios.values()), 3)}


if __name__ == "__main__":
    measure()
