"""Cases for payloads: every mark, mode and program, and the other options of a watch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from controller.network.tables.telemetry.int_domain import IntDomain
from controller.network.tables.telemetry.int_watch import Mode, Watch
from dataplane.switch.interpreter import InterpretedPipeline
from dataplane.switch.switch import PipelineFactory

PROBE_MARKER: Final = 0xFEED_FACE_0BAD_CAFE
MODES: Final[tuple[Mode, ...]] = ("md", "mx", "hop-by-hop", "xd")
DOMAINS: Final = {
    "dscp": IntDomain(),
    "dscp bit": IntDomain(dscp=1, dscp_mask=1),
    "probe marker": IntDomain(probe_marker=PROBE_MARKER),
    "udp port": IntDomain(udp_port=5599),
    "new udp": IntDomain(udp_port=5599, always_new_udp=True),
    "dscp, tunnels": IntDomain(tunnels=True),
    "probe marker, tunnels": IntDomain(probe_marker=PROBE_MARKER, tunnels=True),
    "udp port, tunnels": IntDomain(udp_port=5599, tunnels=True),
}
_BEHIND_IP: Final = (47, 1, 50, 58, 89, 132)


def watches_of(mode: Mode) -> tuple[Watch, ...]:
    """Return rules that put INT into every possible packet: GRE in tunnels, anything behind a UDP header."""
    return (Watch(mode=mode), *(Watch(mode=mode, protocol=protocol) for protocol in _BEHIND_IP))


SPECIALS: Final[dict[str, tuple[IntDomain, tuple[Watch, ...]]]] = {
    "checksum complement": (IntDomain(tunnels=True), (Watch(instructions=(0, 1, 15)),)),
    "source number, forwarding": (IntDomain(udp_port=5599), (Watch(source_number=True, forwarding=True),)),
    "one in three": (DOMAINS["probe marker"], (Watch(sample_every=3),)),
    "no hops left": (DOMAINS["probe marker"], (Watch(max_hops=1),)),
    "MTU, stripped": (IntDomain(mtu_bytes=1200, strip_at_mtu=True), (Watch(instructions=tuple(range(9))),)),
    "MTU, left out": (IntDomain(probe_marker=PROBE_MARKER, mtu_bytes=1200), (Watch(instructions=tuple(range(9))),)),
    "no telemetry": (DOMAINS["probe marker"], ()),
}


def named_cases() -> Iterator[tuple[str, IntDomain, tuple[Watch, ...]]]:
    """Yield every mark and mode, and the other options, by name."""
    for mark, domain in DOMAINS.items():
        for mode in MODES:
            yield f"{mark}, {mode}", domain, watches_of(mode)
    for name, (domain, watches) in SPECIALS.items():
        yield name, domain, watches


interpreted: Final[PipelineFactory] = lambda program, state, rng: InterpretedPipeline(program, state, rng=rng)  # noqa: E731
