"""Parts of benchmarks: selection, null figures, and reports of failed parts."""

from __future__ import annotations

import json
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from tests.benchmarks.parts import IncompleteError, Part, run

PARTS = {
    "first": Part("made_first", ("a", "b")),
    "second": Part("made_second", ("c", "e")),
    "away": Part("nowhere_to_be_found", ("d",)),
}


def gives(*, quick: bool) -> dict[str, float]:
    """Measure one figure, and another where it is quick."""
    return {"a": 1.0, "b": 2.0} if quick else {"a": 1.0}


def fails(*, quick: bool) -> dict[str, float]:
    """Measure one figure of two."""
    del quick
    raise IncompleteError("2 were left out", {"c": 3.0})


@pytest.fixture(autouse=True)
def _modules(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, measure in (("made_first", gives), ("made_second", fails)):
        module = ModuleType(f"tests.benchmarks.{name}")
        module.__spec__ = ModuleSpec(module.__name__, None)
        monkeypatch.setattr(module, "measure", measure, raising=False)
        monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.mark.parametrize(
    ("options", "figures", "status"),
    [
        ([], {"a": 1.0, "b": None, "c": 3.0, "e": None, "d": None}, 1),
        (["--only", "first", "--quick"], {"a": 1.0, "b": 2.0, "c": None, "e": None, "d": None}, 0),
        (["--skip", "second"], {"a": 1.0, "b": None, "c": None, "e": None, "d": None}, 0),
    ],
)
def test_what_is_chosen_runs_and_the_rest_is_null(
    options: list[str],
    figures: dict[str, float | None],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmark", *options])
    assert run("about", PARTS, "shorter") == status
    told = capsys.readouterr()
    assert json.loads(told.out.splitlines()[-1]) == figures
    assert ("second: 2 were left out" in told.err) == bool(status)
    assert ("tests.benchmarks.nowhere_to_be_found is not here" in told.err) == ("--only" not in options)


def test_a_part_that_needs_root_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmark"])
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert run("about", {"first": Part("made_first", ("a",), root="namespaces")}, "shorter") == 0
    told = capsys.readouterr()
    assert json.loads(told.out.splitlines()[-1]) == {"a": None}
    assert "first: namespaces need root" in told.err
