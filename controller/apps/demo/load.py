"""Check the demo's own load against its plan: packets due, packets sent by hosts, packets that arrived."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from controller.apps.demo.outcome import Outcome, loss_share
from dataplane.clock import NS_PER_MS
from dataplane.fabric.hosts import MAX_FLOWS
from dataplane.fabric.load import LATE_NS, SentLoad, total_load

_SHOWN_HOSTS = 8

MISSING_SHARE = 0.02
"""Share of unsent packets above which the demo reports a host in the kernel; in virtual time, none."""
LATE_SHARE = 0.05
"""Share of packets that may leave more than `LATE_NS` late in the kernel."""
LOST_SHARE = 0.02
"""Share of the background that may be lost before the surge, when links are at 30 %."""


@dataclass(frozen=True, slots=True)
class HostLoad:
    """One host as a sender; `received` counts its packets that arrived anywhere."""

    host: str
    sent: SentLoad
    received: int


def host_loads(outcome: Outcome) -> tuple[HostLoad, ...]:
    """Return the load of each host that sends, in the order of the scenario's flows."""
    flows: dict[str, list[int]] = {}
    ends = outcome.scenario.by_number()
    for number, planned in ends.items():
        flows.setdefault(planned.flow.src_host, []).append(number)
    return tuple(
        HostLoad(
            host,
            total_load(outcome.sent[number] for number in numbers),
            sum(outcome.receivers[ends[number].flow.dst_host].received_frames(number) for number in numbers),
        )
        for host, numbers in flows.items()
    )


def lost_before(outcome: Outcome) -> float:
    """Return the share of the background that the network lost before the surge, 0 to 1."""
    measured = [figures.phases[0] for figures in outcome.figures() if not figures.surge]
    return loss_share(measured)


def unread(outcome: Outcome) -> tuple[str, ...]:
    """Return what receivers could not measure, a phrase for each kind; empty if nothing."""
    receivers = outcome.receivers.values()
    counts = (
        (sum(receiver.malformed for receiver in receivers), "frames arrived malformed"),
        (sum(receiver.corrupt for receiver in receivers), "frames arrived with a wrong checksum"),
        (sum(receiver.unmeasured for receiver in receivers), f"packets were of more than {MAX_FLOWS} flows"),
    )
    return tuple(f"{count} {what}" for count, what in counts if count)


def deviates(host: HostLoad, *, exact: bool) -> bool:
    """Return whether a host's load deviated from the plan; `exact` allows no deviation."""
    sent = host.sent
    if exact:
        return sent.missing > 0 or sent.worst_late_ns > 0
    return sent.missing > MISSING_SHARE * sent.planned or sent.late > LATE_SHARE * sent.planned


def as_planned(outcome: Outcome) -> bool:
    """Return whether every host sent as planned, on time, and its packets arrived while no link was full."""
    well = not any(deviates(host, exact=outcome.exact) for host in host_loads(outcome))
    return well and lost_before(outcome) <= LOST_SHARE and not unread(outcome)


def load_line(outcome: Outcome) -> str:
    """Return the load in a line, with the probable cause of any deviation."""
    hosts = host_loads(outcome)
    whole, received = total_load(host.sent for host in hosts), sum(host.received for host in hosts)
    if as_planned(outcome):
        return f"Load as planned: {whole.sent} of {whole.planned} packets sent, {received} of them received."
    deviations = [f"hosts sent {whole.sent} of {whole.planned} packets ({_share(whole.sent, whole.planned):.1%})"]
    worst = min(hosts, key=lambda host: _share(host.sent.sent, host.sent.planned))
    if worst.sent.missing > (0 if outcome.exact else MISSING_SHARE * worst.sent.planned):
        deviations.append(f"{worst.host} {_share(worst.sent.sent, worst.sent.planned):.1%}")
    if whole.late:
        deviations.append(f"{_share(whole.late, whole.sent):.1%} left over {LATE_NS / NS_PER_MS:.0f} ms late")
    lost = lost_before(outcome)
    if lost > LOST_SHARE:
        deviations.append(f"{lost:.1%} of the background was lost before the surge")
    deviations += unread(outcome)
    return f"The load was not as planned: {', '.join(deviations)}. {_cause(whole)}"


def load_table(outcome: Outcome) -> Table:
    """Return each host's load, largest deviation first."""
    table = Table(title="Hosts whose load was not as planned", title_justify="left")
    table.add_column("host")
    for name in ("planned", "sent", "late", "left out", "refused", "worst ms late", "received"):
        table.add_column(name, justify="right")
    for host in _worst_first([h for h in host_loads(outcome) if deviates(h, exact=outcome.exact)])[:_SHOWN_HOSTS]:
        sent = host.sent
        counts = (sent.planned, sent.sent, sent.late, sent.skipped, sent.refused)
        late_ms = f"{sent.worst_late_ns / NS_PER_MS:.0f}"
        table.add_row(host.host, *map(str, counts), late_ms, str(host.received))
    return table


def load_figures(outcome: Outcome) -> dict[str, object]:
    """Return the load for figures.json: total and by host, in packets."""
    hosts = host_loads(outcome)
    return {
        "as_planned": as_planned(outcome),
        "lost_before_share": lost_before(outcome),
        **_counts(total_load(host.sent for host in hosts), sum(host.received for host in hosts)),
        "hosts": {host.host: _counts(host.sent, host.received) for host in hosts},
    }


def _counts(sent: SentLoad, received: int) -> dict[str, float]:
    return {
        "planned": sent.planned,
        "sent": sent.sent,
        "late": sent.late,
        "left_out": sent.skipped,
        "refused": sent.refused,
        "worst_late_ms": sent.worst_late_ns / NS_PER_MS,
        "received": received,
    }


def _cause(whole: SentLoad) -> str:
    if whole.late or whole.skipped:
        behind_ms = whole.worst_late_ns / NS_PER_MS
        return f"Probable cause: too little CPU time, hosts were up to {behind_ms:.0f} ms behind."
    if whole.refused:
        return f"Probable cause: full host queues or no listener, {whole.refused} packets were refused."
    return "Hosts sent in time: probable cause is a receiver or a switch that had too little CPU time."


def _worst_first(hosts: Sequence[HostLoad]) -> list[HostLoad]:
    return sorted(hosts, key=lambda host: (-host.sent.missing, -host.sent.late, host.host))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0
