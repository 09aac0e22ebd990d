"""The pages of docs/results are those that tests/benchmarks/results gives, and name the keys that benchmarks print."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.benchmarks import collector, ground, nic, pages, snapshots, switch
from tests.benchmarks.accelerating import on_spark
from tests.benchmarks.chaining.cases import figures
from tests.benchmarks.chaining.test_scaling import KEYS as SCALE_KEYS


@pytest.mark.parametrize("page", pages.pages())
def test_page_matches_its_results(page: str) -> None:
    assert (pages.ROOT / page).read_text(encoding="utf-8") == pages.page_text(pages.pages()[page]), "make results"


def test_every_file_of_results_is_on_one_page() -> None:
    shown = [name for page in pages.pages().values() for name in page["sections"]]
    files = {path.stem for path in pages.RESULTS.glob("*.json")} - {"pages"}
    assert sorted(shown) == sorted(files)


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("switch", switch.summary({}, compiled_pps=1e7, interpreted_pps=2e4, cold_s=1, cached_s=0.1, writes=2)),
        ("chain", figures({})),
        ("scale", dict.fromkeys(SCALE_KEYS)),
        ("nic", nic.summary({})),
        ("snapshots", snapshots.summary({})),
        ("ground", ground.NAMES),
        ("collector", collector.summary({}, None, None, {})),
        ("sql", {key: value for key, value in on_spark.figures({}).items() if key != "tpch_ways"}),
    ],
)
def test_printed_figures_are_on_the_page(name: str, printed: dict[str, object]) -> None:
    assert set(printed) <= {figure["key"] for figure in pages.section(name)["figures"]}


def test_run_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(pages.RESULTS / "takeover.json", tmp_path)
    monkeypatch.setattr(pages, "RESULTS", tmp_path)
    output = 'a table\n{"controller_takeover_s": 9.5, "controller_takeover_by_newer_id_s": null, "other": 1}\n'
    assert pages.record("takeover", output, "on a quiet machine") == ["controller_takeover_s"]
    section = pages.section("takeover")
    assert (section["machine"], section["figures"][0]["value"]) == ("on a quiet machine", 9.5)
    assert section["figures"][1]["value"] == 0.045
    assert "- `controller_takeover_s` **9.5 s**: until" in "\n".join(pages.rendered(section))


def test_rows_of_a_table_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(pages.RESULTS / "sql.json", tmp_path)
    monkeypatch.setattr(pages, "RESULTS", tmp_path)
    printed = on_spark.figures({"q99": on_spark.Outcome("SQL: too odd", spark_s=2.0, is_spark_same=True)})
    pages.record("sql", json.dumps(printed), "on a quiet machine")
    assert pages.section("sql")["tables"][0]["rows"] == [["q99", "Spark", "", "2.00", "too odd"]]
    pages.record("sql", "{}", "on a quiet machine")
    assert pages.section("sql")["tables"][0]["rows"] == [["q99", "Spark", "", "2.00", "too odd"]]


def test_switch_summary_without_devices() -> None:
    summary = switch.summary({}, compiled_pps=1e7, interpreted_pps=2e4, cold_s=1.0, cached_s=0.1, writes=20_000)
    assert (summary["pps_compiled"], summary["mpps_memory"]) == (None, 10.0)
