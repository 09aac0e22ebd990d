"""Matches of operators to kernels by computation: kinds and relatives, formats, sizes, trees of hand-written code."""

from __future__ import annotations

import ast
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.operators import KINDS, Operator, OperatorGraph, work_of
from controller.cluster.operators.tracing import normalised
from controller.probing.kernels.built_in import BUILT_IN
from controller.probing.library import KernelLibrary
from controller.probing.matching import THRESHOLD, match, match_operator, similarity, tree_similarity
from controller.probing.matching.references import KINDS_BY_HAND, references
from controller.probing.values import Library, ProbeKernel
from dataplane.topology.values import NumberFormat

FP64, FP32 = NumberFormat.FP64, NumberFormat.FP32
LIBRARY = KernelLibrary().kernels()

HAND_WRITTEN = {
    "gemm": """
def multiply(left, right):
    height, width, depth = len(left), len(right[0]), len(right)
    out = [[0.0] * width for _ in range(height)]
    for row in range(height):
        for column in range(width):
            acc = 0.0
            for inner in range(depth):
                acc = acc + right[inner][column] * left[row][inner]
            out[row][column] = acc
    return out
""",
    "stencil": """
def relax(grid, new):
    rows, columns = grid.shape
    for y in range(1, rows - 1):
        for x in range(1, columns - 1):
            new[y, x] = (grid[y, x - 1] + grid[y, x + 1] + grid[y - 1, x] + grid[y + 1, x]) / 4
""",
    "spmv": """
def times(values, where, pointers, vector, out):
    for row in range(len(out)):
        acc = 0
        for place in range(pointers[row], pointers[row + 1]):
            acc += values[place] * vector[where[place]]
        out[row] = acc
""",
    "trigonometric": """
def waves(angles, out):
    for place in range(len(angles)):
        out[place] = math.sin(angles[place])
""",
    "join": """
def combine(people, orders):
    by_key = {}
    for person in people:
        by_key.setdefault(person[0], []).append(person)
    pairs = []
    for order in orders:
        for person in by_key.get(order[0], ()):
            pairs.append((person, order))
    return pairs
""",
}
UNRELATED = {
    "fibonacci": """
def fibonacci(n):
    if n < 2:
        return n
    return fibonacci(n - 1) + fibonacci(n - 2)
""",
    "sieve": """
def primes(n):
    marks = [True] * n
    for i in range(2, n):
        if marks[i]:
            for j in range(i * i, n, i):
                marks[j] = False
    return [i for i in range(2, n) if marks[i]]
""",
    "words": """
def words(text):
    counts = {}
    for line in text.splitlines():
        for word in line.split(" "):
            if word:
                counts[word.lower()] = counts.get(word.lower(), 0) + 1
    return sorted(counts.items(), key=lambda item: -item[1])
""",
    "collatz": """
def collatz(n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps
""",
    "edit distance": """
def distance(a, b):
    last = list(range(len(b) + 1))
    for i, x in enumerate(a):
        row = [i + 1]
        for j, y in enumerate(b):
            row.append(min(row[j] + 1, last[j + 1] + 1, last[j] + (x != y)))
        last = row
    return last[-1]
""",
}


def by_hand(source: str, **sizes: int) -> Operator:
    return replace(Operator.of("own", "python", sizes, FP64), code=normalised(source))


