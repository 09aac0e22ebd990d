"""Completion as shells ask for it, of names in files of this user."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from controller.apps.cli.completion import sources
from controller.apps.cli.completion.shells import answer
from dataplane.fabric.kernel.manifest import RUN_ROOT
from dataplane.topology.families import FAMILIES
from dataplane.topology.file import bundled_topologies
from tests.waiting import HANG_S


def bash(line: str, words: int | None = None) -> list[str]:
    """Return bash's answers; `words` as bash counts them, if it splits the line's words further."""
    number = line.count(" ") if words is None else words
    asked = {"_MILLRACE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(number)}
    return (answer(asked) or "").splitlines()


@pytest.fixture
def up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the state folder of a `millrace up`, with a topology."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    state = tmp_path / "millrace" / "up"
    (state / "generated").mkdir(parents=True)
    (state / "logs").mkdir()
    shutil.copy(bundled_topologies()["leaf-spine"], state / "generated" / "topology.yaml")
    return state


def test_topologies_are_the_bundled_ones_and_families() -> None:
    assert bash("millrace topology show ") == sorted({*bundled_topologies(), *FAMILIES})
    assert bash("millrace up g") == ["geant"]


def test_nodes_and_links_are_those_of_the_topology(up: Path) -> None:
    assert up.is_dir()
    assert bash("millrace paths explain h1 h") == [f"h{number}" for number in range(1, 9)]
    assert bash("millrace paths set h1 h8 spine") == ["spine1", "spine2"]
    assert "'leaf1->spine2'" in bash("millrace paths link leaf1")
    assert "leaf1->spine2" in bash("millrace paths link 'leaf1")
    assert bash("millrace demo int --topology ring:switches=3 --src h") == ["h1", "h2", "h3"]
    assert bash("millrace demo int --topology /dev/null --src h") == []


def test_daemons_are_those_with_logs(up: Path) -> None:
    for name in ("collector", "up", "paths"):
        (up / "logs" / f"{name}.log").touch()
    assert bash("millrace logs ") == ["collector", "paths", "up"]


def test_switches_are_addresses_of_sockets(up: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "switches").mkdir(parents=True)
    (up / "run").write_text(f"{run}\n", encoding="utf-8")
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(run / "switches" / "s1.sock"))
        # Bash splits at the colon, counts three words, and replaces only what follows it.
        assert f"{run}/switches/s1.sock" in bash(f"millrace switch show unix : {run}", 5)
        assert f"{run}/switches/s1.sock" in bash("millrace table list unix :", 4)


def test_fabrics_and_hosts_are_read_from_manifests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sources.FABRICS == RUN_ROOT
    monkeypatch.setattr(sources, "FABRICS", tmp_path)
    for name, hosts in (("lab", ["a", "b"]), ("shop", ["c"])):
        manifest = {"fabric_id": name, "topology": "x", "hosts": dict.fromkeys(hosts, "10.0.0.1")}
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    assert bash("millrace fabric down ") == ["lab", "shop"]
    assert bash("millrace fabric exec --fabric lab ") == ["a", "b"]
    assert bash("millrace fabric exec ") == ["a", "b", "c"]


def test_help_completes_commands() -> None:
    assert bash("millrace help ta") == ["task", "table"]
    assert "submit" in bash("millrace help task ")


def test_each_shell_gets_its_own_form() -> None:
    asked = {"_TYPER_COMPLETE_ARGS": "millrace topology che", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    answers = {shell: answer({**asked, "_MILLRACE_COMPLETE": f"complete_{shell}"}) or "" for shell in ("zsh", "fish")}
    assert answers["fish"].startswith("check\tCheck")
    assert answers["zsh"].startswith('_arguments \'*: :(("check":"Check')
    assert answer({"_MILLRACE_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "millrace no such"}) == "_files"
    assert (answer({**asked, "_MILLRACE_COMPLETE": "complete_pwsh"}) or "").startswith("check:::Check")
    assert answer({"_MILLRACE_COMPLETE": "complete_other"}) is None
    with pytest.raises(SystemExit, match="0"):
        answer({**asked, "_MILLRACE_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "is-args"})


def test_names_that_a_shell_would_evaluate_are_not_offered(up: Path) -> None:
    for name in ("$(id)", "a'b", "a b", "good"):
        (up / "logs" / f"{name}.log").touch()
    asked = {"_MILLRACE_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "millrace logs "}
    assert answer(asked) == "_arguments '*: :((\"good\"))'"


def test_a_completion_imports_few_modules() -> None:
    """As few as `millrace --help`, so that it takes less than 0.2 s of CPU time."""
    text = (
        "import sys; sys.argv = ['millrace']\nfrom controller.apps.cli import main\nmain()\n"
        "print(len(sys.modules), file=sys.stderr)"
    )
    asked = {"_MILLRACE_COMPLETE": "complete_bash", "COMP_WORDS": "millrace topology show a", "COMP_CWORD": "3"}
    done = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
        env={**os.environ, **asked},
    )
    assert done.stdout == "abilene\n"
    assert int(done.stderr) < 150
