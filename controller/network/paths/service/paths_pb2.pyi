# mypy: ignore-errors
from collectors.feed import links_pb2 as _links_pb2
from collectors.feed import records_pb2 as _records_pb2
from controller.common.standby import standby_pb2 as _standby_pb2
from dataplane.load import load_pb2 as _load_pb2
from dataplane.topology import link_pb2 as _link_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WatchRoutesRequest(_message.Message):
    __slots__ = ("wait",)
    WAIT_FIELD_NUMBER: _ClassVar[int]
    wait: bool
    def __init__(self, wait: _Optional[bool] = ...) -> None: ...

class WatchDecisionsRequest(_message.Message):
    __slots__ = ("recent",)
    RECENT_FIELD_NUMBER: _ClassVar[int]
    recent: int
    def __init__(self, recent: _Optional[int] = ...) -> None: ...

class WatchRebalancesRequest(_message.Message):
    __slots__ = ("recent",)
    RECENT_FIELD_NUMBER: _ClassVar[int]
    recent: int
    def __init__(self, recent: _Optional[int] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetDrainsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReportLinkResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NoteLinksResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PinResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Flow(_message.Message):
    __slots__ = ("src_host", "dst_host", "protocol", "src_port", "dst_port")
    SRC_HOST_FIELD_NUMBER: _ClassVar[int]
    DST_HOST_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SRC_PORT_FIELD_NUMBER: _ClassVar[int]
    DST_PORT_FIELD_NUMBER: _ClassVar[int]
    src_host: str
    dst_host: str
    protocol: int
    src_port: int
    dst_port: int
    def __init__(self, src_host: _Optional[str] = ..., dst_host: _Optional[str] = ..., protocol: _Optional[int] = ..., src_port: _Optional[int] = ..., dst_port: _Optional[int] = ...) -> None: ...

class Routes(_message.Message):
    __slots__ = ("src_host", "dst_host", "protocol", "src_port", "dst_port", "lengths", "hops")
    SRC_HOST_FIELD_NUMBER: _ClassVar[int]
    DST_HOST_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SRC_PORT_FIELD_NUMBER: _ClassVar[int]
    DST_PORT_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    src_host: _containers.RepeatedScalarFieldContainer[int]
    dst_host: _containers.RepeatedScalarFieldContainer[int]
    protocol: _containers.RepeatedScalarFieldContainer[int]
    src_port: _containers.RepeatedScalarFieldContainer[int]
    dst_port: _containers.RepeatedScalarFieldContainer[int]
    lengths: _containers.RepeatedScalarFieldContainer[int]
    hops: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, src_host: _Optional[_Iterable[int]] = ..., dst_host: _Optional[_Iterable[int]] = ..., protocol: _Optional[_Iterable[int]] = ..., src_port: _Optional[_Iterable[int]] = ..., dst_port: _Optional[_Iterable[int]] = ..., lengths: _Optional[_Iterable[int]] = ..., hops: _Optional[_Iterable[int]] = ...) -> None: ...

class WeightedRoutes(_message.Message):
    __slots__ = ("switch", "destination", "lengths", "next_hops", "weights")
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    NEXT_HOPS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    switch: _containers.RepeatedScalarFieldContainer[int]
    destination: _containers.RepeatedScalarFieldContainer[int]
    lengths: _containers.RepeatedScalarFieldContainer[int]
    next_hops: _containers.RepeatedScalarFieldContainer[int]
    weights: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, switch: _Optional[_Iterable[int]] = ..., destination: _Optional[_Iterable[int]] = ..., lengths: _Optional[_Iterable[int]] = ..., next_hops: _Optional[_Iterable[int]] = ..., weights: _Optional[_Iterable[int]] = ...) -> None: ...

