"""A network's stages, kernels over addresses of packed weights; the decider checks the clock between them."""

from __future__ import annotations

from controller.learning.agent.inference.kernels.primitives import (
    attended,
    normalised,
    pairs_turned,
    product,
    product_of_one,
    product_of_one_halved,
    product_of_pairs,
    rectified,
    turned,
    weighed,
)
from controller.learning.agent.inference.kernels.processor import MULTIPLIES_PAIRS
from dataplane.native import Struct, kernel, u64

LANES = 16


class Sizes(Struct):
    """Sizes of a network: element counts, and padded columns. `ones` and `zeros` are rows of `hidden` elements."""

    hidden: u64
    columns: u64  # of hidden
    wide: u64
    heads: u64
    head_columns: u64
    attended: u64  # of all heads
    projected: u64  # of queries, keys and values
    features: u64  # of a token, a 1 behind them
    folded: u64  # of queries that are made of features
    mixed: u64  # of features, and their means under each head
    halved: u64  # whether weights are bfloat16
    mask: u64
    zeros: u64


class First(Struct):
    """The input and the first layer's attention, folded."""

    scores: u64
    mixing: u64


class Attention(Struct):
    """Weights of attention in a later layer."""

    projection: u64
    projection_bias: u64
    out: u64
    out_bias: u64


class Affine(Struct):
    """A product and a sum."""

    weights: u64
    bias: u64


class FeedForward(Struct):
    """Weights of a layer after its attention."""

    before_gain: u64
    before_bias: u64
    wide: u64
    wide_bias: u64
    narrow: u64
    narrow_bias: u64
    after_gain: u64
    after_bias: u64


class Head(Struct):
    """The linear and the output layer."""

    weights: u64
    bias: u64
    outputs: u64


class Work(Struct):
    """Buffers for the rows of `tokens`."""

    tokens: u64
    seen: u64  # [tokens, columns]: the output of a layer
    added: u64  # [tokens, columns]: plus the output of its attention
    normal: u64  # [tokens, columns]
    inside: u64  # [tokens, wide]
    mixed: u64  # [tokens, mixed]: features come first
    projected: u64  # [tokens, projected or folded]
    keys: u64  # transposed
    attended: u64  # [tokens, columns of all heads]
    turned: u64
    looked: u64  # [4, tokens]
    values: u64


@kernel
def first_of_tokens(sizes: Sizes, first: First, work: Work) -> None:
    """Compute the input of the first normalisation from features."""
    tokens: u64 = work.tokens
    turned(work.mixed, sizes.mixed, sizes.features, 0, tokens, work.keys)
    product(
        work.keys, first.scores, sizes.zeros, sizes.zeros, 0,
        work.projected, sizes.folded, tokens, sizes.features, sizes.folded // LANES,
    )  # fmt: skip
    attended(
        work.projected, sizes.folded, work.keys, sizes.features * LANES, 0, work.mixed, sizes.mixed, 0,
        sizes.heads, sizes.features // LANES, work.mixed + 4 * sizes.features, sizes.mixed, work.looked, tokens,
    )  # fmt: skip
    turned(work.mixed, sizes.mixed, sizes.mixed, 0, tokens, work.turned)
    product(
        work.turned, first.mixing, sizes.zeros, sizes.zeros, 0,
        work.added, sizes.columns, tokens, sizes.mixed, sizes.columns // LANES,
    )  # fmt: skip


@kernel
def projection_of_tokens(sizes: Sizes, attention: Attention, work: Work) -> None:
    """Compute queries, keys and values of each token."""
    turn(sizes, work, work.seen, sizes.columns, 0)
    multiply(
        sizes, work, sizes.columns, attention.projection, attention.projection_bias, sizes.zeros, 0,
        work.projected, sizes.projected,
    )  # fmt: skip


@kernel
def attention_of_tokens(sizes: Sizes, attention: Attention, work: Work) -> None:
    """Add to each token the output of its attention."""
    columns: u64 = sizes.columns
    heads: u64 = sizes.attended
    turned(work.projected + 4 * heads, sizes.projected, heads, 0, work.tokens, work.keys)
    attended(
        work.projected, sizes.projected, work.keys, heads * LANES, sizes.head_columns * LANES,
        work.projected + 8 * heads, sizes.projected, sizes.head_columns,
        sizes.heads, sizes.head_columns // LANES, work.attended, heads, work.looked, work.tokens,
    )  # fmt: skip
    turn(sizes, work, work.attended, heads, 0)
    multiply(sizes, work, heads, attention.out, attention.out_bias, work.seen, columns, work.added, columns)


