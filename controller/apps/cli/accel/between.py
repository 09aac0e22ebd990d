"""Parse the network between a run's workers from the command line: one rate, or the paths of a topology."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from controller.apps.cli.accel.ground import rate_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from controller.acceleration.network.hardware import Hardware
    from controller.acceleration.values import Machines
    from controller.cluster.cost_map import CostMap


@dataclass(frozen=True, slots=True)
class Between:
    """Paths as a cost map has them, or without one a rate for each worker's link; and notes, one line each."""

    hardware: Hardware
    costs: CostMap | None
    rate_bps: float
    notes: tuple[str, ...] = ()

    def machines(self, addresses: Sequence[str], fan_in: int) -> tuple[Machines, tuple[str, ...]]:
        """Return the workers as machines of the model, which reduce in their order, and notes."""
        from controller.acceleration.running.comparing import members  # noqa: PLC0415
        from controller.acceleration.running.hosts import hosts_of, machines_between  # noqa: PLC0415

        efficiency = self.hardware.network_efficiency
        if self.costs is None:
            return members(len(addresses), fan_in, efficiency * self.rate_bps / 1e9), self.notes
        hosts, notes = hosts_of(addresses, self.hardware, self.costs)
        machines, more = machines_between(self.costs, hosts, fan_in, efficiency)
        return machines, (*self.notes, *notes, *more)


def between_of(
    *, rate: str | None, topology: str | None, hardware: Path | None, feed: str | None, server: str | None
) -> Between:
    """Return what the options say; without any of them the network takes no time.

    Raise typer.BadParameter for options that do not go together, and what files and servers raise.
    """
    from controller.acceleration.network.hardware import Hardware, load_hardware  # noqa: PLC0415
    from controller.acceleration.network.loading import BASE_ROUTES, costs_of  # noqa: PLC0415
    from dataplane.topology.file import load_topology  # noqa: PLC0415

    if rate is not None and topology is not None:
        raise typer.BadParameter("--rate and --topology: each link has one rate, or paths have theirs")
    if topology is None and feed is not None:
        raise typer.BadParameter("--feed goes with --topology")
    if server is not None and feed is None:
        raise typer.BadParameter("--server goes with --feed")
    asked = Hardware() if hardware is None else load_hardware(hardware)
    if topology is None:
        return Between(asked, None, math.inf if rate is None else rate_of(rate))
    notes = (BASE_ROUTES,) if feed is not None and server is None else ()
    return Between(asked, costs_of(load_topology(topology), feed, server), math.inf, notes)