class RouteSet(_message.Message):
    __slots__ = ("version", "names", "routes", "weighted", "pins", "traceparent", "drained", "token")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    ROUTES_FIELD_NUMBER: _ClassVar[int]
    WEIGHTED_FIELD_NUMBER: _ClassVar[int]
    PINS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    version: int
    names: _containers.RepeatedScalarFieldContainer[str]
    routes: Routes
    weighted: WeightedRoutes
    pins: Routes
    traceparent: str
    drained: _containers.RepeatedCompositeFieldContainer[_link_pb2.Link]
    token: int
    def __init__(self, version: _Optional[int] = ..., names: _Optional[_Iterable[str]] = ..., routes: _Optional[_Union[Routes, _Mapping]] = ..., weighted: _Optional[_Union[WeightedRoutes, _Mapping]] = ..., pins: _Optional[_Union[Routes, _Mapping]] = ..., traceparent: _Optional[str] = ..., drained: _Optional[_Iterable[_Union[_link_pb2.Link, _Mapping]]] = ..., token: _Optional[int] = ...) -> None: ...

class PathFigures(_message.Message):
    __slots__ = ("switches", "delay_ns", "bottleneck_bps", "room_bps", "dead_link", "crowded_link", "foreseen_ns", "drained_link")
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    DELAY_NS_FIELD_NUMBER: _ClassVar[int]
    BOTTLENECK_BPS_FIELD_NUMBER: _ClassVar[int]
    ROOM_BPS_FIELD_NUMBER: _ClassVar[int]
    DEAD_LINK_FIELD_NUMBER: _ClassVar[int]
    CROWDED_LINK_FIELD_NUMBER: _ClassVar[int]
    FORESEEN_NS_FIELD_NUMBER: _ClassVar[int]
    DRAINED_LINK_FIELD_NUMBER: _ClassVar[int]
    switches: _containers.RepeatedScalarFieldContainer[str]
    delay_ns: int
    bottleneck_bps: int
    room_bps: int
    dead_link: _link_pb2.Link
    crowded_link: _link_pb2.Link
    foreseen_ns: int
    drained_link: _link_pb2.Link
    def __init__(self, switches: _Optional[_Iterable[str]] = ..., delay_ns: _Optional[int] = ..., bottleneck_bps: _Optional[int] = ..., room_bps: _Optional[int] = ..., dead_link: _Optional[_Union[_link_pb2.Link, _Mapping]] = ..., crowded_link: _Optional[_Union[_link_pb2.Link, _Mapping]] = ..., foreseen_ns: _Optional[int] = ..., drained_link: _Optional[_Union[_link_pb2.Link, _Mapping]] = ...) -> None: ...

class Decision(_message.Message):
    __slots__ = ("time_ns", "flow", "old_path", "new_path", "candidates", "reason", "dead_link")
    TIME_NS_FIELD_NUMBER: _ClassVar[int]
    FLOW_FIELD_NUMBER: _ClassVar[int]
    OLD_PATH_FIELD_NUMBER: _ClassVar[int]
    NEW_PATH_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DEAD_LINK_FIELD_NUMBER: _ClassVar[int]
    time_ns: int
    flow: Flow
    old_path: _containers.RepeatedScalarFieldContainer[str]
    new_path: _containers.RepeatedScalarFieldContainer[str]
    candidates: _containers.RepeatedCompositeFieldContainer[PathFigures]
    reason: str
    dead_link: _link_pb2.Link
    def __init__(self, time_ns: _Optional[int] = ..., flow: _Optional[_Union[Flow, _Mapping]] = ..., old_path: _Optional[_Iterable[str]] = ..., new_path: _Optional[_Iterable[str]] = ..., candidates: _Optional[_Iterable[_Union[PathFigures, _Mapping]]] = ..., reason: _Optional[str] = ..., dead_link: _Optional[_Union[_link_pb2.Link, _Mapping]] = ...) -> None: ...

class NextHop(_message.Message):
    __slots__ = ("switch", "weight")
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    switch: str
    weight: int
    def __init__(self, switch: _Optional[str] = ..., weight: _Optional[int] = ...) -> None: ...

