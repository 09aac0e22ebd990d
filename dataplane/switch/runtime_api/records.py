"""The structs, codes and refusals of bmv2's runtime API (numbers from standard.thrift and simple_switch.thrift)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from dataplane.switch.runtime_api.wire import (
    BINARY,
    BOOL,
    DOUBLE,
    I32,
    I64,
    STRING,
    Record,
    Refusal,
    list_of,
    map_of,
    struct,
    wire,
)


class MatchType(IntEnum):
    """Kind of match of a key field."""

    EXACT = 0
    LPM = 1
    TERNARY = 2
    VALID = 3
    RANGE = 4


class EntryType(IntEnum):
    """Target of an entry."""

    NONE = 0
    ACTION_DATA = 1
    MEMBER = 2
    GROUP = 3


class TableCode(IntEnum):
    """Reason to refuse a call on a table or action profile."""

    TABLE_FULL = 1
    INVALID_HANDLE = 2
    COUNTERS_DISABLED = 4
    METERS_DISABLED = 5
    AGEING_DISABLED = 6
    INVALID_TABLE_NAME = 7
    INVALID_ACTION_NAME = 8
    WRONG_TABLE_TYPE = 9
    INVALID_MEMBER_HANDLE = 10
    MEMBER_STILL_USED = 11
    MEMBER_ALREADY_IN_GROUP = 12
    MEMBER_NOT_IN_GROUP = 13
    INVALID_GROUP_HANDLE = 14
    GROUP_STILL_USED = 15
    DUPLICATE_ENTRY = 17
    BAD_MATCH_KEY = 18
    INVALID_METER_OPERATION = 19
    DEFAULT_ACTION_IS_CONST = 20
    INVALID_ACTION_PROFILE_NAME = 23
    NO_ACTION_PROFILE_SELECTION = 24
    IMMUTABLE_TABLE_ENTRIES = 25
    BAD_ACTION_DATA = 26
    NO_TABLE_KEY = 27
    ERROR = 100


class CounterCode(IntEnum):
    """Reason to refuse a call on an indirect counter; the same for registers."""

    INVALID_NAME = 1
    INVALID_INDEX = 2
    ERROR = 3


class MeterCode(IntEnum):
    """Reason to refuse a call on an indirect meter."""

    INVALID_NAME = 1
    INVALID_INDEX = 2
    BAD_RATES_LIST = 3
    INVALID_INFO_RATE_VALUE = 4
    INVALID_BURST_SIZE_VALUE = 5


class SwapCode(IntEnum):
    """Reason to refuse a program swap."""

    CONFIG_SWAP_DISABLED = 1
    ONGOING_SWAP = 2
    NO_ONGOING_SWAP = 3


class MulticastCode(IntEnum):
    """Reason to refuse a call on multicast groups."""

    TABLE_FULL = 1
    INVALID_MGID = 2
    INVALID_GROUP_HANDLE = 3
    INVALID_NODE_HANDLE = 4
    ERROR = 5


class TableRefusal(Refusal):
    """InvalidTableOperation."""


class CounterRefusal(Refusal):
    """InvalidCounterOperation."""


class MeterRefusal(Refusal):
    """InvalidMeterOperation."""


class RegisterRefusal(Refusal):
    """InvalidRegisterOperation."""


class ValueSetRefusal(Refusal):
    """InvalidParseVSetOperation: 1 no such set, 2 anything else."""


class LearnRefusal(Refusal):
    """InvalidLearnOperation: 3, as digests are sent by P4Runtime."""


class SwapRefusal(Refusal):
    """InvalidSwapOperation."""


class PortRefusal(Refusal):
    """InvalidDevMgrOperation: 1."""


class HashRefusal(Refusal):
    """InvalidCrcOperation and InvalidToeplitzHashOperation: 3, as parameters are set when a program is loaded."""


class LookupRefusal(Refusal):
    """InvalidIdLookup: 0 no such kind, 1 no such name."""


class MulticastRefusal(Refusal):
    """InvalidMcOperation."""


class MirroringRefusal(Refusal):
    """InvalidMirroringOperation: 1, no such session."""


@dataclass(slots=True)
class ExactParam(Record):
    """A value."""

    key: bytes = wire(1, BINARY)


@dataclass(slots=True)
class LpmParam(Record):
    """A prefix."""

    key: bytes = wire(1, BINARY)
    prefix_length: int = wire(2, I32)


@dataclass(slots=True)
class TernaryParam(Record):
    """A value under a mask."""

    key: bytes = wire(1, BINARY)
    mask: bytes = wire(2, BINARY)


@dataclass(slots=True)
class ValidParam(Record):
    """Validity of a header."""

    key: bool = wire(1, BOOL)


@dataclass(slots=True)
class RangeParam(Record):
    """A first and a last value."""

    start: bytes = wire(1, BINARY)
    end_: bytes = wire(2, BINARY)


@dataclass(slots=True)
class MatchParam(Record):
    """A key field; the one member selected by `type` is set."""

    type: int = wire(1, I32)
    exact: ExactParam | None = wire(2, struct(ExactParam), optional=True)
    lpm: LpmParam | None = wire(3, struct(LpmParam), optional=True)
    ternary: TernaryParam | None = wire(4, struct(TernaryParam), optional=True)
    valid: ValidParam | None = wire(5, struct(ValidParam), optional=True)
    range: RangeParam | None = wire(6, struct(RangeParam), optional=True)


@dataclass(slots=True)
class AddOptions(Record):
    """The priority; a smaller one wins."""

    priority: int | None = wire(1, I32, optional=True)


@dataclass(slots=True)
class CounterValue(Record):
    """A count."""

    bytes: int = wire(1, I64)
    packets: int = wire(2, I64)


@dataclass(slots=True)
class MeterRate(Record):
    """A rate of a meter, and its burst in units."""

    units_per_micros: float = wire(1, DOUBLE)
    burst_size: int = wire(2, I32)


@dataclass(slots=True)
class PortInfo(Record):
    """A port."""

    port_num: int = wire(1, I32)
    iface_name: str = wire(2, STRING)
    is_up: bool = wire(3, BOOL)
    extra: dict[str, str] = wire(4, map_of(STRING, STRING))


@dataclass(slots=True)
class ActionEntry(Record):
    """Target of an entry; `action_type` is an EntryType."""

    action_type: int = wire(1, I32)
    action_name: str | None = wire(2, STRING, optional=True)
    action_data: list[bytes] | None = wire(3, list_of(BINARY), optional=True)
    mbr_handle: int | None = wire(4, I32, optional=True)
    grp_handle: int | None = wire(5, I32, optional=True)


@dataclass(slots=True)
class EntryLife(Record):
    """An entry's time to live, and how long ago it was hit."""

    timeout_ms: int = wire(1, I32)
    time_since_hit_ms: int = wire(2, I32)


