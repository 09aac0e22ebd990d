"""By how much the simulation differs from packets."""

from __future__ import annotations

from tests.benchmarks.simulating.cases import CASES, Case
from tests.benchmarks.simulating.flows import simulated_ends_ns
from tests.benchmarks.simulating.packets import PacketRun


def relative_errors(case: Case, *, is_paced: bool) -> list[float]:
    """Return, for each transfer, by which share of its packets' time the simulated time differs."""
    packets_ns = PacketRun(case.topology, case.transfers, is_paced=is_paced).ends_ns()
    flows_ns = simulated_ends_ns(case.topology, case.transfers)
    return [
        abs(flow - packet) / (packet - transfer.start_ns)
        for flow, packet, transfer in zip(flows_ns, packets_ns, case.transfers, strict=True)
    ]


def largest_error() -> float:
    """Return the largest over all cases and both kinds of senders, where each applies."""
    return max(
        error
        for case in CASES
        for is_paced in ((False, True) if case.is_one_bottleneck else (True,))
        for error in relative_errors(case, is_paced=is_paced)
    )
