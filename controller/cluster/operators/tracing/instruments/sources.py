"""Sources of arrays without traced inputs: numpy's constructors, random numbers, files.

While a program is traced they are replaced, in numpy's namespaces and in the program's own modules that imported them
by name; each replacement calls the original and returns its result as a traced array.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.random import Generator, RandomState

from controller.cluster.operators.tracing.arrays import observed
from controller.cluster.operators.tracing.describing.formats import described, numbers
from controller.cluster.operators.tracing.instruments.replacing import Replacements
from controller.cluster.operators.tracing.places import is_traced_inside
from controller.cluster.operators.tracing.values import Described

_MAKING: Final = (
    *("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "require", "copy"),
    *("zeros", "ones", "empty", "full", "arange", "linspace", "logspace", "geomspace", "eye", "identity", "tri"),
    *("fromfunction", "fromiter", "frombuffer", "fromstring", "indices", "meshgrid", "atleast_1d", "atleast_2d"),
    *("hanning", "hamming", "blackman", "bartlett", "kaiser", "vander", "diag", "triu_indices", "tril_indices"),
)
_READING: Final = ("load", "loadtxt", "genfromtxt", "fromfile")
_WRITING: Final = ("save", "savetxt", "savez", "savez_compressed")
_NOT_RANDOM: Final = frozenset({"seed", "get_state", "set_state", "default_rng", "get_bit_generator"})
Function = Callable[..., Any]


def replace_sources(replacements: Replacements) -> None:
    """Make numpy's constructors return traced arrays."""
    for name in _MAKING:
        replacements.replace(np, name, _followed(getattr(np, name), _nothing))
    for name in _READING:
        replacements.replace(np, name, _followed(getattr(np, name), _read))
    for name in _WRITING:
        replacements.replace(np, name, _followed(getattr(np, name), _written))
    for name, function in _random_functions(np.random):
        replacements.replace(np.random, name, _followed(function, _random))
    replacements.replace(np.random, "default_rng", _generator_maker(np.random.default_rng))
    for kind, following in ((Generator, _Generator), (RandomState, _RandomState)):
        replacements.replace(np.random, kind.__name__, following)


def _followed(original: Function, describe: Callable[..., Described | None]) -> Function:
    @wraps(original)
    def followed(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if not is_traced_inside(sys._getframe(1).f_code.co_filename):  # noqa: SLF001 - the caller
            return original(*args, **kwargs)
        return observed(original, args, kwargs, describe)

    return followed


def _random_functions(owner: ModuleType | type) -> Iterator[tuple[str, Function]]:
    for name in dir(owner):
        function = getattr(owner, name)
        if (
            not name.startswith("_")
            and name not in _NOT_RANDOM
            and callable(function)
            and not isinstance(function, type)
        ):
            yield name, function


def _nothing(args: tuple[Any, ...], _: dict[str, Any], __: Any) -> None:  # noqa: ANN401
    """Describe a call without notable computation."""


def _random(args: tuple[Any, ...], _: dict[str, Any], result: Any) -> Described | None:  # noqa: ANN401, ARG001
    if not isinstance(result, np.ndarray) or result.size == 0:
        return None
    return described("random-numbers", result.dtype, n=numbers(result.shape, result.dtype))


def _read(args: tuple[Any, ...], _: dict[str, Any], result: Any) -> Described | None:  # noqa: ANN401, ARG001
    nbytes = getattr(result, "nbytes", 0)
    return Described("bulk-io", (("nbytes", nbytes),), None) if nbytes else None


def _written(args: tuple[Any, ...], _: dict[str, Any], __: Any) -> Described | None:  # noqa: ANN401
    file = args[0] if args else None
    if not isinstance(file, str | Path):
        return None
    path = next(
        (candidate for candidate in (Path(file), Path(f"{file}.npy"), Path(f"{file}.npz")) if candidate.is_file()), None
    )
    return None if path is None else Described("bulk-io", (("nbytes", path.stat().st_size),), None)


def _generator_maker(original: Function) -> Function:
    @wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        generator = original(*args, **kwargs)
        return _Generator(generator.bit_generator) if type(generator) is Generator else generator

    return make


class _AnyGenerator(type):
    """Existing generators count as instances of the class, too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Generator)


class _AnyState(type):
    """Existing random states count as instances of the class, too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, RandomState)


class _Generator(Generator, metaclass=_AnyGenerator):
    """A generator over the same bits whose arrays are traced."""


class _RandomState(RandomState, metaclass=_AnyState):
    """A random state whose arrays are traced."""


for _kind, _plain in ((_Generator, Generator), (_RandomState, RandomState)):
    _kind.__name__ = _kind.__qualname__ = _plain.__name__
    for _name, _function in _random_functions(_plain):
        if _name not in {"bit_generator", "spawn", "tomaxint", "bytes"}:
            setattr(_kind, _name, _followed(_function, _random))
