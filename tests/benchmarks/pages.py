"""Pages of results, rendered from tests/benchmarks/results: `make results` writes them to docs/results.

pages.json has each page's title, introduction, usual machine, which the introduction states, and sections. Each section
is a file of its own: what was measured (`method`), the `command` with its `options`, the `machine`, `figures` with
their units, `tables`, an `example` that the test suite runs, and `limits`. The page omits `notes` (earlier runs, and
what did not help), figures without a value, which were not recorded, and those with `"on_page": false`, which a table
or another section shows. It lists figures without `measures`, which need no explanation, by name. Of a table it shows
`rows_on_page`, all without that key.

`python -m tests.benchmarks.pages record NAME --machine TEXT` reads a benchmark's output on stdin, takes the JSON object
of its last line, and writes the values of the figures that results/NAME.json lists, and the rows of its tables that
have a `key`.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

ROOT: Final = Path(__file__).parents[2]
RESULTS: Final = Path(__file__).parent / "results"
WIDTH: Final = 120

Section: TypeAlias = dict[str, Any]
"""A file of results as JSON has it; `KEYS` are the keys that it may have."""

KEYS: Final = frozenset(
    {"title", "command", "options", "mark", "method", "machine", "figures", "tables", "example", "limits", "notes"}
)


def pages() -> dict[str, Any]:
    """Return pages.json: pages by their path in the repository."""
    loaded: dict[str, Any] = json.loads((RESULTS / "pages.json").read_text(encoding="utf-8"))
    return loaded


def section(name: str) -> Section:
    """Return a section, of results/NAME.json; an unknown key is a ValueError."""
    loaded: Section = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    if unknown := loaded.keys() - KEYS:
        raise ValueError(f"{name}.json: unknown keys {', '.join(sorted(unknown))}")
    return loaded


def page_text(page: dict[str, Any]) -> str:
    """Return a page as Markdown."""
    parts = [f"# {page['title']}", *map(_filled, page["intro"])]
    for name in page["sections"]:
        parts += rendered(section(name), page["machine"])
    return "\n\n".join(parts) + "\n"


def rendered(section: Section, usual_machine: str = "") -> Iterator[str]:
    """Yield a section's paragraphs and blocks, its machine only if it is not the page's usual one."""
    yield f"## {section['title']}" + (_command(section) if "command" in section else "")
    yield from map(_filled, section["method"])
    if section.get("machine", usual_machine) != usual_machine:
        yield _filled(f"Measured {section['machine']}.")
    if "figures" in section:
        yield from _figures(section["figures"])
    if "example" in section:
        yield from _example(section["example"])
    for table in section.get("tables", ()):
        if "caption" in table:
            yield _filled(table["caption"])
        if rows := table["rows"][: table.get("rows_on_page")]:
            yield _table(table["columns"], rows)
    if "limits" in section:
        yield "\n".join(_filled(f"- {limit}", "  ") for limit in section["limits"])


def value_of(figure: dict[str, Any]) -> str:
    """Return a figure with its unit."""
    value, unit = _cell(figure["value"]), figure.get("unit", "")
    return f"{value}{unit[1:]}" if unit.startswith("1/") else f"{value} {unit}".rstrip()


def record(name: str, output: str, machine: str) -> list[str]:
    """Write the values that a benchmark's last line has into results/NAME.json; return the keys of those written."""
    measured = json.loads(output.strip().splitlines()[-1])
    entry = section(name)
    taken = [figure for figure in entry["figures"] if measured.get(figure["key"]) is not None]
    for figure in taken:
        figure["value"] = measured[figure["key"]]
    for table in entry.get("tables", ()):
        table["rows"] = measured.get(table.get("key"), table["rows"])
    entry["machine"] = machine
    (RESULTS / f"{name}.json").write_text(json.dumps(entry, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return [figure["key"] for figure in taken]


def write() -> None:
    """Write all pages."""
    for path, page in pages().items():
        (ROOT / path).write_text(page_text(page), encoding="utf-8")


def _command(section: Section) -> str:
    options = f"    # {section['options']}" if "options" in section else ""
    # The mark stands on the line before its block: tests/docs/shell_blocks.py.
    return f"\n<!-- {section['mark']} -->\n```sh\n{section['command']}{options}\n```"


def _figures(figures: list[dict[str, Any]]) -> Iterator[str]:
    measured = [figure for figure in figures if figure["value"] is not None and figure.get("on_page", True)]
    if explained := [figure for figure in measured if "measures" in figure]:
        yield "\n".join(
            _filled(f"- `{figure['key']}` **{value_of(figure)}**: {figure['measures']}", "  ") for figure in explained
        )
    named = [f"`{figure['key']}` {value_of(figure)}" for figure in measured if "measures" not in figure]
    if named:
        yield _filled(f"Also printed: {', '.join(named)}.")


def _example(example: dict[str, Any]) -> Iterator[str]:
    if "text" in example:
        yield _filled(example["text"])
    yield "\n".join(["<!-- run -->", "```python", *example["code"], "```"])
    yield "\n".join(["```text", *example["output"], "```"])


def _table(columns: list[str], rows: list[list[Any]]) -> str:
    lines = [columns, ["---"] * len(columns), *([_cell(value) for value in row] for row in rows)]
    return "\n".join(f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in line)}|" for line in lines)


def _cell(value: object) -> str:
    # Years and ports do not occur: every integer is a quantity.
    return f"{value:,}" if isinstance(value, int) else str(value)


def _filled(text: str, indent: str = "") -> str:
    # A link is one word, however long, and a hyphen is no place to break.
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def main() -> None:
    """Write the pages, or record a run first."""
    parser = argparse.ArgumentParser(description="Render docs/results from tests/benchmarks/results.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("write", help="write all pages")
    recording = commands.add_parser("record", help="take a benchmark's output on stdin into results/NAME.json")
    recording.add_argument("name")
    recording.add_argument("--machine", required=True, help="where it ran, such as `on a quiet machine`")
    options = parser.parse_args()
    if options.command == "record":
        print("recorded:", *record(options.name, sys.stdin.read(), options.machine))
    write()


if __name__ == "__main__":
    main()
