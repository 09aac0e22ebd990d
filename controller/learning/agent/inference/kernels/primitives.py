"""Operations of a network, as the stages call them; implemented in `products`, `rows` and `attending`.

Addresses and counts are u64. Matrices are row-major float32 with a row every `stride` elements; columns are zero-padded
to whole vectors of 16. Transposed rows are stored in groups of 16 tokens, [columns, 16], so that the operands of one
step of a product are contiguous; in pairs, two bfloat16 columns share one element.
"""

from __future__ import annotations

from dataplane.native import external, u64


@external
def pairs_turned(  # noqa: PLR0917 - kernels have no keywords
    rows: u64, stride: u64, columns: u64, rectified: u64, count: u64, turned: u64
) -> None:
    """Transpose rows as bfloat16 pairs, rounded; `rectified`: negative figures as 0. Columns: a multiple of 32."""
    raise NotImplementedError


@external
def turned(  # noqa: PLR0917 - kernels have no keywords
    rows: u64, stride: u64, columns: u64, rectified: u64, count: u64, turned: u64
) -> None:
    """Transpose rows in float32. Columns: a multiple of 16."""
    raise NotImplementedError


@external
def product_of_pairs(  # noqa: PLR0917 - kernels have no keywords
    turned: u64, weights: u64, bias: u64, added: u64, added_stride: u64, out: u64, stride: u64, count: u64, steps: u64,
    vectors: u64,
) -> None:  # fmt: skip
    """Write weights in bfloat16 times each transposed row, plus bias and `added`'s row; sums are float32."""
    raise NotImplementedError


@external
def product(  # noqa: PLR0917 - kernels have no keywords
    turned: u64, weights: u64, bias: u64, added: u64, added_stride: u64, out: u64, stride: u64, count: u64, steps: u64,
    vectors: u64,
) -> None:  # fmt: skip
    """Write the same product in float32."""
    raise NotImplementedError


@external
def product_of_one(  # noqa: PLR0917 - kernels have no keywords
    row: u64, weights: u64, bias: u64, added: u64, out: u64, steps: u64, vectors: u64
) -> None:
    """Write weights in float32 times one row, not transposed, plus bias and `added`."""
    raise NotImplementedError


@external
def product_of_one_halved(  # noqa: PLR0917 - kernels have no keywords
    row: u64, weights: u64, bias: u64, added: u64, out: u64, steps: u64, vectors: u64
) -> None:
    """Write the same product with weights in bfloat16, two inputs per step."""
    raise NotImplementedError


@external
def rectified(row: u64, vectors: u64) -> None:
    """Replace each figure below 0 with 0."""
    raise NotImplementedError


@external
def normalised(  # noqa: PLR0917 - kernels have no keywords
    rows: u64, gain: u64, bias: u64, mask: u64, vectors: u64, stride: u64, hidden: u64, count: u64, out: u64
) -> None:
    """Write each row with mean 0 and variance 1, scaled and shifted; `mask` is 1 in columns that are not padding."""
    raise NotImplementedError


@external
def attended(  # noqa: PLR0917 - kernels have no keywords
    queries: u64, stride: u64, keys: u64, keys_step: u64, keys_head: u64, values: u64, values_stride: u64,
    values_head: u64, heads: u64, vectors: u64, out: u64, out_stride: u64, looked: u64, tokens: u64,
) -> None:  # fmt: skip
    """Write the means of values under each head's attention: softmax of queries times transposed keys.

    A head has `vectors` vectors of columns; the keys of a group of 16 tokens are `keys_step` figures apart, those of a
    head within it `keys_head`, and its values `values_head` columns. `looked` has room for four rows of weights.
    """
    raise NotImplementedError


@external
def weighed(  # noqa: PLR0917 - kernels have no keywords
    rows: u64, stride: u64, vectors: u64, count: u64, weights: u64, bias: u64, outputs: u64, out: u64
) -> None:
    """Write every row's product with each of a few rows of weights, plus bias, one after another."""
    raise NotImplementedError
