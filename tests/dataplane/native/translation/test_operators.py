from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataplane.native import Kernel, Module, compile_module, kernel_library
from dataplane.native.scalars import BOOL, I32, I64, U8, U16, U32, U64, Scalar

SCALARS = (U8, U16, U32, U64, I32, I64)
Binary = Callable[[int, int], int]


def shift_left(scalar: Scalar) -> Binary:
    return lambda a, b: a << b if 0 <= b < scalar.bits else 0


def shift_right(scalar: Scalar) -> Binary:
    return lambda a, b: a >> b if 0 <= b < scalar.bits else -(a < 0)


def operators(scalar: Scalar) -> dict[str, Binary]:
    """Return each operator and its value on Python's numbers; division by 0 gives 0, the remainder the dividend."""
    return {
        "a + b": lambda a, b: a + b,
        "a - b": lambda a, b: a - b,
        "a * b": lambda a, b: a * b,
        "a // b": lambda a, b: a // b if b else 0,
        "a % b": lambda a, b: a % b if b else a,
        "a // (b | 1)": lambda a, b: a // (b | 1),
        "a % (b | 1)": lambda a, b: a % (b | 1),
        "a & b": lambda a, b: a & b,
        "a | b": lambda a, b: a | b,
        "a ^ b": lambda a, b: a ^ b,
        "a << b": shift_left(scalar),
        "a >> b": shift_right(scalar),
        "a << 3": lambda a, _: a << 3,
        "a >> 3": lambda a, _: a >> 3,
        "a << 7 >> 2": lambda a, _: scalar.wrap(a << 7) >> 2,
        "-a": lambda a, _: -a,
        "~a": lambda a, _: ~a,
        "+a": lambda a, _: a,
        "5 - a": lambda a, _: 5 - a,
        "100 // (a | 1)": lambda a, _: 100 // (a | 1),
        "min(a, b)": min,
        "max(a, b)": max,
        "max(7, b)": lambda _, b: max(7, b),
        "a if a < b else b": min,
        "reverse_bits(a)": lambda a, _: int(f"{a & ((1 << scalar.bits) - 1):0{scalar.bits}b}"[::-1], 2),
        "popcount(a)": lambda a, _: (a & ((1 << scalar.bits) - 1)).bit_count(),
        "count_leading_zeros(a)": lambda a, _: scalar.bits - (a & ((1 << scalar.bits) - 1)).bit_length(),
        "count_trailing_zeros(a)": lambda a, _: (a & -a).bit_length() - 1 if a else scalar.bits,
    }


RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "a == b": lambda a, b: a == b,
    "a != b": lambda a, b: a != b,
    "a < b": lambda a, b: a < b,
    "a <= b": lambda a, b: a <= b,
    "a > b": lambda a, b: a > b,
    "a >= b": lambda a, b: a >= b,
    "3 < a": lambda a, _: a > 3,
    "0 < a <= b": lambda a, b: 0 < a <= b,
    "a != 0 and 100 // a > 9": lambda a, _: a != 0 and 100 // a > 9,
    "a == 0 or b == 0": lambda a, b: a == 0 or b == 0,
    "not a < b": lambda a, b: not a < b,
    "not (a == 1 and b == 1 or a == 2)": lambda a, b: not ((a == 1 and b == 1) or a == 2),
    "(a < b) == (b < 50)": lambda a, b: (a < b) == (b < 50),
    "(a < b) ^ (b < 50)": lambda a, b: (a < b) ^ (b < 50),
    "(a < b) & (b < 50) | (a == b)": lambda a, b: (a < b) & (b < 50) | (a == b),
    "True if a else b > 3": lambda a, b: True if a else b > 3,
}


@dataclass(frozen=True, slots=True)
class Compiled:
    """One operation, native and in Python."""

    text: str
    native: Callable[..., int]
    model: Callable[[int, int], int]


@pytest.fixture(scope="module")
def compiled(kernels_in: Callable[..., dict[str, Kernel[..., int]]]) -> dict[Scalar, list[Compiled]]:
    """Every operator at every type, in one library."""
    names: dict[tuple[Scalar, str], str] = {}
    texts = []
    for scalar in SCALARS:
        for results, operations in ((scalar.name, operators(scalar)), ("bool", RELATIONS)):
            for operation in operations:
                name = names[scalar, operation] = f"f{len(names)}"
                arguments = f"a: {scalar}, b: {scalar}"
                texts.append(f"@kernel\ndef {name}({arguments}) -> {results}:\n    return {operation}\n")
    made = kernels_in("".join(texts))
    library = kernel_library(*(made[name] for name in names.values()))
    return {
        scalar: [
            Compiled(operation, library.bind(made[names[scalar, operation]]), model)
            for operation, model in [*operators(scalar).items(), *RELATIONS.items()]
        ]
        for scalar in SCALARS
    }


