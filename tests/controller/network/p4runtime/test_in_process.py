"""The synchronous session and the virtual controller over real switches' P4Runtime service."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import pytest
from finsy import P4Schema, P4TableAction, P4TableEntry, P4TableMatch

from controller.common.errors import ControllerError, SessionError
from controller.network.intents import FlowSpec, Route, RouteSet
from controller.network.p4runtime.in_process import InProcessSession
from controller.network.p4runtime.session import check_schema, fabric_program, load_schema
from controller.network.reconcile import diff
from controller.network.tables.entities import Batch, Update, Verb, key_of, same
from controller.network.virtual import VirtualController, WriteDelays
from dataplane.clock import VirtualClock
from dataplane.switch.p4runtime.core import P4RuntimeCore
from dataplane.switch.switch import PortSettings, Switch
from dataplane.topology.values import Topology
from tests.controller.network.base_tables import base_entities

MS = 1_000_000
DELAYS = WriteDelays(write_delay_ns=2 * MS, drain_ns=5 * MS)


@pytest.fixture(scope="module")
def schema() -> P4Schema:
    """Return the fabric program."""
    return load_schema(*fabric_program())


def make_switch(device_id: int = 1) -> Switch:
    """Return a switch without a program."""
    return Switch(device_id, [PortSettings(number) for number in range(1, 5)], VirtualClock())


def session_to(switch: Switch, schema: P4Schema, name: str = "a") -> InProcessSession:
    """Return a session to a switch, not yet primary."""
    return InProcessSession(name, switch.device_id, P4RuntimeCore(switch), schema)


@dataclass
class Timeline:
    """The fabric's clock with its scheduled events."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    queue: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    order: count[int] = field(default_factory=count)

    def call_at(self, time_ns: int, function: Callable[[], None]) -> None:
        heapq.heappush(self.queue, (time_ns, next(self.order), function))

    def run(self, until_ns: int) -> None:
        while self.queue and self.queue[0][0] <= until_ns:
            time_ns, _, function = heapq.heappop(self.queue)
            self.clock.advance_to(time_ns)
            function()
        self.clock.advance_to(until_ns)


@dataclass
class Fabric:
    """Four switches and their controller."""

    topology: Topology
    schema: P4Schema
    timeline: Timeline = field(default_factory=Timeline)

    def __post_init__(self) -> None:
        self.sessions = {
            node.name: session_to(make_switch(node.node_id), self.schema, node.name) for node in self.topology.switches
        }
        self.controller = VirtualController(
            self.topology, self.sessions, self.timeline.clock, self.timeline.call_at, delays=DELAYS
        )

    def is_right(self) -> bool:
        """Return whether every switch holds exactly what it should."""
        for name, session in self.sessions.items():
            held = session.read()
            believed = self.controller.coordinator.held(name)
            assert held.keys() == believed.keys()
            assert all(same(held[key], believed[key]) for key in held)
        return self.controller.settled


@pytest.fixture
def fabric(diamond: Topology, schema: P4Schema) -> Fabric:
    """Return a started fabric."""
    made = Fabric(diamond, schema)
    made.controller.start()
    return made


def routes(version: int, *paths: str) -> RouteSet:
    """Return the flow from ha to hd on a path."""
    return RouteSet(version, tuple(Route(FlowSpec("ha", "hd"), tuple(path)) for path in paths))


def test_the_program_has_a_place_for_all_that_we_write(diamond: Topology, schema: P4Schema) -> None:
    for entities in base_entities(diamond).values():
        check_schema(schema, entities.values())


def test_unknown_table_is_named(schema: P4Schema) -> None:
    wrong = P4TableEntry("ipv4_routs", match=P4TableMatch(dst_addr=(1, 32)))
    with pytest.raises(ControllerError, match="no P4Table named 'ipv4_routs'"):
        check_schema(schema, [wrong])


def test_written_entries_read_back_equal(diamond: Topology, schema: P4Schema) -> None:
    session = session_to(make_switch(), schema)
    session.become_primary()
    assert session.install_pipeline()
    assert not session.install_pipeline()
    assert session.read() == {}
    desired = base_entities(diamond)["a"]
    for batch in diff(desired, session.read()):
        session.write(batch)
    actual = session.read()
    assert actual.keys() == desired.keys()
    assert diff(desired, actual) == []
    for batch in diff({}, actual):
        session.write(batch)
    assert session.read() == {}


def test_a_refused_update_is_named_and_the_others_take_effect(schema: P4Schema) -> None:
    session = session_to(make_switch(), schema)
    session.become_primary()
    session.install_pipeline()
    entries = [
        P4TableEntry("punt", match=P4TableMatch(ether_type=port), action=P4TableAction("send_to_cpu"))
        for port in (1, 2)
    ]
    first, second = (Update(Verb.INSERT, key_of(entry), entry) for entry in entries)
    session.write((first,))
    with pytest.raises(SessionError) as caught:
        session.write((first, second))
    assert caught.value.refused == (0,)
    assert str(caught.value).startswith("switch a: write: UNKNOWN: insert entry punt ether_type=0x1: ")
    assert len(session.read()) == 2


def test_a_second_controller_with_a_lower_bid_is_refused(schema: P4Schema) -> None:
    core = P4RuntimeCore(make_switch())
    InProcessSession("a", 1, core, schema, election_id=5).become_primary()
    with pytest.raises(SessionError, match="switch a: become primary: another controller is primary"):
        InProcessSession("a", 1, core, schema, election_id=4).become_primary()
    with pytest.raises(SessionError, match="switch a: become primary: INVALID_ARGUMENT: Election id already exists"):
        InProcessSession("a", 1, core, schema, election_id=5).become_primary()


