# mypy: ignore-errors
from controller.common.standby import standby_pb2 as _standby_pb2
from dataplane.load import load_pb2 as _load_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Status(_message.Message):
    __slots__ = ("switches", "live", "problems", "wanted_version", "pending_entries", "settled", "rejected_route_sets", "source_problem", "writes", "load", "standby")
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    WANTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    PENDING_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    REJECTED_ROUTE_SETS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    STANDBY_FIELD_NUMBER: _ClassVar[int]
    switches: int
    live: _containers.RepeatedScalarFieldContainer[str]
    problems: _containers.RepeatedCompositeFieldContainer[Problem]
    wanted_version: int
    pending_entries: int
    settled: bool
    rejected_route_sets: int
    source_problem: str
    writes: int
    load: _load_pb2.DaemonLoad
    standby: _standby_pb2.Standby
    def __init__(self, switches: _Optional[int] = ..., live: _Optional[_Iterable[str]] = ..., problems: _Optional[_Iterable[_Union[Problem, _Mapping]]] = ..., wanted_version: _Optional[int] = ..., pending_entries: _Optional[int] = ..., settled: _Optional[bool] = ..., rejected_route_sets: _Optional[int] = ..., source_problem: _Optional[str] = ..., writes: _Optional[int] = ..., load: _Optional[_Union[_load_pb2.DaemonLoad, _Mapping]] = ..., standby: _Optional[_Union[_standby_pb2.Standby, _Mapping]] = ...) -> None: ...

class Problem(_message.Message):
    __slots__ = ("switch", "problem")
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    switch: str
    problem: str
    def __init__(self, switch: _Optional[str] = ..., problem: _Optional[str] = ...) -> None: ...
