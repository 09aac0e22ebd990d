"""Shell blocks of pages, and their marks, which say how they are run.

A line before a block says what runs it:
- `<!-- run -->`: tests/docs/test_examples.py, in every run of the tests.
- `<!-- shell -->`: tests/soak/test_pages.py, as it is written, in a shell that a page's blocks share.
- `<!-- terminals -->`: the same, but each command is in a terminal of its own, where it may go on while the next ones
  run; Ctrl-C ends it. `<!-- terminals, in turn -->`: each but the last one ends by itself before the next one begins.
- `<!-- not run: REASON -->`: not run here.
`<!-- shell: NAME, NAME -->` wants scenes of tests/soak/pages first: what stands when a reader comes to that block. With
`online` the page has the machine's network; with `quick` each command of the block is run with --quick;
`without COMMAND` leaves those out that begin so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted(
    [
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("*.md"),
        *(ROOT / "deploy").rglob("*.md"),
        *(ROOT / "topologies").glob("*.md"),
    ]
)
IN_SHORT_PAGES: Final = {
    ("README.md", 1): "shell: without make test",
    ("README.md", 2): "terminals, in turn",
}
"""Marks of the n-th block of pages that have no line to spare."""
LANGUAGES: Final = {"sh", "bash", "console"}
_WITHOUT: Final = "without "

_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^>]+) -->\n)?^(?P<fence>```+)(?P<language>\w*)\n(?P<text>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class File:
    """A block that a page has written to a file, `<!-- file: NAME -->`."""

    name: str
    text: str
    line: int = 0


@dataclass(frozen=True, slots=True)
class ShellBlock:
    """A block of a page: `way` is `run`, `shell`, `terminals`, `not run`, or nothing where it has no mark."""

    page: Path
    line: int
    language: str
    text: str
    way: str
    scenes: tuple[str, ...] = ()
    reason: str = ""
    is_in_turn: bool = False
    without: tuple[str, ...] = ()
    """Prefixes of the commands to leave out."""

    @property
    def place(self) -> str:
        """Return its location, such as `docs/start/up.md:5`."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def parts_of(page: Path) -> Iterator[File | ShellBlock]:
    """Yield a page's blocks for a shell and for files, in order."""
    text, count = page.read_text(encoding="utf-8"), 0
    for match in _BLOCK.finditer(text):
        if (match["mark"] or "").startswith("file: "):
            yield File(
                match["mark"].removeprefix("file: "), match["text"], text.count("\n", 0, match.start("text")) + 1
            )
        elif match["language"] in LANGUAGES:
            count += 1
            mark = match["mark"] or IN_SHORT_PAGES.get((str(page.relative_to(ROOT)), count), "")
            way, _, rest = mark.partition(": ")
            line = text.count("\n", 0, match.start("text")) + 1
            names = [] if way == "not run" else [name.strip() for name in rest.split(",") if name]
            yield ShellBlock(
                page=page,
                line=line,
                language=match["language"],
                text=match["text"],
                way=way.partition(",")[0],
                scenes=tuple(name for name in names if not name.startswith(_WITHOUT)),
                reason=rest if way == "not run" else "",
                is_in_turn=way == "terminals, in turn",
                without=tuple(name.removeprefix(_WITHOUT) for name in names if name.startswith(_WITHOUT)),
            )


def shell_blocks_of(page: Path) -> list[ShellBlock]:
    """Return a page's blocks for a shell, in order."""
    return [part for part in parts_of(page) if isinstance(part, ShellBlock)]
