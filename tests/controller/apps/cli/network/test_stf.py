"""`millrace stf`: output and exit status."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner, Result

from controller.apps.cli.app import app

ROOT = Path(__file__).parents[5]
PROGRAMS = ROOT / "tests" / "dataplane" / "programs"
CASES = ROOT / "tests" / "dataplane" / "stf" / "cases"


def stf(program: Path, test: Path, *options: str) -> Result:
    info = PROGRAMS / "copies.p4info.txtpb"
    return CliRunner().invoke(app, ["stf", str(program), str(info), str(test), *options])


def test_passing_test_is_reported_and_exits_0() -> None:
    done = stf(PROGRAMS / "copies.json", CASES / "copies.stf", "--pipeline", "interpreter")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "passed")


def test_a_packet_that_differs_is_shown_and_exits_1(tmp_path: Path) -> None:
    test = tmp_path / "t.stf"
    test.write_text("packet 1 00 00 00\nexpect 2 00 03\nexpect 3 00\npacket 1 04 00 00\n")
    done = stf(PROGRAMS / "copies.json", test)
    assert done.exit_code == 1
    first, expected, got, *rest = done.stdout.splitlines()
    assert first == f"{test}:2: port 2: differs at byte 1"
    assert expected == "  expected 0003"
    assert got.startswith("  got      00020000")
    assert rest == [
        f"{test}:3: port 3: no frame came",
        "  expected 00",
        "  got      nothing",
        "dropped: ingress_drop 1",
    ]


def test_a_program_that_is_refused_is_one_line_and_exits_2(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    done = stf(broken, CASES / "copies.stf")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"millrace: {broken}: ")
    assert done.stderr.count("\n") == 1


def test_a_malformed_test_is_one_line_with_its_place_and_exits_2(tmp_path: Path) -> None:
    test = tmp_path / "t.stf"
    test.write_text("\nfly\n")
    done = stf(PROGRAMS / "copies.json", test)
    assert (done.exit_code, done.stderr) == (2, f"millrace: {test}:2: unknown command fly\n")


def test_a_test_that_cannot_be_read_exits_2(tmp_path: Path) -> None:
    done = stf(PROGRAMS / "copies.json", tmp_path / "none.stf")
    assert (done.exit_code, done.stderr) == (2, f"millrace: {tmp_path / 'none.stf'}: No such file or directory\n")
