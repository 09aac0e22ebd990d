"""`millrace balance gains` and `tune`, including wrong input."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from controller.apps.cli import main

STEP = Path(__file__).parent / "step.csv"
"""A step of 0.5 on a plant of gain 0.6, lag 5 s and delay 2 s, with noise of 0.01."""


def balance(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[bool, str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["millrace", "balance", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
    captured = capsys.readouterr()
    return not end.value.code, captured.out, captured.err


def test_start_gains_are_shown_by_range(capsys: pytest.CaptureFixture[str]) -> None:
    done, out, err = balance(capsys, "gains", "-f", "json")
    assert done
    assert not err
    assert [(row["error"], row["kp"], row["ki"], row["kd"]) for row in json.loads(out)] == [
        ("|e| >= 0.5", 1, 0, 0.1),
        ("0.2 <= |e| < 0.5", 0.8, 0.02, 0.1),
        ("|e| < 0.2", 1, 0.05, 0.2),
        ("|e| < 0.2", 1, 0.05, 0.1),
    ]


def test_terms_that_the_form_lacks_are_0(capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(balance(capsys, "gains", "--form", "pd", "-f", "json")[1])
    assert {row["ki"] for row in rows} == {0}
    assert {row["kd"] for row in rows} == {0.1, 0.2}


def test_the_margin_of_stability_is_reported_for_a_plant(capsys: pytest.CaptureFixture[str]) -> None:
    done, out, _ = balance(capsys, "gains", "--form", "P", "--kp", "0.5", "--gain", "1", "-f", "json")
    assert done
    assert json.loads(out)[0] == {
        "error": "|e| >= 0.5", "change": "any", "kp": 0.5, "ki": 0, "kd": 0,
        "dies away": 0.5, "stable to": 4, "phase": 75.5, "delay": 2.61, "to -1": 0.75,
    }  # fmt: skip


def test_unstable_gains_are_refused_with_stable_ones(capsys: pytest.CaptureFixture[str]) -> None:
    done, out, err = balance(capsys, "gains", "--gain", "0.6", "--lag", "5", "--delay", "2")
    assert (done, out) == (False, "")
    assert err == (
        "millrace: |e| >= 0.5, change any: kp 1, ki 0, kd 0.1 are unstable on a plant of gain 0.6, lag 5 samples, "
        "delay 2, levers accumulate: errors grow 1.01-fold each sample; stable at less than 0.908 times these gains\n"
    )


def test_the_margin_is_reported_for_the_model_of_a_unit(capsys: pytest.CaptureFixture[str]) -> None:
    """Coarse sub-units: one of 4 moves the error more than one of 100."""

    def stable_to(units: int, *options: str) -> float:
        arguments = ("--form", "P", "--units", str(units), *options)
        return float(json.loads(balance(capsys, "gains", *arguments, "-f", "json")[1])[0]["stable to"])

    assert stable_to(100) > 4 * stable_to(8)
    assert stable_to(100, "--delay", "3") < 0.3 * stable_to(100)
    done, _, err = balance(capsys, "gains", "--form", "P", "--units", "4", "--delay", "3")
    assert not done
    assert "are unstable on a plant of gain" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("--units", "4", "--gain", "1"),
            "--units excludes --gain, --lag and --absolute: it is a model of a unit",
        ),
        (("--kp", "-1"), "kp is -1, not a finite number >= 0"),
        (("--form", "PX"), "expected one of P, PI, PD, PID"),
        (("--lag", "3"), "--lag and --delay require --gain"),
        (("--gain", "1", "--period", "0"), "--period 0: expected a finite number of seconds"),
        (("--gain", "1", "--lag", "inf"), "Invalid value for '--lag': inf is not a time"),
        (("--gain", "-1"), "the plant's gain is -1, not a finite number above 0"),
        (("--gain", "1e308"), "the plant's gain is 1e+308: at most 1e+12"),
        (("--gain", "1", "--kp", "1e13"), "kp is 1e+13: at most 1e+12"),
        (("--gain", "1", "--delay", "1000"), "is 1000 samples of 1 s: at most 50"),
    ],
)
def test_gains_and_plants_that_cannot_be_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
) -> None:
    done, _, err = balance(capsys, "gains", *arguments)
    assert not done
    assert says in " ".join(err.replace("│", "").split())
    assert "Traceback" not in err


def test_a_recorded_step_gives_gains_of_each_form(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "tuning.svg"
    done, out, err = balance(capsys, "tune", str(STEP), "--picture", str(picture), "-f", "json")
    rows = {row["form"]: row for row in json.loads(out)}
    assert done
    assert (
        err == f"gain 0.5979, lag 4.694 s, delay 2.195 s; off by 0.0099 (rms); a sample each 0.5 s\nwrote {picture}\n"
    )
    assert list(rows) == ["P", "PI", "PD", "PID"]
    assert all(row["dies away"] < 1 and row["stable to"] > 2 and row["settles s"] < 60 for row in rows.values())
    assert rows["PD"]["settles s"] < rows["P"]["settles s"] < rows["PI"]["settles s"]
    text = " ".join(ET.parse(picture).getroot().itertext())
    assert "gain 0.598, lag 4.69 s, delay 2.2 s" in text
    assert all(form in text for form in rows)


def test_impossible_controller_forms_are_named_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    done, out, _ = balance(capsys, "tune", "--gain", "1", "--absolute")
    assert done
    assert "PD: a plant without lag whose levers do not accumulate needs an integral, not PD" in out


def test_an_aggressive_rule_is_shown_to_be_unstable(capsys: pytest.CaptureFixture[str]) -> None:
    out = balance(capsys, "tune", "--gain", "1", "--rule", "ziegler-nichols", "-f", "json")[1]
    assert [row["settles s"] for row in json.loads(out)] == [1, 3, "never", "never"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give a recording, or a plant by --gain, --lag and --delay"),
        ((str(STEP), "--gain", "1"), "give a recording, or a plant by --gain, --lag and --delay"),
        (("none.csv",), "none.csv: No such file or directory"),
        (("--gain", "1", "--rule", "best"), "--rule best: expected simc or ziegler-nichols"),
        (("--gain", "1", "--speed", "0"), "the closed loop's time constant is 0 s, not above 0"),
        (("--gain", "1", "--picture", "x.pdf"), "x.pdf: a picture's name ends in .png or .svg"),
        (("--gain", "1", "--picture", "none/x.svg"), "none/x.svg: No such file or directory"),
    ],
)
def test_input_without_gains_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
) -> None:
    done, _, err = balance(capsys, "tune", *arguments)
    assert not done
    assert says in " ".join(err.replace("│", "").split())
    assert "Traceback" not in err
