# mypy: ignore-errors
from collectors.feed import keys_pb2 as _keys_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RecordKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECORD_KIND_UNSPECIFIED: _ClassVar[RecordKind]
    RECORD_KIND_STACK: _ClassVar[RecordKind]
    RECORD_KIND_HOP_BY_HOP: _ClassVar[RecordKind]
    RECORD_KIND_INTERMEDIATE: _ClassVar[RecordKind]
    RECORD_KIND_MX: _ClassVar[RecordKind]
    RECORD_KIND_XD: _ClassVar[RecordKind]
    RECORD_KIND_QUEUE: _ClassVar[RecordKind]
RECORD_KIND_UNSPECIFIED: RecordKind
RECORD_KIND_STACK: RecordKind
RECORD_KIND_HOP_BY_HOP: RecordKind
RECORD_KIND_INTERMEDIATE: RecordKind
RECORD_KIND_MX: RecordKind
RECORD_KIND_XD: RecordKind
RECORD_KIND_QUEUE: RecordKind

class HopRecords(_message.Message):
    __slots__ = ("flows", "flow", "received_ns", "reporter_id", "sequence", "hop_index", "hop_count", "node_id", "ingress_port", "egress_port", "hop_latency_ns", "queue_id", "queue_occupancy_frames", "ingress_timestamp_ns", "egress_timestamp_ns", "tx_bytes_per_window", "packet_id", "kind", "buffer_occupancy_frames")
    FLOWS_FIELD_NUMBER: _ClassVar[int]
    FLOW_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_NS_FIELD_NUMBER: _ClassVar[int]
    REPORTER_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    HOP_INDEX_FIELD_NUMBER: _ClassVar[int]
    HOP_COUNT_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    INGRESS_PORT_FIELD_NUMBER: _ClassVar[int]
    EGRESS_PORT_FIELD_NUMBER: _ClassVar[int]
    HOP_LATENCY_NS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OCCUPANCY_FRAMES_FIELD_NUMBER: _ClassVar[int]
    INGRESS_TIMESTAMP_NS_FIELD_NUMBER: _ClassVar[int]
    EGRESS_TIMESTAMP_NS_FIELD_NUMBER: _ClassVar[int]
    TX_BYTES_PER_WINDOW_FIELD_NUMBER: _ClassVar[int]
    PACKET_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    BUFFER_OCCUPANCY_FRAMES_FIELD_NUMBER: _ClassVar[int]
    flows: _keys_pb2.FlowKeys
    flow: _containers.RepeatedScalarFieldContainer[int]
    received_ns: _containers.RepeatedScalarFieldContainer[int]
    reporter_id: _containers.RepeatedScalarFieldContainer[int]
    sequence: _containers.RepeatedScalarFieldContainer[int]
    hop_index: _containers.RepeatedScalarFieldContainer[int]
    hop_count: _containers.RepeatedScalarFieldContainer[int]
    node_id: _containers.RepeatedScalarFieldContainer[int]
    ingress_port: _containers.RepeatedScalarFieldContainer[int]
    egress_port: _containers.RepeatedScalarFieldContainer[int]
    hop_latency_ns: _containers.RepeatedScalarFieldContainer[int]
    queue_id: _containers.RepeatedScalarFieldContainer[int]
    queue_occupancy_frames: _containers.RepeatedScalarFieldContainer[int]
    ingress_timestamp_ns: _containers.RepeatedScalarFieldContainer[int]
    egress_timestamp_ns: _containers.RepeatedScalarFieldContainer[int]
    tx_bytes_per_window: _containers.RepeatedScalarFieldContainer[int]
    packet_id: _containers.RepeatedScalarFieldContainer[int]
    kind: _containers.RepeatedScalarFieldContainer[RecordKind]
    buffer_occupancy_frames: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, flows: _Optional[_Union[_keys_pb2.FlowKeys, _Mapping]] = ..., flow: _Optional[_Iterable[int]] = ..., received_ns: _Optional[_Iterable[int]] = ..., reporter_id: _Optional[_Iterable[int]] = ..., sequence: _Optional[_Iterable[int]] = ..., hop_index: _Optional[_Iterable[int]] = ..., hop_count: _Optional[_Iterable[int]] = ..., node_id: _Optional[_Iterable[int]] = ..., ingress_port: _Optional[_Iterable[int]] = ..., egress_port: _Optional[_Iterable[int]] = ..., hop_latency_ns: _Optional[_Iterable[int]] = ..., queue_id: _Optional[_Iterable[int]] = ..., queue_occupancy_frames: _Optional[_Iterable[int]] = ..., ingress_timestamp_ns: _Optional[_Iterable[int]] = ..., egress_timestamp_ns: _Optional[_Iterable[int]] = ..., tx_bytes_per_window: _Optional[_Iterable[int]] = ..., packet_id: _Optional[_Iterable[int]] = ..., kind: _Optional[_Iterable[_Union[RecordKind, str]]] = ..., buffer_occupancy_frames: _Optional[_Iterable[int]] = ...) -> None: ...

class DropRecords(_message.Message):
    __slots__ = ("flows", "flow", "received_ns", "reporter_id", "sequence", "node_id", "ingress_port", "egress_port", "queue_id", "reason", "timestamp_ns", "tracked")
    FLOWS_FIELD_NUMBER: _ClassVar[int]
    FLOW_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_NS_FIELD_NUMBER: _ClassVar[int]
    REPORTER_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    INGRESS_PORT_FIELD_NUMBER: _ClassVar[int]
    EGRESS_PORT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_NS_FIELD_NUMBER: _ClassVar[int]
    TRACKED_FIELD_NUMBER: _ClassVar[int]
    flows: _keys_pb2.FlowKeys
    flow: _containers.RepeatedScalarFieldContainer[int]
    received_ns: _containers.RepeatedScalarFieldContainer[int]
    reporter_id: _containers.RepeatedScalarFieldContainer[int]
    sequence: _containers.RepeatedScalarFieldContainer[int]
    node_id: _containers.RepeatedScalarFieldContainer[int]
    ingress_port: _containers.RepeatedScalarFieldContainer[int]
    egress_port: _containers.RepeatedScalarFieldContainer[int]
    queue_id: _containers.RepeatedScalarFieldContainer[int]
    reason: _containers.RepeatedScalarFieldContainer[int]
    timestamp_ns: _containers.RepeatedScalarFieldContainer[int]
    tracked: _containers.RepeatedScalarFieldContainer[bool]
    def __init__(self, flows: _Optional[_Union[_keys_pb2.FlowKeys, _Mapping]] = ..., flow: _Optional[_Iterable[int]] = ..., received_ns: _Optional[_Iterable[int]] = ..., reporter_id: _Optional[_Iterable[int]] = ..., sequence: _Optional[_Iterable[int]] = ..., node_id: _Optional[_Iterable[int]] = ..., ingress_port: _Optional[_Iterable[int]] = ..., egress_port: _Optional[_Iterable[int]] = ..., queue_id: _Optional[_Iterable[int]] = ..., reason: _Optional[_Iterable[int]] = ..., timestamp_ns: _Optional[_Iterable[int]] = ..., tracked: _Optional[_Iterable[bool]] = ...) -> None: ...
