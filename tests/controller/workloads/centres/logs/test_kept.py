"""Outputs of ended jobs in the agent's folder: bounded, shared fairly, and found by a later agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.workloads.centres.engines.base import ERRORS_FILE, OUTPUT_FILE, JobMark
from controller.workloads.centres.engines.jobs.places import OMISSION_BYTES, omission
from controller.workloads.centres.logs.kept import KeptLimits, KeptOutputs
from controller.workloads.centres.settings import CentreSettings

LIMITS = KeptLimits(count=4, nbytes=1 << 20, each_bytes=1 << 16)


def mark(task: str, epoch: int = 1) -> JobMark:
    return JobMark("c1", task, f"uid-{task}", epoch)


@pytest.fixture
def outputs(tmp_path: Path) -> KeptOutputs:
    made = KeptOutputs(tmp_path / "outputs")
    made.open()
    return made


def job(folder: Path, output: bytes, errors: bytes = b"") -> Path:
    """Return the folder of a job with these results."""
    path = folder / "job"
    path.mkdir(exist_ok=True)
    (path / OUTPUT_FILE).write_bytes(output)
    (path / ERRORS_FILE).write_bytes(errors)
    return path


def test_an_output_is_found_by_its_whole_mark(outputs: KeptOutputs, tmp_path: Path) -> None:
    outputs.keep(mark("a"), "owner ada", job(tmp_path, b"out", b"err"), LIMITS)
    folder = outputs.find(mark("a"))
    assert folder is not None
    assert ((folder / OUTPUT_FILE).read_bytes(), (folder / ERRORS_FILE).read_bytes()) == (b"out", b"err")
    assert (folder.stat().st_mode & 0o777, (folder / OUTPUT_FILE).stat().st_mode & 0o777) == (0o700, 0o600)
    assert outputs.find(mark("a", 2)) is None
    assert outputs.find(JobMark("c2", "a", "uid-a", 1)) is None
    assert outputs.find(JobMark("c1", "a", "uid-b", 1)) is None
    again = KeptOutputs(tmp_path / "outputs")
    again.open()
    assert again.find(mark("a")) == folder


def test_the_account_with_most_outputs_loses_its_oldest(outputs: KeptOutputs, tmp_path: Path) -> None:
    outputs.keep(mark("mine"), "owner ada", job(tmp_path, b"1"), LIMITS)
    for number in range(10):
        outputs.keep(mark(f"flood-{number}"), "owner eve", job(tmp_path, b"2"), LIMITS)
    there = [name for name in ("mine", *(f"flood-{n}" for n in range(10))) if outputs.find(mark(name)) is not None]
    assert there == ["mine", "flood-7", "flood-8", "flood-9"]
    assert len(list((tmp_path / "outputs").iterdir())) == 4


def test_outputs_have_equal_shares_of_the_bytes(outputs: KeptOutputs, tmp_path: Path) -> None:
    limits = KeptLimits(count=4, nbytes=4 * 2 * (100 + OMISSION_BYTES), each_bytes=1 << 16)
    assert limits.share == 100
    for number in range(8):
        long = job(tmp_path, b"a" * 5000 + b"z" * 5000, b"e" * 10_000)
        outputs.keep(mark(str(number)), "owner ada", long, limits)
    folder = outputs.find(mark("7"))
    assert folder is not None
    assert (folder / OUTPUT_FILE).read_bytes() == b"a" * 50 + b"\n... 9900 bytes omitted ...\n" + b"z" * 50
    assert sum(file.stat().st_size for file in (tmp_path / "outputs").rglob("std*")) <= limits.nbytes
    assert len(list((tmp_path / "outputs").iterdir())) == 4


def test_what_the_keeper_has_omitted_counts(outputs: KeptOutputs, tmp_path: Path) -> None:
    for half in (100, 5000):
        long = job(tmp_path, b"a" * half + omission(1_000_000) + b"z" * half)
        limits = KeptLimits(count=1, nbytes=2 * (100 + OMISSION_BYTES), each_bytes=1 << 16)
        outputs.keep(mark("a"), "owner ada", long, limits)
        folder = outputs.find(mark("a"))
        assert folder is not None
        expected = b"a" * 50 + omission(1_000_000 + 2 * half - 100) + b"z" * 50
        assert (folder / OUTPUT_FILE).read_bytes() == expected


def test_default_limits_keep_whole_outputs() -> None:
    settings = CentreSettings(centre="c1", state="state")
    each = settings.output_limit_bytes + OMISSION_BYTES
    assert KeptLimits(settings.kept_outputs, settings.kept_output_bytes, each).share == each


def test_smaller_limits_drop_what_was_kept_before(outputs: KeptOutputs, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        outputs.keep(mark(name), "owner ada", job(tmp_path, bytes(1000)), LIMITS)
    again = KeptOutputs(tmp_path / "outputs")
    again.open()
    again.keep(mark("d"), "owner ada", job(tmp_path, b"d"), KeptLimits(count=4, nbytes=1001, each_bytes=1 << 16))
    assert [name for name in "abcd" if again.find(mark(name)) is not None] == ["c", "d"]
    again.keep(mark("e"), "owner ada", job(tmp_path, b"e"), KeptLimits(count=0, nbytes=1001, each_bytes=1 << 16))
    assert list((tmp_path / "outputs").iterdir()) == []


def test_a_huge_file_in_place_of_an_output_is_bounded(outputs: KeptOutputs, tmp_path: Path) -> None:
    folder = job(tmp_path, b"")
    with (folder / OUTPUT_FILE).open("wb") as file:
        file.truncate(1 << 40)
    limits = KeptLimits(count=1, nbytes=1 << 40, each_bytes=1000)
    outputs.keep(mark("a"), "owner ada", folder, limits)
    kept = outputs.find(mark("a"))
    assert kept is not None
    assert (kept / OUTPUT_FILE).stat().st_size < 1000 + OMISSION_BYTES
