"""A service for tests only, described like a .proto, and its implementation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import Default
from google.protobuf.message_factory import GetMessageClass

from dataplane.rpc.access.permissions import Permission
from dataplane.rpc.errors import CallError
from dataplane.rpc.service import Service

_FILE: Final = "tests/dataplane/rpc/echo.proto"


def _described() -> Any:
    file = FileDescriptorProto(name=_FILE, package="tests.echo.v1", syntax="proto3")
    word = file.message_type.add(name="Word").field
    word.add(name="text", number=1, type="TYPE_STRING", label="LABEL_OPTIONAL")
    word.add(name="more", number=2, type="TYPE_MESSAGE", label="LABEL_REPEATED", type_name="Word")
    service = file.service.add(name="Echo")
    for name, asks, answers in (("Say", False, False), ("Repeat", False, True), ("Talk", True, True)):
        service.method.add(
            name=name, input_type="Word", output_type="Word", client_streaming=asks, server_streaming=answers
        )
    Default().AddSerializedFile(file.SerializeToString())
    return Default().FindFileByName(_FILE)


DESCRIPTOR: Final = _described()
Word: Final[Any] = GetMessageClass(DESCRIPTOR.message_types_by_name["Word"])
ECHO: Final = "tests.echo.v1.Echo"


class Echo:
    """Echoes its input; "no" is refused, "wait" waits until `go` is set."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.begun = asyncio.Event()

    @property
    def service(self) -> Service:
        """Service for a server to serve."""
        methods = {"Say": self.say, "Repeat": self.repeat, "Talk": self.talk}
        needs = {"Say": Permission.READ, "Repeat": Permission.CHANGE, "Talk": Permission.OPERATE}
        return Service(DESCRIPTOR.services_by_name["Echo"], methods, needs)

    async def say(self, request: Any) -> Any:
        """Answer once."""
        if request.text == "no":
            raise CallError(grpc.StatusCode.NOT_FOUND, "there is no such word")
        if request.text == "wait":
            self.begun.set()
            await self.go.wait()
        return request

    async def repeat(self, request: Any) -> AsyncIterator[Any]:
        """Answer at once, then never again."""
        if request.text == "no":
            raise CallError(grpc.StatusCode.NOT_FOUND, "there is no such word")
        yield request.SerializeToString()
        await asyncio.Event().wait()

    async def talk(self, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Answer each word."""
        async for request in requests:
            yield request
