"""Named content that switches hold: copies of the most requested names, and names that they record.

A switch reports hot names by a digest and counts the packets of those that it holds; insertions and evictions are
decided once an interval (`controller/network/content/switch_store.py`). What a switch refuses is tried again after an
interval.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from controller.network.content.stores import Stores, by_segment
from controller.network.owners.base import ListeningOwner, ObservedState, Refusal, Verdict
from controller.network.p4runtime.session import Bundling, Learned
from controller.network.tables.entities import Batch, Entities, Entity, EntityKey, Update
from controller.network.tables.store import DIGEST, PACKETS, TABLES, hot_name, mark_entity
from dataplane.store.names import Prefix

LOGGER: Final = logging.getLogger("millrace.controller")

BUNDLING: Final = Bundling(messages=64, wait_ns=10_000_000)
"""Hot names come in lists, soon enough to show how quickly they became hot."""


class ContentOwner(ListeningOwner):
    """Owns the tables of named content; nothing is written before a switch's counters have been read."""

    name = "store"

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.interval_ns = stores.settings.interval_ns
        self.digests = {DIGEST: BUNDLING}
        self.on_change: Callable[[str, str], None] | None = None
        """Called for each switch with the reason why it is not reconciled, '' if it is."""
        self._found: dict[str, Entities] = {}
        """Store entities of switches that were read but whose counters were not."""
        self._begun: set[str] = set()
        self._refused: set[str] = set()
        self._read_again: set[str] = set()
        """Switches that were read again since they were reconciled."""

    def owns(self, key: EntityKey) -> bool:
        """Return whether an entity is the store's."""
        return key.table in TABLES

    def wanted(self, switch: str) -> Entities:
        """Return a switch's desired entities."""
        return self.stores[switch].wanted()

    def samples(self, switch: str) -> Iterable[Entity]:
        """Return an entity of the store."""
        return (mark_entity(1),)

    def found(self, switch: str, actual: Entities) -> None:
        """Note a switch's entities; management begins once its counters are known, too."""
        self._begun.discard(switch)
        self._found[switch] = {key: entity for key, entity in actual.items() if self.owns(key)}

    def restored(self, switch: str, actual: Entities, known: ObservedState) -> Entities:
        """Return a switch's entities unchanged: removals may free cells for insertions, so the order differs."""
        return self._found[switch]

    def counter(self, switch: str) -> str | None:
        """Return the counter of packets by name; None if nothing is held or desired."""
        return None if self.stores[switch].is_idle and not self._found.get(switch) else PACKETS

    def counted(self, switch: str, packets: Mapping[EntityKey, int], now_ns: int) -> None:
        """Begin with a switch that was read; then decide, after each interval, which names it holds."""
        store = self.stores[switch]
        if switch in self._begun:
            self._refused.discard(switch)
            store.interval(by_segment(packets), now_ns)
        elif switch in self._found:
            store.connected(self._found.pop(switch), by_segment(packets), now_ns)
            self._begun.add(switch)

    def learned(self, switch: str, learned: Learned, now_ns: int) -> None:
        """Take hot names, and announcements, which have no requests."""
        for message in learned.messages:
            hot = hot_name(message)
            if hot.requests:
                self.stores[switch].report_hot(hot, now_ns)
            else:
                self.stores.announced(switch, Prefix.of_number(hot.segment.name), hot.producer, now_ns)

    def unheard(self, switch: str, problem: str) -> None:
        """Note why a switch's names cannot be chosen."""
        self._report(switch, problem)

    def next_batches(self, switch: str, known: ObservedState) -> list[Batch]:
        """Return the updates to the desired state, in the order that the store needs."""
        return self.stores[switch].batches() if self._is_kept(switch) else []

    def acknowledged(self, switch: str, updates: Sequence[Update]) -> None:
        """Note a switch's store entries."""
        ours = tuple(update for update in updates if update.key.table in TABLES)
        if ours and switch in self._begun:
            self.stores[switch].acknowledged(ours)

    def confirmed(self, switch: str, held: Entities) -> None:
        """Report that a switch is reconciled."""
        if self._is_kept(switch):
            self._read_again.discard(switch)
            self._report(switch, "")

    def refused(self, refusal: Refusal) -> Verdict:
        """Leave a switch's store alone until an interval is over; read its actual entries once."""
        LOGGER.warning("%s: %s", self.name, refusal.problem)
        self._refused.add(refusal.switch)
        self._report(refusal.switch, refusal.problem)
        if refusal.switch in self._read_again:
            return Verdict.LEFT
        self._read_again.add(refusal.switch)
        return Verdict.SPARED

    def forgive(self) -> None:
        """Try everything again."""
        self._refused.clear()
        self._read_again.clear()

    def lost(self, switch: str) -> None:
        """Note that a switch's store is no longer managed."""
        self._begun.discard(switch)
        if switch not in self._refused:
            self._report(switch, "not connected")

    def _is_kept(self, switch: str) -> bool:
        return switch in self._begun and switch not in self._refused

    def _report(self, switch: str, problem: str) -> None:
        if self.on_change is not None:
            self.on_change(switch, problem)
