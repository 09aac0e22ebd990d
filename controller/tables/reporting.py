"""What switches report beside the telemetry of watched flows."""

from __future__ import annotations

from collections.abc import Iterator

from controller.tables.drop_watch import DropWatch, drop_watch_entities
from controller.tables.entities import Entity
from dataplane.config import Strict
from dataplane.fabric.topology import Topology


class Reporting(Strict, frozen=True):
    """Reports that a switch sends on its own; what is left out it does not send."""

    drops: tuple[DropWatch, ...] = ()
    """Which drops are reported, the first rule that matches."""


NO_REPORTING = Reporting()


def reporting_entities(topology: Topology, reporting: Reporting) -> Iterator[Entity]:
    """Yield the entries for one switch; raise ControllerError for a rule that does not fit the topology."""
    yield from drop_watch_entities(topology, reporting.drops)
