"""Flows pinned to a path by hand: they stay until they are released, except while a link is dead or drained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from controller.common.errors import ControllerError, DeadPathError, NoSuchPathError, PathError
from controller.network.intents import FlowSpec, Route
from controller.network.paths.deciding.backups import links_of
from controller.network.paths.deciding.decide import Decision
from controller.network.paths.deciding.evacuation import Avoided
from controller.network.paths.deciding.graph import Path
from controller.network.paths.records.values import Assigned
from controller.network.tables.flow_paths import check
from dataplane.topology.values import Topology


class Pins:
    """Pinned flows, with their paths and since when; others track the flows' current paths."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self.paths: dict[FlowSpec, Assigned] = {}

    def restore(self, saved: Mapping[FlowSpec, Assigned], is_managed: Callable[[FlowSpec], bool]) -> int:
        """Restore saved pins of flows and paths that still exist; return the number of dropped ones."""
        kept = {flow: pin for flow, pin in saved.items() if is_managed(flow) and self.is_path(flow, pin.path)}
        self.paths.update(kept)
        return len(saved) - len(kept)

    def holds(self, flow: FlowSpec, path: Path) -> bool:
        """Return whether a flow is pinned to exactly this path."""
        return flow in self.paths and self.paths[flow].path == path

    def is_path(self, flow: FlowSpec, path: Path) -> bool:
        """Return whether the topology has this path, between the switches of the flow's hosts."""
        try:
            check(self._topology, Route(flow, path))
        except ControllerError:
            return False
        return True

    def hold(self, flow: FlowSpec, old: Path, new: Path, avoided: Avoided, now_ns: int) -> Decision:
        """Pin a flow; raise NoSuchPathError for a path that is not its own, DeadPathError for a dead or drained one."""
        try:
            check(self._topology, Route(flow, new))
        except ControllerError as error:
            raise NoSuchPathError(str(error)) from error
        lost = next((link for link in links_of(new) if link in avoided.links), None)
        if lost is not None:
            state = "dead" if lost in avoided.dead else "drained"
            raise DeadPathError(f"flow {_hosts(flow)} cannot be pinned to {'-'.join(new)}: link {lost} is {state}")
        self.paths[flow] = Assigned(new, now_ns)
        return Decision(now_ns, flow, old, new, (), f"pinned to {'-'.join(new)} until it is released")

    def release(self, flow: FlowSpec) -> Path:
        """Forget a pin and return its path; raise PathError for a flow that has none."""
        if flow not in self.paths:
            raise PathError(f"flow {_hosts(flow)} is not pinned")
        return self.paths.pop(flow).path

    def returning(
        self, current: Mapping[FlowSpec, Path], is_usable: Callable[[Path], bool], now_ns: int
    ) -> Iterator[Decision]:
        """Yield the moves back of pinned flows that had to leave their paths, to paths that are usable again."""
        for flow, pin in self.paths.items():
            path = current.get(flow)
            if path is not None and path != pin.path and is_usable(pin.path):
                reason = f"{'-'.join(pin.path)}, the pinned path, can be used again"
                yield Decision(now_ns, flow, path, pin.path, (), reason)

    def told(self, flow: FlowSpec, reason: str) -> str:
        """Return why a flow goes elsewhere, and where it will return if it is pinned."""
        if flow not in self.paths:
            return reason
        return f"{reason}; pinned to {'-'.join(self.paths[flow].path)}, it returns when that path can be used"


def _hosts(flow: FlowSpec) -> str:
    return f"{flow.src_host}->{flow.dst_host}"
