# mypy: ignore-errors
from collectors.feed import keys_pb2 as _keys_pb2
from dataplane.topology import link_pb2 as _link_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PHASE_UNSPECIFIED: _ClassVar[Phase]
    PHASE_RAISED: _ClassVar[Phase]
    PHASE_CLEARED: _ClassVar[Phase]

class Severity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEVERITY_UNSPECIFIED: _ClassVar[Severity]
    SEVERITY_WARNING: _ClassVar[Severity]
    SEVERITY_CRITICAL: _ClassVar[Severity]

class Scope(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCOPE_UNSPECIFIED: _ClassVar[Scope]
    SCOPE_LINK: _ClassVar[Scope]
    SCOPE_PATH: _ClassVar[Scope]
    SCOPE_REPORTER: _ClassVar[Scope]
    SCOPE_JOB: _ClassVar[Scope]
    SCOPE_CHILD: _ClassVar[Scope]
PHASE_UNSPECIFIED: Phase
PHASE_RAISED: Phase
PHASE_CLEARED: Phase
SEVERITY_UNSPECIFIED: Severity
SEVERITY_WARNING: Severity
SEVERITY_CRITICAL: Severity
SCOPE_UNSPECIFIED: Scope
SCOPE_LINK: Scope
SCOPE_PATH: Scope
SCOPE_REPORTER: Scope
SCOPE_JOB: Scope
SCOPE_CHILD: Scope

class ReporterKey(_message.Message):
    __slots__ = ("node_id", "hw_id")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    HW_ID_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    hw_id: int
    def __init__(self, node_id: _Optional[int] = ..., hw_id: _Optional[int] = ...) -> None: ...

class JobKey(_message.Message):
    __slots__ = ("job", "switch")
    JOB_FIELD_NUMBER: _ClassVar[int]
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    job: int
    switch: str
    def __init__(self, job: _Optional[int] = ..., switch: _Optional[str] = ...) -> None: ...

class ChildKey(_message.Message):
    __slots__ = ("job", "switch", "number", "name")
    JOB_FIELD_NUMBER: _ClassVar[int]
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    job: int
    switch: str
    number: int
    name: str
    def __init__(self, job: _Optional[int] = ..., switch: _Optional[str] = ..., number: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class Evidence(_message.Message):
    __slots__ = ("time_ns", "figure", "value")
    TIME_NS_FIELD_NUMBER: _ClassVar[int]
    FIGURE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    time_ns: int
    figure: str
    value: float
    def __init__(self, time_ns: _Optional[int] = ..., figure: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class EventNote(_message.Message):
    __slots__ = ("by", "text", "at_ns")
    BY_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    AT_NS_FIELD_NUMBER: _ClassVar[int]
    by: str
    text: str
    at_ns: int
    def __init__(self, by: _Optional[str] = ..., text: _Optional[str] = ..., at_ns: _Optional[int] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("time_ns", "rule", "link", "flow", "reporter", "job", "child", "figure", "value", "threshold", "phase", "evidence", "note", "severity")
    TIME_NS_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    FLOW_FIELD_NUMBER: _ClassVar[int]
    REPORTER_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    CHILD_FIELD_NUMBER: _ClassVar[int]
    FIGURE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    time_ns: int
    rule: str
    link: _link_pb2.Link
    flow: _keys_pb2.FlowKey
    reporter: ReporterKey
    job: JobKey
    child: ChildKey
    figure: str
    value: float
    threshold: float
    phase: Phase
    evidence: _containers.RepeatedCompositeFieldContainer[Evidence]
    note: EventNote
    severity: Severity
    def __init__(self, time_ns: _Optional[int] = ..., rule: _Optional[str] = ..., link: _Optional[_Union[_link_pb2.Link, _Mapping]] = ..., flow: _Optional[_Union[_keys_pb2.FlowKey, _Mapping]] = ..., reporter: _Optional[_Union[ReporterKey, _Mapping]] = ..., job: _Optional[_Union[JobKey, _Mapping]] = ..., child: _Optional[_Union[ChildKey, _Mapping]] = ..., figure: _Optional[str] = ..., value: _Optional[float] = ..., threshold: _Optional[float] = ..., phase: _Optional[_Union[Phase, str]] = ..., evidence: _Optional[_Iterable[_Union[Evidence, _Mapping]]] = ..., note: _Optional[_Union[EventNote, _Mapping]] = ..., severity: _Optional[_Union[Severity, str]] = ...) -> None: ...

class Acknowledgement(_message.Message):
    __slots__ = ("rule", "subject", "text", "by", "withdrawn")
    RULE_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    rule: str
    subject: str
    text: str
    by: str
    withdrawn: bool
    def __init__(self, rule: _Optional[str] = ..., subject: _Optional[str] = ..., text: _Optional[str] = ..., by: _Optional[str] = ..., withdrawn: _Optional[bool] = ...) -> None: ...

class Events(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    def __init__(self, events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("learn", "slack", "limit", "least_deviation", "least_share", "adopt_after_ns")
    LEARN_FIELD_NUMBER: _ClassVar[int]
    SLACK_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    LEAST_DEVIATION_FIELD_NUMBER: _ClassVar[int]
    LEAST_SHARE_FIELD_NUMBER: _ClassVar[int]
    ADOPT_AFTER_NS_FIELD_NUMBER: _ClassVar[int]
    learn: int
    slack: float
    limit: float
    least_deviation: float
    least_share: float
    adopt_after_ns: int
    def __init__(self, learn: _Optional[int] = ..., slack: _Optional[float] = ..., limit: _Optional[float] = ..., least_deviation: _Optional[float] = ..., least_share: _Optional[float] = ..., adopt_after_ns: _Optional[int] = ...) -> None: ...

class Rule(_message.Message):
    __slots__ = ("name", "figure", "scope", "above", "below", "change", "clear", "hold_ns", "clear_hold_ns", "match", "per_second", "least_samples", "evidence", "severity")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FIGURE_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    ABOVE_FIELD_NUMBER: _ClassVar[int]
    BELOW_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    CLEAR_FIELD_NUMBER: _ClassVar[int]
    HOLD_NS_FIELD_NUMBER: _ClassVar[int]
    CLEAR_HOLD_NS_FIELD_NUMBER: _ClassVar[int]
    MATCH_FIELD_NUMBER: _ClassVar[int]
    PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    LEAST_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    name: str
    figure: str
    scope: Scope
    above: float
    below: float
    change: Change
    clear: float
    hold_ns: int
    clear_hold_ns: int
    match: _containers.RepeatedScalarFieldContainer[str]
    per_second: bool
    least_samples: int
    evidence: int
    severity: Severity
    def __init__(self, name: _Optional[str] = ..., figure: _Optional[str] = ..., scope: _Optional[_Union[Scope, str]] = ..., above: _Optional[float] = ..., below: _Optional[float] = ..., change: _Optional[_Union[Change, _Mapping]] = ..., clear: _Optional[float] = ..., hold_ns: _Optional[int] = ..., clear_hold_ns: _Optional[int] = ..., match: _Optional[_Iterable[str]] = ..., per_second: _Optional[bool] = ..., least_samples: _Optional[int] = ..., evidence: _Optional[int] = ..., severity: _Optional[_Union[Severity, str]] = ...) -> None: ...

class RuleChange(_message.Message):
    __slots__ = ("name", "rule", "settings_rule", "by", "at_ns")
    NAME_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_RULE_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    AT_NS_FIELD_NUMBER: _ClassVar[int]
    name: str
    rule: Rule
    settings_rule: Rule
    by: str
    at_ns: int
    def __init__(self, name: _Optional[str] = ..., rule: _Optional[_Union[Rule, _Mapping]] = ..., settings_rule: _Optional[_Union[Rule, _Mapping]] = ..., by: _Optional[str] = ..., at_ns: _Optional[int] = ...) -> None: ...

class RuleSet(_message.Message):
    __slots__ = ("rules", "changes", "version", "by")
    RULES_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    rules: _containers.RepeatedCompositeFieldContainer[Rule]
    changes: _containers.RepeatedCompositeFieldContainer[RuleChange]
    version: str
    by: str
    def __init__(self, rules: _Optional[_Iterable[_Union[Rule, _Mapping]]] = ..., changes: _Optional[_Iterable[_Union[RuleChange, _Mapping]]] = ..., version: _Optional[str] = ..., by: _Optional[str] = ...) -> None: ...
