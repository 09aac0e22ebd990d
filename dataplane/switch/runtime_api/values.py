"""Converts matches, actions, counts and rates between the runtime API and the tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from dataplane.errors import EntryError, EntryFault
from dataplane.program.objects import ActionCall, ActionSpec, KeyField, MatchKind
from dataplane.switch.runtime_api.records import (
    ExactParam,
    LpmParam,
    MatchParam,
    MatchType,
    MeterRate,
    RangeParam,
    TableCode,
    TableRefusal,
    TernaryParam,
)
from dataplane.switch.tables import MeterConfig
from dataplane.switch.tables.match import FieldMatch, Match, all_ones, prefix_mask

MAX_PRIORITY = (1 << 31) - 1
"""Priority p in bmv2, where the smallest wins, is this less p in our tables."""

_PER_SECOND = 1_000_000

_CODES = {
    EntryFault.FULL: TableCode.TABLE_FULL,
    EntryFault.EXISTS: TableCode.DUPLICATE_ENTRY,
    EntryFault.NOT_FOUND: TableCode.INVALID_HANDLE,
    EntryFault.CONST: TableCode.IMMUTABLE_TABLE_ENTRIES,
    EntryFault.IN_USE: TableCode.MEMBER_STILL_USED,
}


def refusal_of(error: EntryError) -> TableRefusal:
    """Return bmv2's refusal for a fault in the tables."""
    return TableRefusal(_CODES.get(error.fault, TableCode.ERROR))


def handle_of(identifier: int) -> int:
    """Return the handle of a member or group: its P4Runtime id less one, in Thrift's range."""
    return (identifier - 1) & MAX_PRIORITY


def to_bytes(value: int, width: int) -> bytes:
    """Return a value in bmv2's encoding: all bytes of its width."""
    return value.to_bytes(max(1, -(-width // 8)), "big")


def from_bytes(data: bytes, width: int, code: TableCode) -> int:
    """Return the value of bytes of any length; raise TableRefusal if it does not fit."""
    value = int.from_bytes(data, "big")
    if value > all_ones(width):
        raise TableRefusal(code)
    return value


def match_of(keys: Sequence[KeyField], params: Sequence[MatchParam]) -> Match:
    """Return a match; raise BAD_MATCH_KEY if it does not suit the key. Bits outside the mask are cleared."""
    if len(params) != len(keys):
        raise TableRefusal(TableCode.BAD_MATCH_KEY)
    return tuple(_field_of(key, param) for key, param in zip(keys, params, strict=True))


def _field_of(key: KeyField, param: MatchParam) -> FieldMatch:
    width, ones, bad = key.width, all_ones(key.width), TableCode.BAD_MATCH_KEY
    match key.kind:
        case MatchKind.EXACT if param.exact is not None:
            return from_bytes(param.exact.key, width, bad)
        case MatchKind.EXACT if param.valid is not None and width == 1:
            return int(param.valid.key)
        case MatchKind.LPM if param.lpm is not None and 0 <= param.lpm.prefix_length <= width:
            length = param.lpm.prefix_length
            return from_bytes(param.lpm.key, width, bad) & prefix_mask(width, length), length
        case MatchKind.TERNARY if param.ternary is not None:
            mask = from_bytes(param.ternary.mask, width, bad)
            return from_bytes(param.ternary.key, width, bad) & mask, mask
        case MatchKind.OPTIONAL if param.ternary is not None:
            mask = from_bytes(param.ternary.mask, width, bad)
            if mask in {0, ones}:
                return from_bytes(param.ternary.key, width, bad) if mask else None
        case MatchKind.RANGE if param.range is not None:
            return from_bytes(param.range.start, width, bad), from_bytes(param.range.end_, width, bad)
    raise TableRefusal(bad)


def params_of(keys: Sequence[KeyField], match: Match) -> list[MatchParam]:
    """Return a match in bmv2's encoding."""
    return list(_params(keys, match))


def _params(keys: Sequence[KeyField], match: Match) -> Iterator[MatchParam]:
    for key, value in zip(keys, match, strict=True):
        width, ones = key.width, all_ones(key.width)
        match key.kind, value:
            case MatchKind.LPM, (prefix, length):
                yield MatchParam(MatchType.LPM, lpm=LpmParam(to_bytes(prefix, width), length))
            case MatchKind.TERNARY, (bits, mask):
                ternary = TernaryParam(to_bytes(bits, width), to_bytes(mask, width))
                yield MatchParam(MatchType.TERNARY, ternary=ternary)
            case MatchKind.RANGE, (low, high):
                yield MatchParam(MatchType.RANGE, range=RangeParam(to_bytes(low, width), to_bytes(high, width)))
            case MatchKind.OPTIONAL, None:
                yield MatchParam(MatchType.TERNARY, ternary=TernaryParam(to_bytes(0, width), to_bytes(0, width)))
            case MatchKind.OPTIONAL, int() as exact:
                ternary = TernaryParam(to_bytes(exact, width), to_bytes(ones, width))
                yield MatchParam(MatchType.TERNARY, ternary=ternary)
            case _, int() as exact:
                yield MatchParam(MatchType.EXACT, exact=ExactParam(to_bytes(exact, width)))


def call_of(actions: Mapping[str, ActionSpec], name: str, data: Sequence[bytes]) -> ActionCall:
    """Return an action with its arguments; raise TableRefusal for what the program does not have."""
    spec = actions.get(name)
    if spec is None:
        raise TableRefusal(TableCode.INVALID_ACTION_NAME)
    if len(data) != len(spec.parameters):
        raise TableRefusal(TableCode.BAD_ACTION_DATA)
    pairs = zip(data, spec.parameters, strict=True)
    return ActionCall(name, tuple(from_bytes(item, width, TableCode.BAD_ACTION_DATA) for item, (_, width) in pairs))


def data_of(actions: Mapping[str, ActionSpec], call: ActionCall) -> list[bytes]:
    """Return an action's arguments in bmv2's encoding."""
    spec = actions.get(call.action)
    widths = [width for _, width in spec.parameters] if spec is not None else []
    return [to_bytes(value, width) for value, width in zip(call.arguments, widths, strict=True)]


def config_of(rates: Sequence[MeterRate]) -> MeterConfig | None:
    """Return a meter's configuration; None unless there are two rates, the committed one first, within bounds."""
    if len(rates) != 2 or not all(math.isfinite(rate.units_per_micros) for rate in rates):
        return None
    cir, pir = (round(rate.units_per_micros * _PER_SECOND) for rate in rates)
    committed, peak = (rate.burst_size for rate in rates)
    if not 0 <= cir <= pir < 1 << 63 or committed < 0 or peak < 0:
        return None
    return MeterConfig(cir, committed, pir, peak)


def rates_of(config: MeterConfig | None) -> list[MeterRate]:
    """Return a meter's configuration in bmv2's encoding; nothing if it has none."""
    if config is None:
        return []
    pairs = ((config.cir, config.cburst), (config.pir, config.pburst))
    return [MeterRate(rate / _PER_SECOND, min(burst, (1 << 31) - 1)) for rate, burst in pairs]
