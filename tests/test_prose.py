"""Prose in the code stays as plain as it has become (CONTRIBUTING.md, "How the code reads")."""

from __future__ import annotations

from pathlib import Path

from tests.prose import comments_in, comments_per_1000_lines, headless_in, long_test_names_in

ROOT = Path(__file__).parents[1]
PACKAGES = ("dataplane", "collectors", "controller", "topologies")
PRODUCT = (*PACKAGES, "p4")
LEAST_COMMENTS = 8
"""Comments per 1,000 lines of the product: fewer leave surprising lines unexplained."""
HEADLESS_IN_TESTS = 0
"""Docstrings of tests that open with a question word; lower it with each that goes."""
LONG_NAMES = 0
"""Tests whose names have more than 60 characters; lower it with each that goes."""

SOURCE = '''
"""What a module has."""

LIMIT = 3
"""How many."""


class Feed:
    """Settings of the feed."""

    size: int = 1
    """Of it."""


def test_whoever_has_asked_for_more_than_there_is_gets_what_there_is() -> None:
    """Whether that holds is looked at."""
'''


def test_docstrings_open_with_a_noun_or_a_verb() -> None:
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    faults = [f"{path.relative_to(ROOT)}:{line}" for path in files for line in headless_in(path.read_text("utf-8"))]
    assert faults == []


def test_prose_of_tests_does_not_get_worse() -> None:
    headless = long_names = 0
    for path in (ROOT / "tests").rglob("*.py"):
        source = path.read_text("utf-8")
        headless += len(headless_in(source))
        long_names += len(long_test_names_in(source))
    assert headless <= HEADLESS_IN_TESTS
    assert long_names <= LONG_NAMES


def test_product_code_says_why() -> None:
    files = (path for package in PRODUCT for path in (ROOT / package).rglob("*.py"))
    assert comments_per_1000_lines(path.read_text("utf-8") for path in files) >= LEAST_COMMENTS


def test_comments_for_tools_do_not_count() -> None:
    source = 'A = "# no comment"  # noqa: E501\n# Bounded, as senders choose it.\nB = 1  # fmt: skip\n'
    assert comments_in(source) == 1
    assert comments_per_1000_lines([source, "C = 2\n"]) == 250
    assert comments_per_1000_lines([]) == 0


def test_faults_of_prose_are_found() -> None:
    assert headless_in(SOURCE) == [2, 5, 12, 16]
    assert long_test_names_in(SOURCE) == ["test_whoever_has_asked_for_more_than_there_is_gets_what_there_is"]
