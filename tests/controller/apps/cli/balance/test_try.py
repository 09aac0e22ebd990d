"""`millrace balance try`, including wrong input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from controller.apps.cli import main


def try_it(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[bool, str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["millrace", "balance", "try", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
    captured = capsys.readouterr()
    return not end.value.code, captured.out, captured.err


def test_each_form_is_tried_on_the_load_that_is_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "step.png"
    done, out, err = try_it(capsys, "--load", "step", "--picture", str(picture), "-f", "json")
    rows = json.loads(out)
    assert done
    assert [row["controller"] for row in rows] == ["P", "PI", "PD", "PID", "PID fuzzy"]
    assert {row["load"] for row in rows} == {"step"}
    assert err == f"wrote {picture}\n"
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_a_controller_of_ones_own_is_tried_on_all_loads(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("pid: {form: PI, kp: 2, ki: 0.05, threshold: 0.05}\n")
    done, out, _ = try_it(capsys, "-s", str(file), "--delay", "1", "--noise", "0.01", "-f", "json")
    rows = json.loads(out)
    assert done
    assert [(row["load"], row["controller"]) for row in rows] == [
        (load, "mine") for load in ("step", "ramp", "burst", "noisy")
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--load", "none"), "--load none: expected all, step, ramp, burst, noisy"),
        (("--units", "0"), "should be greater than or equal to 1"),
        (("-s", "none.yaml"), "none.yaml: No such file or directory"),
    ],
)
def test_impossible_trial_is_refused(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str) -> None:
    done, _, err = try_it(capsys, *arguments)
    assert not done
    assert says in " ".join(err.replace("│", "").split())
    assert "Traceback" not in err


def test_settings_with_an_unknown_key_are_refused_by_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("pid:\n  form: PI\n  kq: 2\n")
    done, out, err = try_it(capsys, "-s", str(file))
    assert (done, out) == (False, "")
    assert err.startswith(f"millrace: {file}:3: pid.kq: unknown key; known: form, kp, ki, kd, ")
