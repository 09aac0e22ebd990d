"""`millrace accel figures`: the worked cases, the contradiction in the text, six plots."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from controller.apps.cli import main


def figures(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[bool, str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["millrace", "accel", "figures", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
    captured = capsys.readouterr()
    return not end.value.code, captured.out, captured.err


def test_all_eight_cases_are_shown_as_fractions_and_as_decisions(capsys: pytest.CaptureFixture[str]) -> None:
    done, out, _ = figures(capsys, "--format", "json")
    cases = json.loads(out)
    assert done
    assert [case["figure"] for case in cases] == ["2a", "2b", "2c", "2d", "2e", "2f", "-", "-"]
    assert cases[3]["ratio"] == "(t^2 + 1/36) / (t^2/64 + 3299/115200)"
    assert [case["runs on"] for case in cases] == ["cpu", "gpu", "cpu", "gpu", "cpu", "gpu", "gpu", "gpu"]


def test_contradiction_of_2e_is_shown_to_users(capsys: pytest.CaptureFixture[str]) -> None:
    remark = "the text says 3.2, which would send the filter to the GPU; its own formula gives 0.7705"
    assert f"\n2e: {remark}" in figures(capsys)[1]
    _, out, err = figures(capsys, "--format", "json")
    assert [case["figure"] for case in json.loads(out) if case["remark"].startswith(remark)] == ["2e"]
    assert not err


def test_tie_of_2b_is_said_and_a_band_gives_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    remark = "the text says 1, which keeps the join on the CPU; its own formula gives 1.0173, which sends it to the GPU"
    assert f"\n2b: {remark}" in figures(capsys)[1]
    runs_on = {
        band: [case["runs on"] for case in json.loads(figures(capsys, "-f", "json", *option)[1])]
        for band, option in ((0.0, ()), (0.02, ("--tie-band", "0.02")))
    }
    assert runs_on[0.0][1] == "gpu"
    assert runs_on[0.02] == ["cpu", "cpu", *runs_on[0.0][2:]]
    done, _, err = figures(capsys, "--tie-band", "-1")
    assert not done
    assert "--tie-band" in err


def test_the_finite_sum_and_the_tree_are_offered(capsys: pytest.CaptureFixture[str]) -> None:
    assert "2.3175" in figures(capsys, "--finite-sum", "-f", "csv")[1]
    _, out, _ = figures(capsys, "--transfer", "per-path", "-f", "csv")
    assert "(t^2 + 3/4000) / (t^2/64 + 103/64000)" in out
    assert "the text" not in out.partition("\n")[2], "the text's figures are of the sum"


def test_six_figures_are_drawn_with_the_contradiction_captioned(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    done, _, err = figures(capsys, "--folder", str(tmp_path / "new"))
    drawn = sorted((tmp_path / "new").iterdir())
    assert done
    assert [path.name for path in drawn] == [f"figure-2{letter}.svg" for letter in "abcdef"]
    assert all(f"wrote {path}" in err for path in drawn)
    texts = {path.stem[-2:]: " ".join(ET.parse(path).getroot().itertext()) for path in drawn}
    assert "ratio = (t + 5/18) / (t/64 + 1409/3840)" in texts["2e"]
    assert "filter, t = 0.005 s: 0.7705, CPU" in texts["2e"]
    assert "which would send the filter to the GPU; its own formula" in texts["2e"]
    assert "join, t = 0.2 s: 2.316, GPU" in texts["2d"]
    assert {stem for stem, text in texts.items() if "the text says" in text} == {"2b", "2c", "2e"}
    assert "join, t = 0.2 s: 1.017, GPU" in texts["2b"]


def test_all_of_them_fit_in_one_picture(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "all.svg"
    assert figures(capsys, "--picture", str(path))[0]
    first = path.read_bytes()
    text = " ".join(ET.fromstring(first).itertext())
    assert all(f"2{letter}: " in text for letter in "abcdef")
    figures(capsys, "--picture", str(path))
    assert path.read_bytes() == first, "the picture is not deterministic"


def test_invalid_input_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for arguments, message in (
        (("--transfer", "magic"), "--transfer magic: expected sum or per-path"),
        (("--picture", str(tmp_path / "a.jpg")), "a.jpg: a picture's name ends in .png or .svg"),
        (("--picture", str(tmp_path / "none/a.svg")), "none/a.svg: No such file or directory"),
        (("--folder", "/dev/null/here"), "/dev/null/here: Not a directory"),
    ):
        done, _, err = figures(capsys, *arguments)
        assert not done
        assert message in err
        assert "Traceback" not in err
