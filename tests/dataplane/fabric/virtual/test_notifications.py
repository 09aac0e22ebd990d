"""Timed notifications of a switch's P4Runtime service are sent on time by the fabric's clock."""

from __future__ import annotations

from pathlib import Path

from finsy.proto import p4r

from dataplane.fabric.virtual import VirtualFabric
from dataplane.program.loader import load_program
from dataplane.topology.file import loads

PROGRAMS = Path(__file__).parents[2] / "programs"
MS = 1_000_000
ONE = loads(
    "millrace: 1\nname: one\nswitches: [{name: s1}]\nhosts: [{name: a, switch: s1, rate: 1 Gbit/s, delay: 0 ns}]\n"
)


def test_idle_entries_are_reported_in_virtual_time() -> None:
    fabric = VirtualFabric(ONE)
    program = load_program(PROGRAMS / "p4rt_entities.json", PROGRAMS / "p4rt_entities.p4info.txtpb")
    switch, core = fabric.switch("s1"), fabric.p4runtime("s1")
    switch.commit(program)
    reported: list[int] = []

    def receive(message: p4r.StreamMessageResponse) -> None:
        if message.WhichOneof("update") == "idle_timeout_notification":
            assert message.idle_timeout_notification.timestamp == fabric.now_ns
            reported.append(fabric.now_ns)

    device, election = switch.device_id, p4r.Uint128(low=1)
    hello = p4r.MasterArbitrationUpdate(device_id=device, election_id=election)
    core.open_stream(receive).handle(p4r.StreamMessageRequest(arbitration=hello))
    tables = {table.preamble.alias: table for table in program.p4info.tables}
    entry = p4r.TableEntry(table_id=tables["aging_table"].preamble.id, idle_timeout_ns=10 * MS)
    entry.match.add(field_id=1, exact=p4r.FieldMatch.Exact(value=b"\x01"))
    entry.action.action.action_id = next(
        a.preamble.id for a in program.p4info.actions if a.preamble.alias == "NoAction"
    )
    update = p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(table_entry=entry))
    fabric.run_until(5 * MS)
    core.write(p4r.WriteRequest(device_id=device, election_id=election, updates=[update]))
    fabric.run_until(40 * MS)
    assert reported == [15 * MS, 25 * MS, 35 * MS]
    update.type = p4r.Update.DELETE
    core.write(p4r.WriteRequest(device_id=device, election_id=election, updates=[update]))
    fabric.run_until(100 * MS)
    assert reported == [15 * MS, 25 * MS, 35 * MS]
