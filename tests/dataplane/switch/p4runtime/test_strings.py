"""Types translated to strings: strings read back as written, the data plane has numbers (sections 8.3 and 18.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from finsy.proto import p4i, p4r

from dataplane.errors import EntryError, ProgramError
from dataplane.program.loader import load_program
from dataplane.switch.p4runtime import Code, P4RuntimeCore, P4RuntimeError
from dataplane.switch.p4runtime.strings import StringMap, StringMaps
from dataplane.switch.pipeline import DigestMessage
from tests.dataplane.switch.p4runtime import conftest as p4rt

if TYPE_CHECKING:
    from tests.dataplane.switch.p4runtime.conftest import FakeSwitch, Shell

INSERT = p4r.Update.INSERT
MAC = b"\x0a\x00\x00\x00\x00\x01"
MAPPINGS = '@p4runtime_translation_mappings({ { "" , 0 } , { "voice", 0x2e } , })'


def translated(source: p4i.P4Info) -> p4i.P4Info:
    """Return the P4Info as p4c writes it where ports and classes are strings."""
    info = p4i.P4Info()
    info.CopyFrom(source)
    for name in ("port_id_t", "class_t"):
        info.type_info.new_types[name].translated_type.sdn_string.SetInParent()
    info.type_info.new_types["class_t"].annotations.append(MAPPINGS)
    by_name = {"std.ingress_port": "port_id_t", "port": "port_id_t", "class": "class_t", "meta.class": "class_t"}
    by_name |= {"ingress_port": "port_id_t", "egress_port": "port_id_t"}
    fields = [field for table in info.tables for field in table.match_fields]
    fields += [field for action in info.actions for field in action.params]  # type: ignore[misc]  # much the same
    fields += [field for header in info.controller_packet_metadata for field in header.metadata]  # type: ignore[misc]
    for field in fields:
        if field.name in by_name:
            field.bitwidth, field.type_name.name = 0, by_name[field.name]
    port = info.type_info.structs["learned_t"].members[1].type_spec
    port.new_type.name = "port_id_t"
    return info


@pytest.fixture
def pushed(core: P4RuntimeCore, config: p4r.ForwardingPipelineConfig) -> p4r.ForwardingPipelineConfig:
    changed = p4r.ForwardingPipelineConfig(p4_device_config=config.p4_device_config)
    changed.p4info.CopyFrom(translated(config.p4info))
    return changed


@pytest.fixture
def shell(core: P4RuntimeCore, pushed: p4r.ForwardingPipelineConfig) -> Shell:
    shell = p4rt.Shell(core, pushed.p4info)
    core.set_pipeline(p4rt.push(pushed, p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT))
    return shell


def exact(field_id: int, value: bytes) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=field_id, exact=p4r.FieldMatch.Exact(value=value))


def entry(shell: Shell, port: bytes, action: p4r.Action) -> p4r.Entity:
    return shell.entry("exact_table", [exact(1, MAC), exact(2, port)], action=action)


def test_strings_read_back_and_the_data_plane_has_numbers(shell: Shell, switch: FakeSwitch) -> None:
    first = entry(shell, b"1", shell.action("set_class", b"silver"))
    second = entry(shell, b"2", shell.action("set_class", b"voice"))
    third = entry(shell, b"3", shell.action("forward", b"511"))
    shell.insert(first, second, third)
    assert shell.read(shell.entry("exact_table")) == [first, second, third]
    assert shell.read(shell.entry("exact_table", first.table_entry.match)) == [first]
    assert switch.state is not None
    table = switch.state.tables["EntitiesIngress.exact_table"]
    entries = [table.lookup((0x0A0000000001, port)) for port in (1, 2, 3)]
    calls = [hit.call.arguments for hit in entries if hit is not None and hit.call is not None]
    assert calls[1:] == [(0x2E,), (511,)]
    assert calls[0] not in {(0,), (0x2E,), (4,), (6,), (8,)}  # the program's own stay


def test_entries_of_the_program_have_decimals(shell: Shell) -> None:
    const = shell.read(shell.entry("const_table"))
    classes = [
        entity.table_entry.action.action.params[0].value for entity in const if entity.table_entry.action.action.params
    ]
    assert classes == [b"4", b"6"]
    empty = shell.entry("exact_table", is_default_action=True, action=shell.action("drop"))
    assert shell.read(shell.entry("exact_table", is_default_action=True)) == [empty]


@pytest.mark.parametrize("port", [b"eth0", b"01", b"", b"-1", b"\xff", b"512"])
def test_what_is_no_port_is_refused(shell: Shell, port: bytes) -> None:
    code = Code.OUT_OF_RANGE if port == b"512" else Code.INVALID_ARGUMENT
    assert shell.refusal(INSERT, entry(shell, port, shell.action("drop"))) is code


def test_strings_are_matched_whole(shell: Shell) -> None:
    def mixed(port: p4r.FieldMatch) -> p4r.Entity:
        return shell.entry("mixed_table", [port, exact(5, b"")], priority=1, action=shell.action("drop"))

    optional = mixed(p4r.FieldMatch(field_id=3, optional=p4r.FieldMatch.Optional(value=b"7")))
    shell.insert(optional)
    assert shell.read(shell.entry("mixed_table")) == [optional]


def test_ports_of_packets_copies_and_members_are_strings(shell: Shell, switch: FakeSwitch) -> None:
    metadata = [p4r.PacketMetadata(metadata_id=1, value=b"3"), p4r.PacketMetadata(metadata_id=2, value=b"\x00")]
    shell.session.handle(p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=b"x", metadata=metadata)))
    assert switch.packets_out == [b"\x01\x80x"]
    switch.packet_in(b"\x02\x80y")
    assert shell.received[-1].packet.metadata[0].value == b"5"
    copies = p4r.MulticastGroupEntry(multicast_group_id=1, replicas=[p4r.Replica(port=b"4", instance=2)])
    copies.replicas[0].backup_replicas.add(port=b"5", instance=2)
    group = p4r.Entity(packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(multicast_group_entry=copies))
    shell.insert(group)
    assert shell.read(group) == [group]
    assert switch.state is not None
    assert [copy.port for copy in switch.state.multicast_groups[1]] == [4]
    switch.set_port_status(4, up=False)
    assert [copy.port for copy in switch.state.multicast_groups[1]] == [5]
    members = shell.group("ecmp", 1, (1, 1), max_size=4)
    members.action_profile_group.members[0].watch_port = b"2"
    shell.insert(shell.member("ecmp", 1, shell.action("forward", b"2")), members)
    assert shell.read(members) == [members]
    members.action_profile_group.members[0].watch_port = b"99"
    assert shell.refusal(p4r.Update.MODIFY, members) is Code.INVALID_ARGUMENT


def test_digests_have_strings(shell: Shell, switch: FakeSwitch) -> None:
    shell.insert(p4r.Entity(digest_entry=p4r.DigestEntry(digest_id=shell.id("digests", "learned_t"))))
    switch.digests(DigestMessage("learned_t", (7, 3)))
    (data,) = shell.received[-1].digest.data
    assert [member.bitstring for member in data.struct.members] == [b"\x07", b"3"]


def test_strings_stay_with_entries_that_stay(shell: Shell, pushed: p4r.ForwardingPipelineConfig) -> None:
    kept = entry(shell, b"1", shell.action("set_class", b"silver"))
    shell.insert(entry(shell, b"2", shell.action("set_class", b"gold")), kept)
    shell.delete(entry(shell, b"2", shell.action("set_class", b"gold")))
    pushed.p4_device_config = pushed.p4_device_config.replace(b'"max_size" : 64', b'"max_size" : 32')
    shell.core.set_pipeline(p4rt.push(pushed, p4r.SetForwardingPipelineConfigRequest.RECONCILE_AND_COMMIT))
    assert shell.read(shell.entry("exact_table")) == [kept]
    pushed.p4info.type_info.new_types["class_t"].annotations[0] = MAPPINGS.replace("voice", "silver")
    with pytest.raises(P4RuntimeError, match="class_t: the new program has another number"):
        shell.core.set_pipeline(p4rt.push(pushed, p4r.SetForwardingPipelineConfigRequest.RECONCILE_AND_COMMIT))


def test_numbers_of_strings_that_nothing_has_are_given_again(shell: Shell) -> None:
    context = shell.core._context()
    strings = context.catalog.strings.of("class_t", 4)  # 16 numbers, the program has five
    assert strings is not None
    for number in range(100):
        added = entry(shell, b"1", shell.action("set_class", b"class %d" % number))
        shell.insert(added)
        assert shell.read(shell.entry("exact_table")) == [added]
        shell.delete(added)
    lasting = [entry(shell, b"%d" % port, shell.action("set_class", b"lasting %d" % port)) for port in range(1, 5)]
    shell.insert(*lasting)
    assert shell.read(shell.entry("exact_table")) == lasting


def test_a_type_without_numbers_left_refuses() -> None:
    strings = StringMap("vrf_t", {b"": 0}, ports=False)
    strings.width = 2
    assert [strings.decode(name, 2, "here") for name in (b"a", b"b", b"c", b"a", b"")] == [1, 2, 3, 1, 0]
    with pytest.raises(P4RuntimeError) as caught:
        strings.decode(b"d", 2, "here")
    assert caught.value.code is Code.RESOURCE_EXHAUSTED
    strings.keep([2])
    assert [strings.encode(number) for number in range(4)] == [b"", b"1", b"b", b"3"]
    assert strings.decode(b"d", 2, "here") in {1, 3}
    other = StringMap("vrf_t", {b"b": 1}, ports=False)
    with pytest.raises(EntryError, match="another number for b'b'"):
        other.adopt(strings)
    with pytest.raises(P4RuntimeError):
        StringMap("vrf_t", {}, ports=False).decode(b"", 2, "here")


def test_mappings_that_say_a_thing_twice_are_refused() -> None:
    info = p4i.P4Info()
    info.type_info.new_types["vrf_t"].translated_type.sdn_string.SetInParent()
    info.type_info.new_types["vrf_t"].annotations.append('@p4runtime_translation_mappings({{"a",1},{"b",0x1}})')
    with pytest.raises(ProgramError, match="vrf_t: maps"):
        StringMaps(info)


def test_fields_without_bits_are_written_as_zero(core: P4RuntimeCore, switch: FakeSwitch) -> None:
    program = load_program(p4rt.PROGRAMS / "zero_width.json", p4rt.PROGRAMS / "zero_width.p4info.txtpb")
    switch.commit(program)
    shell = p4rt.Shell(core, program.p4info)
    routed = shell.entry(
        "routed", [exact(1, b"\x07"), exact(2, b"\x00")], action=shell.action("send", b"\x02", b"\x00")
    )
    shell.insert(routed)
    assert shell.read(shell.entry("routed")) == [routed]
    wide = shell.entry("routed", [exact(1, b"\x07"), exact(2, b"\x01")], action=shell.action("send", b"\x02", b"\x00"))
    assert shell.refusal(INSERT, wide) is Code.OUT_OF_RANGE
    any_value = p4r.FieldMatch(field_id=3, optional=p4r.FieldMatch.Optional(value=b"\x00"))
    assert (
        shell.refusal(
            INSERT, shell.entry("filtered", [any_value], priority=1, action=shell.action("send", b"\x02", b"\x00"))
        )
        is Code.INVALID_ARGUMENT
    )
