# mypy: ignore-errors
from collectors.feed import keys_pb2 as _keys_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DelaySource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DELAY_SOURCE_UNSPECIFIED: _ClassVar[DelaySource]
    DELAY_SOURCE_NOMINAL: _ClassVar[DelaySource]
    DELAY_SOURCE_HOP_LATENCY: _ClassVar[DelaySource]
    DELAY_SOURCE_PROBES: _ClassVar[DelaySource]
    DELAY_SOURCE_CORRECTED_STAMPS: _ClassVar[DelaySource]
    DELAY_SOURCE_STAMPS: _ClassVar[DelaySource]

class LossSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOSS_SOURCE_UNSPECIFIED: _ClassVar[LossSource]
    LOSS_SOURCE_DROP_REPORTS: _ClassVar[LossSource]
    LOSS_SOURCE_PACKET_COUNTS: _ClassVar[LossSource]
    LOSS_SOURCE_INTERFACE_COUNTERS: _ClassVar[LossSource]

class LoadSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOAD_SOURCE_UNSPECIFIED: _ClassVar[LoadSource]
    LOAD_SOURCE_TELEMETRY: _ClassVar[LoadSource]
    LOAD_SOURCE_GNMI: _ClassVar[LoadSource]
    LOAD_SOURCE_SFLOW: _ClassVar[LoadSource]
    LOAD_SOURCE_OTLP: _ClassVar[LoadSource]

class LinkCondition(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LINK_CONDITION_UNSPECIFIED: _ClassVar[LinkCondition]
    LINK_CONDITION_UP: _ClassVar[LinkCondition]
    LINK_CONDITION_DOWN: _ClassVar[LinkCondition]
DELAY_SOURCE_UNSPECIFIED: DelaySource
DELAY_SOURCE_NOMINAL: DelaySource
DELAY_SOURCE_HOP_LATENCY: DelaySource
DELAY_SOURCE_PROBES: DelaySource
DELAY_SOURCE_CORRECTED_STAMPS: DelaySource
DELAY_SOURCE_STAMPS: DelaySource
LOSS_SOURCE_UNSPECIFIED: LossSource
LOSS_SOURCE_DROP_REPORTS: LossSource
LOSS_SOURCE_PACKET_COUNTS: LossSource
LOSS_SOURCE_INTERFACE_COUNTERS: LossSource
LOAD_SOURCE_UNSPECIFIED: LoadSource
LOAD_SOURCE_TELEMETRY: LoadSource
LOAD_SOURCE_GNMI: LoadSource
LOAD_SOURCE_SFLOW: LoadSource
LOAD_SOURCE_OTLP: LoadSource
LINK_CONDITION_UNSPECIFIED: LinkCondition
LINK_CONDITION_UP: LinkCondition
LINK_CONDITION_DOWN: LinkCondition

class Links(_message.Message):
    __slots__ = ("links", "rate_bps", "delay_mean_ns", "delay_p50_ns", "delay_p99_ns", "queue_occupancy_frames", "utilisation", "available_bps", "loss", "age_ns", "samples", "source", "delay_ewma_ns", "delay_max_ns", "delay_uncertainty_ns", "loss_source", "buffer_occupancy_frames", "lost_packets", "newest_delay_ns", "newest_queue_frames", "newest_utilisation", "load_source")
    LINKS_FIELD_NUMBER: _ClassVar[int]
    RATE_BPS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MEAN_NS_FIELD_NUMBER: _ClassVar[int]
    DELAY_P50_NS_FIELD_NUMBER: _ClassVar[int]
    DELAY_P99_NS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OCCUPANCY_FRAMES_FIELD_NUMBER: _ClassVar[int]
    UTILISATION_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_BPS_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    AGE_NS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DELAY_EWMA_NS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MAX_NS_FIELD_NUMBER: _ClassVar[int]
    DELAY_UNCERTAINTY_NS_FIELD_NUMBER: _ClassVar[int]
    LOSS_SOURCE_FIELD_NUMBER: _ClassVar[int]
    BUFFER_OCCUPANCY_FRAMES_FIELD_NUMBER: _ClassVar[int]
    LOST_PACKETS_FIELD_NUMBER: _ClassVar[int]
    NEWEST_DELAY_NS_FIELD_NUMBER: _ClassVar[int]
    NEWEST_QUEUE_FRAMES_FIELD_NUMBER: _ClassVar[int]
    NEWEST_UTILISATION_FIELD_NUMBER: _ClassVar[int]
    LOAD_SOURCE_FIELD_NUMBER: _ClassVar[int]
    links: _keys_pb2.LinkKeys
    rate_bps: bytes
    delay_mean_ns: bytes
    delay_p50_ns: bytes
    delay_p99_ns: bytes
    queue_occupancy_frames: bytes
    utilisation: bytes
    available_bps: bytes
    loss: bytes
    age_ns: bytes
    samples: bytes
    source: bytes
    delay_ewma_ns: bytes
    delay_max_ns: bytes
    delay_uncertainty_ns: bytes
    loss_source: bytes
    buffer_occupancy_frames: bytes
    lost_packets: bytes
    newest_delay_ns: bytes
    newest_queue_frames: bytes
    newest_utilisation: bytes
    load_source: bytes
    def __init__(self, links: _Optional[_Union[_keys_pb2.LinkKeys, _Mapping]] = ..., rate_bps: _Optional[bytes] = ..., delay_mean_ns: _Optional[bytes] = ..., delay_p50_ns: _Optional[bytes] = ..., delay_p99_ns: _Optional[bytes] = ..., queue_occupancy_frames: _Optional[bytes] = ..., utilisation: _Optional[bytes] = ..., available_bps: _Optional[bytes] = ..., loss: _Optional[bytes] = ..., age_ns: _Optional[bytes] = ..., samples: _Optional[bytes] = ..., source: _Optional[bytes] = ..., delay_ewma_ns: _Optional[bytes] = ..., delay_max_ns: _Optional[bytes] = ..., delay_uncertainty_ns: _Optional[bytes] = ..., loss_source: _Optional[bytes] = ..., buffer_occupancy_frames: _Optional[bytes] = ..., lost_packets: _Optional[bytes] = ..., newest_delay_ns: _Optional[bytes] = ..., newest_queue_frames: _Optional[bytes] = ..., newest_utilisation: _Optional[bytes] = ..., load_source: _Optional[bytes] = ...) -> None: ...

class LinkStatuses(_message.Message):
    __slots__ = ("links", "condition", "age_ns", "cause")
    LINKS_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    AGE_NS_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    links: _keys_pb2.LinkKeys
    condition: _containers.RepeatedScalarFieldContainer[LinkCondition]
    age_ns: _containers.RepeatedScalarFieldContainer[int]
    cause: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, links: _Optional[_Union[_keys_pb2.LinkKeys, _Mapping]] = ..., condition: _Optional[_Iterable[_Union[LinkCondition, str]]] = ..., age_ns: _Optional[_Iterable[int]] = ..., cause: _Optional[_Iterable[str]] = ...) -> None: ...
