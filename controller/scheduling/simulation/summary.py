"""Summary of a trace: waiting and response times, and the utilisation of each resource over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controller.common.errors import SchedulerError
from controller.scheduling.simulation.trace import NOT_YET, Longs, State, Trace
from dataplane.clock import NS_PER_S

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Times:
    """Statistics of units that got so far: count, mean, median, 95th, 99th percentile (nearest rank), maximum, ns."""

    count: int
    mean_ns: float
    p50_ns: int
    p95_ns: int
    p99_ns: int
    max_ns: int

    @classmethod
    def of(cls, times_ns: Longs) -> Times:
        """Return the statistics of times, zeros if there are none."""
        if not len(times_ns):
            return cls(0, 0.0, 0, 0, 0, 0)
        # A time that occurred; interpolation would invent one.
        p50, p95, p99 = (int(np.percentile(times_ns, share, method="inverted_cdf")) for share in (50, 95, 99))
        return cls(len(times_ns), float(times_ns.mean()), p50, p95, p99, int(times_ns.max()))


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of a replayed workload.

    `waiting` is from submission to start, `queued` from the moment when all of a task's dependencies are done,
    `transfer` from start until its inputs have arrived, `response` from submission to end. `utilisation` is the share
    of each resource that was held from the first submission to the last end, over all nodes; `busiest_link` carried
    `busiest_link_load` of its capacity. `left_out` counts what could not be replayed by reason.
    """

    states: dict[str, int]
    left_out: Counter[str]
    makespan_ns: int
    waiting: Times
    queued: Times
    transfer: Times
    response: Times
    utilisation: dict[str, float]
    transfers: int
    busiest_link: str
    busiest_link_load: float


def summary_of(trace: Trace, skipped: Mapping[str, int] | None = None) -> Summary:
    """Return the summary of a trace, and of what its files had and could not be replayed."""
    started, ended = trace.started_ns != NOT_YET, trace.finished_ns != NOT_YET
    arrived = trace.transferred_ns != NOT_YET
    states = {str(state): 0 for state in State}
    for number in range(len(trace.names)):
        states[str(trace.state(number))] += 1
    begin_ns, end_ns = span(trace)
    span_ns = max(end_ns - begin_ns, 1)
    load = trace.carried_bits / np.maximum(trace.link_rate_bps, 1) * NS_PER_S / span_ns
    busiest = int(load.argmax()) if len(load) else None
    used = utilisation(trace, [begin_ns, begin_ns + span_ns])
    return Summary(
        states=states,
        left_out=Counter(reason for _, reason in trace.left_out) + Counter(skipped),
        makespan_ns=end_ns - begin_ns,
        waiting=Times.of((trace.started_ns - trace.submitted_ns)[started]),
        queued=Times.of((trace.started_ns - trace.ready_ns)[started]),
        transfer=Times.of((trace.transferred_ns - trace.started_ns)[arrived]),
        response=Times.of((trace.finished_ns - trace.submitted_ns)[ended]),
        utilisation={name: float(shares[0]) for name, shares in used.items()},
        transfers=trace.transfers,
        busiest_link="" if busiest is None else trace.links[busiest],
        busiest_link_load=0.0 if busiest is None else float(load[busiest]),
    )


def span(trace: Trace) -> tuple[int, int]:
    """Return the times of the first submission and the last event."""
    return (int(trace.submitted_ns.min()) if len(trace.names) else 0), trace.end_ns


def utilisation(trace: Trace, edges_ns: Sequence[int]) -> dict[str, Floats]:
    """Return the share of each resource that was held, over all nodes, between successive `edges_ns`.

    Exact: the integral of the held amounts. Permanently held resources do not count. Raise SchedulerError unless the
    edges increase.
    """
    edges = np.array(edges_ns, np.int64)
    if len(edges) < 2 or (np.diff(edges) <= 0).any():
        raise SchedulerError("utilisation needs increasing times")
    started = trace.started_ns != NOT_YET
    begins = trace.started_ns[started]
    ends = np.where(trace.finished_ns == NOT_YET, max(trace.end_ns, int(edges[-1])), trace.finished_ns)[started]
    used = {}
    for name, amounts in trace.held.amounts.items():
        shares = amounts[started] / max(trace.held.totals[name], 1)
        until_s = _until(edges, begins, shares) - _until(edges, ends, shares)
        used[name] = np.maximum(np.diff(until_s), 0.0) / (np.diff(edges) / NS_PER_S)
    return used


def _until(edges: Longs, times: Longs, amounts: Floats) -> Floats:
    """Return the integral (in seconds) up to each edge of amounts that start at `times`."""
    order = np.argsort(times, kind="stable")
    edges_s, times_s = (edges - edges[0]) / NS_PER_S, (times[order] - edges[0]) / NS_PER_S
    index = np.searchsorted(times[order], edges, side="right")
    total = np.concatenate(([0.0], np.cumsum(amounts[order])))[index]
    moment = np.concatenate(([0.0], np.cumsum(amounts[order] * times_s)))[index]
    return np.asarray(total * edges_s - moment, np.float64)
