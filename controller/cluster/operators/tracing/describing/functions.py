"""Descriptions of numpy's functions, methods and operators as operator kinds with sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np

from controller.cluster.operators.tracing.describing.formats import described, numbers, word
from controller.cluster.operators.tracing.describing.products import einsum, product, tensordot
from controller.cluster.operators.tracing.describing.transforms import LINALG, fourier
from controller.cluster.operators.tracing.values import Described

Describe = Callable[[tuple[Any, ...], dict[str, Any], Any], Described | None]

BINARY: Final = (
    *("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow"),
    *("and", "or", "xor", "lshift", "rshift"),
)
COMPARING: Final = ("lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "abs", "invert")
CHANGING: Final = frozenset({"sort", "fill", "put", "partition", "itemset"})
"""Methods that change their array in place and return nothing."""
_REDUCING: Final = (
    *("sum", "prod", "mean", "std", "var", "min", "max", "argmin", "argmax", "any", "all", "trace", "ptp"),
    *("median", "nansum", "nanmean", "nanmin", "nanmax", "nanstd", "nanvar", "average", "count_nonzero", "norm"),
    *("amin", "amax", "percentile", "quantile", "allclose", "array_equal", "isclose"),
)
_SCANNING: Final = ("cumsum", "cumprod", "nancumsum", "cumulative_sum", "diff", "ediff1d", "trapezoid", "gradient")
_MOVING: Final = (
    *("copy", "astype", "take_along_axis", "concatenate", "stack", "vstack", "hstack", "dstack", "column_stack"),
    *("block", "tile", "repeat", "roll", "flip", "rot90", "pad", "flatten", "ravel", "reshape", "transpose", "resize"),
    *("compress", "extract", "delete", "insert", "append", "byteswap", "diagonal", "diag", "tril", "triu", "copyto"),
    *("meshgrid", "broadcast_to", "split", "array_split", "fill", "fill_diagonal", "swapaxes", "moveaxis", "squeeze"),
)
_EACH: Final = (
    *("where", "clip", "round", "around", "real", "imag", "conj", "conjugate", "angle", "nan_to_num", "select"),
    *("outer", "kron", "cross", "isin", "digitize", "fix", "unwrap", "real_if_close", "i0"),
)
_SORTING: Final = ("sort", "argsort", "unique", "lexsort", "sort_complex")
_GATHERING: Final = ("take", "choose")
_SCATTERING: Final = ("put", "put_along_axis", "place", "putmask")
METHODS: Final = (
    *("sum", "prod", "mean", "std", "var", "min", "max", "argmin", "argmax", "any", "all", "trace"),
    *("cumsum", "cumprod", "copy", "astype", "repeat", "flatten", "ravel", "reshape", "compress", "byteswap", "fill"),
    *("clip", "round", "conj", "conjugate", "sort", "argsort", "partition", "argpartition", "take", "choose", "put"),
    *("dot", "nonzero", "searchsorted"),
)
_TRANSCENDENTAL: Final = frozenset({
    *("sin", "cos", "tan", "arcsin", "arccos", "arctan", "arctan2", "sinh", "cosh", "tanh"),
    *("arcsinh", "arccosh", "arctanh", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p"),
    *("logaddexp", "logaddexp2", "hypot", "cbrt", "power", "float_power", "sinc"),
})  # fmt: skip
_OPERATORS: Final = {
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "power",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "neg": "negative",
}
_PRODUCTS: Final = frozenset({"matmul", "dot", "vdot", "inner", "vecdot", "matvec", "vecmat"})
_EASY_POWERS: Final = frozenset({-1, 0, 0.5, 1, 2})
"""Exponents with short cuts in numpy; others are logarithms and exponentials."""


@cache
def of_ufunc(ufunc: np.ufunc, method: str) -> Describe:
    """Return a function that describes calls of a universal function."""
    name = ufunc.__name__
    if name in _PRODUCTS and method == "__call__":
        return lambda args, _, result: product(name, args[0], args[1], result)
    if method in {"reduce", "reduceat"}:
        return _reducing
    if method == "accumulate":
        return _scanning
    if method == "at":
        return of_scatter
    if name in _TRANSCENDENTAL or ufunc.__class__ is not np.ufunc or _is_special(ufunc):
        return _evaluating if name not in {"power", "float_power"} else _powers
    return _each


def _is_special(ufunc: np.ufunc) -> bool:
    """Return whether a universal function comes from scipy.special: those are series and fractions."""
    return getattr(np, ufunc.__name__, None) is not ufunc


@cache
def of_operator(name: str) -> Describe:
    """Return a function that describes calls of an operator such as `__iadd__`."""
    short = name.strip("_")
    # `__iadd__` computes what `__add__` does.
    if short[:1] == "i" and short[1:] in BINARY:
        short = short[1:]
    ufunc = _OPERATORS.get(short, short)
    if ufunc == "matmul":
        return lambda args, _, result: product(ufunc, args[0], args[1], result)
    return _powers if ufunc == "power" else _each


@cache
def of_method(name: str) -> Describe:
    """Return a function that describes calls of an array method."""
    return _by_name(name)


@cache
def of_function(function: Callable[..., Any]) -> Describe:
    """Return a function that describes calls of a numpy function."""
    module = getattr(function, "__module__", "") or ""
    name = getattr(function, "__name__", "function")
    if module.startswith("numpy.fft"):
        return lambda args, kwargs, result: fourier(name, args, kwargs, result)
    if module.startswith("numpy.linalg") and name in LINALG:
        return LINALG[name]
    if name in {"einsum", "tensordot"}:
        describe = einsum if name == "einsum" else tensordot
        return lambda args, kwargs, result: (
            describe(args, kwargs, result) or _other(f"numpy-{name}")(args, kwargs, result)
        )
    return _by_name(name)


def _by_name(name: str) -> Describe:
    if name in _PRODUCTS:
        return lambda args, _, result: product(name, args[0], args[1], result)
    if name in {"convolve", "correlate"}:
        return _convolving
    for names, describe in _FAMILIES:
        if name in names:
            return describe
    return _nothing if name in _FREE else _other(f"numpy-{name}")


def is_basic(key: Any) -> bool:  # noqa: ANN401
    """Return whether an index selects a view: only numbers, slices, ... and new axes."""
    parts = key if type(key) is tuple else (key,)
    return all(part is None or part is Ellipsis or isinstance(part, int | np.integer | slice) for part in parts)


def of_gather(args: tuple[Any, ...], _: dict[str, Any], result: Any) -> Described | None:  # noqa: ANN401
    """Describe reads of numbers at places given by an array of indices or booleans."""
    if is_basic(args[1]) or not isinstance(result, np.ndarray):
        return None
    return described("random-access", _WORDS, words=_words(args[0]), updates=_words(result))


def of_scatter(args: tuple[Any, ...], _: dict[str, Any], __: Any) -> Described | None:  # noqa: ANN401
    """Describe writes of numbers at indexed places, or one after the other."""
    array, key = args[0], args[1]
    if is_basic(key):
        written = array[key]
        return described("copy", array.dtype, n=numbers(np.shape(written), array.dtype))
    touched = np.size(array[key])
    return described("random-access", _WORDS, words=_words(array), updates=max(touched, 1))


_WORDS: Final = np.dtype(np.int64)


def _words(array: Any) -> int:  # noqa: ANN401
    return max(math.ceil(np.asarray(array).nbytes / 8), 1)


def _first(args: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    """Return the largest array among the arguments."""
    arrays = [leaf for leaf in _flat(args) if isinstance(leaf, np.ndarray)]
    return max(arrays, key=lambda array: array.size) if arrays else np.asarray(args[0] if args else 0)


def _flat(args: Any) -> list[Any]:  # noqa: ANN401
    return [
        leaf for argument in args for leaf in (_flat(argument) if isinstance(argument, tuple | list) else [argument])
    ]


def _each(args: tuple[Any, ...], _: dict[str, Any], result: Any) -> Described | None:  # noqa: ANN401
    array = result[0] if isinstance(result, tuple) else result
    if array is NotImplemented or not isinstance(array, np.ndarray) or array.size == 0:
        return None
    operands = sum(isinstance(argument, np.ndarray) and argument.size > 1 for argument in args)
    # A comparison's booleans do not tell how wide its operands are.
    wide = array if array.dtype.kind != "b" else _first(args)
    return described("elementwise", wide.dtype, n=numbers(array.shape, wide.dtype), operands=max(operands, 1))


def _evaluating(args: tuple[Any, ...], _: dict[str, Any], result: Any) -> Described | None:  # noqa: ANN401, ARG001
    array = result[0] if isinstance(result, tuple) else result
    if not isinstance(array, np.ndarray) or array.size == 0:
        return None
    return described("trigonometric", array.dtype, n=numbers(array.shape, array.dtype))


def _powers(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Described | None:  # noqa: ANN401
    exponent = args[1]
    easy = isinstance(exponent, int | float | np.generic) and exponent in _EASY_POWERS
    return _each(args, kwargs, result) if easy else _evaluating(args, kwargs, result)


def _reducing(args: tuple[Any, ...], kwargs: dict[str, Any], _: Any) -> Described | None:  # noqa: ANN401, ARG001
    array = _first(args)
    return described("reduction", array.dtype, n=numbers(array.shape, array.dtype)) if array.size else None


def _scanning(args: tuple[Any, ...], kwargs: dict[str, Any], _: Any) -> Described | None:  # noqa: ANN401, ARG001
    array = _first(args)
    return described("scan", array.dtype, n=numbers(array.shape, array.dtype)) if array.size else None


def _moving(args: tuple[Any, ...], _: dict[str, Any], result: Any) -> Described | None:  # noqa: ANN401
    array = result if isinstance(result, np.ndarray) else _first(args)
    return described("copy", array.dtype, n=numbers(array.shape, array.dtype)) if array.size else None


def _sorting(args: tuple[Any, ...], kwargs: dict[str, Any], _: Any) -> Described | None:  # noqa: ANN401
    array = _first(args)
    axis = kwargs.get("axis", -1)
    # axis=None sorts the flattened array.
    rows = array.size if axis is None or array.ndim == 0 else array.shape[axis if isinstance(axis, int) else -1]
    if rows == 0 or array.size == 0:
        return None
    return described("sort", array.dtype, array.size // rows, rows=rows, row_bytes=array.itemsize)


def _convolving(args: tuple[Any, ...], _: dict[str, Any], result: Any) -> Described | None:  # noqa: ANN401, ARG001
    left, right = np.asarray(args[0]), np.asarray(args[1])
    dtype = np.result_type(left, right)
    return described("convolution", dtype, n=max(left.size, right.size), taps=min(left.size, right.size))


def _gathering(args: tuple[Any, ...], _: dict[str, Any], result: Any) -> Described | None:  # noqa: ANN401
    return described("random-access", _WORDS, words=_words(args[0]), updates=_words(result))


def _putting(args: tuple[Any, ...], _: dict[str, Any], __: Any) -> Described | None:  # noqa: ANN401
    return described("random-access", _WORDS, words=_words(args[0]), updates=max(np.size(args[1]), 1))


def _nothing(args: tuple[Any, ...], _: dict[str, Any], __: Any) -> None:  # noqa: ANN401
    """Describe a call without notable computation."""


@cache
def _other(name: str) -> Describe:
    def describe(args: tuple[Any, ...], _: dict[str, Any], result: Any) -> Described | None:  # noqa: ANN401
        array = result if isinstance(result, np.ndarray) and not args else _first(args)
        return described(word(name), array.dtype, n=numbers(array.shape, array.dtype))

    return describe


_FREE: Final = frozenset({
    *("shape", "ndim", "size", "array", "asarray", "asanyarray", "zeros_like", "ones_like", "empty_like", "full_like"),
    *("result_type", "can_cast", "common_type", "may_share_memory", "shares_memory", "iscomplexobj", "isrealobj"),
    *("array_repr", "array_str", "array2string", "min_scalar_type", "atleast_1d", "atleast_2d", "atleast_3d"),
    *("expand_dims", "ascontiguousarray", "asfortranarray", "view", "broadcast_arrays", "require", "isscalar"),
})  # fmt: skip
_FAMILIES: Final = (
    (frozenset(_REDUCING), _reducing),
    (frozenset(_SCANNING), _scanning),
    (frozenset(_SORTING), _sorting),
    (frozenset(_EACH), _each),
    (frozenset(_MOVING), _moving),
    (frozenset(_GATHERING), _gathering),
    (frozenset(_SCATTERING), _putting),
)
