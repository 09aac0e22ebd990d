"""The network as its topology describes it, without any measurements."""

from __future__ import annotations

from collectors.state.loss import LinkLoss
from collectors.values import DelaySource, LinkState, Snapshot
from dataplane.topology.values import DirectedLink, Topology


def nominal_snapshot(topology: Topology, now_ns: int) -> Snapshot:
    """Return the state of a network without any reports."""
    return Snapshot(now_ns, {key: nominal_link(link) for key, link in topology.directed_links.items()}, {}, {})


def nominal_link(link: DirectedLink, age_ns: int | None = None, loss: LinkLoss | None = None) -> LinkState:
    """Return a link with its configured figures; `age_ns` is the time since its last report, None for never."""
    return LinkState(
        link=link.key,
        rate_bps=link.rate_bps,
        delay_mean_ns=link.delay_ns,
        delay_p50_ns=link.delay_ns,
        delay_p99_ns=link.delay_ns,
        queue_occupancy_frames=0.0,
        utilisation=0.0,
        available_bps=link.rate_bps,
        loss=None if loss is None else loss.share,
        age_ns=age_ns,
        samples=0,
        source=DelaySource.NOMINAL,
        loss_source=None if loss is None else loss.source,
        lost_packets=None if loss is None else loss.packets,
    )