def test_read_without_a_pipeline_is_an_error(schema: P4Schema) -> None:
    session = session_to(make_switch(), schema)
    session.become_primary()
    with pytest.raises(SessionError, match="switch a: read: FAILED_PRECONDITION"):
        session.read()


def test_steps_take_effect_one_write_delay_after_another(fabric: Fabric) -> None:
    fabric.timeline.run(10 * MS)
    fabric.controller.submit(routes(1, "abd"))
    fabric.timeline.run(15 * MS)
    assert [(step.time_ns // MS, *step.step.updates) for step in fabric.controller.applied] == [(12, "d"), (14, "b")]
    assert not fabric.controller.settled
    fabric.timeline.run(30 * MS)
    assert [step.time_ns // MS for step in fabric.controller.applied] == [12, 14, 16]
    assert fabric.is_right()


def test_old_entries_go_after_the_move_and_the_drain(fabric: Fabric) -> None:
    fabric.controller.submit(routes(1, "abd"))
    fabric.timeline.run(10 * MS)
    fabric.controller.applied.clear()
    fabric.controller.submit(routes(2, "acd"))
    fabric.timeline.run(40 * MS)
    applied = [(step.time_ns // MS, str(step.step.phase), *step.step.updates) for step in fabric.controller.applied]
    assert applied == [(12, "make", "c"), (14, "make", "a"), (21, "break", "b")]
    assert fabric.is_right()


def test_newer_routes_overtake_a_plan_in_flight(fabric: Fabric) -> None:
    fabric.controller.submit(routes(1, "abd"))
    fabric.timeline.run(3 * MS)
    fabric.controller.submit(routes(2, "acd"))
    fabric.timeline.run(60 * MS)
    assert fabric.is_right()
    assert {name for name in "abcd" if any("flow" in key.table for key in fabric.sessions[name].read())} == set("acd")


def test_path_refused_twice_is_left_out_and_blocks_nothing_else(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = fabric.sessions["d"]
    write, refusals = session.write, list[Batch]()

    def refuse(batch: Batch) -> None:
        if batch[0].key.table == "ipv4_flow_paths":
            refusals.append(batch)
            raise SessionError("d", "write", "no room", code="RESOURCE_EXHAUSTED", refused=range(len(batch)))
        write(batch)

    monkeypatch.setattr(session, "write", refuse)
    refused, taken = Route(FlowSpec("ha", "hd"), tuple("abd")), Route(FlowSpec("ha", "hb"), tuple("acb"))
    fabric.controller.submit(RouteSet(1, (refused, taken)))
    fabric.timeline.run(50 * MS)
    assert len(refusals) == 2
    assert fabric.is_right()
    for name, paths in {"a": 1, "b": 1, "c": 1, "d": 0}.items():
        assert sum(key.table == "ipv4_flow_paths" for key in fabric.sessions[name].read()) == paths
    monkeypatch.undo()
    fabric.controller.submit(RouteSet(2, (refused, taken)))
    fabric.timeline.run(100 * MS)
    assert sum(key.table == "ipv4_flow_paths" for key in fabric.sessions["a"].read()) == 2
    assert fabric.is_right()


def test_a_switch_that_lost_everything_gets_it_back(fabric: Fabric, schema: P4Schema) -> None:
    fabric.controller.submit(routes(1, "abd"))
    fabric.timeline.run(20 * MS)
    before = fabric.sessions["b"].read()
    fabric.controller.lose("b")
    fabric.sessions["b"] = session_to(make_switch(2), schema, "b")
    fabric.controller._driver._sessions["b"] = fabric.sessions["b"]  # type: ignore[index]
    fabric.sessions["b"].become_primary()
    fabric.controller.reconnect("b")
    assert fabric.sessions["b"].read().keys() == before.keys()
    assert fabric.is_right()


def test_restarted_controller_rewrites_nothing(fabric: Fabric, schema: P4Schema) -> None:
    fabric.controller.submit(routes(1, "abd"))
    fabric.timeline.run(20 * MS)
    for session in fabric.sessions.values():
        session.close()
    written: list[Batch] = []
    for session in fabric.sessions.values():
        session.write = written.append  # type: ignore[method-assign, assignment]
    again = VirtualController(fabric.topology, fabric.sessions, fabric.timeline.clock, fabric.timeline.call_at)
    for session in fabric.sessions.values():
        session._stream = session._core.open_stream(session._receive)
    again.start()
    again.submit(routes(7, "abd"))
    fabric.timeline.run(60 * MS)
    assert written == []
    assert again.settled


def test_a_flow_waits_while_a_switch_of_its_path_is_gone(fabric: Fabric) -> None:
    fabric.controller.lose("b")
    fabric.controller.submit(routes(1, "abd"))
    fabric.timeline.run(20 * MS)
    assert fabric.controller.applied == []
    fabric.controller.reconnect("b")
    fabric.timeline.run(40 * MS)
    assert len(fabric.controller.applied) == 3
    assert fabric.is_right()


def test_a_switch_without_a_session_is_named(diamond: Topology) -> None:
    with pytest.raises(ControllerError, match="topology diamond: no session to switch a"):
        VirtualController(diamond, {}, VirtualClock(), lambda _time, _call: None)


def test_a_missing_or_broken_program_is_named(tmp_path: object, schema: P4Schema) -> None:
    p4info, program = fabric_program()
    with pytest.raises(ControllerError, match="there is no such file"):
        load_schema(p4info.with_name("nothing.txtpb"), program)
    with pytest.raises(ControllerError, match=r"fabric\.json: "):
        load_schema(program, program)
