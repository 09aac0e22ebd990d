# mypy: ignore-errors
from collectors.feed import events_pb2 as _events_pb2
from collectors.feed import keys_pb2 as _keys_pb2
from collectors.feed import links_pb2 as _links_pb2
from collectors.feed import records_pb2 as _records_pb2
from collectors.feed.windows import windows_pb2 as _windows_pb2
from dataplane.load import load_pb2 as _load_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WatchSnapshotsRequest(_message.Message):
    __slots__ = ("interval_ns", "changes")
    INTERVAL_NS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    interval_ns: int
    changes: bool
    def __init__(self, interval_ns: _Optional[int] = ..., changes: _Optional[bool] = ...) -> None: ...

class GetSnapshotRequest(_message.Message):
    __slots__ = ("epoch", "since")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    since: int
    def __init__(self, epoch: _Optional[int] = ..., since: _Optional[int] = ...) -> None: ...

class GetLinkWindowsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchRecordsRequest(_message.Message):
    __slots__ = ("reports_per_s",)
    REPORTS_PER_S_FIELD_NUMBER: _ClassVar[int]
    reports_per_s: int
    def __init__(self, reports_per_s: _Optional[int] = ...) -> None: ...

class WatchDropsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchSignalsRequest(_message.Message):
    __slots__ = ("queue_frames", "shortest_gap_ns")
    QUEUE_FRAMES_FIELD_NUMBER: _ClassVar[int]
    SHORTEST_GAP_NS_FIELD_NUMBER: _ClassVar[int]
    queue_frames: float
    shortest_gap_ns: int
    def __init__(self, queue_frames: _Optional[float] = ..., shortest_gap_ns: _Optional[int] = ...) -> None: ...

class Signals(_message.Message):
    __slots__ = ("queue_frames", "queue_reported", "queue_full", "grown", "more_hz", "unlisted")
    QUEUE_FRAMES_FIELD_NUMBER: _ClassVar[int]
    QUEUE_REPORTED_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FULL_FIELD_NUMBER: _ClassVar[int]
    GROWN_FIELD_NUMBER: _ClassVar[int]
    MORE_HZ_FIELD_NUMBER: _ClassVar[int]
    UNLISTED_FIELD_NUMBER: _ClassVar[int]
    queue_frames: int
    queue_reported: bool
    queue_full: bool
    grown: _keys_pb2.FlowKeys
    more_hz: _containers.RepeatedScalarFieldContainer[float]
    unlisted: int
    def __init__(self, queue_frames: _Optional[int] = ..., queue_reported: _Optional[bool] = ..., queue_full: _Optional[bool] = ..., grown: _Optional[_Union[_keys_pb2.FlowKeys, _Mapping]] = ..., more_hz: _Optional[_Iterable[float]] = ..., unlisted: _Optional[int] = ...) -> None: ...

class WatchEventsRequest(_message.Message):
    __slots__ = ("since_ns",)
    SINCE_NS_FIELD_NUMBER: _ClassVar[int]
    since_ns: int
    def __init__(self, since_ns: _Optional[int] = ...) -> None: ...

class GetRulesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NameJobsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NoteLinksResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NoteMovesResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Paths(_message.Message):
    __slots__ = ("flows", "routes", "route", "delay_ns", "bottleneck_bps", "age_ns", "rate_bps", "delay_p50_ns", "delay_p99_ns", "loss", "samples", "measured_bytes", "is_young", "gap_mean_ns", "gap_variation", "same_flows")
    FLOWS_FIELD_NUMBER: _ClassVar[int]
    ROUTES_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    DELAY_NS_FIELD_NUMBER: _ClassVar[int]
    BOTTLENECK_BPS_FIELD_NUMBER: _ClassVar[int]
    AGE_NS_FIELD_NUMBER: _ClassVar[int]
    RATE_BPS_FIELD_NUMBER: _ClassVar[int]
    DELAY_P50_NS_FIELD_NUMBER: _ClassVar[int]
    DELAY_P99_NS_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    MEASURED_BYTES_FIELD_NUMBER: _ClassVar[int]
    IS_YOUNG_FIELD_NUMBER: _ClassVar[int]
    GAP_MEAN_NS_FIELD_NUMBER: _ClassVar[int]
    GAP_VARIATION_FIELD_NUMBER: _ClassVar[int]
    SAME_FLOWS_FIELD_NUMBER: _ClassVar[int]
    flows: _keys_pb2.FlowColumns
    routes: _keys_pb2.Routes
    route: bytes
    delay_ns: bytes
    bottleneck_bps: bytes
    age_ns: bytes
    rate_bps: bytes
    delay_p50_ns: bytes
    delay_p99_ns: bytes
    loss: bytes
    samples: bytes
    measured_bytes: bytes
    is_young: bytes
    gap_mean_ns: bytes
    gap_variation: bytes
    same_flows: bool
    def __init__(self, flows: _Optional[_Union[_keys_pb2.FlowColumns, _Mapping]] = ..., routes: _Optional[_Union[_keys_pb2.Routes, _Mapping]] = ..., route: _Optional[bytes] = ..., delay_ns: _Optional[bytes] = ..., bottleneck_bps: _Optional[bytes] = ..., age_ns: _Optional[bytes] = ..., rate_bps: _Optional[bytes] = ..., delay_p50_ns: _Optional[bytes] = ..., delay_p99_ns: _Optional[bytes] = ..., loss: _Optional[bytes] = ..., samples: _Optional[bytes] = ..., measured_bytes: _Optional[bytes] = ..., is_young: _Optional[bytes] = ..., gap_mean_ns: _Optional[bytes] = ..., gap_variation: _Optional[bytes] = ..., same_flows: _Optional[bool] = ...) -> None: ...

class Reporters(_message.Message):
    __slots__ = ("node_id", "hw_id", "received", "lost", "late", "duplicate", "restarts", "contested")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    HW_ID_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    LATE_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    CONTESTED_FIELD_NUMBER: _ClassVar[int]
    node_id: _containers.RepeatedScalarFieldContainer[int]
    hw_id: _containers.RepeatedScalarFieldContainer[int]
    received: _containers.RepeatedScalarFieldContainer[int]
    lost: _containers.RepeatedScalarFieldContainer[int]
    late: _containers.RepeatedScalarFieldContainer[int]
    duplicate: _containers.RepeatedScalarFieldContainer[int]
    restarts: _containers.RepeatedScalarFieldContainer[int]
    contested: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, node_id: _Optional[_Iterable[int]] = ..., hw_id: _Optional[_Iterable[int]] = ..., received: _Optional[_Iterable[int]] = ..., lost: _Optional[_Iterable[int]] = ..., late: _Optional[_Iterable[int]] = ..., duplicate: _Optional[_Iterable[int]] = ..., restarts: _Optional[_Iterable[int]] = ..., contested: _Optional[_Iterable[int]] = ...) -> None: ...

class Clocks(_message.Message):
    __slots__ = ("node_id", "group", "offset_ns", "drift_ppb", "uncertainty_ns")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSET_NS_FIELD_NUMBER: _ClassVar[int]
    DRIFT_PPB_FIELD_NUMBER: _ClassVar[int]
    UNCERTAINTY_NS_FIELD_NUMBER: _ClassVar[int]
    node_id: _containers.RepeatedScalarFieldContainer[int]
    group: _containers.RepeatedScalarFieldContainer[int]
    offset_ns: _containers.RepeatedScalarFieldContainer[int]
    drift_ppb: _containers.RepeatedScalarFieldContainer[int]
    uncertainty_ns: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, node_id: _Optional[_Iterable[int]] = ..., group: _Optional[_Iterable[int]] = ..., offset_ns: _Optional[_Iterable[int]] = ..., drift_ppb: _Optional[_Iterable[int]] = ..., uncertainty_ns: _Optional[_Iterable[int]] = ...) -> None: ...

