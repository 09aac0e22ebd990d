"""Loads a compiled P4 program: takes bmv2 JSON and P4Info, returns a checked `Program`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TypeVar

import msgspec
from finsy.proto import p4i, p4r

from dataplane.errors import ProgramError
from dataplane.given import read_given
from dataplane.program.actions import read_action
from dataplane.program.calculations import read_calculation, read_checksum
from dataplane.program.declarations import read_aliases, read_declarations, read_errors
from dataplane.program.files.entries import read_entries, with_entries
from dataplane.program.model import VALID, Digest, Pipeline, Program, TableNode
from dataplane.program.objects import ActionSpec, DigestSpec, KeyField, MatchKind, TableSpec, ValueSetSpec
from dataplane.program.operations import CrcParameters
from dataplane.program.p4info import (
    DeclaredTable,
    declared_actions,
    declared_digests,
    declared_meters,
    declared_tables,
    declared_value_sets,
    is_translated,
    read_p4info,
)
from dataplane.program.parsers import read_deparser, read_parser
from dataplane.program.pipelines import PipelineReader
from dataplane.program.raw import RawProgram, RawValueSet, is_p4_14
from dataplane.program.scope import Scope

SUPPORTED_MAJOR = 2
"""The supported major version of the JSON format."""

REQUIRED_FIELDS = ("ingress_port", "packet_length", "instance_type", "egress_spec", "egress_port")
"""Fields that simple_switch requires in standard_metadata."""

_AT = re.compile(r" - at `\$\.?(?P<place>[^`]*)`$")
_DECODER = msgspec.json.Decoder(RawProgram)
"""Made here: msgspec crashes if several threads ask for a type the first time."""

Item = TypeVar("Item")


def load_program(
    json: bytes | Path,
    p4info: bytes | Path | None,
    *,
    entries: bytes | Path | None = None,
    crc_parameters: Mapping[str, CrcParameters] | None = None,
) -> Program:
    """Return the program; raise ProgramError naming the file and place of anything wrong or unsupported.

    Without a P4Info (None) nothing can be compared with it, and the control plane sees an empty one. `entries` is p4c's
    entries file, which needs the P4Info; without it, all entries of tables that are not const may be changed, and their
    priorities only give their order. `crc_parameters` are those of calculations that are crc8_custom to crc64_custom,
    by the name in the JSON (`calc_0`).
    """
    json_data, json_file = _content(json, "<json>")
    info_data, info_file = _content(p4info, "<p4info>") if p4info is not None else (b"", "<p4info>")
    info = read_p4info(info_data, info_file)
    entries_file = None if entries is None else _entries(entries, has_p4info=p4info is not None)
    scope = Scope(json_file)
    try:
        raw = _decode(json_data, json_file)
        read_declarations(raw, scope)
        assembly = _Assembly(raw, scope, info, info_file, entries_file, has_p4info=p4info is not None)
        return assembly.program(json_data, dict(crc_parameters or {}))
    except RecursionError as error:
        raise ProgramError("is nested too deeply", file=json_file) from error
    except ProgramError as error:
        if is_p4_14(json_data):
            problem = (
                "is a P4-14 program, compiled by p4c-bm, which is not supported; p4c compiles it with --std p4-14, "
                "if it was built with SUPPORT_P4_14"
            )
            raise ProgramError(problem, file=json_file) from error
        raise


def _content(source: bytes | Path, name: str) -> tuple[bytes, str]:
    if isinstance(source, bytes):
        return source, name
    try:
        return read_given(source), str(source)
    except OSError as error:
        raise ProgramError(error.strerror or "cannot be read", file=str(source)) from error


def _entries(source: bytes | Path, *, has_p4info: bool) -> _EntriesFile:
    data, file = _content(source, "<entries>")
    if not has_p4info:
        raise ProgramError("names tables by the ids of a P4Info, and there is none", file=file)
    return _EntriesFile(read_entries(data, file), file)


def _decode(data: bytes, file: str) -> RawProgram:
    try:
        raw = _DECODER.decode(data)
    except msgspec.ValidationError as error:
        match = _AT.search(str(error))
        problem = str(error)[: match.start()] if match else str(error)
        raise ProgramError(problem, file=file, construct=match["place"] if match else None) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProgramError(f"is not JSON: {error}", file=file) from error
    if raw.meta is not None and raw.meta.version[:1] != [SUPPORTED_MAJOR]:
        raise ProgramError(f"is {raw.meta.version}, not {SUPPORTED_MAJOR}.x", file=file, construct="__meta__.version")
    return raw


def _digest(source: bytes, info: p4i.P4Info, entries: bytes | None, crcs: Mapping[str, CrcParameters]) -> str:
    """Return a digest that identifies a program, in hex."""
    parameters = repr(sorted(crcs.items())).encode() if crcs else b""
    digest = hashlib.sha256(source + info.SerializeToString(deterministic=True) + parameters)
    if entries is not None:
        digest.update(b"entries" + entries)
    return digest.hexdigest()


def _same_parameters(spec: ActionSpec, declared: p4i.Action, info: p4i.P4Info) -> bool:
    """Return whether an action's parameters are as declared; a translated one may have another width here."""
    widths = dict(spec.parameters)
    return [name for name, _ in spec.parameters] == [parameter.name for parameter in declared.params] and all(
        widths[parameter.name] == parameter.bitwidth or is_translated(parameter.type_name.name, info)
        for parameter in declared.params
    )


