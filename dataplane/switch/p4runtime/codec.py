"""Match fields, actions and counts: P4Runtime's messages to the tables' values and back (section 9.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from finsy.proto import p4i, p4r

from dataplane.program.objects import ActionCall, KeyField, MatchKind
from dataplane.switch.p4runtime import bytestrings
from dataplane.switch.p4runtime.catalog import ActionInfo, Catalog, KeyInfo, MeterType, TableInfo
from dataplane.switch.p4runtime.context import Context
from dataplane.switch.p4runtime.errors import Code, P4RuntimeError, invalid, unimplemented
from dataplane.switch.p4runtime.strings import StringMap, decode, encode
from dataplane.switch.tables import ActionSet, GroupMember, MeterConfig, Tally, WeightedAction
from dataplane.switch.tables.match import FieldMatch, Match, all_ones, any_value, prefix_mask

_MAX_INT64 = (1 << 63) - 1
_ONEOFS = {
    MatchKind.EXACT: "exact",
    MatchKind.LPM: "lpm",
    MatchKind.TERNARY: "ternary",
    MatchKind.RANGE: "range",
    MatchKind.OPTIONAL: "optional",
}


def decode_match(key: KeyInfo, fields: Iterable[p4r.FieldMatch]) -> Match:
    """Return the match value of each key field; an omitted field matches anything.

    Raises INVALID_ARGUMENT for unknown, repeated, missing exact or malformed fields, "don't care" values that are not
    omitted and bits outside a mask; OUT_OF_RANGE for values that are too wide.
    """
    given: dict[int, p4r.FieldMatch] = {}
    for field in fields:
        if field.field_id in given:
            raise invalid(f"{key.name}: match field id {field.field_id} appears twice")
        given[field.field_id] = field
    match: list[FieldMatch] = []
    for field_id, part, strings in zip(key.field_ids, key.fields, key.strings, strict=True):
        present = given.pop(field_id, None)
        if present is not None:
            match.append(_decode_field(part, present, key.name, strings))
        elif part.kind is MatchKind.EXACT:
            raise invalid(f"{key.name}: {part.name}: an exact match field cannot be left out")
        else:
            match.append(any_value(part))
    if given:
        raise invalid(f"{key.name}: there is no match field id {min(given)}")
    return tuple(match)


def _decode_field(key: KeyField, field: p4r.FieldMatch, table: str, strings: StringMap | None) -> FieldMatch:
    where = f"{table}: {key.name}"
    if field.WhichOneof("field_match_type") != _ONEOFS[key.kind]:
        raise invalid(f"{where}: {key.kind} match expected")
    match key.kind:
        case MatchKind.EXACT:
            return decode(strings, field.exact.value, key.width, where)
        case MatchKind.OPTIONAL if key.width == 0:
            raise invalid(f"{where}: a field of no bits has any value; leave the field out")
        case MatchKind.OPTIONAL:
            return decode(strings, field.optional.value, key.width, where)
        case MatchKind.LPM | MatchKind.TERNARY | MatchKind.RANGE if strings is not None:
            return _decode_string(key, field, where, strings)
        case MatchKind.LPM:
            return _decode_lpm(key, field.lpm, where)
        case MatchKind.TERNARY:
            return _decode_ternary(key, field.ternary, where)
        case MatchKind.RANGE:
            return _decode_range(key, field.range, where)


def _decode_string(key: KeyField, field: p4r.FieldMatch, where: str, strings: StringMap) -> FieldMatch:
    """Return a match of a whole string: other masks or ranges of strings have no meaning (section 18.1)."""
    match key.kind:
        case MatchKind.LPM if field.lpm.prefix_len == key.width:
            return strings.decode(field.lpm.value, key.width, where), key.width
        case MatchKind.TERNARY if bytestrings.decode(field.ternary.mask, key.width, where) == all_ones(key.width):
            return strings.decode(field.ternary.value, key.width, where), all_ones(key.width)
        case MatchKind.RANGE if field.range.low == field.range.high:
            return (strings.decode(field.range.low, key.width, where),) * 2
    raise invalid(f"{where}: a string is matched whole, or not at all")


def _decode_lpm(key: KeyField, lpm: p4r.FieldMatch.LPM, where: str) -> FieldMatch:
    value = bytestrings.decode(lpm.value, key.width, where)
    if not 1 <= lpm.prefix_len <= key.width:
        raise invalid(f"{where}: prefix length {lpm.prefix_len} is not in 1..{key.width}; leave the field out for any")
    if value & ~prefix_mask(key.width, lpm.prefix_len):
        raise invalid(f"{where}: the value has bits after the first {lpm.prefix_len}")
    return value, lpm.prefix_len


def _decode_ternary(key: KeyField, ternary: p4r.FieldMatch.Ternary, where: str) -> FieldMatch:
    value = bytestrings.decode(ternary.value, key.width, where)
    mask = bytestrings.decode(ternary.mask, key.width, where)
    if not mask:
        raise invalid(f"{where}: the mask is zero; leave the field out for any")
    if value & ~mask:
        raise invalid(f"{where}: the value has bits outside its mask")
    return value, mask


def _decode_range(key: KeyField, bounds: p4r.FieldMatch.Range, where: str) -> FieldMatch:
    low = bytestrings.decode(bounds.low, key.width, where)
    high = bytestrings.decode(bounds.high, key.width, where)
    if low > high:
        raise invalid(f"{where}: {low} is above {high}")
    if (low, high) == (0, all_ones(key.width)):
        raise invalid(f"{where}: the range holds every value; leave the field out for any")
    return low, high


def encode_match(layout: KeyInfo, match: Match) -> Iterator[p4r.FieldMatch]:
    """Yield the fields of a match in canonical form, omitting those that match anything."""
    for field_id, key, strings, value in zip(layout.field_ids, layout.fields, layout.strings, match, strict=True):
        if key.kind is not MatchKind.EXACT and value == any_value(key):
            continue
        field = p4r.FieldMatch(field_id=field_id)
        match key.kind, value:
            case MatchKind.EXACT, int() as exact:
                field.exact.value = encode(strings, exact)
            case MatchKind.OPTIONAL, int() as exact:
                field.optional.value = encode(strings, exact)
            case MatchKind.LPM, (prefix, length):
                field.lpm.value, field.lpm.prefix_len = encode(strings, prefix), length
            case MatchKind.TERNARY, (bits, mask):
                field.ternary.value, field.ternary.mask = encode(strings, bits), bytestrings.encode(mask)
            case MatchKind.RANGE, (low, high):
                field.range.low, field.range.high = encode(strings, low), encode(strings, high)
        yield field


def decode_action(catalog: Catalog, action: p4r.Action, where: str) -> ActionCall:
    """Return an action with its arguments; raise INVALID_ARGUMENT or OUT_OF_RANGE if malformed."""
    info = catalog.actions.get(action.action_id)
    if info is None:
        raise invalid(f"{where}: there is not an action id {action.action_id:#010x}")
    given: dict[int, bytes] = {}
    for param in action.params:
        if param.param_id in given:
            raise invalid(f"{where}: {info.spec.name}: parameter id {param.param_id} appears twice")
        given[param.param_id] = param.value
    arguments = tuple(_arguments(info, given, where))
    if given:
        raise invalid(f"{where}: {info.spec.name}: there is no parameter id {min(given)}")
    return ActionCall(info.spec.name, arguments)


def _arguments(info: ActionInfo, given: dict[int, bytes], where: str) -> Iterator[int]:
    for param_id, (name, width), strings in zip(info.parameter_ids, info.spec.parameters, info.strings, strict=True):
        label = f"{where}: {info.spec.name}.{name}"
        if param_id not in given:
            raise invalid(f"{label}: the parameter is missing")
        yield decode(strings, given.pop(param_id), width, label)


def decode_table_action(catalog: Catalog, table: TableInfo, action: p4r.Action, *, default: bool) -> ActionCall:
    """Return an action of `table`; also raise PERMISSION_DENIED if its scope forbids this use."""
    scope = table.scopes.get(action.action_id)
    if scope is None:
        raise invalid(f"{table.spec.name}: action id {action.action_id:#010x} is not one of its actions")
    if scope == (p4i.ActionRef.TABLE_ONLY if default else p4i.ActionRef.DEFAULT_ONLY):
        usage = "the default entry" if default else "entries"
        message = f"{table.spec.name}: action id {action.action_id:#010x} is not for {usage}"
        raise P4RuntimeError(Code.PERMISSION_DENIED, message)
    return decode_action(catalog, action, table.spec.name)


def encode_action(catalog: Catalog, call: ActionCall) -> p4r.Action | None:
    """Return the canonical message; None for a compiler-internal action (not in the P4Info)."""
    action_id = catalog.action_ids.get(call.action)
    if action_id is None:
        return None
    action, info = p4r.Action(action_id=action_id), catalog.actions[action_id]
    for param_id, strings, value in zip(info.parameter_ids, info.strings, call.arguments, strict=True):
        action.params.add(param_id=param_id, value=encode(strings, value))
    return action


def action_name(catalog: Catalog, action: p4r.TableAction, where: str) -> str:
    """Return the name of the action that a read filters by; its parameters are ignored."""
    if action.WhichOneof("type") != "action":
        raise invalid(f"{where}: reads filter by action id only")
    info = catalog.actions.get(action.action.action_id)
    if info is None:
        raise invalid(f"{where}: there is not an action id {action.action.action_id:#010x}")
    return info.spec.name


@dataclass(frozen=True, slots=True)
class ModedActionSet(ActionSet):
    """A one-shot action set written with explicit selection mode and size semantics; they are the selector's own."""

    mode: int = 0
    sizes: int = 0


