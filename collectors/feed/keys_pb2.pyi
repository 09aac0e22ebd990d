# mypy: ignore-errors
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class LinkKeys(_message.Message):
    __slots__ = ("nodes", "src", "dst")
    NODES_FIELD_NUMBER: _ClassVar[int]
    SRC_FIELD_NUMBER: _ClassVar[int]
    DST_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedScalarFieldContainer[str]
    src: _containers.RepeatedScalarFieldContainer[int]
    dst: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, nodes: _Optional[_Iterable[str]] = ..., src: _Optional[_Iterable[int]] = ..., dst: _Optional[_Iterable[int]] = ...) -> None: ...

class FlowKeys(_message.Message):
    __slots__ = ("addresses", "src", "dst", "protocol", "src_port", "dst_port")
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    SRC_FIELD_NUMBER: _ClassVar[int]
    DST_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SRC_PORT_FIELD_NUMBER: _ClassVar[int]
    DST_PORT_FIELD_NUMBER: _ClassVar[int]
    addresses: _containers.RepeatedScalarFieldContainer[bytes]
    src: _containers.RepeatedScalarFieldContainer[int]
    dst: _containers.RepeatedScalarFieldContainer[int]
    protocol: _containers.RepeatedScalarFieldContainer[int]
    src_port: _containers.RepeatedScalarFieldContainer[int]
    dst_port: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, addresses: _Optional[_Iterable[bytes]] = ..., src: _Optional[_Iterable[int]] = ..., dst: _Optional[_Iterable[int]] = ..., protocol: _Optional[_Iterable[int]] = ..., src_port: _Optional[_Iterable[int]] = ..., dst_port: _Optional[_Iterable[int]] = ...) -> None: ...

class FlowColumns(_message.Message):
    __slots__ = ("rows", "addresses", "src", "dst", "protocol", "src_port", "dst_port")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    SRC_FIELD_NUMBER: _ClassVar[int]
    DST_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SRC_PORT_FIELD_NUMBER: _ClassVar[int]
    DST_PORT_FIELD_NUMBER: _ClassVar[int]
    rows: int
    addresses: _containers.RepeatedScalarFieldContainer[bytes]
    src: bytes
    dst: bytes
    protocol: bytes
    src_port: bytes
    dst_port: bytes
    def __init__(self, rows: _Optional[int] = ..., addresses: _Optional[_Iterable[bytes]] = ..., src: _Optional[bytes] = ..., dst: _Optional[bytes] = ..., protocol: _Optional[bytes] = ..., src_port: _Optional[bytes] = ..., dst_port: _Optional[bytes] = ...) -> None: ...

class Routes(_message.Message):
    __slots__ = ("switches", "lengths", "hops")
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    switches: _containers.RepeatedScalarFieldContainer[str]
    lengths: _containers.RepeatedScalarFieldContainer[int]
    hops: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, switches: _Optional[_Iterable[str]] = ..., lengths: _Optional[_Iterable[int]] = ..., hops: _Optional[_Iterable[int]] = ...) -> None: ...

class FlowKey(_message.Message):
    __slots__ = ("src", "dst", "protocol", "src_port", "dst_port")
    SRC_FIELD_NUMBER: _ClassVar[int]
    DST_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SRC_PORT_FIELD_NUMBER: _ClassVar[int]
    DST_PORT_FIELD_NUMBER: _ClassVar[int]
    src: bytes
    dst: bytes
    protocol: int
    src_port: int
    dst_port: int
    def __init__(self, src: _Optional[bytes] = ..., dst: _Optional[bytes] = ..., protocol: _Optional[int] = ..., src_port: _Optional[int] = ..., dst_port: _Optional[int] = ...) -> None: ...
