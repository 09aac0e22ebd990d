"""`millrace demo` as a user runs it: its output, its leftovers, and its refusals."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from tempfile import mkdtemp
from xml.etree import ElementTree

import pytest
from matplotlib import font_manager
from PIL import Image

from controller.apps.cli import main

ROOT = Path(__file__).parents[2]
NOBODY = 65534
LIMIT_S = 300.0
SETTINGS = """
scenario: {hops_per_s: 1000, warm_up: 500ms, before: 1s, during: 2400ms, after: 1200ms}
decide: {min_gain: 0.25, min_gain_time: 30ms, hold_down: 10s, settle: 400ms}
watch: {sample_every: 2, instructions: [0, 1, 2, 3, 4, 7]}
"""
FIGURES = {
    "delay_before_ms",
    "delay_congested_ms",
    "delay_after_ms",
    "comparison",
    "no_room",
    "reaction_ms",
    "moves",
    "rebalances",
    "reports",
    "lost_reports",
    "load",
}

Demo = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder owned by `nobody`, with a settings file; pytest's own is closed to other users."""
    made = Path(mkdtemp(prefix="millrace-demo-"))
    made.chmod(0o755)
    (made / "demo.yaml").write_text(SETTINGS, encoding="utf-8")
    fonts = made / "out" / ".matplotlib"
    fonts.mkdir(parents=True)
    # Otherwise each demo would scan the machine's fonts, and log it if that takes long.
    font_manager.json_dump(font_manager.fontManager, fonts / f"fontlist-v{font_manager.FontManager.__version__}.json")
    if os.geteuid() == 0:
        for each in (fonts.parent, fonts):
            os.chown(each, NOBODY, NOBODY)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def not_root() -> list[str]:
    """Return a command prefix that drops root; empty without root."""
    if os.geteuid() != 0:
        return []
    plain = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    # `nobody` cannot reach an interpreter below /root; a right to read files does not allow namespaces.
    reading = [*plain, "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    for prefix in (plain, reading):
        check = subprocess.run([*prefix, sys.executable, "-c", "import rich"], capture_output=True, check=False)
        if check.returncode == 0:
            return prefix
    pytest.skip("no user but root can run this interpreter")


@pytest.fixture
def compiled(folder: Path, cache_dir: Path) -> Path:
    """Return a copy of the compiled code that tests keep: a user other than root trusts only its own files."""
    made = folder / "compiled"
    made.mkdir(mode=0o700)
    for file in cache_dir.glob("*.o"):
        with suppress(FileNotFoundError):  # the oldest of many go
            shutil.copy2(file, made)
    if os.geteuid() == 0:
        for each in (made, *made.iterdir()):
            os.chown(each, NOBODY, NOBODY)
    return made


@pytest.fixture
def demo(folder: Path, not_root: list[str], compiled: Path) -> Demo:
    """Return a function that runs the demo in a non-root child process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder / "out"), "TERM": "dumb"}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "MPLCONFIGDIR": str(folder / "out" / ".matplotlib")}
    environment["MILLRACE_CACHE_DIR"] = str(compiled)
    command = [*not_root, sys.executable, "-m", "controller.apps.cli", "demo", "--settings", str(folder / "demo.yaml")]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *arguments],
            cwd=folder / "out",
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    return run


def test_demo_shows_the_loop_and_writes_pictures_and_records(folder: Path, demo: Demo) -> None:
    out = folder / "out" / "demo"
    # Not in place: below /root a user with only a right to read files cannot test for readability.
    demands = shutil.copy(ROOT / "topologies" / "abilene-demands.csv", folder)
    done = demo("--topology", "abilene", "--demands", str(demands), "--out", str(out), "--seed", "3")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for words in (
        "Flows, as their receivers measured them",
        "delay ms (p99)",
        "(surge)",
        " moves: ",
        "moved flows, mean",
        "without a path server and with it",
        "surge, without",
        " without the path server; with it, ",
    ):
        assert words in done.stdout, done.stdout
    figures = json.loads((out / "figures.json").read_text(encoding="utf-8"))
    assert figures.keys() == FIGURES
    assert figures["moves"] >= 1
    assert figures["lost_reports"] == 0
    assert "Load as planned: " in done.stdout
    load = figures["load"]
    assert (load["as_planned"], load["lost_before_share"], load["worst_late_ms"]) == (True, 0, 0)
    assert load["sent"] == load["planned"] == sum(host["planned"] for host in load["hosts"].values()) > 1000
    assert figures["delay_after_ms"] < figures["delay_congested_ms"]
    assert 0 < figures["reaction_ms"] < 3600
    won = figures["comparison"]
    assert won["flows"] > 5
    assert won["with"]["delay_mean_ms"] < won["without"]["delay_mean_ms"] / 1.5
    assert won["with"]["loss"] <= won["without"]["loss"]
    assert (figures["no_room"], " rerouted " in done.stdout) == (None, True)
    with Image.open(out / "network.png") as picture:
        picture.load()
        assert picture.format == "PNG"
        assert min(picture.size) > 200
        assert len(picture.convert("RGB").getcolors(maxcolors=1 << 24) or ()) > 10
    svg = ElementTree.parse(out / "network.svg").getroot()
    assert svg.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(list(svg.iter("{http://www.w3.org/2000/svg}path"))) > 30
    with closing(sqlite3.connect(out / "records.sqlite")) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        counts = {name: database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}
    assert max(counts.values()) > figures["reports"], counts


def check_refusal(folder: Path, status: object, stderr: str, problem: str) -> None:
    assert status == 1
    assert len(stderr.splitlines()) == 1, stderr
    assert stderr.startswith("millrace: ")
    assert problem in stderr
    assert not list((folder / "out").rglob("records.sqlite*"))


def test_a_kernel_fabric_without_root_is_one_clear_line(folder: Path, demo: Demo) -> None:
    done = demo("--out", str(folder / "out" / "demo"), "--time", "kernel")
    problem = "a kernel fabric needs root (network namespaces); virtual time does not"
    check_refusal(folder, done.returncode, done.stderr, problem)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--time", "later"), "--time later: is neither virtual nor kernel"),
        (("--topology", "nowhere"), "nowhere"),
        (("--demands", "nowhere.csv"), "nowhere.csv"),
        (("--seed", "-1"), "--seed -1: is negative"),
        (("--background", "gas"), "--background gas: is neither packets nor fluid"),
        (("--background", "fluid", "--time", "kernel"), "--background fluid: virtual time has it; a kernel fabric"),
    ],
)
def test_what_the_demo_cannot_do_is_one_clear_line(
    folder: Path,
    arguments: tuple[str, ...],
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["millrace", "demo", "--settings", str(folder / "demo.yaml"), "--out", str(folder / "out" / "demo")]
    monkeypatch.setattr(sys, "argv", [*words, *arguments])
    monkeypatch.chdir(folder / "out")
    with pytest.raises(SystemExit) as ended:
        main()
    check_refusal(folder, ended.value.code, capsys.readouterr().err, problem)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_the_same_demo_runs_with_real_packets(folder: Path) -> None:
    out = folder / "out" / "kernel"
    command = [sys.executable, "-m", "controller.apps.cli", "demo", "--time", "kernel", "--topology", "abilene"]
    command += ["--demands", str(ROOT / "topologies" / "abilene-demands.csv"), "--out", str(out)]
    done = subprocess.run(
        [*command, "--settings", str(folder / "demo.yaml")],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "moved flows, mean" in done.stdout
    assert "Not compared with the same seconds without a path server" in done.stdout
    figures = json.loads((out / "figures.json").read_text(encoding="utf-8"))
    assert figures.keys() == FIGURES
    assert figures["reports"] > 100
    assert figures["moves"] >= 1
    load = figures["load"]
    assert load["planned"] == load["sent"] + load["left_out"] + load["refused"]
    assert len(load["hosts"]) == 12
    # Hosts start once all can receive; a busy machine delays them, and the demo reports it.
    assert load["refused"] == 0
    assert ("Load as planned" in done.stdout) == load["as_planned"]
    with closing(sqlite3.connect(out / "records.sqlite")) as database:
        assert database.execute("SELECT count(*) FROM records").fetchone()[0] > figures["reports"]
