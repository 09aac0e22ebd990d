"""The committed build matches the committed sources, and the check detects a mismatch."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dataplane.errors import ProgramError
from dataplane.program import build_check
from dataplane.program.build_check import (
    P4_DIRECTORY,
    check_build,
    compile_programs,
    digest_sources,
    main,
    record_build,
)
from tests.dataplane.program.mutation import PROGRAMS


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a folder with matching sources and build."""
    folder = tmp_path / "p4"
    (folder / "build").mkdir(parents=True)
    (folder / "shared").mkdir()
    (folder / "fabric.p4").write_text('#include "shared/a.p4"\n')
    (folder / "shared" / "a.p4").write_text("// a\n")
    for name in build_check.OUTPUTS:
        (folder / "build" / name).write_text(name)
    record_build(folder)
    return folder


def test_the_committed_build_is_up_to_date() -> None:
    check_build()
    main([])


def test_what_was_recorded_together_passes(tree: Path) -> None:
    check_build(tree)


@pytest.mark.parametrize("changed", ["fabric.p4", "shared/a.p4", "build/fabric.json", "build/fabric.p4info.txtpb"])
def test_a_change_on_one_side_is_named(tree: Path, changed: str) -> None:
    with (tree / changed).open("a") as file:
        file.write(" ")
    with pytest.raises(ProgramError, match="changed since"):
        check_build(tree)
    with pytest.raises(SystemExit) as exit_info:
        main(["--p4", str(tree)])
    line = str(exit_info.value)
    assert "make p4" in line
    assert "\n" not in line
    assert (changed if changed.startswith("build") else "*.p4") in line


@pytest.mark.parametrize("missing", ["build/fabric.json", "build/fabric.p4info.txtpb", "build/fabric.sha256"])
def test_a_missing_file_is_named(tree: Path, missing: str) -> None:
    (tree / missing).unlink()
    with pytest.raises(ProgramError, match=missing):
        check_build(tree)


def test_moving_a_line_between_files_changes_the_digest(tree: Path) -> None:
    before = digest_sources(tree)
    (tree / "shared" / "a.p4").rename(tree / "shared" / "b.p4")
    assert digest_sources(tree) != before


def test_without_a_compiler_it_says_so(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tree))
    with pytest.raises(ProgramError, match="not on the PATH"):
        compile_programs(tree)


@pytest.mark.p4c
@pytest.mark.skipif(shutil.which(build_check.COMPILER) is None, reason="p4c-bm2-ss is not on the PATH")
def test_compiling_anywhere_gives_the_committed_output(tmp_path: Path) -> None:
    """No path of the machine ends up in the JSON; a p4c of another version may differ, and then `make p4` is due.

    The smaller program is enough: `main` compiles both the same way, and the digests keep the other one's output.
    """
    folder = tmp_path / "p4"
    shutil.copytree(P4_DIRECTORY, folder, ignore=shutil.ignore_patterns("build"))
    compile_programs(folder, ["fabric"])
    for name in ("fabric.json", "fabric.p4info.txtpb"):
        assert (folder / "build" / name).read_bytes() == (P4_DIRECTORY / "build" / name).read_bytes()


@pytest.mark.parametrize("gone", [False, True])
def test_an_entries_file_belongs_to_the_build(tree: Path, gone: bool) -> None:
    entries = tree / "build" / "fabric.entries.txtpb"
    entries.write_text("# none\n")
    if gone:
        record_build(tree)
        entries.unlink()
    with pytest.raises(ProgramError, match=r"build/fabric\.entries\.txtpb: changed since"):
        check_build(tree)


@pytest.mark.p4c
@pytest.mark.skipif(shutil.which(build_check.COMPILER) is None, reason="p4c-bm2-ss is not on the PATH")
def test_an_entries_file_is_written_where_a_program_has_entries(tmp_path: Path) -> None:
    folder = tmp_path / "p4"
    folder.mkdir()
    for name in ("presets", "copies"):
        shutil.copy(PROGRAMS / f"{name}.p4", folder)
    compile_programs(folder, ["presets", "copies"])
    assert [path.name for path in (folder / "build").glob("*.entries.*")] == ["presets.entries.txtpb"]
    made = (folder / "build" / "presets.entries.txtpb").read_bytes()
    assert made == (PROGRAMS / "presets.entries.txtpb").read_bytes()


@pytest.mark.p4c
@pytest.mark.skipif(shutil.which(build_check.COMPILER) is None, reason="p4c-bm2-ss is not on the PATH")
def test_the_compilers_complaint_is_passed_on(tree: Path) -> None:
    with pytest.raises(ProgramError, match=r"fabric\.p4"):
        compile_programs(tree)
