"""The parser, header stacks and varbits: parsing.p4, which prepends a report to the parsed packet."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.dataplane.switch.interpreter.harness import MakeBench

REPORT_BYTES = 8
NONE, TOO_SHORT, OUT_OF_BOUNDS, _NO_MATCH, HEADER_TOO_SHORT, BAD_KIND = range(6)


@dataclass(frozen=True)
class Report:
    """Values that ingress saw."""

    error: int
    labels: int
    peeked: int
    picked: int
    packet_length: int


def pass_through(make_bench: MakeBench, frame: str) -> tuple[Report, str]:
    """Return the report and the hex of what follows it."""
    data = make_bench("parsing").send_one(5, bytes.fromhex(frame))
    report = Report(data[0], data[1], data[2], data[3], int.from_bytes(data[4:8], "big"))
    return report, data[REPORT_BYTES:].hex()


@pytest.mark.parametrize(
    ("frame", "error", "labels", "rest"),
    [
        pytest.param("0180" + "03" + "ffee", NONE, 1, None, id="one label"),
        pytest.param("0180" + "020407" + "ffee", NONE, 3, None, id="stack full"),
        pytest.param("0180" + "02040608" + "ffee", OUT_OF_BOUNDS, 3, None, id="one label too many"),
        pytest.param("0180" + "0204", TOO_SHORT, 2, None, id="last label missing"),
        pytest.param("0383" + "aabbcc" + "03" + "dd", NONE, 1, "038303dd", id="skips three bytes"),
        pytest.param("0384" + "aabbcc", TOO_SHORT, 0, None, id="skips more than there is"),
        pytest.param("0373" + "aabbcc", NONE, 0, None, id="mask does not match"),
        pytest.param("0405" + "aa", NONE, 0, None, id="range, low end"),
        pytest.param("0409", NONE, 0, None, id="range, high end"),
        pytest.param("040a", NONE, 0, None, id="beyond the range"),
        pytest.param("cf00", NONE, 0, None, id="range of kinds"),
        pytest.param("d000", NONE, 0, None, id="no case: parsing ends without an error, as in bmv2"),
        pytest.param("ee00", NONE, 0, None, id="verify holds"),
        pytest.param("ee01", BAD_KIND, 0, None, id="verify fails"),
        pytest.param("02ff" + "40" + "77" + "ee", NONE, 0, None, id="empty varbit"),
        pytest.param("02ff" + "43" + "a1a2a3" + "77" + "ee", NONE, 0, None, id="varbit of three bytes"),
        pytest.param("02ff" + "48" + "a1a2a3a4a5a6a7a8" + "77", NONE, 0, None, id="longest varbit"),
        pytest.param("02ff" + "49" + "a1a2a3a4a5a6a7a8a9" + "77", HEADER_TOO_SHORT, 0, None, id="varbit too long"),
        pytest.param("02ff" + "43" + "a1a2a3", TOO_SHORT, 0, None, id="varbit cut"),
        pytest.param("02ff", TOO_SHORT, 0, None, id="nothing to look ahead at"),
    ],
)
def test_outcome(make_bench: MakeBench, frame: str, error: int, labels: int, rest: str | None) -> None:
    report, following = pass_through(make_bench, frame)
    assert (report.error, report.labels) == (error, labels)
    assert following == (frame if rest is None else rest), "what is not parsed is passed on as it is"


def test_lookahead(make_bench: MakeBench) -> None:
    assert pass_through(make_bench, "02ff" + "4377")[0].peeked == 0x43


@pytest.mark.parametrize(("index", "value"), [(0, 1), (1, 2), (2, 3)])
def test_stack_element_by_run_time_index(make_bench: MakeBench, index: int, value: int) -> None:
    assert pass_through(make_bench, f"010{index}" + "020407")[0].picked == value


def test_stack_index_out_of_bounds_ends_the_packet_under_a_name(make_bench: MakeBench) -> None:
    bench = make_bench("parsing")
    assert bench.send(1, bytes.fromhex("0103" + "020407")) == []
    assert bench.pipeline.drops == {"stack_out_of_bounds": 1}


@pytest.mark.parametrize(
    ("argument", "labels", "left"),
    [
        ("21", "0205", "aa0205"),
        ("21", "020407", "aa0204"),
        ("22", "0205", "05"),
        ("22", "03", ""),
        ("23", "020407", ""),
    ],
    ids=["push", "push a full stack", "pop", "pop the last", "push more than fits"],
)
def test_push_and_pop(make_bench: MakeBench, argument: str, labels: str, left: str) -> None:
    _, following = pass_through(make_bench, f"01{argument}" + labels + "ffee")
    assert following == f"01{argument}" + left + "ffee"


def test_copied_varbit_keeps_its_length(make_bench: MakeBench) -> None:
    _, following = pass_through(make_bench, "0224" + "43" + "a1a2a3" + "77" + "ee")
    assert following == "0224" + "43" + "a1a2a3" + "77" + "ee"


@pytest.mark.parametrize(
    ("frame", "length"),
    [("0180" + "03", 3 + REPORT_BYTES), ("0121" + "03", 3 + REPORT_BYTES), ("0224" + "43a1a2a377", 2 + REPORT_BYTES)],
    ids=["header added", "push does not count, but setValid does not either once valid", "varbit header removed"],
)
def test_packet_length_of_egress_follows_headers(make_bench: MakeBench, frame: str, length: int) -> None:
    extra = 1 if frame.startswith("0121") else 0
    assert pass_through(make_bench, frame)[0].packet_length == length + extra


@pytest.mark.parametrize("frame", ["0180020407ffee", "038203020407", "02ff43a1a2a377ee"])
def test_every_truncation_passes_on_what_is_left(make_bench: MakeBench, frame: str) -> None:
    whole = bytes.fromhex(frame)
    for length in range(len(whole)):
        bench = make_bench("parsing")
        data = bench.send_one(1, whole[:length])
        short = bench.pipeline.parser_errors.get("PacketTooShort", 0)
        assert short == int(data[0] == TOO_SHORT)
        if not frame.startswith("03"):
            assert data[REPORT_BYTES:] == whole[:length]
