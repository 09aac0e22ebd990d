from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from dataplane.native import Library, Module, NativeError, cache, cache_key, compile_module, kernel, load_cached, u64
from dataplane.native.cache import ObjectCode
from dataplane.native.library import compile_object

KEY = "0123"


@kernel(name="triple")
def triple(a: u64) -> u64:
    return a * 3


def compiled(directory: Path | None) -> Library:
    module = Module("triple")
    module.export(triple)
    return compile_module(module, key=KEY, cache_dir=directory)


def cached(directory: Path) -> Library:
    library = load_cached(KEY, directory)
    assert library is not None
    return library


def test_what_was_compiled_is_found_again(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "cache"
    assert load_cached(KEY, directory) is None
    assert compiled(directory).bind(triple)(14) == 42
    assert [path.name for path in directory.iterdir()] == [f"{KEY}.o"]
    assert cached(directory).exports == ("triple",)
    assert cached(directory).bind(triple)(5) == 15
    assert load_cached("4567", directory) is None


def test_the_directory_is_for_its_user_alone(tmp_path: Path) -> None:
    compiled(tmp_path / "cache")
    assert (tmp_path / "cache").stat().st_mode & 0o077 == 0
    assert (tmp_path / "cache" / f"{KEY}.o").stat().st_mode & 0o077 == 0


def test_cached_file_is_valid_only_under_its_own_key(tmp_path: Path) -> None:
    compiled(tmp_path)
    (tmp_path / f"{KEY}.o").rename(tmp_path / "4567.o")
    assert load_cached("4567", tmp_path) is None


@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_a_folder_that_others_can_write_to_is_no_cache(tmp_path: Path, mode: int) -> None:
    directory = tmp_path / "cache"
    compiled(directory)
    directory.chmod(mode)
    assert load_cached(KEY, directory) is None
    assert not cache.write(directory, "4567", ObjectCode((), (b"",)))
    assert [path.name for path in directory.iterdir()] == [f"{KEY}.o"]


def test_links_are_not_followed(tmp_path: Path) -> None:
    directory = tmp_path / "cache"
    compiled(directory)
    (tmp_path / "link").symlink_to(directory)
    assert load_cached(KEY, tmp_path / "link") is None
    assert not cache.write(tmp_path / "link", "4567", ObjectCode((), (b"",)))
    moved = (directory / f"{KEY}.o").rename(tmp_path / f"{KEY}.o")
    (directory / f"{KEY}.o").symlink_to(moved)
    assert load_cached(KEY, directory) is None


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"{KEY}.o", 0o600)
    assert load_cached(KEY, tmp_path) is None


def test_what_killed_writers_left_goes(tmp_path: Path) -> None:
    for name, age_s in ((".new-old", 700), (".new-now", 0)):
        (tmp_path / name).write_bytes(b"half")
        os.utime(tmp_path / name, (time.time() - age_s,) * 2)
    assert cache.write(tmp_path, "k", ObjectCode((), (b"",)))
    assert {path.name for path in tmp_path.iterdir()} == {".new-now", "k.o"}


@pytest.mark.parametrize("mode", [0o622, 0o606])
def test_code_that_others_can_write_is_not_run(tmp_path: Path, mode: int) -> None:
    compiled(tmp_path)
    (tmp_path / f"{KEY}.o").chmod(mode)
    assert load_cached(KEY, tmp_path) is None


def test_a_damaged_file_is_ignored_and_rewritten(tmp_path: Path) -> None:
    compiled(tmp_path)
    path = tmp_path / f"{KEY}.o"
    whole = path.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for damaged in (b"", whole[:10], whole[:-1], whole + b"\0", flipped, b"\0" * len(whole)):
        path.write_bytes(damaged)
        assert load_cached(KEY, tmp_path) is None
    assert compiled(tmp_path).bind(triple)(2) == 6
    assert path.read_bytes() == whole


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("no directory")
    for directory in (in_the_way, in_the_way / "below", Path("/proc/no-such-directory"), None):
        assert compiled(directory).bind(triple)(3) == 9
    assert load_cached(KEY, in_the_way) is None
    assert load_cached(KEY, None) is None
    assert not cache.write(in_the_way, KEY, ObjectCode((), (b"",)))


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "replace", Mock(side_effect=PermissionError))
    assert not cache.write(tmp_path, KEY, ObjectCode(("f",), (b"code",)))
    assert list(tmp_path.iterdir()) == []