@dataclass(slots=True)
class Entry(Record):
    """A table entry."""

    match_key: list[MatchParam] = wire(1, list_of(struct(MatchParam)))
    options: AddOptions = wire(2, struct(AddOptions))
    entry_handle: int = wire(3, I32)
    action_entry: ActionEntry = wire(4, struct(ActionEntry))
    life: EntryLife | None = wire(5, struct(EntryLife), optional=True)


@dataclass(slots=True)
class Member(Record):
    """A member of an action profile."""

    mbr_handle: int = wire(1, I32)
    action_name: str = wire(2, STRING)
    action_data: list[bytes] = wire(3, list_of(BINARY))


@dataclass(slots=True)
class Group(Record):
    """A group of members."""

    grp_handle: int = wire(1, I32)
    mbr_handles: list[int] = wire(2, list_of(I32))


@dataclass(slots=True)
class SwitchInfo(Record):
    """A switch's information about itself."""

    device_id: int = wire(1, I64)
    thrift_port: int = wire(2, I32)
    notifications_socket: str | None = wire(3, STRING, optional=True)
    elogger_socket: str | None = wire(4, STRING, optional=True)
    debugger_socket: str | None = wire(5, STRING, optional=True)


@dataclass(slots=True)
class MirroringConfig(Record):
    """Destination of a mirroring session's copies: a port, a multicast group, or both."""

    port: int | None = wire(1, I32, optional=True)
    mgid: int | None = wire(2, I32, optional=True)


@dataclass(slots=True)
class HashConfig(Record):
    """Parameters of a CRC, all ignored."""