class Child(_message.Message):
    __slots__ = ("number", "name", "last", "last_share", "wait_mean_ns", "wait_max_ns", "wait_caused_ns", "samples")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    LAST_SHARE_FIELD_NUMBER: _ClassVar[int]
    WAIT_MEAN_NS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MAX_NS_FIELD_NUMBER: _ClassVar[int]
    WAIT_CAUSED_NS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    number: int
    name: str
    last: int
    last_share: float
    wait_mean_ns: int
    wait_max_ns: int
    wait_caused_ns: int
    samples: int
    def __init__(self, number: _Optional[int] = ..., name: _Optional[str] = ..., last: _Optional[int] = ..., last_share: _Optional[float] = ..., wait_mean_ns: _Optional[int] = ..., wait_max_ns: _Optional[int] = ..., wait_caused_ns: _Optional[int] = ..., samples: _Optional[int] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("job", "switch", "name", "epoch", "cells", "is_leaf", "items", "items_per_s", "reported", "repeated", "repeated_per_item", "cells_used", "wait_mean_ns", "wait_p50_ns", "wait_p99_ns", "wait_max_ns", "samples", "age_ns", "children")
    JOB_FIELD_NUMBER: _ClassVar[int]
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    IS_LEAF_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    ITEMS_PER_S_FIELD_NUMBER: _ClassVar[int]
    REPORTED_FIELD_NUMBER: _ClassVar[int]
    REPEATED_FIELD_NUMBER: _ClassVar[int]
    REPEATED_PER_ITEM_FIELD_NUMBER: _ClassVar[int]
    CELLS_USED_FIELD_NUMBER: _ClassVar[int]
    WAIT_MEAN_NS_FIELD_NUMBER: _ClassVar[int]
    WAIT_P50_NS_FIELD_NUMBER: _ClassVar[int]
    WAIT_P99_NS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MAX_NS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    AGE_NS_FIELD_NUMBER: _ClassVar[int]
    CHILDREN_FIELD_NUMBER: _ClassVar[int]
    job: int
    switch: str
    name: str
    epoch: int
    cells: int
    is_leaf: bool
    items: int
    items_per_s: float
    reported: int
    repeated: int
    repeated_per_item: float
    cells_used: int
    wait_mean_ns: int
    wait_p50_ns: int
    wait_p99_ns: int
    wait_max_ns: int
    samples: int
    age_ns: int
    children: _containers.RepeatedCompositeFieldContainer[Child]
    def __init__(self, job: _Optional[int] = ..., switch: _Optional[str] = ..., name: _Optional[str] = ..., epoch: _Optional[int] = ..., cells: _Optional[int] = ..., is_leaf: _Optional[bool] = ..., items: _Optional[int] = ..., items_per_s: _Optional[float] = ..., reported: _Optional[int] = ..., repeated: _Optional[int] = ..., repeated_per_item: _Optional[float] = ..., cells_used: _Optional[int] = ..., wait_mean_ns: _Optional[int] = ..., wait_p50_ns: _Optional[int] = ..., wait_p99_ns: _Optional[int] = ..., wait_max_ns: _Optional[int] = ..., samples: _Optional[int] = ..., age_ns: _Optional[int] = ..., children: _Optional[_Iterable[_Union[Child, _Mapping]]] = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("taken_ns", "links", "paths", "reporters", "clocks", "jobs", "statuses", "epoch", "number", "since", "same_reporters", "changed_links")
    TAKEN_NS_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    REPORTERS_FIELD_NUMBER: _ClassVar[int]
    CLOCKS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    SAME_REPORTERS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_LINKS_FIELD_NUMBER: _ClassVar[int]
    taken_ns: int
    links: _links_pb2.Links
    paths: Paths
    reporters: Reporters
    clocks: Clocks
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    statuses: _links_pb2.LinkStatuses
    epoch: int
    number: int
    since: int
    same_reporters: bool
    changed_links: ChangedRows
    def __init__(self, taken_ns: _Optional[int] = ..., links: _Optional[_Union[_links_pb2.Links, _Mapping]] = ..., paths: _Optional[_Union[Paths, _Mapping]] = ..., reporters: _Optional[_Union[Reporters, _Mapping]] = ..., clocks: _Optional[_Union[Clocks, _Mapping]] = ..., jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., statuses: _Optional[_Union[_links_pb2.LinkStatuses, _Mapping]] = ..., epoch: _Optional[int] = ..., number: _Optional[int] = ..., since: _Optional[int] = ..., same_reporters: _Optional[bool] = ..., changed_links: _Optional[_Union[ChangedRows, _Mapping]] = ...) -> None: ...

class ChangedRows(_message.Message):
    __slots__ = ("rows", "places")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    rows: int
    places: bytes
    def __init__(self, rows: _Optional[int] = ..., places: _Optional[bytes] = ...) -> None: ...

class JobNote(_message.Message):
    __slots__ = ("job", "name", "epoch", "cells")
    JOB_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    job: int
    name: str
    epoch: int
    cells: int
    def __init__(self, job: _Optional[int] = ..., name: _Optional[str] = ..., epoch: _Optional[int] = ..., cells: _Optional[int] = ...) -> None: ...

class JobNotes(_message.Message):
    __slots__ = ("notes",)
    NOTES_FIELD_NUMBER: _ClassVar[int]
    notes: _containers.RepeatedCompositeFieldContainer[JobNote]
    def __init__(self, notes: _Optional[_Iterable[_Union[JobNote, _Mapping]]] = ...) -> None: ...

class FlowMove(_message.Message):
    __slots__ = ("time_ns", "src_host", "dst_host", "protocol", "src_port", "dst_port", "old_path", "new_path", "reason", "gain_ns")
    TIME_NS_FIELD_NUMBER: _ClassVar[int]
    SRC_HOST_FIELD_NUMBER: _ClassVar[int]
    DST_HOST_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SRC_PORT_FIELD_NUMBER: _ClassVar[int]
    DST_PORT_FIELD_NUMBER: _ClassVar[int]
    OLD_PATH_FIELD_NUMBER: _ClassVar[int]
    NEW_PATH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    GAIN_NS_FIELD_NUMBER: _ClassVar[int]
    time_ns: int
    src_host: str
    dst_host: str
    protocol: int
    src_port: int
    dst_port: int
    old_path: _containers.RepeatedScalarFieldContainer[str]
    new_path: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    gain_ns: int
    def __init__(self, time_ns: _Optional[int] = ..., src_host: _Optional[str] = ..., dst_host: _Optional[str] = ..., protocol: _Optional[int] = ..., src_port: _Optional[int] = ..., dst_port: _Optional[int] = ..., old_path: _Optional[_Iterable[str]] = ..., new_path: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ..., gain_ns: _Optional[int] = ...) -> None: ...

class FlowMoves(_message.Message):
    __slots__ = ("moves",)
    MOVES_FIELD_NUMBER: _ClassVar[int]
    moves: _containers.RepeatedCompositeFieldContainer[FlowMove]
    def __init__(self, moves: _Optional[_Iterable[_Union[FlowMove, _Mapping]]] = ...) -> None: ...

class CollectorStatus(_message.Message):
    __slots__ = ("taken_ns", "counters", "last_problem", "load")
    class CountersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TAKEN_NS_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    LAST_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    taken_ns: int
    counters: _containers.ScalarMap[str, int]
    last_problem: str
    load: _load_pb2.DaemonLoad
    def __init__(self, taken_ns: _Optional[int] = ..., counters: _Optional[_Mapping[str, int]] = ..., last_problem: _Optional[str] = ..., load: _Optional[_Union[_load_pb2.DaemonLoad, _Mapping]] = ...) -> None: ...
