"""Loads a compiled P4 program: bmv2 JSON and P4Info in, a checked `Program` out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import TypeVar

import msgspec
from finsy.proto import p4i

from dataplane.errors import ProgramError
from dataplane.program.actions import read_action
from dataplane.program.calculations import read_calculation, read_checksum
from dataplane.program.declarations import read_aliases, read_declarations, read_errors
from dataplane.program.model import Pipeline, Program, TableNode
from dataplane.program.objects import ActionCall, ActionSpec, TableSpec
from dataplane.program.p4info import DeclaredTable, declared_actions, declared_tables, read_p4info
from dataplane.program.parsers import read_deparser, read_parser
from dataplane.program.pipelines import PipelineReader
from dataplane.program.raw import RawProgram
from dataplane.program.scope import Scope

SUPPORTED_MAJOR = 2
"""The major version of the JSON format that is understood."""

REQUIRED_FIELDS = ("ingress_port", "packet_length", "instance_type", "egress_spec", "egress_port")
"""What simple_switch demands of standard_metadata."""

_AT = re.compile(r" - at `\$\.?(?P<place>[^`]*)`$")

Item = TypeVar("Item")


def load_program(json: bytes | Path, p4info: bytes | Path | None) -> Program:
    """Return the program; raise ProgramError that names file and place for whatever is wrong or not supported.

    Without a P4Info (None) nothing can be compared with it, and the control plane sees an empty one.
    """
    json_data, json_file = _content(json, "<json>")
    info_data, info_file = _content(p4info, "<p4info>") if p4info is not None else (b"", "<p4info>")
    info = read_p4info(info_data, info_file)
    scope = Scope(json_file)
    try:
        raw = _decode(json_data, json_file)
        read_declarations(raw, scope)
        return _Assembly(raw, scope, info, info_file, known=p4info is not None).program(json_data)
    except RecursionError as error:
        raise ProgramError("is nested too deeply", file=json_file) from error


def _content(source: bytes | Path, name: str) -> tuple[bytes, str]:
    if isinstance(source, bytes):
        return source, name
    try:
        return source.read_bytes(), str(source)
    except OSError as error:
        raise ProgramError(error.strerror or "cannot be read", file=str(source)) from error


def _decode(data: bytes, file: str) -> RawProgram:
    try:
        raw = msgspec.json.decode(data, type=RawProgram)
    except msgspec.ValidationError as error:
        found = _AT.search(str(error))
        problem = str(error)[: found.start()] if found else str(error)
        raise ProgramError(problem, file=file, construct=found["place"] if found else None) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProgramError(f"is not JSON: {error}", file=file) from error
    if raw.meta is not None and raw.meta.version[:1] != [SUPPORTED_MAJOR]:
        raise ProgramError(f"is {raw.meta.version}, not {SUPPORTED_MAJOR}.x", file=file, construct="__meta__.version")
    return raw


class _Assembly:
    """Puts a program together from its parts."""

    def __init__(self, raw: RawProgram, scope: Scope, info: p4i.P4Info, info_file: str, *, known: bool) -> None:
        self.raw, self.scope, self.info, self.info_file, self.known = raw, scope, info, info_file, known

    def program(self, source: bytes) -> Program:
        """Return the program that all parts make up."""
        raw, scope = self.raw, self.scope
        self._read_actions()
        declared = declared_tables(self.info, self.info_file) if self.known else None
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
        return Program(
            name=PurePath(raw.program).stem or "program",
            digest=hashlib.sha256(source + self.info.SerializeToString(deterministic=True)).hexdigest(),
            tables=pipelines.tables | self._unreachable(declared or {}, pipelines),
            actions=self._action_specs(ingress, egress),
            profiles=pipelines.profiles,
            counters=scope.counters,
            registers=scope.registers,
            p4info=self.info,
            headers=scope.headers,
            stacks=scope.stacks,
            unions=scope.unions,
            errors=read_errors(raw, scope),
            aliases=read_aliases(raw, scope),
            field_lists=scope.field_lists,
            parser=read_parser(raw.parsers[parser], scope, f"parsers[{parser}]"),
            ingress=ingress,
            egress=egress,
            deparser=read_deparser(raw.deparsers[deparser], scope, f"deparsers[{deparser}]"),
            checksums=tuple(read_checksum(item, scope, f"checksums[{i}]") for i, item in enumerate(raw.checksums)),
        )

    def _read_actions(self) -> None:
        raw, scope = self.raw, self.scope
        for index, calculation in enumerate(raw.calculations):
            place = f"calculations[{index}]"
            scope.insert(scope.calculations, calculation.name, read_calculation(calculation, scope, place), place)
        for index, item in enumerate(raw.actions):
            place = f"actions[{index}]"
            if item.id in scope.actions:
                raise scope.error(place, f"two actions have the id {item.id}")
            scope.actions[item.id] = read_action(item, scope, place)

    def _index(self, items: Sequence[Item], name: str, key: str) -> int:
        found = [index for index, item in enumerate(items) if getattr(item, "name", None) == name]
        if len(found) != 1:
            raise self.scope.error(key, f"there is not exactly one called {name!r}")
        return found[0]

    def _check_metadata(self) -> None:
        header = self.scope.header("standard_metadata", "headers")
        missing = [name for name in REQUIRED_FIELDS if header.type.field(name) is None]
        if missing or not header.metadata:
            raise self.scope.error("headers", f"standard_metadata has no {' and no '.join(missing) or 'metadata flag'}")

    def _action_specs(self, *pipelines: Pipeline) -> dict[str, ActionSpec]:
        if self.known:
            return {spec.name: spec for spec in declared_actions(self.info).values()}
        nodes = [node for pipeline in pipelines for node in pipeline.nodes.values() if isinstance(node, TableNode)]
        return {name: action.spec for node in nodes for name, action in node.actions.items()}

    def _unreachable(self, declared: Mapping[str, DeclaredTable], pipelines: PipelineReader) -> dict[str, TableSpec]:
        """Return the tables that p4c declared but found no packet to reach: they can be written to all the same."""
        return {
            table.name: TableSpec(
                name=table.name,
                keys=table.keys,
                actions=table.actions,
                default=table.default or ActionCall("NoAction"),
                const_default=table.const_default,
                size=table.size,
                is_const=table.is_const,
            )
            for table in declared.values()
            if table.name not in pipelines.tables
        }

    def _check_actions(self, *pipelines: Pipeline) -> None:
        """Raise where a table's action has other parameters; calls outside of tables share names and have none."""
        declared = {spec.name: spec for spec in declared_actions(self.info).values()}
        tables = {table.preamble.name for table in self.info.tables}
        for node in (node for pipeline in pipelines for node in pipeline.nodes.values()):
            if isinstance(node, TableNode) and node.name in tables:
                for action in node.actions.values():
                    if action.spec != declared[action.name]:
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
        for profile in self.info.action_profiles:
            spec = pipelines.profiles.get(profile.preamble.name)
            if spec is not None and spec.selector is not profile.with_selector:
                raise self._mismatch(f"action profile {spec.name}", "has a selector on one side only")

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
