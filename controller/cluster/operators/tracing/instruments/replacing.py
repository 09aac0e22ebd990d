"""Replacement of names in modules while a program is traced."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from controller.cluster.operators.tracing.places import is_user_code


class Replacements:
    """Replaced names of modules, to be restored by `restore`."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self.by_original: dict[int, tuple[Any, Any]] = {}

    def replace(self, owner: Any, name: str, new: Any) -> None:  # noqa: ANN401 - a module or a class
        """Replace an attribute."""
        old = getattr(owner, name)
        is_own = name in vars(owner)
        setattr(owner, name, new)
        self._undo.append(lambda: setattr(owner, name, old) if is_own else delattr(owner, name))
        self.by_original[id(old)] = (old, new)

    def rebind(self) -> None:
        """Replace names that the program's modules imported directly, too."""
        for module in tuple(sys.modules.values()):
            if not is_user_code(getattr(module, "__file__", None) or "<frozen"):
                continue
            for name, value in tuple(vars(module).items()):
                replaced = self.by_original.get(id(value))
                if replaced is not None and replaced[0] is value:
                    self.replace(module, name, replaced[1])

    def restore(self) -> None:
        """Restore all names, also in modules of the program imported meanwhile."""
        originals = {id(new): old for old, new in self.by_original.values()}
        while self._undo:
            self._undo.pop()()
        for module in tuple(sys.modules.values()):
            if is_user_code(getattr(module, "__file__", None) or "<frozen"):
                for name, value in tuple(vars(module).items()):
                    if id(value) in originals:
                        setattr(module, name, originals[id(value)])
