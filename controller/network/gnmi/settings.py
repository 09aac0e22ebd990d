"""Settings of hellos between switches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from controller.common.errors import ControllerError
from dataplane.config import Settings
from dataplane.errors import SwitchError
from dataplane.switch.ports.states import HelloSettings
from dataplane.topology.values import Topology


class Hellos(Settings, frozen=True):
    """Settings of hellos, by which neighbouring switches detect that their link is dead (BFD, RFC 5880)."""

    enabled: bool = True
    """False: no hellos; a dead link that neither end's device reports is not detected."""
    interval_ns: Annotated[int, msgspec.Meta(ge=1_000_000)] = 50_000_000
    """Between two hellos of a port; whole microseconds, each hello comes up to a quarter earlier."""
    multiplier: Annotated[int, msgspec.Meta(ge=1, le=255)] = 3
    """After this many intervals without a hello the neighbour counts as lost."""

    @property
    def of_a_port(self) -> HelloSettings | None:
        """Settings for a port between two switches; raises ControllerError for an impossible interval."""
        if not self.enabled:
            return None
        try:
            return HelloSettings(self.interval_ns, self.multiplier)
        except SwitchError as error:
            raise ControllerError(str(error)) from error


def wanted_hellos(topology: Topology, hellos: Hellos) -> Mapping[str, Mapping[int, HelloSettings | None]]:
    """Return the settings of each switch's ports: hellos between switches, none towards hosts."""
    settings = hellos.of_a_port
    return {
        node.name: {
            port: settings if end.node in topology.switch else None
            for port, end in topology.neighbours[node.name].items()
        }
        for node in topology.switches
    }
