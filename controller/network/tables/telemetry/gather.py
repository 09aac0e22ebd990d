"""Gathering of several individual reports into one packet: `gather` (p4/egress/gather.p4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
from finsy import P4TableAction, P4TableEntry

from controller.network.tables.entities import Entity
from dataplane.config import Settings

NS_PER_US = 1_000


class Gathering(Settings, frozen=True):
    """Short reports wait in the switch for the next ones."""

    reports: Annotated[int, msgspec.Meta(ge=1, le=4)] = 1
    """Individual reports that share a packet; 1: each leaves at once."""
    longest_wait_ns: Annotated[int, msgspec.Meta(ge=NS_PER_US, le=0xFFFFFFFF * NS_PER_US)] = 100_000_000
    """Reports that have waited this long leave with the switch's next packet; in whole microseconds."""


NO_GATHERING = Gathering()


def gather_entities(gathering: Gathering) -> Iterator[Entity]:
    """Yield the entry that makes one switch gather reports; nothing if each leaves at once."""
    if gathering.reports > 1:
        action = P4TableAction("gather_reports", most=gathering.reports, age_us=gathering.longest_wait_ns // NS_PER_US)
        yield P4TableEntry("gather", action=action, is_default_action=True)