def renamed(source: str, seed: int) -> str:
    """Return code with renamed functions and variables."""
    tree = ast.parse(source)
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    bound |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    shuffled = sorted(bound)
    random.Random(seed).shuffle(shuffled)
    new = {old: f"{chr(122 - index % 26)}{index}" for index, old in enumerate(shuffled)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = new.get(node.id, node.id)
        elif isinstance(node, ast.arg):
            node.arg = new.get(node.arg, node.arg)
        elif isinstance(node, ast.FunctionDef):
            node.name = new.get(node.name, node.name)
    return ast.unparse(tree)


ALL_CODE = [*HAND_WRITTEN.values(), *UNRELATED.values()]
sizes = st.dictionaries(st.sampled_from(["n", "m", "k", "rows"]), st.integers(0, 1 << 40), max_size=3)
operators = st.builds(
    lambda kind, shape, number_format, code: replace(
        Operator.of("x", kind, shape, number_format), code=normalised(code) if code else ""
    ),
    st.sampled_from([*KINDS, "my-kernel"]),
    sizes,
    st.sampled_from([None, FP64, FP32, NumberFormat.INT8]),
    st.sampled_from(["", *ALL_CODE]),
)


def test_operators_without_their_sizes_have_relatives_too() -> None:
    for kind, other in (("factorise", "solve"), ("dot", "reduction"), ("spmm", "spmv"), ("complex-gemm", "gemm")):
        without = Operator("x", kind, (), FP64)
        alike = similarity(without, Operator("y", other, (("n", 4),), FP64))
        assert alike.sizes == 0.0
        assert alike.kind > 0.6
        assert match_operator(without, LIBRARY).sizes == ()


@given(operators, operators)
def test_similarity_is_symmetric_and_between_0_and_1(operator: Operator, other: Operator) -> None:
    alike = similarity(operator, other)
    assert alike == similarity(other, operator)
    assert 0 <= alike.value <= 1 + 1e-9


@given(operators)
def test_operator_is_most_similar_to_itself_under_any_name(operator: Operator) -> None:
    assert similarity(operator, replace(operator, name="y")).value == pytest.approx(1.0)


@given(st.sampled_from(ALL_CODE), st.sampled_from(ALL_CODE), st.integers(0, 10_000))
def test_renaming_changes_nothing(code: str, other: str, seed: int) -> None:
    assert normalised(renamed(code, seed)) == normalised(code)
    assert tree_similarity(normalised(renamed(code, seed)), normalised(other)) == tree_similarity(
        normalised(code), normalised(other)
    )


@pytest.mark.parametrize("kind", HAND_WRITTEN)
def test_hand_written_code_matches_the_kernel_of_its_kind(kind: str) -> None:
    matched = match_operator(by_hand(HAND_WRITTEN[kind]), LIBRARY)
    assert matched.kernel is not None, matched.reason
    assert matched.kernel.operator == kind
    assert matched.similarity >= THRESHOLD
    assert matched.reason.startswith("its code is")


@pytest.mark.parametrize("name", UNRELATED)
def test_unrelated_code_stays_below_the_threshold(name: str) -> None:
    matched = match_operator(by_hand(UNRELATED[name]), LIBRARY)
    assert matched.kernel is None
    assert matched.similarity < THRESHOLD
    assert matched.reason.startswith("no match: ")


def test_forms_of_one_kind_are_more_alike_than_of_others() -> None:
    for kind in KINDS_BY_HAND:
        assert kind in KINDS
        assert all(references(kind))
        for form in references(kind):
            nearest = max(
                KINDS_BY_HAND,
                key=lambda other: max(tree_similarity(form, reference) for reference in references(other)),
            )
            assert nearest == kind


def test_lists_that_grow_are_comprehensions() -> None:
    grown = """
def waves(angles):
    out = []
    for angle in angles:
        out.append(math.tan(angle))
    return out
"""
    matched = match_operator(by_hand(grown), LIBRARY)
    assert matched.kernel is not None
    assert matched.kernel.operator == "trigonometric"


def test_sizes_of_hand_written_code_are_the_targets() -> None:
    arguments = {"arg0_0": 10, "arg0_1": 20, "arg1_0": 20, "arg1_1": 30}
    matched = match_operator(by_hand(HAND_WRITTEN["gemm"], **arguments), LIBRARY)
    assert dict(matched.sizes) == {"m": 10, "n": 30, "k": 20}
    grid = match_operator(by_hand(HAND_WRITTEN["stencil"], arg0_0=64, arg0_1=32, arg1_0=64, arg1_1=32), LIBRARY)
    assert dict(grid.sizes) == {"rows": 64, "columns": 32}


def test_number_formats_choose_between_kernels_of_one_kind() -> None:
    for number_format, kernel in ((FP64, "dgemm"), (FP32, "sgemm")):
        operator = Operator.of("x", "gemm", {"m": 300, "n": 10, "k": 20}, number_format)
        for category in ("hpc", "ai", ""):
            matched = match_operator(operator, LIBRARY, category)
            assert matched.kernel is not None
            assert matched.kernel.identifier == kernel
            assert dict(matched.sizes) == {"m": 300, "n": 10, "k": 20}
            assert matched.scale == 1.0


def test_a_category_goes_first_among_equals() -> None:
    kernel = next(built_in for built_in in BUILT_IN if built_in.identifier == "dgemm")
    twins = [replace(kernel, identifier=f"gemm-{category}", category=category) for category in ("hpc", "ai", "own")]
    operator = Operator.of("x", "gemm", {"m": 9, "n": 9, "k": 9}, FP64)
    for category in ("hpc", "ai", "own"):
        matched = match_operator(operator, twins, category)
        assert matched.kernel is not None
        assert matched.kernel.category == category


def test_of_versions_the_newest_matches() -> None:
    kernel = next(built_in for built_in in BUILT_IN if built_in.identifier == "fft")
    matched = match_operator(Operator.of("x", "fft", {"n": 64}, FP64), [kernel, replace(kernel, version=2)])
    assert matched.kernel is not None
    assert matched.kernel.version == 2


def test_relatives_match_with_the_ratio_of_their_work() -> None:
    solve = next(built_in for built_in in BUILT_IN if built_in.operator == "solve")
    operator = Operator.of("x", "inverse", {"n": 500}, FP64)
    matched = match_operator(operator, [solve])
    assert matched.kernel is solve
    assert dict(matched.sizes) == {"n": 500, "columns": 1}
    inverse, solving = work_of(operator), work_of(Operator.of("x", "solve", {"n": 500, "columns": 1}, FP64))
    assert inverse is not None
    assert solving is not None
    assert inverse.operations
    assert solving.operations
    assert matched.scale == pytest.approx(inverse.operations / solving.operations)


def test_no_match_is_an_answer_with_its_reason() -> None:
    graph = OperatorGraph("g", (Operator.of("a", "dot", {"n": 9}, FP64), Operator("b", "my-kernel")))
    fft = [built_in for built_in in BUILT_IN if built_in.identifier == "fft"]
    matches = match(graph, fft)
    assert [(matched.operator, matched.kernel) for matched in matches] == [("a", None), ("b", None)]
    assert matches[0].reason == "no match: no kernel computes dot or anything like it"
    assert match(graph, ())[0].reason == "no match: the library is empty"
    near = match_operator(
        Operator.of("a", "cholesky", {"n": 9}, NumberFormat.INT8),
        [built_in for built_in in BUILT_IN if built_in.identifier == "dgemm"],
    )
    assert near.kernel is None
    assert near.reason.startswith("no match: the nearest is dgemm with ")
    assert match_operator(Operator.of("a", "cholesky", {"n": 9}, FP64), LIBRARY, threshold=1.01).kernel is None


def test_a_users_kernel_matches_by_its_code() -> None:
    kernel = next(built_in for built_in in BUILT_IN if built_in.identifier == "dgemm")
    own = ProbeKernel(
        "primes", 1, "own", "sieve", None, (), kernel.implementations, 0.0, code=normalised(UNRELATED["sieve"])
    )
    matched = match_operator(by_hand(renamed(UNRELATED["sieve"], 3)), [*LIBRARY, own])
    assert matched.kernel is own


def test_the_library_that_a_target_uses_is_handed_on() -> None:
    operator = replace(Operator.of("x", "fft", {"n": 64}, FP64), library="scipy")
    assert match_operator(operator, LIBRARY).library is Library.SCIPY
    assert match_operator(replace(operator, library="cupy"), LIBRARY).library is None
