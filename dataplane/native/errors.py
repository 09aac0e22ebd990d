"""Errors of kernels, all raised before a kernel runs.

MillraceError
└── NativeError            a kernel breaks a rule of the language, or cannot be compiled; the text names file and line
"""

from __future__ import annotations

from dataplane.errors import MillraceError


class NativeError(MillraceError):
    """A kernel, a struct or a module of them is invalid; the text names file and line if known."""

    def __init__(self, problem: str, *, file: str | None = None, line: int | None = None) -> None:
        self.problem, self.file, self.line = problem, file, line
        where = "" if file is None else f"{file}: " if line is None else f"{file}:{line}: "
        super().__init__(f"{where}{problem}")
