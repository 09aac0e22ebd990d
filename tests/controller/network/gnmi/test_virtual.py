"""Ports and hellos in virtual time: the controller configures them by gNMI and gets their findings."""

from __future__ import annotations

from collections.abc import Mapping

from collectors.values import LinkCondition, LinkStatus
from controller.network.gnmi.settings import Hellos
from controller.network.virtual import VirtualController
from dataplane.fabric.virtual.fabric import VirtualFabric
from dataplane.switch.ports.states import HelloState
from dataplane.topology.values import LinkKey, Topology

MS = 1_000_000


class World:
    """A fabric under a controller, and the last reported state of its links."""

    def __init__(self, topology: Topology, hellos: Hellos) -> None:
        self.fabric = VirtualFabric(topology)
        self.controller = VirtualController.over(self.fabric, hellos=hellos)
        self.links: Mapping[LinkKey, LinkStatus] = {}
        self.controller.on_links(self._hear)
        self.controller.start()

    def _hear(self, links: Mapping[LinkKey, LinkStatus]) -> None:
        self.links = links

    def conditions(self) -> set[LinkCondition]:
        return {status.condition for status in self.links.values()}

    def hellos(self) -> set[HelloState | None]:
        """Return the states of hellos, None for ports without."""
        return {
            None if state.hello is None else state.hello.state
            for node in self.fabric.topology.switches
            for state in self.fabric.switch(node.name).port_states().values()
        }


def test_hellos_come_up_and_find_a_link_that_no_port_shows_dead(diamond: Topology) -> None:
    world = World(diamond, Hellos(interval_ns=10 * MS))
    world.fabric.run_until(4_000 * MS)
    assert world.hellos() == {HelloState.UP, None}
    assert world.conditions() == {LinkCondition.UP}
    world.fabric.set_link("a", "b", up=False)
    world.fabric.run_until(4_060 * MS)
    down = {key for key, status in world.links.items() if status.condition is LinkCondition.DOWN}
    assert down == {LinkKey("a", "b"), LinkKey("b", "a")}


def test_without_hellos_only_ports_tell(diamond: Topology) -> None:
    world = World(diamond, Hellos(enabled=False))
    world.fabric.set_link("a", "b", up=False)
    world.fabric.run_until(1_000 * MS)
    assert world.hellos() == {None}
    assert world.conditions() == {LinkCondition.UP}
    world.fabric.set_link("a", "b", up=True)
    world.fabric.set_link("a", "b", up=False, notice_after_ns=MS)
    world.fabric.run_until(1_010 * MS)
    assert world.conditions() == {LinkCondition.UP, LinkCondition.DOWN}
