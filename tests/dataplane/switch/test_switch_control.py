"""A switch that runs a program and its P4Runtime service together: packets notify the controller."""

from __future__ import annotations

from pathlib import Path

import pytest
from finsy.proto import p4i, p4r

from dataplane.clock import VirtualClock
from dataplane.errors import SwitchError
from dataplane.program.loader import load_program
from dataplane.switch.p4runtime import P4RuntimeCore
from dataplane.switch.switch import PortSettings, Switch

PROGRAMS = Path(__file__).parents[1] / "programs"
MS = 1_000_000
PROGRAM = load_program(PROGRAMS / "p4rt_entities.json", PROGRAMS / "p4rt_entities.p4info.txtpb")
SOURCE = 0x0200_0000_0001


class Bench:
    """A switch with ports 1 to 3 in virtual time, and a primary controller."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.switch = Switch(1, [PortSettings(port) for port in (1, 2, 3)], self.clock)
        self.switch.commit(PROGRAM)
        self.core = P4RuntimeCore(self.switch)
        self.mail: list[p4r.StreamMessageResponse] = []
        update = p4r.MasterArbitrationUpdate(device_id=1, election_id=p4r.Uint128(low=1))
        self.core.open_stream(self.mail.append).handle(p4r.StreamMessageRequest(arbitration=update))
        self.mail.clear()

    def write(
        self,
        *entities: p4r.Entity,
        kind: p4r.Update.Type.ValueType = p4r.Update.INSERT,
        atomicity: p4r.WriteRequest.Atomicity.ValueType = p4r.WriteRequest.CONTINUE_ON_ERROR,
    ) -> None:
        request = p4r.WriteRequest(device_id=1, election_id=p4r.Uint128(low=1), atomicity=atomicity)
        request.updates.extend(p4r.Update(type=kind, entity=entity) for entity in entities)
        self.core.write(request)

    def send(self, time_ns: int, source: int = SOURCE, port: int = 1) -> list[int]:
        """Send one frame in at a time; return the ports that it leaves by."""
        self.clock.advance_to(time_ns)
        self.switch.receive(port, [bytes(6) + source.to_bytes(6, "big") + b"\x12\x34" + bytes(50)])
        return [departure.port for departure in self.switch.advance(time_ns)]

    def news(self) -> list[str | None]:
        kinds = [message.WhichOneof("update") for message in self.mail]
        self.mail.clear()
        return [str(kind) for kind in kinds]


def number(items: object, alias: str) -> int:
    assert isinstance(items, list)
    return int(next(item.preamble.id for item in items if item.preamble.alias == alias))


def info(kind: str, alias: str) -> int:
    items: list[p4i.Table] = list(getattr(PROGRAM.p4info, kind))
    return number(items, alias)


def aging(port: int = 2, source: int = SOURCE, **fields: object) -> p4r.Entity:
    entry = p4r.TableEntry(table_id=info("tables", "aging_table"), **fields)  # type: ignore[arg-type]  # by name
    entry.match.add(field_id=1, exact=p4r.FieldMatch.Exact(value=source.to_bytes(6, "big").lstrip(b"\0")))
    entry.action.action.action_id = info("actions", "forward_metered")
    entry.action.action.params.add(param_id=1, value=bytes([port]))
    return p4r.Entity(table_entry=entry)


def test_digests_of_packets_reach_the_controller() -> None:
    bench = Bench()
    entry = p4r.DigestEntry(digest_id=info("digests", "learned_t"))
    entry.config.max_timeout_ns, entry.config.ack_timeout_ns = 5 * MS, 100 * MS
    bench.write(aging(), p4r.Entity(digest_entry=entry))
    assert bench.send(MS) == [2]
    assert bench.send(2 * MS) == [2]
    assert bench.core.tick(5 * MS) == 6 * MS
    bench.core.tick(6 * MS)
    (message,) = bench.mail
    assert message.digest.list_id == 1
    (data,) = message.digest.data
    assert [member.bitstring for member in data.struct.members] == [SOURCE.to_bytes(6, "big"), b"\x01"]


def test_entries_that_packets_hit_are_not_idle() -> None:
    bench = Bench()
    bench.write(aging(idle_timeout_ns=10 * MS))
    assert bench.send(8 * MS) == [2]
    assert bench.core.tick(10 * MS) == 18 * MS
    assert bench.news() == []
    bench.core.tick(18 * MS)
    assert bench.news() == ["idle_timeout_notification"]


def test_a_port_that_is_down_neither_takes_nor_sends() -> None:
    bench = Bench()
    seen: list[tuple[int, bool]] = []
    bench.write(aging())
    bench.switch.set_port_status(2, False)
    bench.switch.on_port_status(lambda port, up: seen.append((port, up)))
    assert bench.send(MS) == []
    bench.switch.set_port_status(2, False)
    bench.switch.set_port_status(2, True)
    assert bench.send(2 * MS) == [2]
    bench.switch.set_port_status(1, False)
    assert bench.send(3 * MS) == []
    ports = bench.switch.counters().ports
    assert ports[2].drops == ports[1].drops == {"port_down": 1}
    assert seen == [(2, False), (2, True), (1, False)]
    with pytest.raises(SwitchError, match="no port 9"):
        bench.switch.set_port_status(9, True)


def test_a_new_program_starts_with_the_ports_that_are_down() -> None:
    bench = Bench()
    bench.switch.set_port_status(3, False)
    state = bench.switch.commit(PROGRAM)
    assert state.ports_down == {3}


def test_a_program_that_is_only_prepared_changes_nothing() -> None:
    bench = Bench()
    state = bench.switch.state
    prepared = bench.switch.prepare(PROGRAM)
    assert bench.switch.state is state
    bench.switch.install(prepared)
    assert bench.switch.state is prepared.state


def test_an_atomic_batch_pauses_the_switch_and_can_be_nested() -> None:
    bench = Bench()
    with bench.switch.paused():
        bench.write(aging(), atomicity=p4r.WriteRequest.DATAPLANE_ATOMIC)
    assert bench.send(MS) == [2]


def test_digests_that_wait_for_an_advance_make_it_due() -> None:
    bench = Bench()
    bench.write(aging(port=9))  # there is no such port: all that is left of the packet is its digest
    bench.switch.receive(1, [bytes(6) + SOURCE.to_bytes(6, "big") + b"\x12\x34"])
    assert bench.switch.next_event_ns() == 0
    bench.switch.advance(0)
    assert bench.switch.next_event_ns() is None
    assert bench.core.drops["digest_not_configured"] == 1
