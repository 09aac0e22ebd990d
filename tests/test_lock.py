"""requirements/: what pyproject.toml asks for, pinned with hashes for every Python; no word of where it comes from."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
GROUPS: dict[str, list[str]] = PROJECT["dependency-groups"]
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]


def extra(name: str) -> list[str]:
    """Return all requirements of an extra, including those of other extras."""
    named = list(map(Requirement, EXTRAS[name]))
    own = [str(requirement) for requirement in named if requirement.name != PROJECT["project"]["name"]]
    return own + [
        line
        for requirement in named
        if requirement.name == PROJECT["project"]["name"]
        for e in requirement.extras
        for line in extra(e)
    ]


BASE: list[str] = [*PROJECT["project"]["dependencies"], *extra("demo"), *GROUPS["build"]]
WANTED = {
    "base.txt": BASE,
    "dev.txt": [*BASE, *extra("dev")],
    "docs.txt": GROUPS["docs"],
    "fuzz.txt": GROUPS["fuzz"],
    "ray.txt": GROUPS["ray"],
    "s3.txt": GROUPS["s3"],
    "shell.txt": GROUPS["shell"],
    "spark.txt": GROUPS["spark"],
    "torch-cpu.txt": [],
    "torch-needs.txt": GROUPS["torch-needs"],
    "uv.txt": GROUPS["lock"],
}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


@cache
def entries(lock: str) -> list[tuple[Requirement, tuple[str, ...]]]:
    """Return what a lock names, each with its hashes."""
    text = (ROOT / "requirements" / lock).read_text(encoding="utf-8")
    lines = re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", text)).splitlines()
    return [(Requirement(line.split(" --hash=")[0]), tuple(re.findall(r"--hash=(\S+)", line))) for line in lines]


def environment(python: str) -> dict[str, str]:
    """Return what markers are about, of a Python on x86-64 Linux."""
    return {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
    }


def pins(lock: str, python: str) -> dict[str, str]:
    """Return the versions that a lock has for a Python on x86-64 Linux; there is one of each package at most."""
    chosen = [entry for entry, _ in entries(lock) if entry.marker is None or entry.marker.evaluate(environment(python))]
    twice = [name for name, count in Counter(entry.name for entry in chosen).items() if count > 1]
    assert twice == []
    return {canonicalize_name(entry.name): str(entry.specifier).removeprefix("==") for entry in chosen}


def test_every_lock_is_known() -> None:
    assert {path.name for path in (ROOT / "requirements").iterdir()} == set(WANTED)


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("lock", WANTED)
def test_the_lock_has_what_the_project_asks_for(lock: str, python: str) -> None:
    """If not: `make lock`."""
    have = pins(lock, python)
    wanted = [
        requirement
        for requirement in map(Requirement, WANTED[lock])
        if requirement.marker is None or requirement.marker.evaluate(environment(python))
    ]
    lacking = [requirement for requirement in wanted if not _has(have, requirement)]
    assert lacking == []


def _has(have: dict[str, str], wanted: Requirement) -> bool:
    version = have.get(canonicalize_name(wanted.name))
    return version is not None and wanted.specifier.contains(version)


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("larger", ["dev.txt", "fuzz.txt", "torch-needs.txt"])
def test_locks_that_share_an_environment_agree(larger: str, python: str) -> None:
    base, more = pins("base.txt", python), pins(larger, python)
    assert {name: more[name] for name in base.keys() & more.keys()} == {name: base[name] for name in base.keys() & more}
    assert larger != "dev.txt" or base.keys() <= more.keys()


def test_no_part_but_its_own_extra_brings_what_is_under_the_gpl() -> None:
    assert extra("scapy") == ["scapy>=2.6.1"]
    others = set(EXTRAS) - {"scapy", "dev", "all"}
    assert [name for name in others if any(Requirement(line).name == "scapy" for line in extra(name))] == []
    assert "scapy" not in pins("base.txt", "3.11")


@pytest.mark.parametrize("lock", WANTED)
def test_each_pin_is_exact_and_has_hashes(lock: str) -> None:
    for entry, hashes in entries(lock):
        assert [clause.operator for clause in entry.specifier] == ["=="]
        assert hashes
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in hashes)


@pytest.mark.parametrize("lock", WANTED)
def test_no_registry_is_named(lock: str) -> None:
    text = (ROOT / "requirements" / lock).read_text(encoding="utf-8")
    assert not re.search(r"://|--(extra-)?index|--find-links|--trusted-host| @ ", text)