class Rebalance(_message.Message):
    __slots__ = ("time_ns", "switch", "destination", "old_weights", "new_weights", "link", "utilisation_before", "utilisation_after", "reason")
    TIME_NS_FIELD_NUMBER: _ClassVar[int]
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    OLD_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    NEW_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    UTILISATION_BEFORE_FIELD_NUMBER: _ClassVar[int]
    UTILISATION_AFTER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    time_ns: int
    switch: str
    destination: str
    old_weights: _containers.RepeatedCompositeFieldContainer[NextHop]
    new_weights: _containers.RepeatedCompositeFieldContainer[NextHop]
    link: _link_pb2.Link
    utilisation_before: float
    utilisation_after: float
    reason: str
    def __init__(self, time_ns: _Optional[int] = ..., switch: _Optional[str] = ..., destination: _Optional[str] = ..., old_weights: _Optional[_Iterable[_Union[NextHop, _Mapping]]] = ..., new_weights: _Optional[_Iterable[_Union[NextHop, _Mapping]]] = ..., link: _Optional[_Union[_link_pb2.Link, _Mapping]] = ..., utilisation_before: _Optional[float] = ..., utilisation_after: _Optional[float] = ..., reason: _Optional[str] = ...) -> None: ...

class EngineeringRound(_message.Message):
    __slots__ = ("time_ns", "max_utilisation_before", "max_utilisation_after", "destinations", "reason")
    TIME_NS_FIELD_NUMBER: _ClassVar[int]
    MAX_UTILISATION_BEFORE_FIELD_NUMBER: _ClassVar[int]
    MAX_UTILISATION_AFTER_FIELD_NUMBER: _ClassVar[int]
    DESTINATIONS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    time_ns: int
    max_utilisation_before: float
    max_utilisation_after: float
    destinations: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    def __init__(self, time_ns: _Optional[int] = ..., max_utilisation_before: _Optional[float] = ..., max_utilisation_after: _Optional[float] = ..., destinations: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ...) -> None: ...

class RecordRow(_message.Message):
    __slots__ = ("received_ns", "packet_id", "hop_index", "switch", "next_hop", "hop_latency_ns", "queue_occupancy_frames")
    RECEIVED_NS_FIELD_NUMBER: _ClassVar[int]
    PACKET_ID_FIELD_NUMBER: _ClassVar[int]
    HOP_INDEX_FIELD_NUMBER: _ClassVar[int]
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    NEXT_HOP_FIELD_NUMBER: _ClassVar[int]
    HOP_LATENCY_NS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OCCUPANCY_FRAMES_FIELD_NUMBER: _ClassVar[int]
    received_ns: int
    packet_id: int
    hop_index: int
    switch: str
    next_hop: str
    hop_latency_ns: int
    queue_occupancy_frames: int
    def __init__(self, received_ns: _Optional[int] = ..., packet_id: _Optional[int] = ..., hop_index: _Optional[int] = ..., switch: _Optional[str] = ..., next_hop: _Optional[str] = ..., hop_latency_ns: _Optional[int] = ..., queue_occupancy_frames: _Optional[int] = ...) -> None: ...

class Explanation(_message.Message):
    __slots__ = ("flow", "present", "candidates", "rate_bps", "reason", "moves", "records", "figures_age_ns", "feed_is_silent", "pinned")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    RATE_BPS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    FIGURES_AGE_NS_FIELD_NUMBER: _ClassVar[int]
    FEED_IS_SILENT_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    flow: Flow
    present: PathFigures
    candidates: _containers.RepeatedCompositeFieldContainer[PathFigures]
    rate_bps: int
    reason: str
    moves: _containers.RepeatedCompositeFieldContainer[Decision]
    records: _containers.RepeatedCompositeFieldContainer[RecordRow]
    figures_age_ns: int
    feed_is_silent: bool
    pinned: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, flow: _Optional[_Union[Flow, _Mapping]] = ..., present: _Optional[_Union[PathFigures, _Mapping]] = ..., candidates: _Optional[_Iterable[_Union[PathFigures, _Mapping]]] = ..., rate_bps: _Optional[int] = ..., reason: _Optional[str] = ..., moves: _Optional[_Iterable[_Union[Decision, _Mapping]]] = ..., records: _Optional[_Iterable[_Union[RecordRow, _Mapping]]] = ..., figures_age_ns: _Optional[int] = ..., feed_is_silent: _Optional[bool] = ..., pinned: _Optional[_Iterable[str]] = ...) -> None: ...