class NumberedAction(WeightedAction):
    """An action whose watched port was written as the deprecated `watch`."""

    __slots__ = ()


class NumberedMember(GroupMember):
    """A group's member whose watched port was written as the deprecated `watch`."""

    __slots__ = ()


def decode_action_set(context: Context, table: TableInfo, message: p4r.ActionProfileActionSet) -> ActionSet:
    """Return a one-shot action set; raise UNIMPLEMENTED for selection modes and sizes other than the selector's own."""
    mode, sizes = message.action_selection_mode, message.size_semantics
    if mode not in {0, message.HASH} or sizes not in {0, message.SUM_OF_WEIGHTS}:
        raise unimplemented(f"{table.spec.name}: an action selection mode or size semantics of its own")
    actions = []
    for item in message.action_profile_actions:
        call = decode_table_action(context.catalog, table, item.action, default=False)
        make = NumberedAction if item.watch else WeightedAction
        actions.append(make(call, item.weight, decode_watch(context, item, table.spec.name)))
    return ModedActionSet(tuple(actions), mode, sizes) if mode or sizes else ActionSet(tuple(actions))


def encode_action_set(catalog: Catalog, action_set: ActionSet) -> p4r.ActionProfileActionSet:
    """Return the message as it was written."""
    message = p4r.ActionProfileActionSet()
    if isinstance(action_set, ModedActionSet):
        message.action_selection_mode = action_set.mode  # type: ignore[assignment]  # an enum's number, as it was read
        message.size_semantics = action_set.sizes  # type: ignore[assignment]  # too
    for item in action_set.actions:
        added = message.action_profile_actions.add(action=encode_action(catalog, item.call), weight=item.weight)
        encode_watch(catalog, added, item.watch_port, numbered=isinstance(item, NumberedAction))
    return message


