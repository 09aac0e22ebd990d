"""Runs the examples of docs/*.md, so that no page is wrong.

A fenced block is run when the line before it is `<!-- run -->`:
- python: the blocks of a page share one namespace and run in order; what they print is the ```text block that follows.
- console: `$ command` lines with their output; a command that speaks on stderr is one that fails. `<!-- run, status 1
  -->`: they end with that and say why on stdout. As in a shell, `&` leaves a daemon running once it has said that it is
  ready, `kill %1` ends it, and `export` holds for the page.
`<!-- file: NAME -->` before a block writes it to NAME in the folder that the page's examples run in, a fresh one.
Other marks are those of tests/docs/shell_blocks.py. Expected output may leave parts
open with `...`, as doctest's ELLIPSIS.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from controller.apps.cli import main
from tests.compiled_fabric import compile_fabric

ROOT = Path(__file__).parents[2]
PAGES = sorted(page for page in (ROOT / "docs").rglob("*.md") if "examples" not in page.parts)
SHOWN_ELSEWHERE = {
    "demo.md": ROOT / "tests/integration/test_demo_command.py",
    "doctor.md": ROOT / "tests/controller/apps/cli/doctor/test_doctor.py",
    "install.md": ROOT / "tests/test_lock.py",
}
"""Pages whose example is a test of its own, with that test."""
WITHOUT_EXAMPLES = {
    "index.md": "nothing but links to the other pages",
    "glossary.md": "words",
    "architecture.md": "a map of the code; tests/test_house.py looks for every file that it names",
}
"""Pages without anything to run, with the reason."""
OTHERS = ("README.md", "CONTRIBUTING.md", "topologies/README.md", "docs/examples/README.md")
"""Pages elsewhere whose links are checked."""

_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>run(?:, status (?P<status>\d))?|file: (?P<file>[\w.-]+)) -->\n)?"
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$"
    r"(?:\n\n?```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
_MARK = re.compile(r"^<!-- (?!shell|terminals|not run).*-->$", re.MULTILINE)
_PROGRESS = re.compile(
    r"^(?:millrace: .+: \d+ s|.+: no answer yet after [\d.]+ s on a busy machine .+)\n", re.MULTILINE
)
_LINK = re.compile(r"\]\((?!https?://)(?P<target>[^)#]+)(?:#[^)]*)?\)")


@dataclass(frozen=True, slots=True)
class Example:
    """A marked block: to be run, or to be written to `file`; `output` is what follows it as ```text.

    Its commands end with `status`, where the mark has one.
    """

    line: int
    language: str
    text: str
    output: str
    file: str | None
    status: int | None = None


def examples_of(text: str) -> Iterator[Example]:
    for match in _BLOCK.finditer(text):
        if match["mark"]:
            line = text.count("\n", 0, match.start("text")) + 1
            yield Example(line, match["language"], match["text"], match["output"] or "", match["file"], _status(match))


def _status(match: re.Match[str]) -> int | None:
    return None if match["status"] is None else int(match["status"])


def links_of(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return {match["target"] for match in _LINK.finditer(text)}


def matches(want: str, got: str) -> bool:
    return doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS)


def run_python(example: Example, page: Path, namespace: dict[str, Any]) -> None:
    # As many empty lines in front as the page has, so that a traceback names the page's own line.
    code = compile("\n" * (example.line - 1) + example.text, str(page), "exec")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, namespace)
    assert matches(example.output, printed.getvalue()), f"{page.name}:{example.line} prints:\n{printed.getvalue()}"


def without_progress(output: str) -> str:
    """Return an output without the lines that say, on a busy machine, that a command still works or waits."""
    return _PROGRESS.sub("", output)


Jobs = list["subprocess.Popen[str]"]
"""Daemons that a page has started with `&`, in order: `%1` is the first."""


def run_console(example: Example, page: Path, monkeypatch: pytest.MonkeyPatch, jobs: Jobs) -> None:
    for part in re.split(r"^\$ ", example.text, flags=re.MULTILINE)[1:]:
        command, _, want = part.partition("\n")
        words = shlex.split(command)
        if run_by_shell(words, jobs):
            continue
        assert words[0] == "millrace", f"{page.name}:{example.line}: only millrace is run, not {words[0]}"
        if words[-1] == "&":
            got = start_job(words[1:-1], jobs)
            assert matches(want, got), f"{page.name}:{example.line}: {command!r} says:\n{got}"
            continue
        monkeypatch.setattr(sys, "argv", words)
        stdout, complained = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(complained):
            status = exit_status_of(main)
        complaint = without_progress(complained.getvalue())
        got = stdout.getvalue() + complaint
        assert matches(want, got), f"{page.name}:{example.line}: {command!r} says:\n{got}"
        if example.status is None:
            assert bool(status) == bool(complaint), f"{command!r} ended with {status}"
        else:
            assert status == example.status, f"{command!r} ended with {status}"


def run_by_shell(words: list[str], jobs: Jobs) -> bool:
    """Run `export NAME=VALUE` or `kill %N ...` and return True; False for other commands."""
    if words[0] == "export":
        for name, _, value in (word.partition("=") for word in words[1:]):
            os.environ[name] = value
    elif words[0] == "kill":
        for word in words[1:]:
            job = jobs[int(word.removeprefix("%")) - 1]
            job.terminate()
            job.communicate()
    return words[0] in {"export", "kill"}


def start_job(arguments: list[str], jobs: Jobs) -> str:
    """Start a daemon; return what it says up to its ready line."""
    command = [sys.executable, "-m", "controller.apps.cli", *arguments]
    job = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    jobs.append(job)
    assert job.stderr is not None
    said = ""
    for line in job.stderr:
        said += line
        if "ready" in line:
            break
    return said


def exit_status_of(call: Callable[[], None]) -> int | str | None:
    try:
        call()
    except SystemExit as end:
        return end.code
    return None


@contextlib.contextmanager
def nothing_left_behind(namespace: dict[str, Any], jobs: Jobs) -> Iterator[None]:
    """End jobs and the processes in examples' namespace; fail for those, and for threads, if all else is well."""
    before = set(threading.enumerate())
    running: list[subprocess.Popen[str]] = []
    try:
        yield
    finally:
        processes = [value for value in namespace.values() if isinstance(value, subprocess.Popen)]
        running += [process for process in (*processes, *jobs) if process.poll() is None]
        for process in running:
            process.kill()
            process.communicate()
    assert not running, f"still running: {[process.args for process in running]}"
    threads = {thread for thread in set(threading.enumerate()) - before if not thread.daemon}
    assert not threads, f"threads left behind: {threads}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.name in SHOWN_ELSEWHERE:
        pytest.skip(f"its example is {SHOWN_ELSEWHERE[page.name].relative_to(ROOT)}")
    if "import torch\n" in page.read_text(encoding="utf-8") and importlib.util.find_spec("torch") is None:
        pytest.skip("needs PyTorch")
    if "import finsy" in page.read_text(encoding="utf-8"):
        compile_fabric()
    monkeypatch.chdir(tmp_path)
    # Processes of an example must find the packages from here, and wrap lines like a page.
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("COLUMNS", "140")
    namespace: dict[str, Any] = {"__name__": f"docs.{page.stem}"}
    # A page's environment must not leak into the next page's.
    jobs: Jobs = []
    with patch.dict(os.environ), nothing_left_behind(namespace, jobs):
        for example in examples_of(page.read_text(encoding="utf-8")):
            if example.file is not None:
                Path(example.file).write_text(example.text, encoding="utf-8")
            elif example.language == "python":
                run_python(example, page, namespace)
            elif example.language == "console":
                run_console(example, page, monkeypatch, jobs)
            else:
                pytest.fail(f"{page.name}:{example.line}: a block of {example.language or 'no language'} cannot be run")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_page_has_an_example_that_runs(page: Path) -> None:
    if page.name in SHOWN_ELSEWHERE:
        assert SHOWN_ELSEWHERE[page.name].is_file()
    else:
        shows = any(example.file is None for example in examples_of(page.read_text(encoding="utf-8")))
        assert shows is (page.name not in WITHOUT_EXAMPLES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_mark_stands_before_a_block(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(_MARK.findall(text)) == len(list(examples_of(text)))


@pytest.mark.parametrize(
    "page", [*(ROOT / name for name in OTHERS), *PAGES], ids=lambda page: str(page.relative_to(ROOT))
)
def test_links_lead_somewhere(page: Path) -> None:
    assert {target for target in links_of(page) if not (page.parent / target).exists()} == set()


def test_the_index_links_every_page() -> None:
    index = ROOT / "docs/index.md"
    assert {page.relative_to(index.parent).as_posix() for page in PAGES} - {index.name} <= links_of(index)


def test_readme_is_short_and_leads_to_the_index() -> None:
    readme = ROOT / "README.md"
    lines = readme.read_text(encoding="utf-8").splitlines()
    assert "docs/index.md" in links_of(readme)
    assert len(lines) <= 120
    # The first impression: a picture, and the command that draws it.
    assert any(line.startswith("![") for line in lines[:12])
    assert any(line.startswith("make demo") for line in lines[:16])


def test_wrong_output_is_told() -> None:
    (example,) = examples_of("<!-- run -->\n```python\nprint(1)\n```\n\n```text\n2\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:3 prints:\s+1\s"):
        run_python(example, Path("page.md"), {})


def test_a_block_without_mark_is_not_run() -> None:
    assert list(examples_of("```python\n1 / 0\n```\n")) == []


def test_progress_on_a_busy_machine_is_no_output() -> None:
    said = (
        "millrace: reading leaf-spine: 7 s\nthe API: no answer yet after 10 s on a busy machine (9 threads)\n6 links\n"
    )
    assert without_progress(said) == "6 links\n"
    assert without_progress("millrace: a.yaml:3: 7 s is too long\n") != ""
