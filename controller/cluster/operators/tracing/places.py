"""Places of operators in a program, and which code is the user's own."""

from __future__ import annotations

import site
import sys
import sysconfig
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Final, NamedTuple

_OWN: Final = str(Path(__file__).parent)
_LIBRARIES: Final = tuple(
    {
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *site.getsitepackages(),
        site.getusersitepackages(),
        str(Path(sys.base_prefix) / "lib"),
    }
)
_PROMPTS: Final = ("<stdin>", "<ipython", "<doctest")
_PLUMBING: Final = ("numpy", "torch")
"""Packages whose own frames do not identify an operator's place."""


class Place(NamedTuple):
    """An instruction of the user's code, and the one of a library below that does the work; `label` is for people."""

    user: tuple[CodeType | None, int]
    inner: tuple[CodeType | None, int]
    label: str

    @property
    def is_assembly(self) -> bool:
        """True if a library assembles a sparse matrix there, whose many small steps are not operators."""
        return self.inner[0] is not None and "/scipy/sparse/_" in self.inner[0].co_filename


@cache
def is_user_code(filename: str) -> bool:
    """Return whether a file belongs to the program itself: not to Python, an installed package, or the tracer."""
    # Code that libraries generate has a name in brackets, as does code typed at a prompt.
    if filename.startswith("<"):
        return filename.startswith(_PROMPTS)
    return not filename.startswith((_OWN, *_LIBRARIES))


@cache
def is_traced_inside(filename: str) -> bool:
    """Return whether arrays created in a file are traced: the user's code, and solvers that call back into it."""
    return is_user_code(filename) or "/scipy/" in filename


@cache
def _is_plumbing(filename: str) -> bool:
    if filename.startswith(("<__array_function__", _OWN)):
        return True
    return any(f"/{package}/" in filename for package in _PLUMBING) and not is_user_code(filename)


def place_of(frame: FrameType | None) -> Place:
    """Return the place of a frame, searching outwards."""
    inner: FrameType | None = None
    while frame is not None:
        filename = frame.f_code.co_filename
        if inner is None and not _is_plumbing(filename):
            inner = frame
        if is_user_code(filename):
            break
        frame = frame.f_back
    if inner is None:
        return Place((None, 0), (None, 0), "")
    user = inner if frame is None else frame
    label = f"{Path(user.f_code.co_filename).name}:{user.f_lineno}"
    return Place((user.f_code, user.f_lasti), (inner.f_code, inner.f_lasti), label)


def code_name(code: CodeType) -> str:
    """Return a function's name and location for people."""
    return f"{code.co_qualname} ({Path(code.co_filename).name}:{code.co_firstlineno})"
