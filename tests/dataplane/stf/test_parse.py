"""The grammar of test files: every command, every form of number, and refusals with file and line."""

from __future__ import annotations

import pytest

from dataplane.errors import ConfigError
from dataplane.stf.parse import parse_stf
from dataplane.stf.statements import (
    Add,
    Anything,
    Call,
    CheckCounter,
    Command,
    CounterRead,
    CounterWrite,
    CountUnit,
    Expect,
    GroupCreate,
    Masked,
    MeterGet,
    MeterSet,
    Mirror,
    MirrorDelete,
    MirrorGet,
    NodeAssociate,
    NodeCreate,
    NodeUpdate,
    NoPacket,
    Number,
    Packet,
    Prefix,
    Rate,
    RegisterRead,
    RegisterReset,
    RegisterWrite,
    RemoveAll,
    SetDefault,
    Span,
    Wait,
)

COMMANDS: list[tuple[str, Command]] = [
    ("packet 3 00 01ab CDEF", Packet(3, bytes.fromhex("0001abcdef"))),
    ("PACKET 0", Packet(0, b"")),
    ("expect 2 0*2* ****", Expect(2, "0*2*****", exact=False)),
    ("expect 2 AB $", Expect(2, "ab", exact=True)),
    ("expect 2 $", Expect(2, "", exact=True)),
    ("expect 2", Expect(2, None, exact=False)),
    ("no_packet", NoPacket()),
    ("wait", Wait()),
    ("remove all", RemoveAll()),
    (
        "add t a.$valid$:1 b[2].c:0x**01 drop() = A",
        Add("t", None, (("a.$valid$", Number(1)), ("b[2].c", Number(1, 0xFF, 16))), Call("drop", ()), "A"),
    ),
    (
        "add c.t 7 x:0x0a/8 y:5&&&0b11 z:3->0x9 w:* c.set(port: 2, val:0b101)",
        Add(
            "c.t",
            7,
            (("x", Prefix(10, 8)), ("y", Masked(5, 3)), ("z", Span(3, 9)), ("w", Anything())),
            Call("c.set", (("port", 2), ("val", 5))),
            None,
        ),
    ),
    ('add t "odd name":1 a()', Add("t", None, (("odd name", Number(1)),), Call("a", ()), None)),
    ("add t extra$0.h:0o17 a()", Add("t", None, (("extra$0.h", Number(15, 0o77, 6)),), Call("a", ()), None)),
    ("setdefault c.t c.a(x:1)", SetDefault("c.t", Call("c.a", (("x", 1),)))),
    ("check_counter cnt(10) packets == 3", CheckCounter("cnt", 10, (CountUnit.PACKETS, "==", 3))),
    ("check_counter cnt($A) bytes >= 0x10", CheckCounter("cnt", "A", (CountUnit.BYTES, ">=", 16))),
    ("check_counter cnt(1)", CheckCounter("cnt", 1, None)),
    ("counter_read c.n 1", CounterRead("c.n", 1)),
    ("counter_write c.n 1 2 3", CounterWrite("c.n", 1, 2, 3)),
    ("register_read r 4", RegisterRead("r", 4)),
    ("register_write r 4 0xff", RegisterWrite("r", 4, 255)),
    ("register_reset c.r", RegisterReset("c.r")),
    ("meter_get_rates m 1", MeterGet("m", 1)),
    ("meter_set_rates m 2 0.000005:4 2:5", MeterSet("m", 2, (Rate(0.000005, 4), Rate(2.0, 5)))),
    ("meter_array_set_rates m 1:1 2:2", MeterSet("m", None, (Rate(1.0, 1), Rate(2.0, 2)))),
    ("mc_mgrp_create 1113", GroupCreate(1113)),
    ("mc_node_create 400 6 7", NodeCreate(400, (6, 7))),
    ("mc_node_update 0 6", NodeUpdate(0, (6,))),
    ("mc_node_associate 1113 0", NodeAssociate(1113, 0)),
    ("mirroring_add 5 4", Mirror(5, port=4)),
    ("mirroring_add_mc 5 4", Mirror(5, group=4)),
    ("mirroring_delete 5", MirrorDelete(5)),
    ("mirroring_get 5", MirrorGet(5)),
]


@pytest.mark.parametrize(("text", "command"), COMMANDS, ids=[text for text, _ in COMMANDS])
def test_commands(text: str, command: Command) -> None:
    assert [statement.command for statement in parse_stf(f"  {text}  # why\n", "t.stf")] == [command]


def test_lines_are_counted_through_comments_and_empty_ones() -> None:
    statements = parse_stf("# one\n\nwait\n   # four\nwait", "t.stf")
    assert [statement.line for statement in statements] == [3, 5]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("fly 1", "unknown command fly"),
        ("packet x 00", "packet needs a port number"),
        ("packet 1 000", "a packet is pairs of hex digits"),
        ("packet 1 0g", "packet data are hex digits"),
        ("packet 1 0*", "a packet is pairs of hex digits"),
        ("expect 1 0$0", "packet data are hex digits"),
        ("expect", "expect needs a port number"),
        ("packet", "packet needs a port number"),
        ("wait 5", "'5' where the end of the line is expected"),
        ("remove t", "only 'remove all' is known"),
        ("add t k:1", "the end of the line where a name is expected"),
        ("add t k:1 a", "the end of the line where '(' is expected"),
        ("add t k:1 a(x)", "')' where ':' is expected"),
        ("add t k:1 a(x:1", "the end of the line where ')' is expected"),
        ("add t k:x a()", "'x' where a number is expected"),
        ("add t k:0x1*/8 a()", "a number with the digit * has no prefix length"),
        ("add t k:1 a(x:0x*)", "a number with the digit * where a plain one is required"),
        ("add t k:1 a(x:1.5)", "'1.5' where a number is expected"),
        ("add t k:1 a() = 7", "'7' where a name is expected"),
        ("add t k;1 a()", "unexpected ';'"),
        ("check_counter c(1) cats == 1", "a counter counts packets or bytes, not cats"),
        ("check_counter c(1) packets = 1", "'=' is not a comparison"),
        ("meter_set_rates m 1 1:1", "the end of the line where a number is expected"),
        ("mc_node_create 1 x", "'x' where a number is expected"),
    ],
)
def test_what_is_malformed_is_refused_with_file_and_line(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_stf(f"wait\n{text}\n", "t.stf")
    assert str(caught.value).startswith(f"t.stf:2: {problem}")
