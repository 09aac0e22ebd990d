"""Benchmarks in parts: some of them run, figures of the others are null, and the last line is one of JSON."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dataplane.errors import MillraceError

Figures = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Part:
    """A module below tests.benchmarks, whose `measure(quick=...)` returns figures, and the names of these.

    `root` is what needs root, if something does.
    `of` is the first argument of `measure`, if a module has several parts.
    """

    module: str
    names: tuple[str, ...]
    root: str = ""
    of: str = ""


class IncompleteError(MillraceError):
    """A part that failed partly, with the figures that exist."""

    def __init__(self, why: str, figures: Figures) -> None:
        super().__init__(why)
        self.figures = figures


def names_of(parts: Mapping[str, Part]) -> tuple[str, ...]:
    """Return the names of all figures."""
    return tuple(name for part in parts.values() for name in part.names)


def figures_of(name: str, part: Part, *, quick: bool) -> Figures:
    """Return a part's figures; None for each where it is not here, or needs root and has not."""
    module = f"tests.benchmarks.{part.module}"
    if importlib.util.find_spec(module) is None:
        sys.stderr.write(f"{name}: {module} is not here\n")
        return dict.fromkeys(part.names)
    if part.root and os.geteuid() != 0:
        sys.stderr.write(f"{name}: {part.root} need root\n")
        return dict.fromkeys(part.names)
    told = (part.of,) if part.of else ()
    figures: Figures = importlib.import_module(module).measure(*told, quick=quick)
    return {key: figures.get(key) for key in part.names}


def run(
    about: str | None, parts: Mapping[str, Part], quick: str, together: Callable[[Figures], Figures] = lambda _: {}
) -> int:
    """Measure as the command line says, and print one line of JSON after the parts' tables; return 1 if one failed.

    `about` and `quick` are what the command's help says of the benchmark and of its short form; `together` makes
    figures of those of several parts.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--only", "--part", action="append", choices=list(parts), help="some parts")
    parser.add_argument("--skip", action="append", default=[], choices=list(parts))
    options = parser.parse_args()
    began_s, failed = time.monotonic(), False
    result: dict[str, float | None] = dict.fromkeys(names_of(parts))
    for name in options.only or parts:
        if name in options.skip:
            continue
        try:
            result |= figures_of(name, parts[name], quick=options.quick)
        except MillraceError as error:
            failed = True
            sys.stderr.write(f"{name}: {error}\n")
            if isinstance(error, IncompleteError):
                result |= error.figures
    result |= together(result)
    sys.stdout.write(f"took {time.monotonic() - began_s:.0f} s\n{json.dumps(result)}\n")
    return int(failed)