def decode_member(context: Context, item: p4r.ActionProfileGroup.Member, where: str) -> GroupMember:
    """Return a group's member."""
    make = NumberedMember if item.watch else GroupMember
    return make(item.member_id, item.weight, decode_watch(context, item, where))


def decode_watch(
    context: Context, item: p4r.ActionProfileAction | p4r.ActionProfileGroup.Member, where: str
) -> int | None:
    """Return the port that a member of a group watches, None if it watches none.

    Raises INVALID_ARGUMENT for a port that the switch does not have. The deprecated form `watch` is supported, too.
    """
    if not item.watch and not item.watch_port:
        return None
    port = item.watch or decode(context.catalog.strings.ports, item.watch_port, 8 * len(item.watch_port), where)
    if not context.control.has_port(port):
        raise invalid(f"{where}: the switch has no port {port} to watch")
    return port


def encode_watch(
    catalog: Catalog, item: p4r.ActionProfileAction | p4r.ActionProfileGroup.Member, port: int | None, *, numbered: bool
) -> None:
    """Put the watched port, if any, into a group's member in the form in which it was written."""
    if port is None:
        return
    if numbered:
        item.watch = port
    else:
        item.watch_port = encode(catalog.strings.ports, port)


def decode_tally(data: p4r.CounterData, where: str) -> Tally:
    """Return packets and bytes; raise INVALID_ARGUMENT if one is negative."""
    if data.packet_count < 0 or data.byte_count < 0:
        raise invalid(f"{where}: a count cannot be negative")
    return Tally(data.packet_count, data.byte_count)


def encode_tally(packets: int, nbytes: int) -> p4r.CounterData:
    """Return the message; counts wrap at 2^63, since its fields are signed."""
    return p4r.CounterData(packet_count=packets & _MAX_INT64, byte_count=nbytes & _MAX_INT64)


def decode_meter(config: p4r.MeterConfig, kind: MeterType, where: str) -> MeterConfig:
    """Return rates and bursts; raise INVALID_ARGUMENT for values that the meter's type does not allow (section 9.4).

    Raises UNIMPLEMENTED for an excess burst of a single-rate three-colour meter: ours have two rates.
    """
    rates = (config.cir, config.cburst, config.pir, config.pburst)
    if min(*rates, config.eburst) < 0:
        raise invalid(f"{where}: a meter's rates and bursts cannot be negative")
    if kind != p4i.MeterSpec.TWO_RATE_THREE_COLOR and (config.cir, config.cburst) != (config.pir, config.pburst):
        raise invalid(f"{where}: a meter of a single rate has the same rate and burst twice")
    if config.eburst:
        if kind == p4i.MeterSpec.SINGLE_RATE_THREE_COLOR:
            raise unimplemented(f"{where}: an excess burst")
        raise invalid(f"{where}: a meter of this type has no excess burst")
    return MeterConfig(*rates)


def encode_meter(config: MeterConfig) -> p4r.MeterConfig:
    """Return rates and bursts as they were written."""
    return p4r.MeterConfig(cir=config.cir, cburst=config.cburst, pir=config.pir, pburst=config.pburst)
