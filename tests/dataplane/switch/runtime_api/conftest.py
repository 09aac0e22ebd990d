"""A switch in virtual time that serves the runtime API, and a client that knows the calls by their declarations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TMessageType
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from dataplane.clock import VirtualClock
from dataplane.program.loader import load_program
from dataplane.program.model import Program
from dataplane.switch.runtime_api.api import serve
from dataplane.switch.runtime_api.records import ExactParam, LpmParam, MatchParam, MatchType, TernaryParam
from dataplane.switch.runtime_api.services import SERVICES
from dataplane.switch.runtime_api.wire import VOID, RefusalRecord, layout, struct
from dataplane.switch.switch import PortSettings, Switch

PROGRAMS = Path(__file__).parents[2] / "programs"
DEVICE = 5


class RefusedError(Exception):
    """The code that a call was refused with."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(str(code))


class Client:
    """One connection; calls are methods, of `standard` unless `service` says another."""

    def __init__(self, port: int, service: str = "standard") -> None:
        self._socket = TSocket("127.0.0.1", port)
        self._socket.setTimeout(20_000)
        self._protocol = TBinaryProtocol(TBufferedTransport(self._socket))
        self._service = service

    def __enter__(self) -> Self:
        self._protocol.trans.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._protocol.trans.close()

    def of(self, service: str) -> Client:
        """Return a client of another service on the same connection, as TMultiplexedProtocol makes one."""
        other = Client(0, service)
        other._protocol = self._protocol
        return other

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.call(name, *arguments)

    def call(self, name: str, *arguments: object) -> Any:
        method, protocol = SERVICES[self._service][name], self._protocol
        protocol.writeMessageBegin(f"{self._service}:{name}", TMessageType.CALL, 7)
        members = {f"a{number}": (number, kind) for number, kind in enumerate(method.arguments, 1)}
        values = SimpleNamespace(**dict(zip(members, arguments, strict=True)))
        protocol.writeStruct(values, layout(members))
        protocol.writeMessageEnd()
        protocol.trans.flush()
        answered, kind, sequence = protocol.readMessageBegin()
        assert (answered, sequence) == (name, 7)
        if kind == TMessageType.EXCEPTION:
            problem = TApplicationException()
            problem.read(protocol)
            raise problem
        reply = SimpleNamespace(success=None, ouch=None)
        expected = {} if method.result is VOID else {"success": (0, method.result)}
        protocol.readStruct(reply, layout({**expected, "ouch": (1, struct(RefusalRecord))}))
        protocol.readMessageEnd()
        if reply.ouch is not None:
            raise RefusedError(reply.ouch.code)
        return reply.success

    def refusal(self, name: str, *arguments: object) -> int:
        with pytest.raises(RefusedError) as caught:
            self.call(name, *arguments)
        return caught.value.code


def exact(data: bytes) -> MatchParam:
    return MatchParam(MatchType.EXACT, exact=ExactParam(data))


def lpm(data: bytes, length: int) -> MatchParam:
    return MatchParam(MatchType.LPM, lpm=LpmParam(data, length))


def ternary(data: bytes, mask: bytes) -> MatchParam:
    return MatchParam(MatchType.TERNARY, ternary=TernaryParam(data, mask))


@pytest.fixture(scope="session")
def program() -> Program:
    return load_program(PROGRAMS / "p4rt_entities.json", PROGRAMS / "p4rt_entities.p4info.txtpb")


@pytest.fixture
def switch(program: Program) -> Switch:
    made = Switch(DEVICE, [PortSettings(port) for port in (1, 2, 3)], VirtualClock())
    made.commit(program)
    return made


@pytest.fixture
def client(switch: Switch) -> Iterator[Client]:
    with serve(switch, 0) as port, Client(port) as client:
        yield client
