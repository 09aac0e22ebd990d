"""Reads p4c's entries file: which of a program's own entries are const, and their priorities.

bmv2's JSON and P4Info contain neither. The file (P4Runtime specification, "P4Runtime Entries files"; p4c's option
--p4runtime-entries-files) is a WriteRequest with one INSERT for each entry, as text, JSON or binary. It is matched with
the JSON's entries by table and decoded key; file and JSON must agree on every entry and its action.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from finsy.proto import p4i, p4r
from google.protobuf import json_format, text_format
from google.protobuf.message import DecodeError

from dataplane.errors import ProgramError
from dataplane.program.objects import PRIORITIZED, ActionCall, KeyField, MatchKind, PresetEntry, TableSpec

Part = int | tuple[int, int] | None


def read_entries(data: bytes, file: str) -> p4r.WriteRequest:
    """Return the WriteRequest in `data`, JSON, text or binary; raise ProgramError if it is none of them."""
    request = p4r.WriteRequest()
    try:
        if data.lstrip()[:1] == b"{":
            json_format.Parse(data, request)
        else:
            with warnings.catch_warnings():
                # Python warns protobuf of an octal escape beyond a byte; here it is an error.
                warnings.simplefilter("error", DeprecationWarning)
                text_format.Parse(data.decode("utf-8"), request)
    except (UnicodeDecodeError, text_format.ParseError, DeprecationWarning) as text_error:
        try:
            request = p4r.WriteRequest.FromString(data)
        except DecodeError:
            raise _unread(text_error, file) from text_error
    except (json_format.ParseError, RecursionError) as error:
        raise _unread(error, file) from error
    return request


def _unread(error: Exception, file: str) -> ProgramError:
    problem = "nested too deeply" if isinstance(error, RecursionError) else str(error).partition("\n")[0]
    return ProgramError(f"is not an entries file (a P4Runtime WriteRequest): {problem}", file=file)


def with_entries(
    tables: Mapping[str, TableSpec],
    missing: Mapping[str, TableSpec],
    request: p4r.WriteRequest,
    info: p4i.P4Info,
    file: str,
) -> dict[str, TableSpec]:
    """Return `tables` and `missing` with the file's presets; raise ProgramError if the file disagrees with them.

    `missing` are tables of the P4Info that the JSON lacks because no packet reaches them: all their entries come from
    the file.
    """
    every = {**tables, **missing}
    reader = _Reader(every, info, file)
    given: defaultdict[str, list[_FileEntry]] = defaultdict(list)
    for index, update in enumerate(request.updates):
        entry = reader.entry(update, f"updates[{index}]")
        given[entry.table].append(entry)
    declared = {table.preamble.name for table in info.tables}
    for name, spec in every.items():
        if name in missing:
            every[name] = replace(spec, presets=tuple(_merged(entry.preset, entry) for entry in given[name]))
        elif name in declared:
            every[name] = replace(spec, presets=_presets(spec, given[name], file))
    return every


@dataclass(frozen=True, slots=True)
class _FileEntry:
    """Contents of an update in the file."""

    path: str
    table: str
    preset: PresetEntry


def _merged(preset: PresetEntry, listed: _FileEntry) -> PresetEntry:
    return replace(preset, priority=listed.preset.priority, is_const=listed.preset.is_const)


def _presets(spec: TableSpec, listed: Sequence[_FileEntry], file: str) -> tuple[PresetEntry, ...]:
    """Return the JSON's entries of a table, each with the file's data for it."""
    waiting: defaultdict[tuple[Part, ...], list[_FileEntry]] = defaultdict(list)
    for entry in listed:
        waiting[entry.preset.match].append(entry)
    pairs = [(preset, _taken(spec, preset, waiting, file)) for preset in spec.presets]
    left = next((entries[0] for entries in waiting.values() if entries), None)
    if left is not None:
        raise ProgramError(f"is an entry of {spec.name} that the JSON lacks", file=file, construct=left.path)
    if _says_order(spec, pairs, file):
        return tuple(_merged(preset, entry) for preset, entry in pairs)
    return tuple(replace(preset, is_const=entry.preset.is_const) for preset, entry in pairs)


def _taken(
    spec: TableSpec, preset: PresetEntry, waiting: Mapping[tuple[Part, ...], list[_FileEntry]], file: str
) -> _FileEntry:
    """Take the file's data for an entry; several for one key are in the JSON's order."""
    entries = waiting.get(preset.match)
    if not entries:
        problem = f"lacks entry {spec.presets.index(preset) + 1} of {len(spec.presets)} that the JSON has"
        raise ProgramError(problem, file=file, construct=spec.name)
    entry = entries.pop(0)
    if entry.preset.call != preset.call:
        raise ProgramError(
            f"is an entry of {spec.name} with another action in the JSON", file=file, construct=entry.path
        )
    return entry


def _says_order(spec: TableSpec, pairs: Sequence[tuple[PresetEntry, _FileEntry]], file: str) -> bool:
    """Return whether the file's priorities may be P4Runtime's, where larger ones win; the JSON says which entry wins.

    They cannot be in a table whose smallest priority wins (`largest_priority_wins = false`), nor where two entries of
    one key have the same.
    """
    if not any(key.kind in PRIORITIZED for key in spec.keys):
        return False
    ordered = sorted(pairs, key=lambda pair: -pair[0].priority)
    priorities = [entry.preset.priority for _, entry in ordered]
    if all(first >= second for first, second in pairwise(priorities)):
        return min(priorities, default=1) > 0 and len({(p.match, e.preset.priority) for p, e in pairs}) == len(pairs)
    if all(first <= second for first, second in pairwise(priorities)):
        return False
    raise ProgramError("has priorities of another order than the JSON's", file=file, construct=spec.name)


class _Reader:
    """Reads updates of the file by the P4Info's ids."""

    def __init__(self, tables: Mapping[str, TableSpec], info: p4i.P4Info, file: str) -> None:
        self._tables, self._file = tables, file
        self._declared = {table.preamble.id: table for table in info.tables}
        self._actions = {action.preamble.id: action for action in info.actions}

    def entry(self, update: p4r.Update, path: str) -> _FileEntry:
        entry = update.entity.table_entry
        if update.type != p4r.Update.INSERT or not update.entity.HasField("table_entry") or entry.is_default_action:
            raise self._error("inserts no table entry", path)
        declared = self._declared.get(entry.table_id)
        if declared is None or declared.preamble.name not in self._tables:
            raise self._error(f"the P4Info has no table {entry.table_id:#010x}", path)
        spec = self._tables[declared.preamble.name]
        match = self._match(spec, declared, entry, path)
        preset = PresetEntry(match, entry.priority, self._call(entry, path), entry.is_const)
        return _FileEntry(path, spec.name, preset)

    def _match(self, spec: TableSpec, declared: p4i.Table, entry: p4r.TableEntry, path: str) -> tuple[Part, ...]:
        names = {field.id: field.name for field in declared.match_fields}
        given = {names.get(field.field_id): field for field in entry.match}
        if None in given or len(given) != len(entry.match):
            raise self._error(f"has match fields that {spec.name} lacks, or repeats one", path)
        return tuple(self._part(key, given.get(key.name), path) for key in spec.keys)

    def _part(self, key: KeyField, field: p4r.FieldMatch | None, path: str) -> Part:
        """Return a part of a key as tables store it; p4c's bytes may have leading zeros, its masks a declared width."""
        everything = (1 << key.width) - 1
        kind = None if field is None else field.WhichOneof("field_match_type")
        match key.kind, kind:
            case MatchKind.OPTIONAL, None:
                return None
            case MatchKind.LPM | MatchKind.TERNARY, None:
                return 0, 0
            case MatchKind.RANGE, None:
                return 0, everything
            case (MatchKind.EXACT, "exact") if field is not None:
                return _number(field.exact.value)
            case (MatchKind.OPTIONAL, "optional") if field is not None:
                return _number(field.optional.value)
            case (MatchKind.LPM, "lpm") if field is not None:
                length = min(field.lpm.prefix_len, key.width)
                return _number(field.lpm.value) & everything << key.width - max(length, 0), length
            case (MatchKind.TERNARY, "ternary") if field is not None:
                mask = _number(field.ternary.mask) & everything
                return _number(field.ternary.value) & mask, mask
            case (MatchKind.RANGE, "range") if field is not None:
                return _number(field.range.low), _number(field.range.high)
        raise self._error(f"{key.name}: {key.kind} match expected", path)

    def _call(self, entry: p4r.TableEntry, path: str) -> ActionCall:
        action = entry.action.action
        declared = self._actions.get(action.action_id)
        if declared is None:
            raise self._error(f"the P4Info has no action {action.action_id:#010x}", path)
        given = {param.param_id: _number(param.value) for param in action.params}
        if [param.id for param in declared.params] != sorted(given) or len(given) != len(action.params):
            raise self._error(f"does not give {declared.preamble.name} its arguments", path)
        return ActionCall(declared.preamble.name, tuple(given[param.id] for param in declared.params))

    def _error(self, problem: str, path: str) -> ProgramError:
        return ProgramError(problem, file=self._file, construct=path)


def _number(value: bytes) -> int:
    return int.from_bytes(value, "big")
