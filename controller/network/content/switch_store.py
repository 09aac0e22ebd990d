"""Desired named content of one switch, and the next writes; no session, no clock.

Level triggered like the rest of the controller: `connected` takes the switch's entries, `interval` its counts, `record`
and `forget` the desired names; each time `batches` returns the missing updates, to be sent in order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

from finsy import P4TableEntry

from controller.common.errors import ControllerError
from controller.network.content.name_routes import NameRoutes
from controller.network.content.settings import StoreSettings
from controller.network.reconcile import apply, chunks
from controller.network.tables.entities import Batch, Entities, Entity, EntityKey, Kind, Update, Verb, key_of, same
from controller.network.tables.store import (
    ANY_SWITCH,
    CELLS,
    HOT_NAMES,
    MARK,
    MAX_INTERVAL,
    MAX_THRESHOLD,
    MAX_WRITERS,
    TABLES,
    Copied,
    Placed,
    Recorded,
    StoreTables,
    Writer,
    held_in,
    hot_names_entity,
    mark_entity,
    name_entity,
    route_entity,
    routes_in,
    writer_entity,
)
from dataplane.store.names import HotName, Segment

ADVANTAGE: Final = 1.25
"""Factor by which a name must be more popular than a held one to take its cell; keeps equals from alternating."""


@dataclass(frozen=True, slots=True)
class HeldName:
    """A name that the switch holds, its cell, and its packets in the last interval."""

    segment: Segment
    cell: int
    packets: int


@dataclass(frozen=True, slots=True)
class Insertion:
    """A name's new cell and its generation."""

    segment: Segment
    cell: int
    generation: int


@dataclass(frozen=True, slots=True)
class Choice:
    """Changes to make; evictions precede insertions, which may reuse their cells."""

    evicted: tuple[HeldName, ...] = ()
    inserted: tuple[Insertion, ...] = ()


def choose(held: Collection[HeldName], hot: Collection[HotName], *, cells: Sequence[int], generation: int) -> Choice:
    """Return the insertions and evictions, the hottest names first into free cells, then in place of the least popular.

    `cells` are those that copies may have; `generation` is the first unused one: each insertion takes one.
    """
    there = {name.segment for name in held}
    wanted: dict[Segment, int] = {}
    for hot_name in hot:
        if hot_name.segment not in there:
            wanted[hot_name.segment] = max(hot_name.requests, wanted.get(hot_name.segment, 0))
    taken = {name.cell for name in held}
    free = [cell for cell in cells if cell not in taken]
    coldest = sorted(held, key=lambda name: (name.packets, name.cell))
    evicted, inserted = [], []
    hottest = sorted(wanted.items(), key=lambda entry: (-entry[1], entry[0].name, entry[0].number))
    for number, (segment, requests) in enumerate(hottest):
        if number < len(free):
            cell = free[number]
        else:
            rank = number - len(free)
            if rank >= len(coldest) or requests <= ADVANTAGE * coldest[rank].packets:
                break
            evicted.append(coldest[rank])
            cell = coldest[rank].cell
        inserted.append(Insertion(segment, cell, generation + number))
    return Choice(tuple(evicted), tuple(inserted))


_FIRST_THRESHOLD = 16
_FEW, _MANY = 64, 4096
"""Hot names in an interval that are never too many, and that always are."""
_RESERVED = 1024
"""Generations between two writes of the mark."""


class Generations:
    """Numbers that are used once across all switches: 32 bits, never 0."""

    def __init__(self) -> None:
        self.next = 1

    def begin_at(self, generation: int) -> None:
        """Skip all numbers below this one."""
        self.next = max(self.next, generation)

    def take(self) -> int:
        """Return an unused number; raise ControllerError when all are used up."""
        if self.next >= 2**32 - _RESERVED:
            raise ControllerError("store: all cell generations are used up: restart the switches, then this program")
        self.next += 1
        return self.next - 1


