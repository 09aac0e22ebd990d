"""A module compiled in two parts behaves like one."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataplane.native import Module, NativeError, compile_module, constant_table, kernel, load_cached, parts, u64
from dataplane.native.library import compile_object
from dataplane.native.parts import compile_parts, part

SQUARES = constant_table(u64, [number * number for number in range(10)])


@kernel(inline=False, name="square")
def square(number: u64) -> u64:
    """Both parts call it."""
    return SQUARES[number]


@kernel(inline=False, name="far")
def far(number: u64) -> u64:
    """The part that is compiled elsewhere."""
    return square(number) + 1


@kernel(name="near")
def near(number: u64) -> u64:
    """The part that is compiled here."""
    return far(number) * 1000 + square(number)


def _module() -> Module:
    module = Module("parts")
    module.export(near)
    return module


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split even the shortest text, with any number of processors."""
    monkeypatch.setattr("dataplane.native.library.worth_parting", lambda text: True)


@pytest.mark.usefixtures("always")
def test_parts_call_each_other_and_what_both_need() -> None:
    library = compile_module(_module(), apart=("far",), cache_dir=None)
    assert library.bind(near)(7) == 50 * 1000 + 49
    assert library.exports == ("near",)


def test_each_part_has_what_it_needs_and_no_more() -> None:
    first, second = part(str(_module().ir), {"far"})
    assert first.count("define ") == 2
    assert 'declare i64 @"far"' in first
    assert '@"near"' not in second
    assert 'define i64 @"far"' in second
    for text in (first, second):
        assert compile_object(text)


def test_what_is_wrong_in_the_other_part_is_told() -> None:
    with pytest.raises(NativeError, match=r"another process failed: .*invalid generated code"):
        compile_parts("define void @f() { ret void }", "define void @g() { nonsense }", compile_object)


def test_short_texts_are_compiled_here() -> None:
    assert not parts.worth_parting("x" * (parts.LEAST_BYTES - 1))


@pytest.mark.parametrize("mode", [0o600, 0o700])
def test_unusable_interpreter_leaves_compilation_in_process(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file is not executable, the other no program: another user's interpreter, or one that is gone."""
    interpreter = tmp_path / "python"
    interpreter.write_bytes(b"none")
    interpreter.chmod(mode)
    monkeypatch.setattr("sys.executable", str(interpreter))
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1})
    assert parts.worth_parting("x" * parts.LEAST_BYTES) == (mode == 0o700)
    assert len(compile_parts(*part(str(_module().ir), {"far"}), compile_object)) == 2


@pytest.mark.usefixtures("always")
def test_both_parts_come_from_the_cache(tmp_path: Path) -> None:
    compile_module(_module(), key="0123", cache_dir=tmp_path, apart=("far",))
    library = load_cached("0123", tmp_path)
    assert library is not None
    assert library.bind(near)(3) == 10 * 1000 + 9
