# mypy: ignore-errors
from collectors.feed import keys_pb2 as _keys_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LinkWindows(_message.Message):
    __slots__ = ("links", "window_ns", "tx_window_ns", "slots", "buckets", "readings")
    LINKS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_NS_FIELD_NUMBER: _ClassVar[int]
    TX_WINDOW_NS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    READINGS_FIELD_NUMBER: _ClassVar[int]
    links: _keys_pb2.LinkKeys
    window_ns: int
    tx_window_ns: int
    slots: WindowSlots
    buckets: WindowBuckets
    readings: WindowReadings
    def __init__(self, links: _Optional[_Union[_keys_pb2.LinkKeys, _Mapping]] = ..., window_ns: _Optional[int] = ..., tx_window_ns: _Optional[int] = ..., slots: _Optional[_Union[WindowSlots, _Mapping]] = ..., buckets: _Optional[_Union[WindowBuckets, _Mapping]] = ..., readings: _Optional[_Union[WindowReadings, _Mapping]] = ...) -> None: ...

class WindowSlots(_message.Message):
    __slots__ = ("rows", "link", "number", "source", "delays", "total_ns", "least_ns", "greatest_ns", "queues", "queue_frames", "buffers", "buffer_frames", "newest_ns")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DELAYS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_NS_FIELD_NUMBER: _ClassVar[int]
    LEAST_NS_FIELD_NUMBER: _ClassVar[int]
    GREATEST_NS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FRAMES_FIELD_NUMBER: _ClassVar[int]
    BUFFERS_FIELD_NUMBER: _ClassVar[int]
    BUFFER_FRAMES_FIELD_NUMBER: _ClassVar[int]
    NEWEST_NS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    link: bytes
    number: bytes
    source: bytes
    delays: bytes
    total_ns: bytes
    least_ns: bytes
    greatest_ns: bytes
    queues: bytes
    queue_frames: bytes
    buffers: bytes
    buffer_frames: bytes
    newest_ns: bytes
    def __init__(self, rows: _Optional[int] = ..., link: _Optional[bytes] = ..., number: _Optional[bytes] = ..., source: _Optional[bytes] = ..., delays: _Optional[bytes] = ..., total_ns: _Optional[bytes] = ..., least_ns: _Optional[bytes] = ..., greatest_ns: _Optional[bytes] = ..., queues: _Optional[bytes] = ..., queue_frames: _Optional[bytes] = ..., buffers: _Optional[bytes] = ..., buffer_frames: _Optional[bytes] = ..., newest_ns: _Optional[bytes] = ...) -> None: ...

class WindowBuckets(_message.Message):
    __slots__ = ("rows", "link", "number", "bucket", "count")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    rows: int
    link: bytes
    number: bytes
    bucket: bytes
    count: bytes
    def __init__(self, rows: _Optional[int] = ..., link: _Optional[bytes] = ..., number: _Optional[bytes] = ..., bucket: _Optional[bytes] = ..., count: _Optional[bytes] = ...) -> None: ...

class WindowReadings(_message.Message):
    __slots__ = ("rows", "link", "number", "at_ns", "nbytes")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    AT_NS_FIELD_NUMBER: _ClassVar[int]
    NBYTES_FIELD_NUMBER: _ClassVar[int]
    rows: int
    link: bytes
    number: bytes
    at_ns: bytes
    nbytes: bytes
    def __init__(self, rows: _Optional[int] = ..., link: _Optional[bytes] = ..., number: _Optional[bytes] = ..., at_ns: _Optional[bytes] = ..., nbytes: _Optional[bytes] = ...) -> None: ...
