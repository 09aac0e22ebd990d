"""Descriptions of torch's operations as operator kinds with sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from controller.cluster.operators.tracing.describing.formats import word
from controller.cluster.operators.tracing.values import Described
from dataplane.topology.values import NumberFormat

_FORMATS: Final = {
    "float64": NumberFormat.FP64,
    "float32": NumberFormat.FP32,
    "float16": NumberFormat.FP16,
    "bfloat16": NumberFormat.BF16,
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), NumberFormat.FP8),
    "complex64": NumberFormat.FP32,
    "complex128": NumberFormat.FP64,
    **{f"{sign}int{bits}": NumberFormat(f"int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "bool": NumberFormat.INT8,
}
_EVALUATING: Final = frozenset({
    *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "exp", "exp2", "expm1"),
    *("log", "log2", "log10", "log1p", "sigmoid", "gelu", "silu", "softplus", "mish", "erf", "erfc", "pow", "elu"),
    *("_softmax", "_log_softmax", "logsumexp", "logit", "lgamma", "digamma", "log_sigmoid_forward", "polar"),
    *("tanh_backward", "sigmoid_backward", "gelu_backward", "silu_backward", "softplus_backward", "elu_backward"),
    *("_softmax_backward_data", "_log_softmax_backward_data"),
})  # fmt: skip
_REDUCING: Final = frozenset({
    *("sum", "mean", "prod", "amax", "amin", "max", "min", "argmax", "argmin", "norm", "linalg_vector_norm", "var"),
    *("std", "var_mean", "std_mean", "any", "all", "nll_loss_forward", "mse_loss", "binary_cross_entropy", "nansum"),
    *("smooth_l1_loss", "huber_loss", "kl_div", "aminmax", "count_nonzero", "median"),
})  # fmt: skip
_MOVING: Final = frozenset({
    *("clone", "copy_", "_to_copy", "cat", "stack", "constant_pad_nd", "reflection_pad2d", "repeat", "roll", "flip"),
    *("tril", "triu", "contiguous", "permute_copy", "slice_backward", "select_backward", "im2col", "col2im"),
    *("upsample_nearest2d", "fill_", "zero_", "new_zeros", "_reshape_copy", "unfold_backward", "diag_embed"),
})  # fmt: skip
_GATHERING: Final = frozenset({
    *("embedding", "index", "gather", "index_select", "take", "embedding_dense_backward", "masked_select"),
    *("index_put", "index_put_", "_index_put_impl_", "scatter", "scatter_", "scatter_add", "scatter_add_"),
    *("index_add", "index_add_", "nll_loss_backward", "_embedding_bag"),
})  # fmt: skip
_RANDOM: Final = frozenset({
    *("randn", "rand", "randint", "randperm", "normal_", "uniform_", "bernoulli_", "bernoulli", "native_dropout"),
    *("random_", "exponential_", "multinomial", "normal", "rand_like", "randn_like", "log_normal_"),
})  # fmt: skip
_EACH: Final = frozenset({
    *("add", "sub", "mul", "div", "addcmul", "addcdiv", "lerp", "relu", "threshold_backward"),
    *("native_dropout_backward", "_fused_adam_", "_fused_adamw_", "_fused_sgd_", "hardtanh_backward"),
    *("masked_fill", "where", "clamp"),
    *("mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward", "leaky_relu", "leaky_relu_backward"),
})  # fmt: skip
_FREE: Final = frozenset({
    *("detach", "empty", "empty_like", "empty_strided", "zeros", "ones", "zeros_like", "ones_like", "full"),
    *("full_like", "lift_fresh", "scalar_tensor", "arange", "linspace", "eye", "_local_scalar_dense"),
    *("new_empty", "item", "alias"),
    *("new_empty_strided", "_record_function_enter_new", "_record_function_exit", "resize_", "set_", "tensor", "equal"),
})  # fmt: skip
_SQUARE: Final = {
    "linalg_cholesky_ex": "cholesky",
    "linalg_lu_factor_ex": "factorise",
    "_linalg_det": "factorise",
    "_linalg_slogdet": "factorise",
    "linalg_inv_ex": "inverse",
    "_linalg_eigh": "eigen",
    "linalg_eig": "eigen",
}
_TALL: Final = {"linalg_qr": "qr", "_linalg_svd": "svd"}
_SOLVING: Final = {
    "_linalg_solve_ex": "solve",
    "linalg_lu_solve": "triangular-solve",
    "linalg_solve_triangular": "triangular-solve",
    "cholesky_solve": "triangular-solve",
}


def described(kind: str, tensor: Any, count: int = 1, **sizes: int) -> Described | None:  # noqa: ANN401
    """Return an operator on numbers of a tensor's type, None for an empty one."""
    if count == 0 or 0 in sizes.values():
        return None
    name = str(tensor.dtype).removeprefix("torch.")
    shape = tuple(sorted(sizes.items()))
    if name not in _FORMATS:
        return Described(word(f"{name}-{kind}"), shape, None, count)
    is_complex = name.startswith("complex") and kind in {"gemm", "gemv", "dot", *_SQUARE.values(), *_TALL.values()}
    return Described(f"complex-{kind}" if is_complex else kind, shape, _FORMATS[name], count)


