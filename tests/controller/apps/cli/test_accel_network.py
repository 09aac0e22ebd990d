"""`millrace accel network`: rounds, links and both models' times; one line for conflicting options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from controller.apps.cli import main

FABRIC = """\
millrace: 1
name: racks
defaults: {access: {rate: 1 Gbit/s, delay: 1 us}}
switches: [{name: s1}, {name: s2}]
hosts: [{name: h1, switch: s1}, {name: h2, switch: s1}, {name: h3, switch: s2}, {name: h4, switch: s2}]
links: [{a: s1, b: s2, rate: 1 Gbit/s, delay: 1 ms}]
"""
HARDWARE = "millrace: 1\nfan_in: 4\naggregators: member\nswitch: {}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "racks.yaml").write_text(FABRIC)
    (tmp_path / "hardware.yaml").write_text(HARDWARE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[bool, str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["millrace", "accel", "network", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
    captured = capsys.readouterr()
    return not end.value.code, captured.out, captured.err


@pytest.mark.usefixtures("folder")
def test_rounds_are_shown_with_their_links_and_the_switch(capsys: pytest.CaptureFixture[str]) -> None:
    done, out, _ = run(capsys, "-t", "racks.yaml", "--hardware", "hardware.yaml", "--output", "1")
    assert done
    # h2, h3 and h4 send to h1 and share its link.
    assert "s1->h1" in out
    assert "24" in out
    assert "outputs of 1 GB: 24 s by the tree (per-path)" in out
    assert "switch: sums are computed at s" in out
    assert "free bandwidth between machines is nominal" in out


@pytest.mark.usefixtures("folder")
def test_json_lists_senders_and_receivers(capsys: pytest.CaptureFixture[str]) -> None:
    done, out, err = run(capsys, "-t", "racks.yaml", "--hardware", "hardware.yaml", "-k", "2", "-f", "json")
    assert done
    first, second = json.loads(out)
    assert first["transfers"] == [{"src": "h2", "dst": "h1"}, {"src": "h4", "dst": "h3"}]
    assert (second["transfers"], second["busiest_flows"]) == ([{"src": "h3", "dst": "h1"}], 1)
    assert "fan-in 2" in err


def test_a_rate_gives_the_specifications_figures(capsys: pytest.CaptureFixture[str]) -> None:
    done, out, _ = run(capsys, "--rate", "1 Gbit/s", "-n", "1000")
    assert done
    assert "24 s by the tree (per-path), 888.9 s by the sum of all data over one rate; decisions use sum" in out
    assert run(capsys, "--rate", "1 Gbit/s", "-n", "1")[1] == "1 machine: nothing is sent\n"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "--topology"),
        (("--rate", "1 Gbit/s"), "the number of machines is unknown"),
        (("--rate", "-1 Gbit/s", "-n", "2"), "is not a rate"),
        (("-t", "racks.yaml", "-n", "9"), "machines: 9 requested, topology racks has 4"),
        (("-t", "racks.yaml", "--feed", "unix:nobody"), "collector at unix:nobody: cannot connect"),
        (("-t", "racks.yaml", "--hardware", "missing.yaml"), "missing.yaml: No such file or directory"),
        (("-t", "racks.yaml", "--output", "inf"), "inf is not a size"),
        (("-t", "racks.yaml", "-k", "1"), "--fan-in"),
    ],
)
def test_invalid_options_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], problem: str
) -> None:
    done, _, err = run(capsys, *arguments)
    assert not done
    assert problem in err
    assert "Traceback" not in err
