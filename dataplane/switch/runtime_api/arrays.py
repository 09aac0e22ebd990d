"""Methods on indirect counters and meters, registers and parser value sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dataplane.errors import EntryError, EntryFault
from dataplane.program.objects import MatchKind, ValueSetSpec
from dataplane.switch.runtime_api.records import (
    CounterCode,
    CounterRefusal,
    CounterValue,
    MeterCode,
    MeterRate,
    MeterRefusal,
    RegisterRefusal,
    ValueSetRefusal,
)
from dataplane.switch.runtime_api.runtime import Runtime
from dataplane.switch.runtime_api.values import config_of, rates_of, to_bytes
from dataplane.switch.tables import ForwardingState
from dataplane.switch.tables.arrays import CounterArray
from dataplane.switch.tables.match import FieldMatch, Match, all_ones
from dataplane.switch.tables.meters import MeterArray
from dataplane.switch.tables.value_set import ValueSet

_WORD = (1 << 64) - 1


class ArrayMethods:
    """The methods of `standard` whose objects are arrays and value sets."""

    runtime: Runtime

    # ---- counters

    @contextmanager
    def _counter(self, name: str) -> Iterator[CounterArray]:
        with self.runtime.books() as books:
            counter = books.state.counters.get(name)
            if counter is None:
                raise CounterRefusal(CounterCode.INVALID_NAME)
            try:
                yield counter
            except EntryError as error:
                raise CounterRefusal(CounterCode.INVALID_INDEX) from error

    def bm_counter_read(self, _: int, name: str, index: int) -> CounterValue:
        """Return a cell."""
        with self._counter(name) as counter:
            packets, nbytes = counter.read(index)
            return CounterValue(_signed(nbytes), _signed(packets))

    def bm_counter_write(self, _: int, name: str, index: int, value: CounterValue) -> None:
        """Set a cell."""
        with self._counter(name) as counter:
            counter.write(index, value.packets & _WORD, value.bytes & _WORD)

    def bm_counter_reset_all(self, _: int, name: str) -> None:
        """Set every cell to zero."""
        with self._counter(name) as counter:
            for index in range(counter.spec.size):
                counter.write(index, 0, 0)

    # ---- meters

    @contextmanager
    def _meter(self, name: str) -> Iterator[MeterArray]:
        with self.runtime.books() as books:
            meter = books.state.meters.get(name)
            if meter is None:
                raise MeterRefusal(MeterCode.INVALID_NAME)
            try:
                yield meter
            except EntryError as error:
                bad = MeterCode.INVALID_INDEX if error.fault is EntryFault.OUT_OF_RANGE else MeterCode.BAD_RATES_LIST
                raise MeterRefusal(bad) from error

    def bm_meter_set_rates(self, _: int, name: str, index: int, rates: Sequence[MeterRate]) -> None:
        """Configure a cell."""
        with self._meter(name) as meter:
            config = config_of(rates)
            if config is None:
                raise MeterRefusal(MeterCode.BAD_RATES_LIST)
            meter.write(index, config)

    def bm_meter_array_set_rates(self, _: int, name: str, rates: Sequence[MeterRate]) -> None:
        """Configure every cell."""
        with self._meter(name) as meter:
            for index in range(meter.spec.size):
                self.bm_meter_set_rates(_, name, index, rates)

    def bm_meter_get_rates(self, _: int, name: str, index: int) -> list[MeterRate]:
        """Return a cell's configuration; nothing if it has none."""
        with self._meter(name) as meter:
            return rates_of(meter.read(index))

    # ---- registers

    @contextmanager
    def _register(self, name: str) -> Iterator[ForwardingState]:
        """Hold packets, too: one between its read and its write would overwrite the caller's."""
        with self.runtime.books() as books, self.runtime.control.paused():
            if books.state.register_spec(name) is None:
                raise RegisterRefusal(CounterCode.INVALID_NAME)
            yield books.state

    def bm_register_read(self, _: int, name: str, index: int) -> int:
        """Return a cell; for a wide one, the low 64 bits."""
        with self._register(name) as state:
            cells = state.registers[name]
            if not 0 <= index < len(cells):
                raise RegisterRefusal(CounterCode.INVALID_INDEX)
            return _signed(cells[index] & _WORD)

    def bm_register_read_all(self, _: int, name: str) -> list[int]:
        """Return every cell."""
        with self._register(name) as state:
            return [_signed(value & _WORD) for value in state.registers[name]]

    def bm_register_write(self, _: int, name: str, index: int, value: int) -> None:
        """Set a cell; excess bits are lost, as in bmv2."""
        self.bm_register_write_range(_, name, index, index + 1, value)

    def bm_register_write_range(self, _: int, name: str, start: int, end: int, value: int) -> None:
        """Set the cells from `start` up to, but not including, `end`."""
        with self._register(name) as state:
            spec = state.register_spec(name)
            assert spec is not None
            if not 0 <= start <= end <= spec.size:
                raise RegisterRefusal(CounterCode.INVALID_INDEX)
            for index in range(start, end):
                state.write_register(name, index, value & _WORD & all_ones(spec.width))

    def bm_register_reset(self, _: int, name: str) -> None:
        """Set every cell to zero."""
        with self._register(name) as state:
            size = len(state.registers[name])
        self.bm_register_write_range(_, name, 0, size, 0)

    # ---- parser value sets

    @contextmanager
    def _value_set(self, name: str) -> Iterator[ValueSet]:
        with self.runtime.books() as books:
            value_set = books.state.value_sets.get(name)
            if value_set is None:
                raise ValueSetRefusal(1)
            try:
                yield value_set
            except EntryError as error:
                raise ValueSetRefusal(2) from error

    def bm_parse_vset_add(self, _: int, name: str, value: bytes) -> None:
        """Add a value; adding an existing one is no error."""
        with self._value_set(name) as value_set:
            member = _member(value_set.spec, value)
            value_set.replace(dict.fromkeys((*value_set.members, member)))

    def bm_parse_vset_remove(self, _: int, name: str, value: bytes) -> None:
        """Remove a value; removing a missing one is no error."""
        with self._value_set(name) as value_set:
            member = _member(value_set.spec, value)
            value_set.replace(present for present in value_set.members if present != member)

    def bm_parse_vset_get(self, _: int, name: str) -> list[bytes]:
        """Return every value."""
        with self._value_set(name) as value_set:
            return [_value(value_set.spec, member) for member in value_set.members]

    def bm_parse_vset_clear(self, _: int, name: str) -> None:
        """Remove every value."""
        with self._value_set(name) as value_set:
            value_set.replace(())


def _member(spec: ValueSetSpec, data: bytes) -> Match:
    """Return a member: its parts are adjacent in the value."""
    value, width = int.from_bytes(data, "big"), sum(key.width for key in spec.keys)
    if value > all_ones(width):
        raise ValueSetRefusal(2)
    match: list[FieldMatch] = []
    for key in spec.keys:
        width -= key.width
        part, ones = value >> width & all_ones(key.width), all_ones(key.width)
        whole = {MatchKind.TERNARY: (part, ones), MatchKind.LPM: (part, key.width), MatchKind.RANGE: (part, part)}
        match.append(whole.get(key.kind, part))
    return tuple(match)


def _value(spec: ValueSetSpec, member: Match) -> bytes:
    value, width = 0, sum(key.width for key in spec.keys)
    for key, part in zip(spec.keys, member, strict=True):
        number = part if isinstance(part, int) else 0 if part is None else part[0]
        value = value << key.width | number
    return to_bytes(value, width)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word
