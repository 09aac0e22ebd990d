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
LINK_CONDITION_UNSPECIFIED: LinkCondition
LINK_CONDITION_UP: LinkCondition
LINK_CONDITION_DOWN: LinkCondition

class Links(_message.Message):
    __slots__ = ("links", "rate_bps", "delay_mean_ns", "delay_p50_ns", "delay_p99_ns", "queue_occupancy_frames", "utilisation", "available_bps", "loss", "age_ns", "samples", "source", "delay_ewma_ns", "delay_max_ns", "delay_uncertainty_ns", "loss_source", "buffer_occupancy_frames", "lost_packets", "newest_delay_ns", "newest_queue_frames", "newest_utilisation")
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
    links: _keys_pb2.LinkKeys
    rate_bps: _containers.RepeatedScalarFieldContainer[int]
    delay_mean_ns: _containers.RepeatedScalarFieldContainer[int]
    delay_p50_ns: _containers.RepeatedScalarFieldContainer[int]
    delay_p99_ns: _containers.RepeatedScalarFieldContainer[int]
    queue_occupancy_frames: _containers.RepeatedScalarFieldContainer[float]
    utilisation: _containers.RepeatedScalarFieldContainer[float]
    available_bps: _containers.RepeatedScalarFieldContainer[int]
    loss: _containers.RepeatedScalarFieldContainer[float]
    age_ns: _containers.RepeatedScalarFieldContainer[int]
    samples: _containers.RepeatedScalarFieldContainer[int]
    source: _containers.RepeatedScalarFieldContainer[DelaySource]
    delay_ewma_ns: _containers.RepeatedScalarFieldContainer[int]
    delay_max_ns: _containers.RepeatedScalarFieldContainer[int]
    delay_uncertainty_ns: _containers.RepeatedScalarFieldContainer[int]
    loss_source: _containers.RepeatedScalarFieldContainer[LossSource]
    buffer_occupancy_frames: _containers.RepeatedScalarFieldContainer[float]
    lost_packets: _containers.RepeatedScalarFieldContainer[int]
    newest_delay_ns: _containers.RepeatedScalarFieldContainer[int]
    newest_queue_frames: _containers.RepeatedScalarFieldContainer[float]
    newest_utilisation: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, links: _Optional[_Union[_keys_pb2.LinkKeys, _Mapping]] = ..., rate_bps: _Optional[_Iterable[int]] = ..., delay_mean_ns: _Optional[_Iterable[int]] = ..., delay_p50_ns: _Optional[_Iterable[int]] = ..., delay_p99_ns: _Optional[_Iterable[int]] = ..., queue_occupancy_frames: _Optional[_Iterable[float]] = ..., utilisation: _Optional[_Iterable[float]] = ..., available_bps: _Optional[_Iterable[int]] = ..., loss: _Optional[_Iterable[float]] = ..., age_ns: _Optional[_Iterable[int]] = ..., samples: _Optional[_Iterable[int]] = ..., source: _Optional[_Iterable[_Union[DelaySource, str]]] = ..., delay_ewma_ns: _Optional[_Iterable[int]] = ..., delay_max_ns: _Optional[_Iterable[int]] = ..., delay_uncertainty_ns: _Optional[_Iterable[int]] = ..., loss_source: _Optional[_Iterable[_Union[LossSource, str]]] = ..., buffer_occupancy_frames: _Optional[_Iterable[float]] = ..., lost_packets: _Optional[_Iterable[int]] = ..., newest_delay_ns: _Optional[_Iterable[int]] = ..., newest_queue_frames: _Optional[_Iterable[float]] = ..., newest_utilisation: _Optional[_Iterable[float]] = ...) -> None: ...

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
