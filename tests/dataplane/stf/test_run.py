"""Test files on real programs: passing ones, and every kind of difference."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from dataplane.errors import ConfigError
from dataplane.program.loader import load_program
from dataplane.program.model import Program
from dataplane.stf import PipelineName
from dataplane.stf.compare import Difference
from dataplane.stf.parse import parse_stf
from dataplane.stf.pipelines import pipeline_factory
from dataplane.stf.run import Outcome, run_stf

PROGRAMS = Path(__file__).parents[1] / "programs"
CASES = sorted((Path(__file__).parent / "cases").glob("*.stf"))
ORIGINAL = "0002000977010005000077"


@cache
def program(name: str) -> Program:
    return load_program(PROGRAMS / f"{name}.json", PROGRAMS / f"{name}.p4info.txtpb")


def run(name: str, text: str, pipeline: PipelineName = PipelineName.INTERPRETER) -> Outcome:
    return run_stf(program(name), parse_stf(text, "t.stf"), "t.stf", pipeline_factory(pipeline))


def differences(text: str, name: str = "copies") -> tuple[Difference, ...]:
    return run(name, text).differences


@pytest.mark.parametrize("pipeline", PipelineName)
@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_the_committed_cases_pass(case: Path, pipeline: PipelineName) -> None:
    assert run(case.stem, case.read_text(), pipeline).differences == ()


def test_readings_come_back_as_notes() -> None:
    notes = run("forwarding", "register_write packets_from 3 9\nregister_read packets_from 3").notes
    assert notes == ("register Inbound.packets_from[3]: 9",)


def test_differing_frame_is_shown_with_first_byte_and_port() -> None:
    faults = differences("packet 1 00 00 00\nexpect 2 00 02 01")
    assert [(fault.line, fault.port, fault.problem, fault.expected) for fault in faults] == [
        (2, 2, "differs at byte 2", "000201")
    ]
    assert faults[0].got is not None
    assert faults[0].got.hex().startswith("0002000077")


def test_frame_length_is_a_minimum_and_exact_with_a_dollar() -> None:
    whole = "expect 2 00 02 00 00 77 ************** 00 00 00"
    assert differences(f"packet 1 00 00 00\n{whole} $") == ()
    assert differences("packet 1 00 00 00\nexpect 2 00 02") == ()
    assert differences("packet 1 00 00 00\nexpect 2 00 02 $")[0].problem == "is 15 bytes long, too long"
    assert differences(f"packet 1 00 00 00\n{whole}00")[0].problem == "is 15 bytes long, too short"


def test_a_frame_that_does_not_come_is_missing() -> None:
    assert differences("packet 1 04 00 00\nexpect 2 00") == (Difference(2, "no frame came", 2, "00"),)


def test_unexpected_frame_differs_only_on_named_ports() -> None:
    faults = differences("packet 2 00 00 00")
    assert [(fault.line, fault.port, fault.problem) for fault in faults] == [
        (1, 2, "sent a frame that is not expected")
    ]
    # Ports that the test does not name are ignored.
    assert differences("packet 1 00 00 00") == ()


def test_frames_of_a_port_come_in_order_and_bare_expect_fits_any() -> None:
    packets = "packet 1 00 00 01\npacket 1 00 00 02\n"
    assert differences(packets + "expect 2 000200 01\nexpect 2 000200 02") == ()
    assert [difference.line for difference in differences(packets + "expect 2 000200 02\nexpect 2 000200 01")] == [3]
    assert differences(packets + "expect 2\nexpect 2 000200 02") == ()
    assert [difference.problem for difference in differences(packets + "expect 2")] == [
        "sent a frame that is not expected"
    ]


def test_no_packet_looks_at_what_the_last_packet_sent() -> None:
    assert differences("packet 1 04 00 00\nno_packet") == ()
    faults = differences("packet 1 00 00 00\nexpect 2\nno_packet")
    assert faults == (Difference(3, "the packet of line 1 sent 1 frames, none expected"),)


def test_a_counter_that_is_not_as_it_should_be_differs() -> None:
    faults = differences("check_counter reasons(0) packets == 1", "forwarding")
    assert faults == (Difference(1, "counter reasons[0]: 0 packets, 0 bytes, expected packets == 1"),)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("add nothing k:1 a()", "table nothing: the program has none of that name"),
        ("add routes dst_addr:0/0 fly()", "Inbound.routes: action fly: the program has none of that name"),
        ("add routes dst_addr:0/0 forward(port:512)", "does not fit 9 bits"),
        ("setdefault filter allow()", "Inbound.filter: the default action is const"),
        ("check_counter reasons(4)", "index 4 of 4"),
        ("check_counter nothing(0)", "counter nothing: the program has none of that name"),
        ("check_counter route_hits($a)", "$a: no entry has this label"),
        ("register_read packets_from 8", "index 8 of 8"),
        ("register_write packets_from 0 0x10000", "does not fit 16 bits"),
        ("meter_get_rates m 0", "meter m: the program has none of that name"),
        ("mc_node_associate 1 0", "multicast node 0: has not been created"),
        ("mc_node_create 1 1\nmc_node_associate 1 0", "multicast group 1: has not been created"),
        ("packet 512 00", "port 512: ports go from 0 to 511"),
    ],
)
def test_unknown_names_are_refused_with_file_and_line(text: str, problem: str) -> None:
    lines = text.count("\n") + 2
    with pytest.raises(ConfigError) as caught:
        run("forwarding", f"wait\n{text}\n")
    assert str(caught.value).startswith(f"t.stf:{lines}: ")
    assert problem in str(caught.value)
