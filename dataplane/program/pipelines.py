"""Reads the control flow of a bmv2 JSON file: tables, branches and calls, and the tables' entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dataplane.program.calculations import read_selector
from dataplane.program.expressions import ExpressionReader
from dataplane.program.model import VALID, Action, CallNode, ConditionNode, KeySource, Node, Pipeline, TableNode
from dataplane.program.objects import (
    PRIORITIZED,
    ActionCall,
    KeyField,
    MatchKind,
    PresetEntry,
    ProfileSpec,
    TableSpec,
)
from dataplane.program.operations import Calculation, FieldRef
from dataplane.program.p4info import DeclaredTable, no_action
from dataplane.program.raw import RawDefault, RawEntry, RawKey, RawMatch, RawPipeline, RawTable
from dataplane.program.scope import Scope, read_source

_MAX_PRIORITY = (1 << 31) - 1
"""P4Runtime's, on whose scale a larger priority wins."""
_TYPES = {"simple", "indirect", "indirect_ws"}


@dataclass(slots=True)
class PipelineReader:
    """Reads both pipelines and gathers their tables and profiles; `declared` is None without a P4Info."""

    scope: Scope
    declared: Mapping[str, DeclaredTable] | None
    group_sizes: Mapping[str, int]
    tables: dict[str, TableSpec] = field(default_factory=dict)
    profiles: dict[str, ProfileSpec] = field(default_factory=dict)
    selectors: dict[str, Calculation] = field(default_factory=dict)

    def pipeline(self, raw: RawPipeline, path: str) -> Pipeline:
        """Return a pipeline whose nodes all have targets and form no cycle."""
        self._read_profiles(raw, path)
        nodes: dict[str, Node] = {}
        reader = ExpressionReader(self.scope)
        for index, table in enumerate(raw.tables):
            where = f"{path}.tables[{index}]"
            self.scope.insert(nodes, table.name, self._table(table, where), where)
        for index, item in enumerate(raw.conditionals):
            where = f"{path}.conditionals[{index}]"
            condition = reader.truth(item.expression, f"{where}.expression")
            source = read_source(item.source_info)
            node = ConditionNode(item.name, condition, item.true_next, item.false_next, source)
            self.scope.insert(nodes, item.name, node, where)
        for index, call in enumerate(raw.action_calls):
            where = f"{path}.action_calls[{index}]"
            action = self._action(call.action_id, where)
            self._check_arguments(action, 0, where)
            called = CallNode(call.name, action, (), call.next_node, read_source(call.source_info))
            self.scope.insert(nodes, call.name, called, where)
        pipeline = Pipeline(raw.name, raw.init_table, nodes)
        self._check_flow(pipeline, path)
        return pipeline

    def _read_profiles(self, raw: RawPipeline, path: str) -> None:
        for index, item in enumerate(raw.action_profiles):
            where = f"{path}.action_profiles[{index}]"
            size = self.group_sizes.get(item.name, 0)
            spec = ProfileSpec(item.name, item.max_size, size, item.selector is not None)
            self.scope.insert(self.profiles, item.name, spec, where)
            if item.selector is not None:
                self.selectors[item.name] = read_selector(item.name, item.selector, self.scope, f"{where}.selector")

    def _action(self, action_id: int, path: str) -> Action:
        action = self.scope.actions.get(action_id)
        if action is None:
            raise self.scope.error(path, f"no action has the id {action_id}")
        return action

    def _check_arguments(self, action: Action, count: int, path: str) -> None:
        if len(action.spec.parameters) != count:
            raise self.scope.error(path, f"{action.name} takes {len(action.spec.parameters)} arguments, not {count}")

    def _table(self, raw: RawTable, path: str) -> Node:
        declared = None if self.declared is None else self.declared.get(raw.name)
        actions = self._table_actions(raw, path)
        self._refuse_unsupported(raw, path)
        default = raw.default_entry
        fixed = default is not None and (default.action_const or default.action_entry_const)
        if declared is None and not raw.key and raw.type == "simple" and default is not None and fixed:
            call = self._call(default.action_id, default.action_data, actions, f"{path}.default_entry")
            following = self._next(raw, call.action, path, hit=False)
            return CallNode(raw.name, actions[call.action], call.arguments, following, read_source(raw.source_info))
        if self.declared is not None and declared is None and not raw.entries:
            raise self.scope.error(path, f"table {raw.name} is not in the P4Info")
        keys = self._keys(raw, declared, path)
        spec = self._spec(raw, declared, keys, actions, path)
        self.scope.insert(self.tables, raw.name, spec, path)
        miss_next: dict[str | None, str | None] = {name: self._next(raw, name, path, hit=False) for name in actions}
        if spec.default is None:
            miss_next[None] = raw.next_tables.get("__MISS__", raw.base_default_next)
        return TableNode(
            raw.name,
            tuple(self._key_source(key, f"{path}.key[{index}]") for index, key in enumerate(raw.key)),
            actions,
            {name: self._next(raw, name, path, hit=True) for name in actions},
            miss_next,
            self.selectors.get(raw.action_profile or ""),
            self.scope.meter_targets.get(raw.name),
            read_source(raw.source_info),
        )

    def _refuse_unsupported(self, raw: RawTable, path: str) -> None:
        if raw.type not in _TYPES:
            raise self.scope.unsupported(f"{path}.type", f"a table of type {raw.type!r}")
        if (raw.type == "simple") is not (raw.action_profile is None):
            raise self.scope.error(f"{path}.action_profile", f"does not go with a table of type {raw.type}")
        if raw.action_profile is not None:
            profile = self.scope.named(self.profiles, raw.action_profile, "action profile", f"{path}.action_profile")
            if profile.selector is not (raw.type == "indirect_ws"):
                raise self.scope.error(f"{path}.action_profile", f"{profile.name} does not go with {raw.type}")

    def _table_actions(self, raw: RawTable, path: str) -> dict[str, Action]:
        actions: dict[str, Action] = {}
        for where, action in self._listed_actions(raw, path):
            self.scope.insert(actions, action.name, action, where)
        return actions

    def _listed_actions(self, raw: RawTable, path: str) -> Iterator[tuple[str, Action]]:
        """Yield a table's actions with their places in the file: by id, in older files by name."""
        if raw.action_ids is not None:
            for index, action_id in enumerate(raw.action_ids):
                where = f"{path}.action_ids[{index}]"
                yield where, self._action(action_id, where)
            return
        for index, name in enumerate(raw.actions):
            where = f"{path}.actions[{index}]"
            named = [action for action in self.scope.actions.values() if action.name == name]
            if len(named) != 1:
                raise self.scope.error(where, f"{len(named) or 'no'} actions are named {name!r}")
            yield where, named[0]

    def _next(self, raw: RawTable, action: str, path: str, *, hit: bool) -> str | None:
        outcome = "__HIT__" if hit else "__MISS__"
        if outcome in raw.next_tables:
            return raw.next_tables[outcome]
        if action in raw.next_tables:
            return raw.next_tables[action]
        if "__HIT__" in raw.next_tables or "__MISS__" in raw.next_tables:
            return raw.base_default_next
        raise self.scope.error(f"{path}.next_tables", f"does not say what follows {action}")

    # ---- keys

    def _keys(self, raw: RawTable, declared: DeclaredTable | None, path: str) -> tuple[KeyField, ...]:
        keys = tuple(self._key(key, f"{path}.key[{index}]") for index, key in enumerate(raw.key))
        if sum(key.kind is MatchKind.LPM for key in keys) > 1:
            raise self.scope.error(f"{path}.key", "has more than one lpm field")
        if declared is None:
            return keys
        if len(keys) != len(declared.keys):
            raise self.scope.error(f"{path}.key", f"the P4Info gives {raw.name} {len(declared.keys)} key fields")
        wanted = {key.name: key for key in declared.keys}
        return tuple(
            # Older compilers name no key: its place identifies it, as in P4Runtime's other servers over bmv2.
            self._declared_key(key, wanted.get(key.name) if raw_key.name else by_place, f"{path}.key[{index}]")
            for index, (key, raw_key, by_place) in enumerate(zip(keys, raw.key, declared.keys, strict=True))
        )

    def _declared_key(self, key: KeyField, declared: KeyField | None, path: str) -> KeyField:
        if declared is None:
            raise self.scope.error(path, f"key field {key.name} is not in the P4Info")
        same_kind = declared.kind is key.kind or (declared.kind, key.kind) == (MatchKind.OPTIONAL, MatchKind.TERNARY)
        if not same_kind or declared.width not in {0, key.width}:
            mine, theirs = f"{key.kind} of {key.width} bits", f"{declared.kind} of {declared.width} bits"
            raise self.scope.error(path, f"key field {key.name} is {mine}, in the P4Info {theirs}")
        return KeyField(declared.name, declared.kind, key.width)

    def _key(self, raw: RawKey, path: str) -> KeyField:
        source = self._key_source(raw, path).source
        kind = "exact" if raw.match_type == "valid" else raw.match_type
        if kind not in MatchKind.__members__.values():
            raise self.scope.unsupported(path, f"match type {raw.match_type!r}")
        name = raw.name or f"{source.header}.{source.field}"
        return KeyField(name, MatchKind(kind), self.scope.spec(source).width_bits)

    def _key_source(self, raw: RawKey, path: str) -> KeySource:
        if raw.match_type == "valid":
            return KeySource(FieldRef(self.scope.header(raw.target, path).name, VALID))
        if isinstance(raw.target, dict):
            raise self.scope.unsupported(path, "an expression in a table's key")
        source = self.scope.field(raw.target, path)
        spec = self.scope.spec(source)
        if spec.variable:
            raise self.scope.unsupported(path, "a varbit in a table's key")
        mask = None if raw.mask is None else self.scope.unsigned(raw.mask, spec.width_bits, f"{path}.mask")
        return KeySource(source, mask)

    # ---- the table's value

    def _spec(
        self,
        raw: RawTable,
        declared: DeclaredTable | None,
        keys: tuple[KeyField, ...],
        actions: dict[str, Action],
        path: str,
    ) -> TableSpec:
        names = tuple(actions)
        if declared is not None and set(declared.actions) != set(names):
            wrong = sorted(set(declared.actions) ^ set(names))[0]
            raise self.scope.error(f"{path}.actions", f"only one of JSON and P4Info has the action {wrong}")
        # As in bmv2 the table's flag decides, whatever counter_arrays binds: older compilers wrote one alone.
        counter = self.scope.direct_counters.get(raw.name, raw.name) if raw.with_counters else None
        if not 0 <= raw.max_size <= 1 << 31:
            raise self.scope.error(f"{path}.max_size", f"a table of {raw.max_size} entries is not possible")
        return TableSpec(
            name=raw.name,
            keys=keys,
            actions=names,
            default=self._default(raw, declared, actions, path),
            const_default=raw.default_entry.action_const
            if raw.default_entry
            else bool(declared and declared.const_default),
            size=(declared.size if declared else 0) or raw.max_size,
            profile=raw.action_profile,
            direct_counter=counter,
            direct_meter=self._direct_meter(raw, path),
            idle_timeout=raw.support_timeout or (declared is not None and declared.idle_timeout),
            presets=self._entries(raw, keys, actions, path),
            is_const=declared.is_const if declared is not None else bool(raw.entries),
        )

    def _direct_meter(self, raw: RawTable, path: str) -> str | None:
        bound = [meter.name for meter in self.scope.meters.values() if meter.table == raw.name]
        if bound != ([] if raw.direct_meters is None else [raw.direct_meters]):
            raise self.scope.error(f"{path}.direct_meters", "does not agree with meter_arrays")
        return raw.direct_meters

    def _default(
        self, raw: RawTable, declared: DeclaredTable | None, actions: dict[str, Action], path: str
    ) -> ActionCall | None:
        """Return the default action; p4c never writes that of an indirect table, but the P4Info may have it."""
        entry: RawDefault | None = raw.default_entry
        if entry is not None:
            return self._call(entry.action_id, entry.action_data, actions, f"{path}.default_entry")
        call = no_action(actions) if declared is None else declared.default
        if call is not None and call.action not in actions:
            raise self.scope.error(path, f"{call.action}, its default action in the P4Info, is not one of its actions")
        if call is not None:
            self._check_arguments(actions[call.action], len(call.arguments), path)
        return call

    def _call(self, action_id: int, data: list[str], actions: dict[str, Action], path: str) -> ActionCall:
        action = self._action(action_id, path)
        if actions.get(action.name) is not action:
            raise self.scope.error(path, f"{action.name} is not an action of the table")
        self._check_arguments(action, len(data), path)
        arguments = tuple(
            self.scope.unsigned(text, width, f"{path}.action_data[{index}]")
            for index, (text, (_, width)) in enumerate(zip(data, action.spec.parameters, strict=True))
        )
        return ActionCall(action.name, arguments)

    # ---- constant entries

    def _entries(
        self, raw: RawTable, keys: tuple[KeyField, ...], actions: dict[str, Action], path: str
    ) -> tuple[PresetEntry, ...]:
        if raw.entries and raw.type != "simple":
            raise self.scope.unsupported(f"{path}.entries", "constant entries of an indirect table")
        prioritized = any(key.kind in PRIORITIZED for key in keys)
        last = max((entry.priority for entry in raw.entries), default=0)
        entries: list[PresetEntry] = []
        for index, entry in enumerate(raw.entries):
            where = f"{path}.entries[{index}]"
            if not 0 <= entry.priority < _MAX_PRIORITY:
                raise self.scope.error(where, f"priority {entry.priority} is not in 0..{_MAX_PRIORITY - 1}")
            priority = last + 1 - entry.priority if prioritized else 0
            entries.append(self._entry(entry, keys, actions, priority, where))
        return tuple(entries)

    def _entry(
        self, raw: RawEntry, keys: tuple[KeyField, ...], actions: dict[str, Action], priority: int, path: str
    ) -> PresetEntry:
        if len(raw.match_key) != len(keys):
            raise self.scope.error(f"{path}.match_key", f"has {len(raw.match_key)} fields, the table {len(keys)}")
        match = tuple(
            self._match(part, key, f"{path}.match_key[{index}]")
            for index, (part, key) in enumerate(zip(raw.match_key, keys, strict=True))
        )
        action = raw.action_entry
        call = self._call(action.action_id, action.action_data, actions, f"{path}.action_entry")
        return PresetEntry(match, priority, call)

    def _match(self, raw: RawMatch, key: KeyField, path: str) -> int | tuple[int, int] | None:
        kinds = {key.kind.value, "ternary"} if key.kind is MatchKind.OPTIONAL else {key.kind.value}
        if raw.match_type == "valid" and key.kind is MatchKind.EXACT and isinstance(raw.key, bool):
            return int(raw.key)
        if raw.match_type not in kinds:
            raise self.scope.error(path, f"is {raw.match_type} where {key.kind} is expected")
        if key.kind is MatchKind.RANGE:
            low, high = (self.scope.unsigned(text, key.width, path) for text in (raw.start, raw.end))
            return low, high
        value = self.scope.unsigned(raw.key, key.width, path)
        match key.kind:
            case MatchKind.LPM:
                if raw.prefix_length is None or not 0 <= raw.prefix_length <= key.width:
                    raise self.scope.error(path, f"{raw.prefix_length} is not a prefix length")
                host_bits = key.width - raw.prefix_length
                return value >> host_bits << host_bits, raw.prefix_length
            case MatchKind.TERNARY:
                mask = self.scope.unsigned(raw.mask, key.width, path)
                return value & mask, mask
            case MatchKind.OPTIONAL:
                return self._optional(raw, value, key, path)
        return value

    def _optional(self, raw: RawMatch, value: int, key: KeyField, path: str) -> int | None:
        everything = (1 << key.width) - 1
        mask = everything if raw.mask is None else self.scope.unsigned(raw.mask, key.width, path)
        if mask not in {0, everything}:
            raise self.scope.error(path, "an optional field matches the whole value or any")
        return value if mask else None

    # ---- control flow

    def _check_flow(self, pipeline: Pipeline, path: str) -> None:
        """Raise unless every node exists and none can follow itself (a depth-first search without recursion)."""
        done: set[str] = set()
        trail: list[str] = []
        stack: list[tuple[str, bool]] = [] if pipeline.initial is None else [(pipeline.initial, False)]
        on_path: set[str] = set()
        while stack:
            name, leaving = stack.pop()
            if leaving:
                on_path.discard(trail.pop())
                done.add(name)
                continue
            if name in on_path:
                raise self.scope.error(path, f"{name} follows itself")
            if name in done:
                continue
            if name not in pipeline.nodes:
                raise self.scope.error(path, f"no table, branch or call is named {name!r}")
            on_path.add(name)
            trail.append(name)
            stack.append((name, True))
            stack.extend((following, False) for following in successors(pipeline.nodes[name]) if following is not None)


def successors(node: Node) -> tuple[str | None, ...]:
    """Return the names of the nodes that may follow a node; None is the end of the pipeline."""
    match node:
        case CallNode():
            return (node.next_node,)
        case ConditionNode():
            return node.true_next, node.false_next
        case TableNode():
            return *node.hit_next.values(), *node.miss_next.values()