@dataclass(frozen=True, slots=True)
class RecordedName:
    """A name that a switch records: its hash, number of segments, and permitted writers."""

    name: int
    segments: int
    writers: frozenset[Writer]
    forward: bool


class SwitchStore:
    """The store's entries of one switch, wanted and held; `producers` are addresses, with their ports or ANY_SWITCH."""

    def __init__(
        self,
        producers: Mapping[int, int],
        settings: StoreSettings,
        generations: Generations,
        routes: NameRoutes | None = None,
        never: Set[int] = frozenset(),
    ) -> None:
        """`never` are the hashes of names whose segments change, as recorded ones do."""
        self._routes, self._never = routes or NameRoutes(settings.announced_for_ns), never
        self._now_ns = 0
        self._producers, self._settings, self._generations = producers, settings, generations
        self._held: dict[EntityKey, Entity] = {}
        self._copies: dict[Segment, Copied] = {}
        self._names: dict[int, RecordedName] = {}
        self._recorded: dict[Segment, Recorded] = {}
        self._mark = self._interval = self._reports = 0
        self._threshold = _FIRST_THRESHOLD
        self._began_ns = 0
        self._hot: dict[Segment, HotName] = {}
        self._counted: dict[Segment, int] = {}
        self._made: dict[Placed, tuple[EntityKey, Entity]] = {}
        self.packets: dict[Segment, int] = {}
        """Packets of each copied name in an interval, recent ones weighted more."""
        self.strangers = 0
        """Hot names of producers that are not this switch's."""

    @property
    def is_idle(self) -> bool:
        """Return whether the switch neither holds nor needs anything of the store."""
        return not self._producers and not self._names and not self._routes.is_used and self.held().placed == {}

    @property
    def copies(self) -> Collection[Segment]:
        """The segments that the switch should have copies of."""
        return self._copies.keys()

    @property
    def interval_number(self) -> int:
        """The current counting interval of the switch."""
        return self._interval

    def held(self) -> StoreTables:
        """Return the switch's known entries."""
        return held_in(self._held)

    def is_recorded(self, name: int) -> bool:
        """Return whether the switch holds a recorded name completely."""
        return name in self._names and not any(
            update.key.table != HOT_NAMES for batch in self.batches() for update in batch
        )

    def record(self, wanted: RecordedName) -> None:
        """Record a name; raise ControllerError, and change nothing, if there is no room."""
        others = [recorded for recorded in self._names.values() if recorded.name != wanted.name]
        cells, writers = (
            sum(recorded.segments for recorded in others),
            sum(len(recorded.writers) for recorded in others),
        )
        if cells + wanted.segments > CELLS:
            raise ControllerError(f"{cells} of {CELLS} cells are in use, {wanted.segments} more are needed")
        if writers + len(wanted.writers) > MAX_WRITERS:
            raise ControllerError(
                f"{writers} of {MAX_WRITERS} writers are known, {len(wanted.writers)} more are needed"
            )
        self._names[wanted.name] = wanted
        self._place_recorded(self.held())

    def forget(self, name: int) -> None:
        """Stop recording a name."""
        self._names.pop(name, None)
        self._place_recorded(self.held())

    def connected(self, entities: Entities, counted: Mapping[Segment, int], now_ns: int) -> None:
        """Take a switch's entries: continue with those that it has, and write lost ones again, as new ones."""
        self._held = {key: entity for key, entity in entities.items() if key.table in TABLES}
        self._now_ns = now_ns
        for prefix, producer in routes_in(self._held).items():
            self._routes.adopt(prefix, producer, now_ns)
        held = self.held()
        self._mark = max(self._mark, held.mark)
        used = [held.mark, *(placed.generation + 1 for placed in held.placed.values())]
        self._generations.begin_at(max(used))
        believed = self._copies
        self._copies, self._recorded = {}, {}
        self._place_recorded(held)
        taken: set[int] = set()
        for copy in held.placed.values():
            if isinstance(copy, Copied) and self._may_have(copy, taken):
                taken.add(copy.cell)
                self._copies[copy.segment] = copy
        for copy in believed.values():
            if self._may_have(copy, taken):
                taken.add(copy.cell)
                self._copies[copy.segment] = replace(copy, generation=self._generation())
        self._counted, self.packets = dict(counted), {}
        self._begin(held.interval, now_ns)

    def report_hot(self, hot: HotName, now_ns: int) -> None:
        """Take a reported name: it has just reached the threshold, and is assumed to stay that popular."""
        self._reports += 1
        if hot.producer not in self._producers or hot.segment == MARK:
            self.strangers += 1
            return
        if self._producers[hot.producer] == ANY_SWITCH and (not hot.segment.number or hot.segment.name in self._never):
            return  # it may change without passing this switch
        # A late report means that the name became hot more slowly.
        passed_ns = now_ns - self._began_ns if hot.interval == self._interval else self._settings.interval_ns
        part = min(1.0, max(passed_ns, 1) / self._settings.interval_ns)
        # Of n random arrivals, n - 1 over the time until the last one estimate their rate without bias.
        self._hot[hot.segment] = replace(hot, requests=round(max(hot.requests - 1, 1) / part))

    def interval(self, counted: Mapping[Segment, int], now_ns: int) -> None:
        """Take the counters of the switch's names at the end of an interval, and choose the names to keep."""
        self._now_ns = now_ns
        for segment in self._copies:
            now = counted.get(segment, 0) - self._counted.get(segment, 0)
            self.packets[segment] = round((self.packets.get(segment, now) + now) / 2)
        self._counted = dict(counted)
        held = [HeldName(copy.segment, copy.cell, self.packets.get(copy.segment, 0)) for copy in self._copies.values()]
        hot = [hot_name for hot_name in self._hot.values() if hot_name.segment not in self._recorded]
        choice = choose(held, hot, cells=self._cells(), generation=0)
        for gone in choice.evicted:
            del self._copies[gone.segment]
            self.packets.pop(gone.segment, None)
        for come in choice.inserted:
            producer = self._hot[come.segment].producer
            self._copies[come.segment] = Copied(
                come.segment, come.cell, self._generation(), producer, self._producers[producer]
            )
            self.packets[come.segment] = self._hot[come.segment].requests
        self._begin(self._interval, now_ns)

    def wanted(self) -> Entities:
        """Return the switch's desired entries."""
        return dict(self._wanted())

    def batches(self) -> list[Batch]:
        """Return the updates that the switch needs, each to be sent when the previous one is acknowledged.

        The mark comes first, so that it covers every generation in use; then removals, which may free cells for
        insertions.
        """
        wanted = self.wanted()
        marks, goes, comes = list[Update](), list[Update](), list[Update]()
        for key, entity in self._held.items():
            if key not in wanted:
                goes.append(_removal(key, entity))
        for key, entity in wanted.items():
            held = self._held.get(key)
            if held is entity:
                continue
            if held is not None and same(held, entity):
                self._held[key] = entity  # so that the next comparison is by identity
                continue
            is_new = held is None and key.kind is not Kind.DEFAULT
            update = Update(Verb.INSERT if is_new else Verb.MODIFY, key, entity)
            (marks if key == _MARK_KEY else comes).append(update)
        return [*chunks(marks), *chunks(goes), *chunks(comes)]

    def acknowledged(self, batch: Batch) -> None:
        """Note that updates took effect."""
        self._held = apply(self._held, batch)

    def _wanted(self) -> Iterator[tuple[EntityKey, Entity]]:
        there: list[Placed] = [*self._recorded.values(), *self._copies.values()]
        self._made = {placed: self._made.get(placed) or _keyed(name_entity(placed)) for placed in there}
        if self._mark:
            yield _keyed(mark_entity(self._mark))
        yield from self._made.values()
        for prefix, producer in self._routes.at(self._now_ns).items():
            yield _keyed(route_entity(prefix, producer))
        groups = {recorded.segment.name: recorded.group for recorded in self._recorded.values()}
        for name, group in groups.items():
            for writer in sorted(self._names[name].writers):
                yield _keyed(writer_entity(group, writer))
        if self._producers:
            yield _keyed(hot_names_entity(self._interval, self._threshold))

    def _may_have(self, copy: Copied, taken: Set[int]) -> bool:
        """Return whether a copy that was, or was believed to be, there may stay."""
        is_known = copy.segment in self._copies or copy.segment in self._recorded
        is_ours = self._producers.get(copy.producer) == copy.port and copy.cell in self._cells()
        return is_ours and not is_known and copy.cell not in taken

    def _cells(self) -> range:
        """Return the cells of copies; recorded names come from the other end."""
        return range(min(self._settings.copies, CELLS - len(self._recorded)))

    def _place_recorded(self, held: StoreTables) -> None:
        """Give each recorded segment a cell: its present one, else one from the end, evicting any copy there."""
        before = {
            **{key: placed for key, placed in held.placed.items() if isinstance(placed, Recorded)},
            **self._recorded,
        }
        self._recorded = {}
        taken = {before[segment].cell for segment in self._wanted_segments() if segment in before}
        free = (cell for cell in reversed(range(CELLS)) if cell not in taken)
        groups: dict[int, int] = {}
        for segment in self._wanted_segments():
            wanted, there = self._names[segment.name], before.get(segment)
            if segment.name not in groups:
                groups[segment.name] = self._group(there, groups.values())
            self._recorded[segment] = Recorded(
                segment,
                next(free) if there is None else there.cell,
                self._generation() if there is None else there.generation,
                groups[segment.name],
                wanted.forward,
            )
        cells = {recorded.cell for recorded in self._recorded.values()}
        for copy in list(self._copies.values()):
            if copy.cell in cells or copy.segment in self._recorded or copy.cell not in self._cells():
                del self._copies[copy.segment]

    def _wanted_segments(self) -> Iterator[Segment]:
        for wanted in self._names.values():
            for number in range(wanted.segments):
                yield Segment(wanted.name, number)

    @staticmethod
    def _group(there: Recorded | None, taken: Collection[int]) -> int:
        if there is not None and there.group and there.group not in taken:
            return there.group
        return next(group for group in range(1, 1 << 16) if group not in taken)

    def _generation(self) -> int:
        generation = self._generations.take()
        if generation >= self._mark:
            self._mark = generation + _RESERVED
        return generation

    def _begin(self, last_interval: int, now_ns: int) -> None:
        """Begin an interval under another number, with a threshold that reports only names that could take a place."""
        reports, self._reports = self._reports, 0
        self._hot.clear()
        self._began_ns = now_ns
        by_time = now_ns // self._settings.interval_ns % MAX_INTERVAL + 1
        self._interval = by_time if by_time != last_interval else by_time % MAX_INTERVAL + 1
        free = len(self._cells()) - len(self._copies)
        if free <= 0:
            wanted = min((self.packets.get(segment, 0) for segment in self._copies), default=0)
        elif reports > 2 * max(free, _FEW):
            wanted = 2 * self._threshold
        elif reports < free:
            wanted = self._threshold // 2
        else:
            wanted = self._threshold
        # A flood of requests for many names raises the threshold, which comes down slowly.
        wanted = max(wanted, 2 * self._threshold if reports > _MANY else self._threshold // 2)
        self._threshold = min(max(self._settings.threshold, wanted), MAX_THRESHOLD)


_MARK_KEY = key_of(mark_entity(1))


def _keyed(entity: Entity) -> tuple[EntityKey, Entity]:
    return key_of(entity), entity


def _removal(key: EntityKey, entity: Entity) -> Update:
    if key.kind is Kind.DEFAULT:
        return Update(Verb.MODIFY, key, P4TableEntry(key.table, is_default_action=True))
    return Update(Verb.DELETE, key, entity)
