"""The commands of every page exactly as written, in separate namespaces (tests/soak/pages)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.shell_blocks import PAGES, ROOT
from tests.soak.pages.sandbox import LACKING, has_blocks, run_page

pytestmark = [pytest.mark.slow, pytest.mark.root, pytest.mark.timeout(3600)]


def _trains_by_the_switch(output: str) -> None:
    # Lines of workers that end at the same time may stand in one.
    losses = dict(re.findall(r"(h\d): by the switch; loss (\de[-+]\d+)", output))
    assert sorted(losses) == ["h1", "h2", "h3", "h4"], output
    assert all(float(loss) < 1e-3 for loss in losses.values()), output
    assert "job line: h1 h2 h3 h4 are members: a mean is over 4 workers" in output


def _loads_the_dissectors(output: str) -> None:
    assert "Lua: Error" not in output, output


ALSO: dict[str, Callable[[str], None]] = {
    "docs/training/allreduce.md": _trains_by_the_switch,
    "docs/network/decoders.md": _loads_the_dissectors,
}
"""Further checks on a page's transcript, for commands without output in the page."""


@pytest.mark.parametrize(
    "page", [page for page in PAGES if has_blocks(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_commands_of_a_page_do_what_it_says(page: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    done = run_page(page)
    assert done.returncode in {0, LACKING}, done.stdout
    ALSO.get(str(page.relative_to(ROOT)), str)(done.stdout)
    if done.returncode == LACKING:
        pytest.skip("; ".join(re.findall(r"^left out: it lacks (.*)$", done.stdout, re.MULTILINE)))
