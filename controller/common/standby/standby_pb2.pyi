# mypy: ignore-errors
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Standby(_message.Message):
    __slots__ = ("holder", "is_active", "token", "since_ns", "active_holder", "active_address", "changes", "problem")
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    IS_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    SINCE_NS_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_HOLDER_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    holder: str
    is_active: bool
    token: int
    since_ns: int
    active_holder: str
    active_address: str
    changes: int
    problem: str
    def __init__(self, holder: _Optional[str] = ..., is_active: _Optional[bool] = ..., token: _Optional[int] = ..., since_ns: _Optional[int] = ..., active_holder: _Optional[str] = ..., active_address: _Optional[str] = ..., changes: _Optional[int] = ..., problem: _Optional[str] = ...) -> None: ...