@kernel
def feed_forward_of_tokens(sizes: Sizes, layer: FeedForward, work: Work) -> None:
    """Normalise, feed forward and normalise each token."""
    columns: u64 = sizes.columns
    normalise(sizes, work.added, layer.before_gain, layer.before_bias, work.tokens, work.normal)
    turn(sizes, work, work.normal, columns, 0)
    multiply(sizes, work, columns, layer.wide, layer.wide_bias, sizes.zeros, 0, work.inside, sizes.wide)
    turn(sizes, work, work.inside, sizes.wide, 1)
    multiply(sizes, work, sizes.wide, layer.narrow, layer.narrow_bias, work.normal, columns, work.normal, columns)
    normalise(sizes, work.normal, layer.after_gain, layer.after_bias, work.tokens, work.seen)


@kernel
def first_of_one(sizes: Sizes, first: Affine, work: Work) -> None:
    """Compute the input of the first normalisation from the single token's features."""
    multiply_one(sizes, work.mixed, sizes.mixed, first.weights, first.bias, sizes.zeros, work.added, sizes.columns)


@kernel
def attention_of_one(sizes: Sizes, layer: Affine, work: Work) -> None:
    """Add to the single token the output of its attention, which is 1."""
    multiply_one(sizes, work.seen, sizes.columns, layer.weights, layer.bias, work.seen, work.added, sizes.columns)


@kernel
def feed_forward_of_one(sizes: Sizes, layer: FeedForward, work: Work) -> None:
    """Normalise, feed forward and normalise the single token."""
    columns: u64 = sizes.columns
    normalise(sizes, work.added, layer.before_gain, layer.before_bias, 1, work.normal)
    multiply_one(sizes, work.normal, columns, layer.wide, layer.wide_bias, sizes.zeros, work.inside, sizes.wide)
    rectified(work.inside, sizes.wide // LANES)
    multiply_one(sizes, work.inside, sizes.wide, layer.narrow, layer.narrow_bias, work.normal, work.normal, columns)
    normalise(sizes, work.normal, layer.after_gain, layer.after_bias, 1, work.seen)


@kernel
def head_of_all(sizes: Sizes, head: Head, work: Work) -> None:
    """Write the values of every token's actions."""
    weighed(
        work.seen, sizes.columns, sizes.columns // LANES, work.tokens, head.weights, head.bias, head.outputs,
        work.values,
    )  # fmt: skip


@kernel
def affine_of_one(  # noqa: PLR0917 - kernels have no keywords
    row: u64, weights: u64, bias: u64, zeros: u64, out: u64, steps: u64, vectors: u64
) -> None:
    """Write a product of one row and weights in bfloat16, plus bias."""
    product_of_one_halved(row, weights, bias, zeros, out, steps, vectors)


@kernel(inline=True)
def normalise(  # noqa: PLR0917 - kernels have no keywords
    sizes: Sizes, rows: u64, gain: u64, bias: u64, count: u64, out: u64
) -> None:
    """Normalise rows of the hidden figures."""
    normalised(rows, gain, bias, sizes.mask, sizes.columns // LANES, sizes.columns, sizes.hidden, count, out)


@kernel(inline=True)
def turn(sizes: Sizes, work: Work, rows: u64, columns: u64, is_rectified: u64) -> None:
    """Transpose rows for the next product."""
    if MULTIPLIES_PAIRS and sizes.halved != 0:
        pairs_turned(rows, columns, columns, is_rectified, work.tokens, work.turned)
    else:
        turned(rows, columns, columns, is_rectified, work.tokens, work.turned)


@kernel(inline=True)
def multiply(  # noqa: PLR0917 - kernels have no keywords
    sizes: Sizes,
    work: Work,
    columns: u64,
    weights: u64,
    bias: u64,
    added: u64,
    added_stride: u64,
    out: u64,
    outputs: u64,
) -> None:
    """Write the product of weights and transposed rows, plus bias and what is added."""
    if MULTIPLIES_PAIRS and sizes.halved != 0:
        product_of_pairs(
            work.turned, weights, bias, added, added_stride, out, outputs, work.tokens, columns // 2, outputs // LANES
        )
    else:
        product(work.turned, weights, bias, added, added_stride, out, outputs, work.tokens, columns, outputs // LANES)


@kernel(inline=True)
def multiply_one(  # noqa: PLR0917 - kernels have no keywords
    sizes: Sizes, row: u64, columns: u64, weights: u64, bias: u64, added: u64, out: u64, outputs: u64
) -> None:
    """Write the product of weights and one row, plus bias and what is added."""
    if sizes.halved != 0:
        product_of_one_halved(row, weights, bias, added, out, columns // 2, outputs // LANES)
    else:
        product_of_one(row, weights, bias, added, out, columns, outputs // LANES)
