"""Facts about prose in code that a program can count: docstrings' opening words, lengths of tests' names."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator

_HEADLESS = re.compile(r"(What|How|Which|Who|Whose|Whether|Where|When|Why|Of)\b")


def docstrings_in(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring of a module, those below attributes included."""
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        if not isinstance(body, list) or not body:
            continue
        candidates = [after for before, after in itertools.pairwise(body) if _is_attribute(before)]
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            candidates.insert(0, body[0])
        for one in candidates:
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
                yield one.lineno, one.value.value.strip()


def headless_in(source: str) -> list[int]:
    """Return the lines of docstrings that open with a question word in place of a noun or a verb."""
    return [line for line, text in docstrings_in(source) if _HEADLESS.match(text)]


def long_test_names_in(source: str, most: int = 60) -> list[str]:
    """Return the names of tests that are longer than `most`."""
    functions = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))
    return [one.name for one in functions if one.name.startswith("test_") and len(one.name) > most]


def _is_attribute(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign | ast.AnnAssign)
