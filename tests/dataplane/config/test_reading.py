from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.config import Strict, load, load_document, loads, loads_document
from dataplane.errors import ConfigError


class Inner(Strict, frozen=True):
    """A part."""

    size: int = 1


class Settings(Strict, frozen=True):
    """A whole."""

    name: str
    parts: list[Inner] = msgspec.field(default_factory=list)


TEXT = "# a comment\nname: x\nparts:\n  - size: 2\n  - {size: 3}\n"


def test_yaml_and_toml_give_the_same_value() -> None:
    value = Settings(name="x", parts=[Inner(size=2), Inner(size=3)])
    assert loads(TEXT, Settings) == value
    assert loads('name = "x"\nparts = [{size = 2}, {size = 3}]\n', Settings, toml=True) == value


def test_a_document_knows_where_its_parts_stand() -> None:
    document = loads_document(TEXT, Settings, file="f.yaml")
    assert document.value == loads(TEXT, Settings)
    error = document.error("is odd", "parts[1].size")
    assert (error.file, error.line, error.key) == ("f.yaml", 5, "parts[1].size")
    assert str(error) == "f.yaml:5: parts[1].size: is odd"


@pytest.mark.parametrize(("path", "line"), [("name", 2), ("parts", 3), ("parts[0].size", 4), ("parts[9].size", 3)])
def test_a_part_that_is_not_there_has_the_line_of_what_holds_it(path: str, line: int) -> None:
    assert loads_document(TEXT, Settings).error("is odd", path).line == line


def test_toml_has_no_lines() -> None:
    assert loads_document('name = "x"\n', Settings, toml=True).error("is odd", "name").line is None


def test_files_are_read_by_their_ending(tmp_path: Path) -> None:
    yaml_file, toml_file = tmp_path / "a.yaml", tmp_path / "a.toml"
    yaml_file.write_text("name: x\n")
    toml_file.write_text('name = "x"\n')
    assert load(yaml_file, Settings) == load_document(toml_file, Settings).value == Settings(name="x")


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("name: x\nparts: [{sise: 1}]\n", 2, "parts[0].sise"),
        ("name: x\nparts: [{size: big}]\n", 2, "parts[0].size"),
        ("name: x\nname: y\n", 2, "name"),
        ("name: x\nparts:\n  - {size: 1, size: 2}\n", 3, "size"),
        ("name: [x\n", 2, None),
    ],
)
def test_errors_name_line_and_key(text: str, line: int, key: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(text, Settings, file="f.yaml")
    assert (caught.value.file, caught.value.line, caught.value.key) == ("f.yaml", line, key)


def test_exponential_aliases_are_refused_cheaply() -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 100)]
    with pytest.raises(ConfigError):
        loads("\n".join(lines), Settings)


@given(text=st.text(max_size=80), toml=st.booleans())
def test_any_text_is_a_value_or_a_config_error(text: str, toml: bool) -> None:
    for candidate in (text, TEXT + text, f"name: {text}"):
        outcome: Settings | ConfigError
        try:
            outcome = loads(candidate, Settings, file="f", toml=toml)
        except ConfigError as error:
            outcome = error
        if isinstance(outcome, ConfigError):
            assert str(outcome).startswith("f")
            assert "\n" not in str(outcome)
        else:
            assert isinstance(outcome.name, str)


class Folders(Strict, frozen=True):
    folders: tuple[Path, ...] = ()


def test_files_and_folders_are_paths() -> None:
    assert loads("folders: [/a, b]", Folders) == Folders(folders=(Path("/a"), Path("b")))
    for wrong in ("3", "''"):
        with pytest.raises(ConfigError, match="expected the name of a file or folder"):
            loads(f"folders: [{wrong}]", Folders)


class Versioned(Strict, frozen=True):
    """A file of a known version."""

    millrace: Literal[1, 2]


@pytest.mark.parametrize(("version", "told"), [("3", "3 is not one of 1, 2"), ("'1'", "expected `int`, got `str`")])
def test_unknown_version_is_refused_with_the_known_ones(version: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(f"millrace: {version}\n", Versioned, file="f.yaml")
    assert str(caught.value) == f"f.yaml:1: millrace: {told}"


class Part(Strict, frozen=True):
    """A value of a mapping."""

    labels: dict[Annotated[str, msgspec.Meta(pattern="^[a-z]+$")], str] = msgspec.field(default_factory=dict)
    devices: dict[int, tuple[str, ...]] = msgspec.field(default_factory=dict)


class Whole(Strict, frozen=True):
    """Mappings in mappings."""

    parts: dict[str, Part] = msgspec.field(default_factory=dict)


@pytest.mark.parametrize(
    ("wrong", "line", "key", "problem"),
    [
        ("{label: {}}", 3, "parts.bad.label", "unknown key"),
        ("5", 3, "parts.bad", "expected `object`, got `int`"),
        ("{labels: {a: b, c: 5, d: 6}}", 3, "parts.bad.labels.c", "expected `str`, got `int`"),
        ("{labels: {a: b, C: d}}", 3, "parts.bad.labels.C", "not a valid key here: expected `str` matching"),
        ("{devices: {1: [a], 0: [a, 5]}}", 3, "parts.bad.devices.0[1]", "expected `str`, got `int`"),
    ],
)
def test_problem_in_a_mapping_names_its_key(wrong: str, line: int, key: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        loads(f"parts:\n  good: {{labels: {{a: b}}}}\n  bad: {wrong}\n  last: {{}}\n", Whole, file="f")
    assert (refused.value.line, refused.value.key) == (line, key)
    assert problem in refused.value.problem


def test_key_is_found_fast_among_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Halving them takes 11 conversions; trying each would take 700."""
    convert, conversions = msgspec.convert, 0

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal conversions
        conversions += 1
        return convert(*arguments, **options)

    monkeypatch.setattr(msgspec, "convert", counted)
    parts = {f"p{number}": {} if number != 700 else {"labels": 5} for number in range(1000)}
    with pytest.raises(ConfigError) as refused:
        loads_document(json.dumps({"parts": parts}), Whole, file="f", as_json=True)
    assert refused.value.key == "parts.p700.labels"
    assert conversions <= 20
