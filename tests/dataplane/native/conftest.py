"""Kernels from text."""

from __future__ import annotations

import itertools
import linecache
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import dataplane.native
from dataplane.native import Kernel

_numbers = itertools.count()


def functions_of(text: str, **names: object) -> dict[str, Any]:
    """Return what a file of this text would define; it may use all of dataplane.native."""
    module = ModuleType(f"kernels_{next(_numbers)}")
    file = f"<{module.__name__}>"
    whole = f"from __future__ import annotations\n{text}"
    linecache.cache[file] = (len(whole), None, whole.splitlines(keepends=True), file)
    sys.modules[module.__name__] = module
    scope = vars(module)
    scope.update({name: getattr(dataplane.native, name) for name in dataplane.native.__all__} | names)
    exec(compile(whole, file, "exec"), scope)
    return scope


@pytest.fixture(scope="session")
def kernels_in() -> Callable[..., dict[str, Any]]:
    return functions_of


@pytest.fixture(scope="session")
def kernel_in() -> Callable[..., Kernel[..., int]]:
    """Return a function that makes the kernel `f` from a text that defines it."""

    def make(text: str, **names: object) -> Kernel[..., int]:
        made: Kernel[..., int] = functions_of(text, **names)["f"]
        return made

    return make
