"""Scipy's functions as operators: each as a whole, whatever it does inside.

Iterative solvers (`scipy.sparse.linalg.cg`, `scipy.optimize`, ...) are excluded: their products are recorded instead.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import wraps
from types import ModuleType
from typing import Any, Final

import numpy as np

from controller.cluster.operators.tracing.arrays import Describe, observed
from controller.cluster.operators.tracing.describing import scipy_calls
from controller.cluster.operators.tracing.instruments.replacing import Replacements

_DIRECT: Final = ("spsolve", "splu", "spilu", "factorized", "inv", "spsolve_triangular")


def _wrapped(original: Callable[..., Any], describe: Describe) -> Callable[..., Any]:
    @wraps(original)
    def whole(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return observed(original, args, kwargs, describe, library="scipy")

    return whole


def _functions(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """Return a module's public functions, without classes and modules."""
    names = getattr(module, "__all__", None) or [name for name in dir(module) if not name.startswith("_")]
    members = {name: getattr(module, name, None) for name in names}
    return {name: member for name, member in members.items() if callable(member) and not isinstance(member, type)}


def _replace_all(replacements: Replacements, module: ModuleType, describe: Callable[[str], Describe | None]) -> None:
    for name, function in _functions(module).items():
        if not isinstance(function, np.ufunc) and (how := describe(name)) is not None:
            replacements.replace(module, name, _wrapped(function, how))


def _replace_sparse(replacements: Replacements, module: ModuleType) -> None:
    owners = {owner for kind in ("csr_array", "csr_matrix") for owner in getattr(module, kind).__mro__}
    for owner in owners:
        for name in ("__matmul__", "__rmatmul__", "dot", "__mul__", "__rmul__"):
            if name in vars(owner) and owner is not object:
                original = vars(owner)[name]
                describe = (
                    scipy_calls.sparse_product if name in {"__matmul__", "dot"} else scipy_calls.by_operator(name)
                )
                replacements.replace(owner, name, _wrapped(original, describe))


def _replace_blas(replacements: Replacements, module: ModuleType) -> None:
    for name in dir(module):
        if name[:1] in "sdcz" and (how := scipy_calls.blas(name)) is not None:
            replacements.replace(module, name, _wrapped(getattr(module, name), how))


def _replace_direct(replacements: Replacements, module: ModuleType) -> None:
    for name in _DIRECT:
        replacements.replace(module, name, _wrapped(getattr(module, name), scipy_calls.sparse_solving))


_MODULES: Final[Mapping[str, Callable[[Replacements, ModuleType], None]]] = {
    "scipy.linalg": lambda replacements, module: _replace_all(replacements, module, scipy_calls.linalg),
    "scipy.linalg.blas": _replace_blas,
    "scipy.fft": lambda replacements, module: _replace_all(replacements, module, scipy_calls.fft),
    "scipy.signal": lambda replacements, module: _replace_all(replacements, module, scipy_calls.signal),
    "scipy.ndimage": lambda replacements, module: _replace_all(replacements, module, scipy_calls.ndimage),
    "scipy.sparse": _replace_sparse,
    "scipy.sparse.linalg": _replace_direct,
}


def replacing(replacements: Replacements) -> Callable[[], None]:
    """Return a function that replaces the functions of scipy modules imported since."""
    waiting = dict(_MODULES)

    def refresh() -> None:
        for name in tuple(waiting):
            module = sys.modules.get(name)
            if module is not None and not is_initialising(module):
                waiting.pop(name)(replacements, module)

    return refresh


def is_initialising(module: ModuleType) -> bool:
    """Return whether a module is still being imported."""
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))
