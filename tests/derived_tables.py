"""Tables in P4, Lua, Scapy layers and pages that repeat a declaration of the code: `make tables` writes them.

These files cannot import the declaration: P4 and Lua are other languages, the Scapy layers import only Scapy, and
completion in shells may import no command.
tests/test_derived_tables.py compares each with the declaration.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from collectors.values import LINK_FIGURES
from dataplane.fabric.virtual.tcp import Congestion
from dataplane.topology.device_kinds import DEVICE_TRAITS
from dataplane.topology.values import DeviceKind
from dataplane.wire.drop_reasons import DropReason
from tests.completion_table import completion_table

ROOT = Path(__file__).parents[1]
WIDTH = 120


@dataclass(frozen=True)
class DerivedTable:
    """A part of a file, and the function that returns its text.

    `pattern` matches the text with its group `table`; lines of a table include their line breaks.
    """

    path: str
    pattern: str
    text: Callable[[], str]

    def updated(self, content: str) -> str:
        """Return the file's content with the table replaced; raise ValueError where it has no such table, or two."""
        matches = list(re.finditer(self.pattern, content, re.MULTILINE))
        if len(matches) != 1:
            raise ValueError(f"{self.path}: {len(matches)} places match {self.pattern}, not 1")
        start, end = matches[0].span("table")
        return content[:start] + self.text() + content[end:]


def _name(reason: DropReason) -> str:
    return reason.name.lower()


def _reasons_in_p4() -> str:
    return "".join(f"const drop_reason_t DROP_{reason.name} = {reason.value};\n" for reason in DropReason)


def _reasons_in_scapy() -> str:
    return "".join(f'    {reason.value}: "{_name(reason)}",\n' for reason in DropReason)


def _reasons_in_lua() -> str:
    # A non-breaking space keeps an entry on one line.
    entries = " ".join(f'[{reason.value}]\xa0=\xa0"{_name(reason)}",' for reason in DropReason)
    lines = textwrap.wrap(entries, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    return "".join(f"{line}\n" for line in lines).replace("\xa0", " ")


def _reasons_in_page() -> str:
    return "".join(_rows_of_reasons())


def _rows_of_reasons() -> Iterator[str]:
    for packets, reasons in groupby(DropReason, key=lambda reason: reason.packets):
        yield f"| {', '.join(f'{reason.value} `{_name(reason)}`' for reason in reasons)} | {packets} |\n"


def _resources_of_kinds() -> str:
    rows = {kind: ", ".join(f"`{name}`" for name in traits.resources) for kind, traits in DEVICE_TRAITS.items()}
    return "".join(f"| {kind} | {resources} |\n" for kind, resources in rows.items() if resources)


def _links_in_proto() -> str:
    lines = []
    for figure in LINK_FIGURES.values():
        kind = {int: "", float: "Double: "}.get(figure.kind, f"Numbers of {figure.kind.__name__}: ")
        comment = kind + figure.uses.meaning + ("; may be unknown" if figure.is_optional else "")
        lines += [f"  // {comment[0].upper()}{comment[1:]}.", f"  bytes {figure.name} = {figure.number};"]
    return "".join(f"{line}\n" for line in lines)


def _metrics_of_links() -> str:
    first, *others = dict.fromkeys(
        figure.uses.metric for figure in LINK_FIGURES.values() if figure.uses.metric and not figure.uses.statistic
    )
    return f"`millrace_link_{first}`" + "".join(f", `_{name}`" for name in others)


def _alternatives(names: Iterable[str]) -> str:
    """Return names as a page lists them: `a`, `b` or `c`."""
    *rest, last = [f"`{name}`" for name in names]
    return f"{', '.join(rest)} or {last}" if rest else last


TABLES = (
    DerivedTable(
        "p4/shared/drop_reasons.p4", r"(?P<table>(?:^const drop_reason_t DROP_\w+ = \d+;\n)+)", _reasons_in_p4
    ),
    DerivedTable(
        "dataplane/scapy/telemetry_report.py", r"^DROP_REASONS = \{\n(?P<table>(?:    .*\n)+)\}", _reasons_in_scapy
    ),
    DerivedTable(
        "deploy/wireshark/millrace.lua", r"^local DROP_REASONS = \{\n(?P<table>(?:  .*\n)+)\}", _reasons_in_lua
    ),
    DerivedTable(
        "docs/network/int.md",
        r"^\| reason \| dropped packets \|\n\| --- \| --- \|\n(?P<table>(?:\|.*\n)*)",
        _reasons_in_page,
    ),
    DerivedTable(
        "collectors/feed/links.proto",
        r"^message Links \{\n  LinkKeys links = 1;\n(?P<table>(?:  .*\n)+)\}",
        _links_in_proto,
    ),
    DerivedTable(
        "docs/network/metrics.md",
        r"^\| (?P<table>`millrace_link_\w+`(?:, `_\w+`)+) \| `src`, `dst` \| as in \[telemetry",
        _metrics_of_links,
    ),
    DerivedTable(
        "docs/network/tcp.md",
        r"^\| `congestion` \| `cubic` \| (?P<table>.*) \|\n",
        lambda: _alternatives(Congestion),
    ),
    DerivedTable(
        "docs/cluster/kubernetes.md",
        r"^\| kind \| resources \|\n\| --- \| --- \|\n(?P<table>(?:\|.*\n)*)",
        _resources_of_kinds,
    ),
    DerivedTable(
        "docs/cluster/pods.md",
        r"^\| `devices` \| a list: `kind` \((?P<table>.*?)\)",
        lambda: ", ".join(kind for kind in DeviceKind if kind is not DeviceKind.CPU),
    ),
    DerivedTable(
        "topologies/README.md",
        r"^\| `devices` \| a list: `kind` \((?P<table>.*?): an accelerator that is none of these\)",
        lambda: ", ".join(DeviceKind),
    ),
    DerivedTable("controller/apps/cli/completion/commands.txt", r"\A(?P<table>[^\0]*)\Z", completion_table),
)


def main() -> None:
    """Write every table; print the files that changed."""
    for table in TABLES:
        path = ROOT / table.path
        before = path.read_text(encoding="utf-8")
        after = table.updated(before)
        if after != before:
            path.write_text(after, encoding="utf-8")
            print(table.path)


if __name__ == "__main__":
    main()