def _with_keys(spec: ValueSetSpec, sets: Sequence[RawValueSet]) -> ValueSetSpec:
    """Return a value set with a key even if neither the P4Info nor any parser state gives its parts."""
    if spec.keys:
        return spec
    width = next(item.compressed_bitwidth for item in sets if item.name == spec.name)
    return replace(spec, keys=(KeyField("key0", MatchKind.EXACT, width),))


def _declared_digest(digest: Digest, name: str, members: Sequence[str]) -> Digest:
    """Return a digest under the names that the control plane uses."""
    fields = digest.spec.fields
    if len(members) == len(fields):
        fields = tuple((member, width) for member, (_, width) in zip(members, fields, strict=True))
    return replace(digest, spec=DigestSpec(name, fields))


@dataclass(frozen=True, slots=True)
class _EntriesFile:
    """An entries file's contents, and its name in errors."""

    request: p4r.WriteRequest
    file: str


class _Assembly:
    """Assembles a program from its parts."""

    def __init__(
        self,
        raw: RawProgram,
        scope: Scope,
        info: p4i.P4Info,
        info_file: str,
        entries_file: _EntriesFile | None,
        *,
        has_p4info: bool,
    ) -> None:
        self.raw, self.scope, self.info, self.info_file, self.has_p4info = raw, scope, info, info_file, has_p4info
        self.entries_file = entries_file

    def program(self, source: bytes, crcs: dict[str, CrcParameters]) -> Program:
        """Return the program assembled from all parts."""
        raw, scope = self.raw, self.scope
        self._read_calculations(crcs)
        self._read_actions()
        if self.has_p4info:
            self._read_declared()
        declared = declared_tables(self.info, self.info_file) if self.has_p4info else None
        pipelines = PipelineReader(
            scope, declared, {profile.preamble.name: profile.max_group_size for profile in self.info.action_profiles}
        )
        ingress, egress = (
            pipelines.pipeline(raw.pipelines[index], f"pipelines[{index}]")
            for index in (self._index(raw.pipelines, name, "pipelines") for name in ("ingress", "egress"))
        )
        parser = self._index(raw.parsers, "parser", "parsers")
        deparser = self._index(raw.deparsers, "deparser", "deparsers")
        self._check_metadata()
        self._check_actions(ingress, egress)
        self._check_against_p4info(pipelines)
        entries = None if self.entries_file is None else self.entries_file.request.SerializeToString(deterministic=True)
        bound_parser = read_parser(raw.parsers[parser], scope, f"parsers[{parser}]")
        bound_deparser = read_deparser(raw.deparsers[deparser], scope, f"deparsers[{deparser}]")
        checksums = tuple(read_checksum(item, scope, f"checksums[{i}]") for i, item in enumerate(raw.checksums))
        self._check_valid_bits()
        return Program(
            name=PurePath(raw.program).stem or "program",
            digest=_digest(source, self.info, entries, crcs),
            tables=self._tables(declared or {}, pipelines),
            actions=self._action_specs(ingress, egress),
            profiles=pipelines.profiles,
            counters=scope.counters,
            registers=scope.registers,
            meters=scope.meters,
            digests=scope.digests,
            value_sets={name: _with_keys(spec, raw.parse_vsets) for name, spec in scope.value_sets.items()},
            p4info=self.info,
            headers=scope.headers,
            stacks=scope.stacks,
            unions=scope.unions,
            union_stacks=scope.union_stacks,
            errors=read_errors(raw, scope),
            aliases=read_aliases(raw, scope),
            field_lists=scope.field_lists,
            parser=bound_parser,
            ingress=ingress,
            egress=egress,
            deparser=bound_deparser,
            checksums=checksums,
            source=source,
            entries=entries,
        )

    def _read_calculations(self, crcs: dict[str, CrcParameters]) -> None:
        raw, scope = self.raw, self.scope
        for index, item in enumerate(raw.calculations):
            path = f"calculations[{index}]"
            calculation = read_calculation(item, scope, path, crcs.get(item.name))
            scope.insert(scope.calculations, item.name, calculation, path)
        unknown = [name for name in crcs if name not in scope.calculations]
        if unknown:
            raise scope.error("calculations", f"CRC parameters for {unknown[0]}, which does not exist")

    def _read_declared(self) -> None:
        """Complete the properties of value sets and digests that only the P4Info has."""
        scope = self.scope
        for name, spec in declared_value_sets(self.info, self.info_file).items():
            present = scope.value_sets.get(name)
            if present is None:
                raise self._mismatch(f"value set {name}", "is not in the JSON")
            scope.value_sets[name] = replace(spec, size=spec.size or present.size)
        digests = declared_digests(self.info)
        nameless = [name for name in digests if name not in {digest.spec.name for digest in scope.digests.values()}]
        for key, digest in scope.digests.items():  # p4c names tuples differently in the two files, in the same order
            if digest.spec.name not in digests and not nameless:
                raise self._mismatch(f"digest {digest.spec.name}", "is in the JSON only")
            name = digest.spec.name if digest.spec.name in digests else nameless.pop(0)
            scope.digests[key] = _declared_digest(digest, name, digests[name])

    def _read_actions(self) -> None:
        raw, scope = self.raw, self.scope
        for index, item in enumerate(raw.actions):
            path = f"actions[{index}]"
            if item.id in scope.actions:
                raise scope.error(path, f"two actions have the id {item.id}")
            scope.actions[item.id] = read_action(item, scope, path)

    def _index(self, items: Sequence[Item], name: str, key: str) -> int:
        indices = [index for index, item in enumerate(items) if getattr(item, "name", None) == name]
        if len(indices) != 1:
            raise self.scope.error(key, f"there is not exactly one called {name!r}")
        return indices[0]

    def _check_metadata(self) -> None:
        header = self.scope.header("standard_metadata", "headers")
        missing = [name for name in REQUIRED_FIELDS if header.type.field(name) is None]
        if missing or not header.metadata:
            raise self.scope.error("headers", f"standard_metadata has no {' and no '.join(missing) or 'metadata flag'}")

    def _check_valid_bits(self) -> None:
        """Raise where something reads a $valid$ that a parser sets: we keep no copy of a header's flag."""
        for header, path in self.scope.set_valid_bits.items():
            if header in self.scope.read_valid_bits:
                raise self.scope.unsupported(path, f"setting {header}.{VALID}, which is read elsewhere,")

    def _action_specs(self, *pipelines: Pipeline) -> dict[str, ActionSpec]:
        declared = {spec.name: spec for spec in declared_actions(self.info).values()} if self.has_p4info else {}
        nodes = [node for pipeline in pipelines for node in pipeline.nodes.values() if isinstance(node, TableNode)]
        present = {name: action.spec for node in nodes for name, action in node.actions.items()}
        return declared | present

    def _tables(self, declared: Mapping[str, DeclaredTable], pipelines: PipelineReader) -> dict[str, TableSpec]:
        missing = self._unreachable(declared, pipelines)
        if self.entries_file is None:
            return pipelines.tables | missing
        return with_entries(pipelines.tables, missing, self.entries_file.request, self.info, self.entries_file.file)

    def _unreachable(self, declared: Mapping[str, DeclaredTable], pipelines: PipelineReader) -> dict[str, TableSpec]:
        """Return the tables that p4c declared but that no packet reaches; they can be written to nevertheless."""
        return {
            table.name: TableSpec(
                name=table.name,
                keys=table.keys,
                actions=table.actions,
                default=table.default,
                const_default=table.const_default,
                size=table.size,
                is_const=table.is_const,
            )
            for table in declared.values()
            if table.name not in pipelines.tables
        }

    def _check_actions(self, *pipelines: Pipeline) -> None:
        """Raise where a table's action has other parameters; calls outside of tables share names and have none."""
        declared = {action.preamble.name: action for action in self.info.actions}
        tables = {table.preamble.name for table in self.info.tables}
        for node in (node for pipeline in pipelines for node in pipeline.nodes.values()):
            if isinstance(node, TableNode) and node.name in tables:
                for action in node.actions.values():
                    if not _same_parameters(action.spec, declared[action.name], self.info):
                        raise self._mismatch(f"action {action.name}", "has other parameters in the JSON")

    def _check_against_p4info(self, pipelines: PipelineReader) -> None:
        """Raise where JSON and P4Info do not belong together; tables' keys have been compared before."""
        self._check_arrays(
            {c.preamble.name: (c.size,) for c in self.info.counters},
            {name: (spec.size,) for name, spec in self.scope.counters.items()},
            "counter",
        )
        self._check_arrays(
            {r.preamble.name: (r.size,) for r in self.info.registers},
            {name: (spec.size,) for name, spec in self.scope.registers.items()},
            "register",
        )
        self._check_meters()
        for profile in self.info.action_profiles:
            spec = pipelines.profiles.get(profile.preamble.name)
            if spec is not None and spec.selector is not profile.with_selector:
                raise self._mismatch(f"action profile {spec.name}", "has a selector on one side only")

    def _check_meters(self) -> None:
        for name, declared in declared_meters(self.info).items():
            present = self.scope.meters.get(name)
            if present is None and declared.table is not None:
                continue  # p4c omits a direct meter that no table reads
            if present != declared:
                problem = "is not in the JSON" if present is None else "is another one in the JSON"
                raise self._mismatch(f"meter {name}", problem)

    def _check_arrays(
        self, declared: Mapping[str, tuple[int, ...]], present: Mapping[str, tuple[int, ...]], what: str
    ) -> None:
        for name, shape in declared.items():
            if name not in present:
                raise self._mismatch(f"{what} {name}", "is not in the JSON")
            if present[name] != shape:
                raise self._mismatch(f"{what} {name}", f"has {shape[0]} cells, in the JSON {present[name][0]}")

    def _mismatch(self, construct: str, problem: str) -> ProgramError:
        return ProgramError(problem, file=self.info_file, construct=construct)
