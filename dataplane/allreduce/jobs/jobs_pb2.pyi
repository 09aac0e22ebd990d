# mypy: ignore-errors
from dataplane.topology import link_pb2 as _link_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Server(_message.Message):
    __slots__ = ("host", "udp_port")
    HOST_FIELD_NUMBER: _ClassVar[int]
    UDP_PORT_FIELD_NUMBER: _ClassVar[int]
    host: str
    udp_port: int
    def __init__(self, host: _Optional[str] = ..., udp_port: _Optional[int] = ...) -> None: ...

class Convergence(_message.Message):
    __slots__ = ("measure", "below", "steps")
    MEASURE_FIELD_NUMBER: _ClassVar[int]
    BELOW_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    measure: str
    below: float
    steps: int
    def __init__(self, measure: _Optional[str] = ..., below: _Optional[float] = ..., steps: _Optional[int] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("job", "host", "token", "workers", "udp_port", "deadline_ns", "window", "capacity", "boundaries", "number", "server", "is_main_server", "convergence")
    JOB_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    UDP_PORT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_NS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    BOUNDARIES_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    IS_MAIN_SERVER_FIELD_NUMBER: _ClassVar[int]
    CONVERGENCE_FIELD_NUMBER: _ClassVar[int]
    job: str
    host: str
    token: str
    workers: int
    udp_port: int
    deadline_ns: int
    window: int
    capacity: int
    boundaries: bool
    number: int
    server: Server
    is_main_server: bool
    convergence: Convergence
    def __init__(self, job: _Optional[str] = ..., host: _Optional[str] = ..., token: _Optional[str] = ..., workers: _Optional[int] = ..., udp_port: _Optional[int] = ..., deadline_ns: _Optional[int] = ..., window: _Optional[int] = ..., capacity: _Optional[int] = ..., boundaries: _Optional[bool] = ..., number: _Optional[int] = ..., server: _Optional[_Union[Server, _Mapping]] = ..., is_main_server: _Optional[bool] = ..., convergence: _Optional[_Union[Convergence, _Mapping]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Arrived(_message.Message):
    __slots__ = ("barrier", "count")
    BARRIER_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    barrier: int
    count: int
    def __init__(self, barrier: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class Finished(_message.Message):
    __slots__ = ("barrier", "count", "next_item")
    BARRIER_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    NEXT_ITEM_FIELD_NUMBER: _ClassVar[int]
    barrier: int
    count: int
    next_item: int
    def __init__(self, barrier: _Optional[int] = ..., count: _Optional[int] = ..., next_item: _Optional[int] = ...) -> None: ...

class Leave(_message.Message):
    __slots__ = ("next_item",)
    NEXT_ITEM_FIELD_NUMBER: _ClassVar[int]
    next_item: int
    def __init__(self, next_item: _Optional[int] = ...) -> None: ...

class Completed(_message.Message):
    __slots__ = ("next_item",)
    NEXT_ITEM_FIELD_NUMBER: _ClassVar[int]
    next_item: int
    def __init__(self, next_item: _Optional[int] = ...) -> None: ...

class WorkerMessage(_message.Message):
    __slots__ = ("hello", "heartbeat", "arrived", "finished", "leave", "completed")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    ARRIVED_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    heartbeat: Heartbeat
    arrived: Arrived
    finished: Finished
    leave: Leave
    completed: Completed
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., arrived: _Optional[_Union[Arrived, _Mapping]] = ..., finished: _Optional[_Union[Finished, _Mapping]] = ..., leave: _Optional[_Union[Leave, _Mapping]] = ..., completed: _Optional[_Union[Completed, _Mapping]] = ...) -> None: ...

class Waiting(_message.Message):
    __slots__ = ("present", "workers")
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    present: _containers.RepeatedScalarFieldContainer[str]
    workers: int
    def __init__(self, present: _Optional[_Iterable[str]] = ..., workers: _Optional[int] = ...) -> None: ...

class Admitted(_message.Message):
    __slots__ = ("number", "aggregator", "window", "capacity", "epoch", "first_item", "first_count", "members", "heartbeat_ns", "patience_ns", "root", "newcomers", "nonce", "contributors", "main_server")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    AGGREGATOR_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_ITEM_FIELD_NUMBER: _ClassVar[int]
    FIRST_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_NS_FIELD_NUMBER: _ClassVar[int]
    PATIENCE_NS_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    NEWCOMERS_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTORS_FIELD_NUMBER: _ClassVar[int]
    MAIN_SERVER_FIELD_NUMBER: _ClassVar[int]
    number: int
    aggregator: str
    window: int
    capacity: int
    epoch: int
    first_item: int
    first_count: int
    members: _containers.RepeatedScalarFieldContainer[str]
    heartbeat_ns: int
    patience_ns: int
    root: str
    newcomers: _containers.RepeatedScalarFieldContainer[str]
    nonce: int
    contributors: int
    main_server: str
    def __init__(self, number: _Optional[int] = ..., aggregator: _Optional[str] = ..., window: _Optional[int] = ..., capacity: _Optional[int] = ..., epoch: _Optional[int] = ..., first_item: _Optional[int] = ..., first_count: _Optional[int] = ..., members: _Optional[_Iterable[str]] = ..., heartbeat_ns: _Optional[int] = ..., patience_ns: _Optional[int] = ..., root: _Optional[str] = ..., newcomers: _Optional[_Iterable[str]] = ..., nonce: _Optional[int] = ..., contributors: _Optional[int] = ..., main_server: _Optional[str] = ...) -> None: ...

class Barrier(_message.Message):
    __slots__ = ("number", "count", "limit_ns")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_NS_FIELD_NUMBER: _ClassVar[int]
    number: int
    count: int
    limit_ns: int
    def __init__(self, number: _Optional[int] = ..., count: _Optional[int] = ..., limit_ns: _Optional[int] = ...) -> None: ...

class View(_message.Message):
    __slots__ = ("number", "aggregator", "root", "epoch", "members", "barrier", "newcomers", "leaving", "nonce", "contributors", "main_server", "newcomers_at")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    AGGREGATOR_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    BARRIER_FIELD_NUMBER: _ClassVar[int]
    NEWCOMERS_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTORS_FIELD_NUMBER: _ClassVar[int]
    MAIN_SERVER_FIELD_NUMBER: _ClassVar[int]
    NEWCOMERS_AT_FIELD_NUMBER: _ClassVar[int]
    number: int
    aggregator: str
    root: str
    epoch: int
    members: _containers.RepeatedScalarFieldContainer[str]
    barrier: Barrier
    newcomers: _containers.RepeatedScalarFieldContainer[str]
    leaving: int
    nonce: int
    contributors: int
    main_server: str
    newcomers_at: int
    def __init__(self, number: _Optional[int] = ..., aggregator: _Optional[str] = ..., root: _Optional[str] = ..., epoch: _Optional[int] = ..., members: _Optional[_Iterable[str]] = ..., barrier: _Optional[_Union[Barrier, _Mapping]] = ..., newcomers: _Optional[_Iterable[str]] = ..., leaving: _Optional[int] = ..., nonce: _Optional[int] = ..., contributors: _Optional[int] = ..., main_server: _Optional[str] = ..., newcomers_at: _Optional[int] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Ended(_message.Message):
    __slots__ = ("reason", "removed")
    REASON_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    reason: str
    removed: bool
    def __init__(self, reason: _Optional[str] = ..., removed: _Optional[bool] = ...) -> None: ...

class ServiceMessage(_message.Message):
    __slots__ = ("waiting", "admitted", "view", "refused", "ended")
    WAITING_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    waiting: Waiting
    admitted: Admitted
    view: View
    refused: Refused
    ended: Ended
    def __init__(self, waiting: _Optional[_Union[Waiting, _Mapping]] = ..., admitted: _Optional[_Union[Admitted, _Mapping]] = ..., view: _Optional[_Union[View, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ..., ended: _Optional[_Union[Ended, _Mapping]] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class EndJobRequest(_message.Message):
    __slots__ = ("job", "reason")
    JOB_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job: str
    reason: str
    def __init__(self, job: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class EndJobResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RemoveWorkerRequest(_message.Message):
    __slots__ = ("job", "host", "reason")
    JOB_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job: str
    host: str
    reason: str
    def __init__(self, job: _Optional[str] = ..., host: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class RemoveWorkerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Member(_message.Message):
    __slots__ = ("host", "state", "heard_ns", "switch")
    HOST_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    HEARD_NS_FIELD_NUMBER: _ClassVar[int]
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    host: str
    state: str
    heard_ns: int
    switch: str
    def __init__(self, host: _Optional[str] = ..., state: _Optional[str] = ..., heard_ns: _Optional[int] = ..., switch: _Optional[str] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("name", "number", "state", "workers", "members", "epoch", "window", "capacity", "switches", "reason", "ended_ns", "links")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ENDED_NS_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    name: str
    number: int
    state: str
    workers: int
    members: _containers.RepeatedCompositeFieldContainer[Member]
    epoch: int
    window: int
    capacity: int
    switches: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    ended_ns: int
    links: _containers.RepeatedCompositeFieldContainer[_link_pb2.Link]
    def __init__(self, name: _Optional[str] = ..., number: _Optional[int] = ..., state: _Optional[str] = ..., workers: _Optional[int] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., epoch: _Optional[int] = ..., window: _Optional[int] = ..., capacity: _Optional[int] = ..., switches: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ..., ended_ns: _Optional[int] = ..., links: _Optional[_Iterable[_Union[_link_pb2.Link, _Mapping]]] = ...) -> None: ...

class JobList(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ...) -> None: ...
