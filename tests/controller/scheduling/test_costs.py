"""Nodes' reports of their hosts' links are part of the schedulers' costs."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from collectors.values import Snapshot
from controller.apiserver.resources import Metadata, Node
from controller.apiserver.resources.node import HostLink, NodeStatus
from controller.cluster.cost_map import CostMap
from controller.cluster.cost_map.live import CostMapKeeper
from controller.cluster.cost_map.model import CostModel
from controller.cluster.network_state.follower import CostMapFollower
from controller.scheduling.costs import CostSource
from dataplane.clock import VirtualClock
from dataplane.topology.file import load_topology


class NoFeed:
    """Switches' links are not measured."""

    async def snapshots(self, interval_ns: int) -> AsyncGenerator[Snapshot, None]:
        yield Snapshot(0, {}, {}, {})


def test_a_node_that_sends_leaves_less_of_its_hosts_link() -> None:
    model = CostModel(load_topology("leaf-spine"))
    keeper, clock = CostMapKeeper(model, wants_routes=False, stale_after_ns=10_000_000_000), VirtualClock()
    follower = CostMapFollower(keeper, NoFeed(), None, clock, interval_ns=1)

    def current() -> CostMap:
        keeper.observe(Snapshot(0, {}, {}, {}), clock.now_ns())
        return follower.current().costs

    source = CostSource(current, follower)
    before = source()
    assert before is not None
    name, other = before.hosts[0], before.hosts[-1]
    rate = before.cost(name, other).available_bps
    link = HostLink(sent_bps=rate // 4, received_bps=0, rate_bps=rate, age_ns=1_000_000_000)
    status = NodeStatus(link=link)
    stranger = Node(metadata=Metadata(name="nobody"), status=status)
    source.take_nodes([stranger, Node(metadata=Metadata(name=name), status=status)])
    after = source()
    assert after is not None
    assert after.host_links[name].age_ns == 1_000_000_000
    assert after.cost(name, other).available_bps == rate - rate // 4
    assert after.cost(other, name).available_bps == before.cost(other, name).available_bps