def describe(
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    result: Any,  # noqa: ANN401 - whatever an operation returns
    *,
    is_each: bool,
) -> Described | None:
    """Describe an operation by its name in torch's schema; None for one without notable computation.

    `is_each` is torch's own flag for elementwise operations.
    """
    base = name if name in _KNOWN else name.removesuffix("_")
    tensors = _flat((args, kwargs))
    out = next(iter(_flat(result)), None)
    largest = max(tensors, key=_numbers, default=out)
    if base in _FREE or largest is None or max(_numbers(largest), 0 if out is None else _numbers(out)) <= 1:
        return None
    if (special := _SPECIAL.get(base)) is not None and (description := special(args, out)) is not None:
        return description
    if base in _RANDOM:
        return described("random-numbers", out if out is not None else largest, n=_numbers(out))
    for names, kind in ((_EVALUATING, "trigonometric"), (_MOVING, "copy")):
        if base in names:
            return described(kind, largest, n=_numbers(out if out is not None else largest))
    if base in _REDUCING:
        return described("reduction", largest, n=_numbers(largest))
    if base in _GATHERING:
        return _gathered(args, out)
    if base.startswith("_foreach"):
        return described("elementwise", largest, n=sum(map(_numbers, _flat(args[0]))), operands=max(_lists(args), 1))
    if base in _EACH or is_each:
        operands = sum(_numbers(tensor) > 1 for tensor in tensors)
        wide = out if out is not None and str(out.dtype) != "torch.bool" else largest
        return described("elementwise", wide, n=_numbers(wide), operands=max(operands, 1))
    return described(word(f"torch-{base}"), largest, n=_numbers(largest))


def _numbers(tensor: Any) -> int:  # noqa: ANN401
    numel: int = tensor.numel()
    return 2 * numel if str(tensor.dtype).startswith("torch.complex") else numel


def _flat(value: Any) -> list[Any]:  # noqa: ANN401
    if hasattr(value, "numel") and hasattr(value, "dtype"):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for part in value for leaf in _flat(part)] if isinstance(value, tuple | list) else []


def _lists(args: tuple[Any, ...]) -> int:
    return sum(isinstance(argument, tuple | list) and bool(_flat(argument)) for argument in args)


def _product(left: Any, right: Any) -> Described | None:  # noqa: ANN401
    if left.layout != right.layout or "sparse" in str(left.layout):
        return _sparse_product(left, right)
    count = math.prod(left.shape[:-2]) if left.dim() > 2 else 1
    m, k, n = left.shape[-2], left.shape[-1], right.shape[-1]
    if m == n == 1:
        return described("dot", left, count, n=k)
    if 1 in {m, n}:
        return described("gemv", left, count, m=m * n, n=k)
    return described("gemm", left, count, m=m, n=n, k=k)


def _sparse_product(left: Any, right: Any) -> Described | None:  # noqa: ANN401
    if "sparse" not in str(left.layout) or "sparse" in str(right.layout):
        return None
    sizes = {"rows": left.shape[0], "columns": left.shape[1], "nonzeros": left._nnz()}  # noqa: SLF001 - torch's own name
    vectors = right.shape[1] if right.dim() > 1 else 1
    return described("spmv", left, **sizes) if vectors == 1 else described("spmm", left, **sizes, vectors=vectors)


def _vector(left: Any, right: Any) -> Described | None:  # noqa: ANN401
    if "sparse" in str(left.layout):
        return _sparse_product(left, right)
    return described("gemv", left, m=left.shape[0], n=left.shape[1])


def _convolved(args: tuple[Any, ...], out: Any) -> Described | None:  # noqa: ANN401
    transposed = len(args) > 6 and bool(args[6])
    return None if transposed or out is None else _layer(args[0], args[1], tuple(out.shape), _groups(args))


def _convolved_back(args: tuple[Any, ...], _: Any) -> Described | None:  # noqa: ANN401
    """Describe the gradients of inputs and weights: each takes as many multiplications as the forward pass."""
    wanted = sum(map(bool, args[10][:2])) if len(args) > 10 else 2
    if len(args) > 7 and args[7]:
        return None
    return _layer(args[1], args[2], tuple(args[0].shape), args[9] if len(args) > 9 else 1, wanted)


def _groups(args: tuple[Any, ...]) -> int:
    groups = args[8] if len(args) > 8 else args[-1]
    return groups if isinstance(groups, int) and not isinstance(groups, bool) else 1


