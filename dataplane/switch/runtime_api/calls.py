"""One call: read from a connection, handed to its method, its result or refusal written back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final

from thrift.protocol.TProtocol import TProtocolBase, TProtocolException
from thrift.Thrift import TApplicationException, TMessageType

from dataplane.errors import MillraceError
from dataplane.switch.runtime_api.services import SERVICES
from dataplane.switch.runtime_api.wire import VOID, Kind, Method, Refusal, RefusalRecord, layout, struct

LOGGER = logging.getLogger("millrace.switch.thrift")
FIRST_SERVICE: Final = "standard"
"""The service whose methods clients may call without its name in front."""

Handlers = Mapping[str, object]
"""Object with the methods of each service, by the service's name."""


class UnsupportedCallError(MillraceError):
    """A call that this switch does not support; the caller gets the text."""


def answer(protocol: TProtocolBase, handlers: Handlers) -> None:
    """Read one call and write its response; raise TProtocolException or TTransportException for invalid calls."""
    name, kind, sequence = protocol.readMessageBegin()
    service, _, word = name.rpartition(":")
    method = SERVICES.get(service or FIRST_SERVICE, {}).get(word)
    if kind != TMessageType.CALL:
        raise TProtocolException(TProtocolException.INVALID_DATA, "no call")
    if method is None:
        protocol.skip(_STRUCT.number)
        protocol.readMessageEnd()
        problem = TApplicationException(TApplicationException.UNKNOWN_METHOD, f"there is no method {name}")
        _write(protocol, word, TMessageType.EXCEPTION, sequence, problem.write)
        return
    arguments = _read_arguments(protocol, method)
    try:
        result, refusal = _call(getattr(handlers[service or FIRST_SERVICE], word), method, arguments)
    except MillraceError as error:
        problem = TApplicationException(TApplicationException.INTERNAL_ERROR, str(error))
        LOGGER.warning("%s: %s", word, error)
        _write(protocol, word, TMessageType.EXCEPTION, sequence, problem.write)
        return
    reply = SimpleNamespace(success=result, ouch=refusal)
    _write(protocol, word, TMessageType.REPLY, sequence, lambda out: out.writeStruct(reply, _reply_layout(method)))


def _read_arguments(protocol: TProtocolBase, method: Method) -> list[Any]:
    members = {f"a{number}": (number, kind) for number, kind in enumerate(method.arguments, 1)}
    arguments = SimpleNamespace(**dict.fromkeys(members))
    protocol.readStruct(arguments, layout(members))
    protocol.readMessageEnd()
    return list(vars(arguments).values())


def _call(call: Callable[..., Any], method: Method, arguments: list[Any]) -> tuple[Any, RefusalRecord | None]:
    if any(argument is None for argument in arguments):
        raise UnsupportedCallError(f"argument {arguments.index(None) + 1} is missing")
    try:
        return call(*arguments), None
    except Refusal as refusal:
        if method.error is None or not isinstance(refusal, method.error):
            raise UnsupportedCallError(str(refusal)) from refusal
        return None, RefusalRecord(int(refusal.code))


_STRUCT: Final = struct(RefusalRecord)


def _reply_layout(method: Method) -> tuple[Any, ...]:
    members: dict[str, tuple[int, Kind]] = {} if method.result is VOID else {"success": (0, method.result)}
    return layout(members | ({} if method.error is None else {"ouch": (1, _STRUCT)}))


def _write(
    protocol: TProtocolBase, name: str, kind: int, sequence: int, write: Callable[[TProtocolBase], object]
) -> None:
    protocol.writeMessageBegin(name, kind, sequence)
    write(protocol)
    protocol.writeMessageEnd()
    protocol.trans.flush()