class GetHistoryRequest(_message.Message):
    __slots__ = ("src", "dst", "start_ns", "end_ns", "limit")
    SRC_FIELD_NUMBER: _ClassVar[int]
    DST_FIELD_NUMBER: _ClassVar[int]
    START_NS_FIELD_NUMBER: _ClassVar[int]
    END_NS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    src: str
    dst: str
    start_ns: int
    end_ns: int
    limit: int
    def __init__(self, src: _Optional[str] = ..., dst: _Optional[str] = ..., start_ns: _Optional[int] = ..., end_ns: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class History(_message.Message):
    __slots__ = ("decisions", "rounds", "rebalances")
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    REBALANCES_FIELD_NUMBER: _ClassVar[int]
    decisions: _containers.RepeatedCompositeFieldContainer[Decision]
    rounds: _containers.RepeatedCompositeFieldContainer[EngineeringRound]
    rebalances: _containers.RepeatedCompositeFieldContainer[Rebalance]
    def __init__(self, decisions: _Optional[_Iterable[_Union[Decision, _Mapping]]] = ..., rounds: _Optional[_Iterable[_Union[EngineeringRound, _Mapping]]] = ..., rebalances: _Optional[_Iterable[_Union[Rebalance, _Mapping]]] = ...) -> None: ...

class PinRequest(_message.Message):
    __slots__ = ("flow", "switches")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    flow: Flow
    switches: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, flow: _Optional[_Union[Flow, _Mapping]] = ..., switches: _Optional[_Iterable[str]] = ...) -> None: ...

