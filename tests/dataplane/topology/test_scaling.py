from __future__ import annotations

import pytest

from dataplane.errors import FabricError
from dataplane.topology.file import load_topology
from dataplane.topology.scaling import scaled


def test_rates_shrink_and_nothing_else() -> None:
    topology = load_topology("abilene")
    slow = scaled(topology, 1000)
    assert {link.rate_bps for link in slow.links} == {9_920_000, 2_480_000, 100_000_000}
    assert [(link.a, link.b, link.delay_ns, link.queue_frames) for link in slow.links] == [
        (link.a, link.b, link.delay_ns, link.queue_frames) for link in topology.links
    ]
    rough = load_topology("leaf-spine:loss=1%,jitter=500ns")
    assert {(link.loss_ppb, link.jitter_ns) for link in scaled(rough, 1000).links} == {(10**7, 500)}
    assert (slow.switches, slow.hosts, slow.collector) == (topology.switches, topology.hosts, topology.collector)


@pytest.mark.parametrize("factor", [0, -1, float("nan"), float("inf")])
def test_a_factor_that_is_not_positive_is_refused(factor: float) -> None:
    with pytest.raises(FabricError, match="divided"):
        scaled(load_topology("abilene"), factor)


def test_a_link_without_rate_is_refused() -> None:
    with pytest.raises(FabricError, match="atlam5-atla has no rate"):
        scaled(load_topology("abilene"), 8e9)