def test_the_oldest_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "KEPT_FILES", 64)
    for number in range(cache.KEPT_FILES + 3):
        assert cache.write(tmp_path, f"k{number}", ObjectCode((), (bytes([number]), b"more")))
        os.utime(tmp_path / f"k{number}.o", (number, number))
    kept = {path.stem for path in tmp_path.iterdir()}
    assert kept == {f"k{number}" for number in range(3, cache.KEPT_FILES + 3)}
    assert cache.read(tmp_path, "k3") == ObjectCode((), (b"\3", b"more"))
    cache.write(tmp_path, "new", ObjectCode((), (b"",)))
    assert cache.read(tmp_path, "k3") is not None
    assert cache.read(tmp_path, "k4") is None


WRITER = """
import sys
from pathlib import Path
from dataplane.native import cache
for _ in range(50):
    code = cache.ObjectCode((sys.argv[2],), (bytes([int(sys.argv[2])]) * 20_000,))
    assert cache.write(Path(sys.argv[1]), "0123", code)
"""


def test_writers_at_the_same_time_leave_a_whole_file(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), str(mine)], env=environment)
        for mine in (1, 2, 3)
    ]
    while any(writer.poll() is None for writer in writers):
        code = cache.read(tmp_path, KEY)
        assert code is None or code.images == (bytes([int(code.exports[0])]) * 20_000,)
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert cache.read(tmp_path, KEY) is not None
    assert [path.name for path in tmp_path.iterdir()] == [f"{KEY}.o"]


def test_keys_tell_parts_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {cache_key("ab", "c"), cache_key("a", "bc"), cache_key("abc"), cache_key("c", "ab"), cache_key()}
    assert len(keys) == 5
    assert cache_key("a") == cache_key(b"a")
    assert cache_key("a", packages=["dataplane.wire"]) != cache_key("a")
    assert cache_key("a", packages=["dataplane.native"]) == cache_key("a")


def test_keys_follow_the_source_of_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "some_kernels"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)

    def key() -> str:
        cache.source_digest.cache_clear()
        return cache_key("a", packages=["some_kernels"])

    keys = [key()]
    for path, text in (("one.py", "a"), ("one.py", "b"), ("inner/one.py", "b"), ("inner/two.py", "")):
        (package / path).write_text(text)
        keys.append(key())
    assert len(set(keys)) == len(keys)
    (package / "notes.txt").write_text("no source")
    assert key() == keys[-1]
    cache.source_digest.cache_clear()


def test_the_default_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_CACHE_DIR", "/some/where")
    assert cache.default_dir() == Path("/some/where")
    monkeypatch.delenv("MILLRACE_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache.default_dir() == Path("/x/millrace")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache.default_dir() == Path("/home/someone/.cache/millrace")


def test_wrong_code_is_an_error_and_not_stored(tmp_path: Path) -> None:
    with pytest.raises(NativeError, match=r"invalid generated code: .*expected instruction opcode define"):
        compile_object("define void @f() { nonsense }")
    with pytest.raises(NativeError, match="cannot be linked"):
        Library(ObjectCode(("missing",), (compile_object("define void @f() { ret void }"),)))


PROGRAM = """
import sys
from pathlib import Path
from tests_kernels import triple
from dataplane.native import Module, compile_module, load_cached
found = load_cached("k", Path(sys.argv[1]))
if found is None:
    module = Module("m"); module.export(triple)
    found = compile_module(module, key="k", cache_dir=Path(sys.argv[1]))
    print("compiled", end=" ")
print(found.bind(triple)(7))
"""


def test_another_process_finds_it(tmp_path: Path) -> None:
    source = "from __future__ import annotations\nfrom dataplane.native import kernel, u64\n"
    (tmp_path / "tests_kernels.py").write_text(f"{source}@kernel\ndef triple(a: u64) -> u64:\n    return a * 3\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path.cwd())])}
    outputs = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path / "cache")],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(2)
    ]
    assert outputs == ["compiled 21\n", "21\n"]
