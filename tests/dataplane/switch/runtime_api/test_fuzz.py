"""For any bytes a call is answered or its connection ends, as designed; nothing else is raised."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TMessageType
from thrift.transport.TTransport import TMemoryBuffer

from dataplane.clock import VirtualClock
from dataplane.program.model import Program
from dataplane.switch.runtime_api.calls import answer
from dataplane.switch.runtime_api.management import StandardMethods
from dataplane.switch.runtime_api.multicast import MulticastMethods
from dataplane.switch.runtime_api.records import AddOptions, CounterValue, MeterRate, MirroringConfig
from dataplane.switch.runtime_api.runtime import Runtime
from dataplane.switch.runtime_api.server import NO_CALL
from dataplane.switch.runtime_api.services import COUNT, DATA, KEY, MIRROR, OPTIONS, RATES, SERVICES
from dataplane.switch.runtime_api.simple_switch import SimpleSwitchMethods
from dataplane.switch.runtime_api.wire import BINARY, BOOL, DOUBLE, I16, I32, I64, STRING, Kind, layout
from dataplane.switch.switch import PortSettings, Switch
from tests.dataplane.switch.runtime_api.conftest import exact, lpm, ternary
from tests.examples import examples

NAMES: tuple[str, ...] = (
    "exact_table",
    "aging_table",
    "mixed_table",
    "const_table",
    "selector_table",
    "lpm_table",
    "ecmp",
    "next_hops",
)
NAMES += ("port_counter", "port_meter", "cells", "wide_cells", "forward", "drop", "gone")
NUMBERS = st.sampled_from((0, 1, 2, 255, -1, (1 << 31) - 1, -(1 << 31)))
PARAMETERS = st.sampled_from((exact(b"\x01"), lpm(b"\x0a" * 6, 8), ternary(b"\x05", b"\x07"), exact(b"\xff" * 9)))
CALLS = [(service, name) for service, methods in SERVICES.items() for name in methods]
SLOW = {"bm_load_new_config", "bm_swap_configs", "bm_reset_state"}

VALUES: list[tuple[Kind, st.SearchStrategy[Any]]] = [
    (BOOL, st.booleans()),
    (I16, st.integers(-(1 << 15), (1 << 15) - 1)),
    (I32, NUMBERS),
    (I64, NUMBERS),
    (DOUBLE, st.floats()),
    (
        STRING,
        st.sampled_from([f"EntitiesIngress.{name}" for name in NAMES]) | st.sampled_from(("0110", "EntitiesParser")),
    ),
    (BINARY, st.binary(max_size=8)),
    (KEY, st.lists(PARAMETERS, max_size=5)),
    (DATA, st.lists(st.binary(max_size=3), max_size=2)),
    (OPTIONS, st.builds(AddOptions, st.none() | NUMBERS)),
    (COUNT, st.builds(CounterValue, NUMBERS, NUMBERS)),
    (RATES, st.lists(st.builds(MeterRate, st.floats(), NUMBERS), max_size=3)),
    (MIRROR, st.builds(MirroringConfig, st.none() | NUMBERS, st.none() | NUMBERS)),
]


@st.composite
def calls(draw: st.DrawFn) -> bytes:
    service, name = draw(st.sampled_from([call for call in CALLS if call[1] not in SLOW]))
    buffer = TMemoryBuffer()
    protocol = TBinaryProtocol(buffer)
    method = SERVICES[service][name]
    members = {f"a{number}": (number, kind) for number, kind in enumerate(method.arguments, 1)}
    strategies = [
        next((strategy for value_kind, strategy in VALUES if value_kind is kind), st.none())
        for kind in method.arguments
    ]
    values = SimpleNamespace(**{member: draw(strategy) for member, strategy in zip(members, strategies, strict=True)})
    protocol.writeMessageBegin(f"{service}:{name}", TMessageType.CALL, 1)
    protocol.writeStruct(values, layout(members))
    protocol.writeMessageEnd()
    return bytes(buffer.getvalue())


@st.composite
def mangled(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(calls()))
    for _ in range(draw(st.integers(0, 3))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))]) if draw(st.booleans()) else bytes(data)


@pytest.fixture(scope="module")
def handlers(program: Program) -> dict[str, object]:
    switch = Switch(5, [PortSettings(port) for port in (1, 2, 3)], VirtualClock())
    switch.commit(program)
    runtime = Runtime(switch)
    multicast = MulticastMethods(runtime)
    simple = SimpleSwitchMethods(runtime)
    return {
        "standard": StandardMethods(runtime),
        "simple_pre": multicast,
        "simple_pre_lag": multicast,
        "simple_switch": simple,
    }


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=mangled())
def test_every_message_is_answered_or_ends_its_connection(handlers: dict[str, object], data: bytes) -> None:
    buffer = TMemoryBuffer(data)
    written = TMemoryBuffer()
    reading = TBinaryProtocol(buffer, string_length_limit=1 << 16, container_length_limit=1 << 8)
    reading.trans = SimpleNamespace(read=buffer.read, readAll=buffer.readAll, write=written.write, flush=written.flush)
    with suppress(*NO_CALL, EOFError):
        answer(reading, handlers)
        assert written.getvalue()