def _layer(inputs: Any, weights: Any, out: tuple[int, ...], groups: int, count: int = 1) -> Described | None:  # noqa: ANN401
    if inputs.dim() == 3:
        taps = weights.shape[-1] * weights.shape[1]
        return described("convolution", inputs, count, n=out[-1], taps=taps, batch=out[0] * out[1])
    if inputs.dim() != 4:
        return None
    sizes = {"batch": inputs.shape[0], "in_channels": inputs.shape[1], "out_channels": out[1]}
    sizes |= {"in_height": inputs.shape[2], "in_width": inputs.shape[3], "out_height": out[2], "out_width": out[3]}
    sizes |= {"kernel_height": weights.shape[2], "kernel_width": weights.shape[3]}
    return described("conv2d", inputs, count, **sizes, **({"groups": groups} if groups != 1 else {}))


def _gathered(args: tuple[Any, ...], out: Any) -> Described | None:  # noqa: ANN401
    table = max(_flat(args) or [out], key=lambda tensor: tensor.numel())
    words = math.ceil(table.numel() * table.element_size() / 8)
    touched = 1 if out is None else math.ceil(out.numel() * out.element_size() / 8)
    return Described("random-access", (("updates", max(touched, 1)), ("words", max(words, 1))), NumberFormat.INT64)


def _sorted(args: tuple[Any, ...], _: Any) -> Described | None:  # noqa: ANN401
    tensor = args[0]
    rows = tensor.shape[-1] if tensor.dim() else 1
    return described("sort", tensor, tensor.numel() // max(rows, 1), rows=rows, row_bytes=tensor.element_size())


def _transformed(args: tuple[Any, ...], out: Any) -> Described | None:  # noqa: ANN401
    tensor = args[0] if args[0].numel() >= out.numel() else out
    n = math.prod(tensor.shape[axis] for axis in args[1])
    is_real = not (args[0].is_complex() and out.is_complex())
    batch = tensor.numel() // n if n else 0
    return described("fft", out, n=max(n // 2, 1) if is_real else n, batch=batch)


def _attended(args: tuple[Any, ...], _: Any) -> Described | None:  # noqa: ANN401
    query, key = args[0], args[1]
    sizes = {"queries": query.shape[-2], "keys": key.shape[-2], "depth": query.shape[-1]}
    return described("attention", query, math.prod(query.shape[:-2]), **sizes)


def _squared(kind: str) -> Callable[[tuple[Any, ...], Any], Described | None]:
    return lambda args, _: described(kind, args[0], math.prod(args[0].shape[:-2]), n=args[0].shape[-1])


def _rectangular(kind: str) -> Callable[[tuple[Any, ...], Any], Described | None]:
    def of(args: tuple[Any, ...], _: Any) -> Described | None:  # noqa: ANN401
        return described(kind, args[0], math.prod(args[0].shape[:-2]), m=args[0].shape[-2], n=args[0].shape[-1])

    return of


def _solved(kind: str) -> Callable[[tuple[Any, ...], Any], Described | None]:
    def of(args: tuple[Any, ...], _: Any) -> Described | None:  # noqa: ANN401
        matrix, side = args[0], args[1]
        if kind == "triangular-solve" and matrix.shape[-1] != matrix.shape[-2]:
            matrix, side = side, matrix
        columns = side.shape[-1] if side.dim() == matrix.dim() else 1
        return described(kind, matrix, math.prod(matrix.shape[:-2]), n=matrix.shape[-1], columns=columns)

    return of


_SPECIAL: Final[dict[str, Callable[[tuple[Any, ...], Any], Described | None]]] = {
    "mm": lambda args, _: _product(args[0], args[1]),
    "bmm": lambda args, _: _product(args[0], args[1]),
    "addmm": lambda args, _: _product(args[1], args[2]),
    "baddbmm": lambda args, _: _product(args[1], args[2]),
    "_sparse_mm": lambda args, _: _product(args[0], args[1]),
    "mv": lambda args, _: _vector(args[0], args[1]),
    "addmv": lambda args, _: _vector(args[1], args[2]),
    "dot": lambda args, _: described("dot", args[0], n=args[0].numel()),
    "vdot": lambda args, _: described("dot", args[0], n=args[0].numel()),
    "convolution": _convolved,
    "_convolution": _convolved,
    "mkldnn_convolution": lambda args, out: _layer(args[0], args[1], tuple(out.shape), _groups(args)),
    "convolution_backward": _convolved_back,
    "sort": _sorted,
    "topk": _sorted,
    "argsort": _sorted,
    "_fft_c2c": _transformed,
    "_fft_r2c": _transformed,
    "_fft_c2r": _transformed,
    "_scaled_dot_product_flash_attention_for_cpu": _attended,
    "_scaled_dot_product_flash_attention": _attended,
    "_scaled_dot_product_efficient_attention": _attended,
    "cumsum": lambda args, _: described("scan", args[0], n=args[0].numel()),
    **{name: _squared(kind) for name, kind in _SQUARE.items()},
    **{name: _rectangular(kind) for name, kind in _TALL.items()},
    **{name: _solved(kind) for name, kind in _SOLVING.items()},
}
_KNOWN: Final = frozenset().union(_EVALUATING, _REDUCING, _MOVING, _GATHERING, _RANDOM, _EACH, _FREE, _SPECIAL)
