# mypy: ignore-errors
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ThreadLoad(_message.Message):
    __slots__ = ("name", "share")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    name: str
    share: float
    def __init__(self, name: _Optional[str] = ..., share: _Optional[float] = ...) -> None: ...

class QueueLoad(_message.Message):
    __slots__ = ("name", "length", "limit", "oldest_ns")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    OLDEST_NS_FIELD_NUMBER: _ClassVar[int]
    name: str
    length: int
    limit: int
    oldest_ns: int
    def __init__(self, name: _Optional[str] = ..., length: _Optional[int] = ..., limit: _Optional[int] = ..., oldest_ns: _Optional[int] = ...) -> None: ...

class DropRate(_message.Message):
    __slots__ = ("reason", "per_s")
    REASON_FIELD_NUMBER: _ClassVar[int]
    PER_S_FIELD_NUMBER: _ClassVar[int]
    reason: str
    per_s: float
    def __init__(self, reason: _Optional[str] = ..., per_s: _Optional[float] = ...) -> None: ...

class Overload(_message.Message):
    __slots__ = ("cause", "advice", "for_ns", "name")
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    ADVICE_FIELD_NUMBER: _ClassVar[int]
    FOR_NS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    cause: str
    advice: str
    for_ns: int
    name: str
    def __init__(self, cause: _Optional[str] = ..., advice: _Optional[str] = ..., for_ns: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class DaemonLoad(_message.Message):
    __slots__ = ("cores", "waiting", "loop_lag_ns", "threads", "queues", "drops", "overloads")
    CORES_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    LOOP_LAG_NS_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    DROPS_FIELD_NUMBER: _ClassVar[int]
    OVERLOADS_FIELD_NUMBER: _ClassVar[int]
    cores: float
    waiting: float
    loop_lag_ns: int
    threads: _containers.RepeatedCompositeFieldContainer[ThreadLoad]
    queues: _containers.RepeatedCompositeFieldContainer[QueueLoad]
    drops: _containers.RepeatedCompositeFieldContainer[DropRate]
    overloads: _containers.RepeatedCompositeFieldContainer[Overload]
    def __init__(self, cores: _Optional[float] = ..., waiting: _Optional[float] = ..., loop_lag_ns: _Optional[int] = ..., threads: _Optional[_Iterable[_Union[ThreadLoad, _Mapping]]] = ..., queues: _Optional[_Iterable[_Union[QueueLoad, _Mapping]]] = ..., drops: _Optional[_Iterable[_Union[DropRate, _Mapping]]] = ..., overloads: _Optional[_Iterable[_Union[Overload, _Mapping]]] = ...) -> None: ...
