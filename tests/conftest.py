"""Settings for every test."""

from __future__ import annotations

import gc
import os
import re
import signal
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
import typer.main
import typer.testing
from hypothesis import settings

# A busy machine is no failure: slowness shows in --durations, not in a deadline.
# The same examples in each run, so that a run's result depends on the change alone; `make deep` draws new ones.
settings.register_profile("millrace", deadline=None, max_examples=20, derandomize=True)
settings.register_profile("deep", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "millrace"))


# A job that a shell without job control starts in the background ignores Ctrl-C, and so would all programs that tests
# interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Nothing that tests are collected of is garbage; `pytest_collection_finish` has the collector work again.
gc.disable()


@pytest.fixture(autouse=True, scope="session")
def _commands_made_once() -> Iterator[None]:
    """Have Typer make a program's commands once, as in the process of a user: that takes longer than most of them."""
    made_once = cache(typer.main.get_command)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", made_once)
        patch.setattr(typer.testing, "_get_command", made_once)
        yield


@pytest.fixture(autouse=True, scope="module")
def _own_garbage() -> Iterator[None]:
    """Collect a file's garbage at its end, so that a socket left open is its failure and not that of a later file."""
    yield
    gc.collect()


@pytest.fixture(autouse=True, scope="session")
def cache_dir(pytestconfig: pytest.Config) -> Iterator[Path]:
    """Compiled code goes to a cache of the tests' own, also that of the processes that they start; it outlives a run.

    What determines the code is in its key, so that a run finds what an earlier one compiled, but never something else.
    """
    path = pytestconfig.rootpath / ".pytest_cache" / "compiled"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MILLRACE_CACHE_DIR", str(path))
        yield path


@pytest.fixture(autouse=True, scope="session")
def no_terminal() -> Iterator[None]:
    """Tables are as wide as where there is no terminal; xdist tells its workers of one with 80 columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COLUMNS", raising=False)
        yield


_RARE_MARKS = ("root", "bmv2", "deep")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not load files without a test of a selected mark, nor their imports.

    Several processes load all that they are to choose from, which takes longer than most of the tests.
    """
    wanted = _wanted(config.getoption("markexpr"))
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return True if is_test and wanted - _marks_in(collection_path) else None


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Make sure that no test would be left out by `pytest_ignore_collect` that has the mark."""
    for item in items:
        unseen = {name for name in _RARE_MARKS if item.get_closest_marker(name)} - _marks_in(item.path)
        if unseen:
            raise pytest.UsageError(f"{item.nodeid}: name pytest.mark.{unseen.pop()} in its file or its conftest.py")


def _wanted(expression: str) -> frozenset[str]:
    """Return the rare marks that all tests must have for which an expression of `-m` is true."""
    terms = expression.split(" and ")
    return frozenset(term for term in terms if term in _RARE_MARKS)


@cache
def _marks_in(path: Path) -> frozenset[str]:
    """Return the rare marks that a file or its folder's conftest.py names."""
    texts = [each.read_text() for each in (path, path.parent / "conftest.py") if each.is_file()]
    return frozenset(re.findall(rf"pytest\.mark\.({'|'.join(_RARE_MARKS)})\b", "\n".join(texts)))


def pytest_collection_finish() -> None:
    """Spare the garbage collector what stays anyway: hundreds of thousands of objects, looked at again and again."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