class Drain(_message.Message):
    __slots__ = ("element", "since_ns", "by", "note")
    ELEMENT_FIELD_NUMBER: _ClassVar[int]
    SINCE_NS_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    element: str
    since_ns: int
    by: str
    note: str
    def __init__(self, element: _Optional[str] = ..., since_ns: _Optional[int] = ..., by: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class DrainChange(_message.Message):
    __slots__ = ("element", "drained", "by", "note", "revision")
    ELEMENT_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    element: str
    drained: bool
    by: str
    note: str
    revision: str
    def __init__(self, element: _Optional[str] = ..., drained: _Optional[bool] = ..., by: _Optional[str] = ..., note: _Optional[str] = ..., revision: _Optional[str] = ...) -> None: ...

class StayingFlow(_message.Message):
    __slots__ = ("flow", "path", "reason")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    flow: Flow
    path: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    def __init__(self, flow: _Optional[_Union[Flow, _Mapping]] = ..., path: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ...) -> None: ...

class DrainEffect(_message.Message):
    __slots__ = ("drain", "is_change", "moves", "stays", "others", "hosts", "fullest_before", "utilisation_before", "fullest_after", "utilisation_after", "revision")
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    IS_CHANGE_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    STAYS_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    FULLEST_BEFORE_FIELD_NUMBER: _ClassVar[int]
    UTILISATION_BEFORE_FIELD_NUMBER: _ClassVar[int]
    FULLEST_AFTER_FIELD_NUMBER: _ClassVar[int]
    UTILISATION_AFTER_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    drain: Drain
    is_change: bool
    moves: _containers.RepeatedCompositeFieldContainer[Decision]
    stays: _containers.RepeatedCompositeFieldContainer[StayingFlow]
    others: int
    hosts: _containers.RepeatedScalarFieldContainer[str]
    fullest_before: _link_pb2.Link
    utilisation_before: float
    fullest_after: _link_pb2.Link
    utilisation_after: float
    revision: str
    def __init__(self, drain: _Optional[_Union[Drain, _Mapping]] = ..., is_change: _Optional[bool] = ..., moves: _Optional[_Iterable[_Union[Decision, _Mapping]]] = ..., stays: _Optional[_Iterable[_Union[StayingFlow, _Mapping]]] = ..., others: _Optional[int] = ..., hosts: _Optional[_Iterable[str]] = ..., fullest_before: _Optional[_Union[_link_pb2.Link, _Mapping]] = ..., utilisation_before: _Optional[float] = ..., fullest_after: _Optional[_Union[_link_pb2.Link, _Mapping]] = ..., utilisation_after: _Optional[float] = ..., revision: _Optional[str] = ...) -> None: ...

class DrainList(_message.Message):
    __slots__ = ("drains", "stays", "revision")
    DRAINS_FIELD_NUMBER: _ClassVar[int]
    STAYS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    drains: _containers.RepeatedCompositeFieldContainer[Drain]
    stays: _containers.RepeatedCompositeFieldContainer[StayingFlow]
    revision: str
    def __init__(self, drains: _Optional[_Iterable[_Union[Drain, _Mapping]]] = ..., stays: _Optional[_Iterable[_Union[StayingFlow, _Mapping]]] = ..., revision: _Optional[str] = ...) -> None: ...

class ReportLinkRequest(_message.Message):
    __slots__ = ("link", "up")
    LINK_FIELD_NUMBER: _ClassVar[int]
    UP_FIELD_NUMBER: _ClassVar[int]
    link: _link_pb2.Link
    up: bool
    def __init__(self, link: _Optional[_Union[_link_pb2.Link, _Mapping]] = ..., up: _Optional[bool] = ...) -> None: ...

class GetRecordsRequest(_message.Message):
    __slots__ = ("src", "dst", "protocol", "src_port", "dst_port", "link", "start_ns", "end_ns", "limit")
    SRC_FIELD_NUMBER: _ClassVar[int]
    DST_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SRC_PORT_FIELD_NUMBER: _ClassVar[int]
    DST_PORT_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    START_NS_FIELD_NUMBER: _ClassVar[int]
    END_NS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    src: str
    dst: str
    protocol: int
    src_port: int
    dst_port: int
    link: _link_pb2.Link
    start_ns: int
    end_ns: int
    limit: int
    def __init__(self, src: _Optional[str] = ..., dst: _Optional[str] = ..., protocol: _Optional[int] = ..., src_port: _Optional[int] = ..., dst_port: _Optional[int] = ..., link: _Optional[_Union[_link_pb2.Link, _Mapping]] = ..., start_ns: _Optional[int] = ..., end_ns: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("version", "flows", "explicit_routes", "last_step_ns", "snapshot_age_ns", "counters", "last_problem", "feed_is_silent", "now_ns", "nodes", "pinned", "load", "drained", "standby")
    class CountersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class NodesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FLOWS_FIELD_NUMBER: _ClassVar[int]
    EXPLICIT_ROUTES_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_NS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_AGE_NS_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    LAST_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    FEED_IS_SILENT_FIELD_NUMBER: _ClassVar[int]
    NOW_NS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    STANDBY_FIELD_NUMBER: _ClassVar[int]
    version: int
    flows: int
    explicit_routes: int
    last_step_ns: int
    snapshot_age_ns: int
    counters: _containers.ScalarMap[str, int]
    last_problem: str
    feed_is_silent: bool
    now_ns: int
    nodes: _containers.ScalarMap[str, int]
    pinned: int
    load: _load_pb2.DaemonLoad
    drained: int
    standby: _standby_pb2.Standby
    def __init__(self, version: _Optional[int] = ..., flows: _Optional[int] = ..., explicit_routes: _Optional[int] = ..., last_step_ns: _Optional[int] = ..., snapshot_age_ns: _Optional[int] = ..., counters: _Optional[_Mapping[str, int]] = ..., last_problem: _Optional[str] = ..., feed_is_silent: _Optional[bool] = ..., now_ns: _Optional[int] = ..., nodes: _Optional[_Mapping[str, int]] = ..., pinned: _Optional[int] = ..., load: _Optional[_Union[_load_pb2.DaemonLoad, _Mapping]] = ..., drained: _Optional[int] = ..., standby: _Optional[_Union[_standby_pb2.Standby, _Mapping]] = ...) -> None: ...
