"""Facts about prose in code that a program can count: docstrings' opening words, lengths of tests' names."""

from __future__ import annotations

import ast
import io
import itertools
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import lru_cache

_FOR_TOOLS = re.compile(r"#\s*(noqa|type:|pragma|mypy|fmt|ruff)")
_HEADLESS = re.compile(r"(What|How|Which|Who|Whose|Whether|Where|When|Why|Of)\b")


@lru_cache(maxsize=1)
def _parsed(source: str) -> ast.Module:
    """Return a module's syntax tree, kept for the next question about the same source."""
    return ast.parse(source)


def docstrings_in(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring of a module, those below attributes included."""
    for node in ast.walk(_parsed(source)):
        body = getattr(node, "body", None)
        if not isinstance(body, list) or not body:
            continue
        candidates = [after for before, after in itertools.pairwise(body) if _is_attribute(before)]
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            candidates.insert(0, body[0])
        for candidate in candidates:
            if (
                isinstance(candidate, ast.Expr)
                and isinstance(candidate.value, ast.Constant)
                and isinstance(candidate.value.value, str)
            ):
                yield candidate.lineno, candidate.value.value.strip()


def headless_in(source: str) -> list[int]:
    """Return the lines of docstrings that open with a question word in place of a noun or a verb."""
    return [line for line, text in docstrings_in(source) if _HEADLESS.match(text)]


def comments_in(source: str) -> int:
    """Return the number of comments for people: those that only address a tool do not count."""
    if "#" not in source:
        return 0  # tokenizing a file takes far longer
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return sum(token.type == tokenize.COMMENT and not _FOR_TOOLS.match(token.string) for token in tokens)


def comments_per_1000_lines(sources: Iterable[str]) -> float:
    """Return the comments for people per 1,000 lines of all sources together, 0 without a line."""
    comments = lines = 0
    for source in sources:
        comments += comments_in(source)
        lines += source.count("\n")
    return 1000 * comments / max(lines, 1)


def long_test_names_in(source: str, most: int = 60) -> list[str]:
    """Return the names of tests that are longer than `most`."""
    functions = (node for node in ast.walk(_parsed(source)) if isinstance(node, ast.FunctionDef))
    return [function.name for function in functions if function.name.startswith("test_") and len(function.name) > most]


def _is_attribute(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign | ast.AnnAssign)