def numbers(scalar: Scalar) -> st.SearchStrategy[int]:
    if scalar == BOOL:
        return st.integers(0, 1)
    edges = [scalar.low, scalar.high, 0, 1, scalar.wrap(-1), scalar.bits - 1, scalar.bits, scalar.bits + 1]
    return st.sampled_from(edges) | st.integers(scalar.low, scalar.high) | st.integers(0, 64)


@pytest.mark.parametrize("scalar", SCALARS, ids=str)
@given(data=st.data())
def test_operators_wrap_and_round_as_python(
    data: st.DataObject, scalar: Scalar, compiled: dict[Scalar, list[Compiled]]
) -> None:
    a, b = data.draw(numbers(scalar)), data.draw(numbers(scalar))
    for operation in compiled[scalar]:
        expected = operation.model(a, b)
        expected = expected if isinstance(expected, bool) else scalar.wrap(expected)
        assert operation.native(a, b) == expected, f"{operation.text} with a={a}, b={b}"


@pytest.mark.parametrize("scalar", SCALARS, ids=str)
def test_edges_of_division_do_not_trap(scalar: Scalar, compiled: dict[Scalar, list[Compiled]]) -> None:
    by_text = {operation.text: operation.native for operation in compiled[scalar]}
    minus_one = scalar.wrap(-1)
    assert by_text["a // (b | 1)"](scalar.low, minus_one) == scalar.wrap(scalar.low // minus_one)
    assert by_text["a % (b | 1)"](scalar.low, minus_one) == scalar.low % minus_one
    for dividend in (scalar.low, scalar.high, 1):
        assert by_text["a // b"](dividend, 0) == 0
        assert by_text["a % b"](dividend, 0) == dividend


@given(data=st.data())
@settings(max_examples=30)
def test_casts_cut_and_widen_by_the_sign_they_come_from(
    data: st.DataObject, kernels_in: Callable[..., dict[str, Kernel[..., int]]]
) -> None:
    source = data.draw(st.sampled_from((*SCALARS, BOOL)))
    texts = [f"@kernel\ndef to_{t}(a: {source}) -> {t}:\n    return as_{t}(a)\n" for t in SCALARS]
    made = kernels_in("".join(texts))
    library = kernel_library(*(made[f"to_{target}"] for target in SCALARS))
    for target in SCALARS:
        number = data.draw(numbers(source))
        assert library.bind(made[f"to_{target}"])(number) == target.wrap(number)


def test_bytes_are_swapped(kernels_in: Callable[..., dict[str, Kernel[..., int]]]) -> None:
    made = kernels_in("".join(f"@kernel\ndef f{n}(a: u{n}) -> u{n}:\n    return bswap(a)\n" for n in (16, 32, 64)))
    library = kernel_library(*(made[f"f{n}"] for n in (16, 32, 64)))
    for bits in (16, 32, 64):
        number = 0x1122334455667788 & ((1 << bits) - 1)
        swapped = int.from_bytes(number.to_bytes(bits // 8, "big"), "little")
        assert library.bind(made[f"f{bits}"])(number) == swapped


Expression = tuple[str, Callable[[dict[str, int]], int]]


def expressions(scalar: Scalar) -> st.SearchStrategy[Expression]:
    """Return expressions over a, b and c, each with a function that computes it on Python's numbers."""

    def literal(number: int) -> Expression:
        return f"as_{scalar}({number})", lambda _: number

    def variable(name: str) -> Expression:
        return name, lambda values: values[name]

    def join(left: Expression, operation: str, right: Expression) -> Expression:
        model = operators(scalar)[operation]
        text = operation.replace("a", "\0").replace("b", right[0]).replace("\0", left[0])
        return f"({text})", lambda values: scalar.wrap(model(left[1](values), right[1](values)))

    def choose(condition: Expression, left: Expression, right: Expression) -> Expression:
        text = f"({left[0]} if {condition[0]} > {right[0]} else {right[0]})"
        return text, lambda v: left[1](v) if condition[1](v) > right[1](v) else right[1](v)

    operations = st.sampled_from(
        [text for text in operators(scalar) if "a" in text and "(" not in text and "5" not in text]
    )
    leaves = st.sampled_from("abc").map(variable) | st.integers(scalar.low, scalar.high).map(literal)
    return st.recursive(
        leaves,
        lambda inner: st.builds(join, inner, operations, inner) | st.builds(choose, inner, inner, inner),
        max_leaves=25,
    )


@settings(max_examples=60)
@given(data=st.data(), optimise=st.booleans())
def test_any_expression_gives_what_python_gives(
    data: st.DataObject, optimise: bool, kernel_in: Callable[..., Kernel[..., int]]
) -> None:
    scalar = data.draw(st.sampled_from(SCALARS))
    text, model = data.draw(expressions(scalar))
    made = kernel_in(f"@kernel\ndef f(a: {scalar}, b: {scalar}, c: {scalar}) -> {scalar}:\n    return {text}\n")
    module = Module("expression")
    module.export(made)
    run = compile_module(module, cache_dir=None, optimise=optimise).bind(made)
    for _ in range(5):
        values = {name: data.draw(numbers(scalar)) for name in "abc"}
        assert run(*values.values()) == model(values), (text, values)
