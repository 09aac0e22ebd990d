"""Desired contents of a switch, across lost entries and restarts of the controller."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.common.errors import ControllerError
from controller.network.content.settings import StoreSettings
from controller.network.content.switch_store import Generations, RecordedName, SwitchStore
from controller.network.reconcile import apply
from controller.network.tables.entities import Entity, EntityKey, Verb
from controller.network.tables.store import CELLS, MARK, MAX_WRITERS, Copied, Recorded, Writer, held_in
from dataplane.store.names import HotName, Segment

S = 1_000_000_000
PRODUCER, OTHER = 10, 11
PORT = 3
SETTINGS = StoreSettings(producers=("h1",), copies=4)
COPIES = st.dictionaries(st.integers(1, 9), st.integers(2, 99), max_size=5)
STEPS = st.one_of(
    st.tuples(st.just("hot"), COPIES),
    st.tuples(st.sampled_from(["restart", "forget all", "reconnect", "cut"]), st.none()),
    st.tuples(st.just("record"), st.tuples(st.integers(20, 22), st.integers(1, 3))),
    st.tuples(st.just("drop"), st.integers(20, 22)),
)


@dataclass
class Switch:
    """Contents of a switch; records every generation written with a name for a cell, which must be new."""

    entities: dict[EntityKey, Entity] = field(default_factory=dict)
    given: set[int] = field(default_factory=set)

    def bring(self, store: SwitchStore, *, most: int = 1000) -> None:
        """Send the writes; the session ends after this many batches."""
        for batch in store.batches()[:most]:
            before = held_in(self.entities)
            assert len({update.verb for update in batch} & {Verb.DELETE, Verb.INSERT}) <= 1
            self.entities = apply(self.entities, batch)
            held = held_in(self.entities)
            for segment, placed in held.placed.items():
                if before.placed.get(segment) != placed and placed.generation not in self.generations(before.placed):
                    assert placed.generation not in self.given
                    self.given.add(placed.generation)
                    assert placed.generation < held.mark
            cells = [placed.cell for placed in held.placed.values()]
            assert len(set(cells)) == len(cells)
            store.acknowledged(batch)

    @staticmethod
    def generations(placed: object) -> set[int]:
        assert isinstance(placed, dict)
        return {entry.generation for entry in placed.values()}


def new(generations: Generations | None = None, settings: StoreSettings = SETTINGS) -> SwitchStore:
    return SwitchStore({PRODUCER: PORT}, settings, generations or Generations())


def tell(store: SwitchStore, requests: dict[int, int], now_ns: int) -> None:
    for name, count in requests.items():
        store.report_hot(HotName(Segment(name), count, PRODUCER, store.interval_number), now_ns)


def test_hot_names_of_local_producers_get_cells_each_interval() -> None:
    store, switch = new(), Switch()
    store.connected({}, {}, 0)
    switch.bring(store)
    assert held_in(switch.entities).threshold > 0
    tell(store, {1: 20, 2: 30}, S // 2)
    store.report_hot(HotName(Segment(3), 99, OTHER), S // 2)
    store.report_hot(HotName(MARK, 99, PRODUCER), S // 2)
    assert list(store.copies) == []
    store.interval({}, S)
    switch.bring(store)
    held = held_in(switch.entities)
    assert {
        (entry.segment.name, entry.cell, entry.producer) for entry in held.placed.values() if isinstance(entry, Copied)
    } == {
        (2, 0, PRODUCER),
        (1, 1, PRODUCER),
    }
    assert store.strangers == 2
    assert store.batches() == []


def test_copies_are_dropped_when_their_producer_changes_port() -> None:
    store, switch = new(), Switch()
    store.connected({}, {}, 0)
    tell(store, {1: 20}, S // 2)
    store.interval({}, S)
    switch.bring(store)
    for port, kept in ((PORT, [Segment(1)]), (PORT + 1, [])):
        after = SwitchStore({PRODUCER: port}, SETTINGS, Generations())
        after.connected(switch.entities, {}, 2 * S)
        assert list(after.copies) == kept


def test_first_name_at_the_threshold_counts_as_hottest() -> None:
    store = new(settings=StoreSettings(producers=("h1",), copies=1))
    store.connected({}, {}, 0)
    tell(store, {1: 16}, S // 10)
    tell(store, {2: 16}, S)
    store.interval({}, S)
    assert list(store.copies) == [Segment(1)]


def test_late_report_of_the_last_interval_is_ignored() -> None:
    store = new(settings=StoreSettings(producers=("h1",), copies=1))
    store.connected({}, {}, 0)
    before = store.interval_number
    store.interval({}, S)
    store.report_hot(HotName(Segment(1), 16, PRODUCER, before), S + S // 100)
    tell(store, {2: 16}, S + S // 2)
    store.interval({}, 2 * S)
    assert list(store.copies) == [Segment(2)]


def test_a_name_that_is_no_longer_asked_for_goes() -> None:
    store, switch = new(settings=StoreSettings(producers=("h1",), copies=1)), Switch()
    store.connected({}, {}, 0)
    tell(store, {1: 16}, S)
    store.interval({}, S)
    switch.bring(store)
    for interval in range(2, 8):
        tell(store, {2: 16}, interval * S)
        store.interval({Segment(1): 20}, interval * S)
        switch.bring(store)
    assert list(held_in(switch.entities).placed) == [Segment(2)]


def test_flood_of_names_is_reported_ever_less_often() -> None:
    store = new()
    store.connected({}, {}, 0)
    thresholds = []
    for interval in range(1, 9):
        for name in range(5000 if interval < 5 else 0):
            store.report_hot(HotName(Segment(name), 16, OTHER, store.interval_number), interval * S)
        store.interval({}, interval * S)
        (batch,) = store.batches()
        store.acknowledged(batch)
        thresholds.append(store.held().threshold)
    assert thresholds == [16, 32, 64, 128, 64, 32, 16, 8]


def test_interval_numbers_differ_from_the_last_after_a_restart() -> None:
    store, switch, numbers = new(), Switch(), []
    for now_ns in (0, 0, S // 2):
        store = new()
        store.connected(switch.entities, {}, now_ns)
        switch.bring(store)
        numbers.append(held_in(switch.entities).interval)
    store.interval({}, S)
    switch.bring(store)
    numbers.append(held_in(switch.entities).interval)
    assert all(first != second for first, second in pairwise(numbers))
    assert 0 not in numbers


def test_recorded_names_get_cells_and_writers_before_copies() -> None:
    settings = StoreSettings(producers=("h1",), copies=CELLS)
    store, switch = new(settings=settings), Switch()
    store.connected({}, {}, 0)
    tell(store, dict.fromkeys(range(1, 5), 16), S)
    store.interval({}, S)
    switch.bring(store)
    wanted = RecordedName(50, CELLS - 2, frozenset({Writer(7), Writer(8)}), forward=True)
    store.record(wanted)
    assert not store.is_recorded(50)
    for batch in store.batches():
        switch.entities = apply(switch.entities, batch)
        store.acknowledged(batch)
    assert store.is_recorded(50)
    held = held_in(switch.entities)
    recorded = [entry for entry in held.placed.values() if isinstance(entry, Recorded)]
    assert len(recorded) == CELLS - 2
    assert {entry.group for entry in recorded} == {1}
    assert held.writers == {(1, Writer(7)), (1, Writer(8))}
    assert len(store.copies) == 2
    with pytest.raises(ControllerError, match="4093 of 4095 cells are in use, 3 more are needed"):
        store.record(RecordedName(51, 3, frozenset({Writer(7)}), forward=True))
    with pytest.raises(ControllerError, match="2 of 4096 writers are known, 4095 more are needed"):
        store.record(RecordedName(51, 1, frozenset(map(Writer, range(MAX_WRITERS - 1))), forward=True))
    store.forget(50)
    removed = [update.key.table for batch in store.batches() for update in batch]
    assert (removed.count("store_names"), removed.count("store_writers")) == (CELLS - 2, 2)


def test_store_without_producers_removes_all_but_the_mark() -> None:
    store, switch = new(), Switch()
    store.connected({}, {}, 0)
    tell(store, {1: 16}, S)
    store.interval({}, S)
    switch.bring(store)
    mark = held_in(switch.entities).mark
    empty = SwitchStore({}, StoreSettings(), Generations())
    empty.connected(switch.entities, {}, 0)
    switch.bring(empty)
    assert len(switch.entities) == 1
    assert held_in(switch.entities).mark == mark
    assert empty.is_idle


def test_exhausted_generations_are_reported() -> None:
    generations = Generations()
    generations.begin_at(2**32 - 2000)
    store = new(generations)
    store.connected({}, {}, 0)
    tell(store, {1: 16}, S)
    store.interval({}, S)
    generations.begin_at(2**32 - 1024)
    with pytest.raises(ControllerError, match="store: all cell generations are used up"):
        generations.take()


@given(st.lists(STEPS, max_size=14))
def test_store_recovers_without_reusing_a_generation(steps: list[tuple[str, object]]) -> None:
    store, switch, now_ns = new(), Switch(), 0
    store.connected({}, {}, 0)
    for kind, what in steps:
        now_ns += S
        match kind, what:
            case "hot", dict(requests):
                tell(store, requests, now_ns)
                store.interval({}, now_ns)
            case "record", (int(name), int(segments)):
                store.record(RecordedName(name, segments, frozenset({Writer(name)}), forward=False))
            case "drop", int(name):
                store.forget(name)
            case "restart", _:
                switch.entities = {}
                switch.given.clear()  # its cells are empty, too
                store.connected({}, {}, now_ns)
            case "forget all", _:
                store = new()
                store.connected(switch.entities, {}, now_ns)
            case "cut", _:
                switch.bring(store, most=1)
                store.connected(switch.entities, {}, now_ns)
            case _:
                store.connected(switch.entities, {}, now_ns)
        if kind != "restart" or now_ns % 2:
            switch.bring(store)
            assert store.batches() == []
    switch.bring(store)
    held = held_in(switch.entities)
    assert {entry.segment for entry in held.placed.values() if isinstance(entry, Copied)} == set(store.copies)
    assert len(store.copies) <= SETTINGS.copies
