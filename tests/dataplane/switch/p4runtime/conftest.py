"""A switch without packets, and a controller's shorthand for the messages of p4rt_entities.p4."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from finsy.proto import p4i, p4r
from google.protobuf import text_format

from dataplane.program.loader import load_program
from dataplane.program.model import Program
from dataplane.switch.p4runtime import Code, P4RuntimeCore, P4RuntimeError, P4RuntimeServer, StreamSession
from dataplane.switch.pipeline import DigestMessage, PreparedProgram
from dataplane.switch.ports.states import HelloSettings, PortCounters, PortListener, PortState
from dataplane.switch.tables import ForwardingState

UpdateType: TypeAlias = p4r.Update.Type.ValueType
PushAction: TypeAlias = p4r.SetForwardingPipelineConfigRequest.Action.ValueType

PROGRAMS = Path(__file__).parents[2] / "programs"
DEVICE = 7
PORTS = range(1, 9)


class FakeSwitch:
    """Runs nothing: installs fresh state, keeps packets out, and has a clock that the test sets."""

    def __init__(self, device_id: int = DEVICE) -> None:
        self.device_id = device_id
        self.program: Program | None = None
        self.state: ForwardingState | None = None
        self.packets_out: list[bytes] = []
        self.installs = 0
        self.time_ns = 0
        self.pauses: list[str] = []
        self.on_pause: Callable[[str], None] = self.pauses.append
        self._receiver: Callable[[bytes], None] | None = None
        self._digest_receiver: Callable[[Sequence[DigestMessage]], None] | None = None
        self._port_receiver: Callable[[int, bool], None] | None = None

    def prepare(self, program: Program) -> PreparedProgram:
        return PreparedProgram(program, ForwardingState(program))

    def install(self, prepared: PreparedProgram) -> None:
        self.program, self.state = prepared.program, prepared.state
        self.installs += 1

    def commit(self, program: Program) -> None:
        self.install(self.prepare(program))

    def has_port(self, port: int) -> bool:
        return port in PORTS

    def now_ns(self) -> int:
        return self.time_ns

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.on_pause("begin")
        try:
            yield
        finally:
            self.on_pause("end")

    def packet_out(self, payload: bytes) -> None:
        self.packets_out.append(payload)

    def on_packet_in(self, receiver: Callable[[bytes], None]) -> None:
        self._receiver = receiver

    def on_digests(self, receiver: Callable[[Sequence[DigestMessage]], None]) -> None:
        self._digest_receiver = receiver

    def on_port_status(self, receiver: Callable[[int, bool], None]) -> None:
        self._port_receiver = receiver

    def port_states(self) -> Mapping[int, PortState]:
        return {port: PortState(port, str(port)) for port in PORTS}

    def port_counters(self) -> Mapping[int, PortCounters]:
        return {port: PortCounters(0, 0, 0, 0, 0, {}) for port in PORTS}

    def set_admin(self, port: int, up: bool) -> None:
        raise NotImplementedError

    def set_hello(self, port: int, settings: HelloSettings | None) -> None:
        raise NotImplementedError

    def add_port_listener(self, listener: PortListener) -> Callable[[], None]:
        raise NotImplementedError

    def packet_in(self, frame: bytes) -> None:
        assert self._receiver is not None
        self._receiver(frame)

    def digests(self, *messages: DigestMessage) -> None:
        assert self._digest_receiver is not None
        self._digest_receiver(messages)

    def set_port_status(self, port: int, up: bool) -> None:
        assert self._port_receiver is not None
        if self.state is not None:
            self.state.set_port_status(port, up)
        self._port_receiver(port, up)


def read_config(stem: str = "p4rt_entities") -> p4r.ForwardingPipelineConfig:
    """Return a committed program as a controller would send it."""
    config = p4r.ForwardingPipelineConfig(p4_device_config=(PROGRAMS / f"{stem}.json").read_bytes())
    text_format.Parse((PROGRAMS / f"{stem}.p4info.txtpb").read_text(), config.p4info)
    return config


class Shell:
    """A primary controller that calls the core directly."""

    def __init__(self, core: P4RuntimeCore, p4info: p4i.P4Info) -> None:
        self.core = core
        self.received: list[p4r.StreamMessageResponse] = []
        self.session = self.connect(1, self.received)
        self._p4info = p4info

    def connect(
        self, election_id: int | None, received: list[p4r.StreamMessageResponse], role: str = ""
    ) -> StreamSession:
        session = self.core.open_stream(received.append)
        session.handle(arbitration(election_id, role))
        return session

    def id(self, kind: str, alias: str) -> int:
        """Return the id of an object of the P4Info, e.g. `id("tables", "lpm_table")`."""
        ids = [item.preamble.id for item in getattr(self._p4info, kind) if item.preamble.alias == alias]
        return int(ids[0])

    def action(self, alias: str, *values: bytes) -> p4r.Action:
        params = [p4r.Action.Param(param_id=index, value=value) for index, value in enumerate(values, 1)]
        return p4r.Action(action_id=self.id("actions", alias), params=params)

    def entry(self, table: str, match: Sequence[p4r.FieldMatch] = (), **fields: Any) -> p4r.Entity:
        """Return a table entry; `action` may be a p4r.Action, `member` and `group` name them."""
        entry = p4r.TableEntry(table_id=self.id("tables", table), match=match)
        action = fields.pop("action", None)
        if action is not None:
            entry.action.action.CopyFrom(action)
        if "member" in fields:
            entry.action.action_profile_member_id = fields.pop("member")
        if "group" in fields:
            entry.action.action_profile_group_id = fields.pop("group")
        entry.MergeFrom(p4r.TableEntry(**fields))
        return p4r.Entity(table_entry=entry)

    def member(self, profile: str, member_id: int, action: p4r.Action | None = None) -> p4r.Entity:
        message = p4r.ActionProfileMember(
            action_profile_id=self.id("action_profiles", profile), member_id=member_id, action=action
        )
        return p4r.Entity(action_profile_member=message)

    def group(self, profile: str, group_id: int, *places: tuple[int, int], max_size: int = 0) -> p4r.Entity:
        message = p4r.ActionProfileGroup(
            action_profile_id=self.id("action_profiles", profile), group_id=group_id, max_size=max_size
        )
        for member_id, weight in places:
            message.members.add(member_id=member_id, weight=weight)
        return p4r.Entity(action_profile_group=message)

    def request(self, kind: UpdateType, *entities: p4r.Entity) -> p4r.WriteRequest:
        request = p4r.WriteRequest(device_id=DEVICE, election_id=p4r.Uint128(low=1))
        for entity in entities:
            request.updates.append(p4r.Update(type=kind, entity=entity))
        return request

    def insert(self, *entities: p4r.Entity) -> None:
        self.core.write(self.request(p4r.Update.INSERT, *entities))

    def modify(self, *entities: p4r.Entity) -> None:
        self.core.write(self.request(p4r.Update.MODIFY, *entities))

    def delete(self, *entities: p4r.Entity) -> None:
        self.core.write(self.request(p4r.Update.DELETE, *entities))

    def refusal(self, kind: UpdateType, entity: p4r.Entity) -> Code:
        """Return the code of the one update of a batch that is expected to fail."""
        with pytest.raises(P4RuntimeError) as caught:
            self.core.write(self.request(kind, entity))
        return only_detail(caught.value)

    def read(self, *entities: p4r.Entity) -> list[p4r.Entity]:
        request = p4r.ReadRequest(device_id=DEVICE, entities=entities)
        return [entity for response in self.core.read(request) for entity in response.entities]

    def read_refusal(self, entity: p4r.Entity) -> Code:
        with pytest.raises(P4RuntimeError) as caught:
            self.read(entity)
        return only_detail(caught.value)


def only_detail(error: P4RuntimeError) -> Code:
    assert error.code is Code.UNKNOWN
    (detail,) = error.details
    assert detail.message
    return Code(detail.canonical_code)


def arbitration(election_id: int | None, role: str = "", device_id: int = DEVICE) -> p4r.StreamMessageRequest:
    update = p4r.MasterArbitrationUpdate(device_id=device_id)
    if role:
        update.role.name = role
    if election_id is not None:
        update.election_id.high, update.election_id.low = election_id >> 64, election_id & ((1 << 64) - 1)
    return p4r.StreamMessageRequest(arbitration=update)


def push(config: p4r.ForwardingPipelineConfig | None, action: PushAction) -> p4r.SetForwardingPipelineConfigRequest:
    return p4r.SetForwardingPipelineConfigRequest(
        device_id=DEVICE, election_id=p4r.Uint128(low=1), action=action, config=config
    )


@pytest.fixture
def switch() -> FakeSwitch:
    return FakeSwitch()


@pytest.fixture(scope="session")
def config() -> p4r.ForwardingPipelineConfig:
    return read_config()


@pytest.fixture
def core(switch: FakeSwitch) -> P4RuntimeCore:
    return P4RuntimeCore(switch)


@pytest.fixture(scope="session")
def program() -> Program:
    return load_program(PROGRAMS / "p4rt_entities.json", PROGRAMS / "p4rt_entities.p4info.txtpb")


@pytest.fixture
def shell(switch: FakeSwitch, core: P4RuntimeCore, program: Program) -> Iterator[Shell]:
    """A primary with election id 1 on a switch that runs p4rt_entities."""
    switch.commit(program)
    shell = Shell(core, program.p4info)
    yield shell
    shell.session.close()


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"unix:{tmp_path / 'p4rt.sock'}"


@pytest.fixture
def server(core: P4RuntimeCore, address: str) -> Iterator[P4RuntimeServer]:
    with P4RuntimeServer(core, [address, "127.0.0.1:0"]) as running:
        yield running
    assert not [thread for thread in threading.enumerate() if thread.name == "p4runtime"]
