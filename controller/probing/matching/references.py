"""Hand-written Python forms of operators: by kind, as people commonly write them.

They are read, never run: their normalised trees are what a user's function is compared with.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from controller.cluster.operators.tracing.syntax import normalised

_SOURCES: Final[Mapping[str, tuple[str, ...]]] = {
    "gemm": (
        """
def product(a, b, c, n):
    for i in range(n):
        for j in range(n):
            for k in range(n):
                c[i][j] += a[i][k] * b[k][j]
""",
        """
def product(a, b, c, n):
    for i in range(n):
        for j in range(n):
            total = 0.0
            for k in range(n):
                total += a[i][k] * b[k][j]
            c[i][j] = total
""",
        """
def product(a, b, c, n):
    for i in range(n):
        for k in range(n):
            for j in range(n):
                c[i][j] += a[i][k] * b[k][j]
""",
        """
def product(a, b, c, n):
    for i in range(n):
        for k in range(n):
            value = a[i][k]
            for j in range(n):
                c[i][j] += value * b[k][j]
""",
        """
def product(a, b):
    return [[sum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]
""",
        """
def product(a, b, n):
    return [[sum(a[i][k] * b[k][j] for k in range(n)) for j in range(n)] for i in range(n)]
""",
    ),
    "gemv": (
        """
def product(a, x, y, n):
    for i in range(n):
        for j in range(n):
            y[i] += a[i][j] * x[j]
""",
        """
def product(a, x, y, n):
    for i in range(n):
        total = 0.0
        for j in range(n):
            total += a[i][j] * x[j]
        y[i] = total
""",
        """
def product(a, x):
    return [sum(p * q for p, q in zip(row, x)) for row in a]
""",
    ),
    "spmv": (
        """
def product(data, indices, starts, x, y, n):
    for i in range(n):
        total = 0.0
        for k in range(starts[i], starts[i + 1]):
            total += data[k] * x[indices[k]]
        y[i] = total
""",
        """
def product(data, indices, starts, x, y, n):
    for i in range(n):
        for k in range(starts[i], starts[i + 1]):
            y[i] += data[k] * x[indices[k]]
""",
    ),
    "dot": (
        """
def dot(x, y):
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total
""",
        """
def dot(x, y):
    return sum(a * b for a, b in zip(x, y))
""",
    ),
    "axpy": (
        """
def axpy(a, x, y):
    for i in range(len(x)):
        y[i] += a * x[i]
""",
    ),
    "stream-triad": (
        """
def triad(a, b, c, s):
    for i in range(len(a)):
        a[i] = b[i] + s * c[i]
""",
        """
def triad(b, c, s):
    return [x + s * y for x, y in zip(b, c)]
""",
    ),
    "stencil": (
        """
def sweep(u, v, n):
    for i in range(1, n - 1):
        for j in range(1, n - 1):
            v[i][j] = 0.25 * (u[i - 1][j] + u[i + 1][j] + u[i][j - 1] + u[i][j + 1])
""",
        """
def sweep(u, v, n):
    for i in range(1, n - 1):
        for j in range(1, n - 1):
            v[i][j] = u[i][j] + 0.1 * (u[i - 1][j] + u[i + 1][j] + u[i][j - 1] + u[i][j + 1] - 4 * u[i][j])
""",
        """
def sweep(u, v, n):
    for i in range(1, n - 1):
        v[i] = u[i] + 0.1 * (u[i - 1] - 2 * u[i] + u[i + 1])
""",
        """
def sweep(u, v, n):
    for i in range(1, n - 1):
        for j in range(1, n - 1):
            for k in range(1, n - 1):
                v[i][j][k] = u[i - 1][j][k] + u[i + 1][j][k] + u[i][j - 1][k] + u[i][j + 1][k] \
                    + u[i][j][k - 1] + u[i][j][k + 1] - 6 * u[i][j][k]
""",
    ),
    "conv2d": (
        """
def convolve(image, kernel, out, height, width, p, q):
    for y in range(height):
        for x in range(width):
            for i in range(p):
                for j in range(q):
                    out[y][x] += image[y + i][x + j] * kernel[i][j]
""",
        """
def convolve(image, kernel, out, height, width, p, q):
    for y in range(height):
        for x in range(width):
            total = 0.0
            for i in range(p):
                for j in range(q):
                    total += image[y + i][x + j] * kernel[i][j]
            out[y][x] = total
""",
    ),
    "fft": (
        """
def transform(x):
    n = len(x)
    if n == 1:
        return x
    even, odd = transform(x[0::2]), transform(x[1::2])
    twiddled = [cmath.exp(-2j * math.pi * k / n) * odd[k] for k in range(n // 2)]
    return [even[k] + twiddled[k] for k in range(n // 2)] + [even[k] - twiddled[k] for k in range(n // 2)]
""",
        """
def transform(x):
    n = len(x)
    if n == 1:
        return x
    even = transform(x[0::2])
    odd = transform(x[1::2])
    out = [0] * n
    for k in range(n // 2):
        t = cmath.exp(-2j * math.pi * k / n) * odd[k]
        out[k] = even[k] + t
        out[k + n // 2] = even[k] - t
    return out
""",
    ),
    "sort": (
        """
def sort(a):
    for i in range(1, len(a)):
        value = a[i]
        j = i - 1
        while j >= 0 and a[j] > value:
            a[j + 1] = a[j]
            j -= 1
        a[j + 1] = value
""",
        """
def sort(a):
    for i in range(len(a)):
        for j in range(len(a) - 1 - i):
            if a[j] > a[j + 1]:
                a[j], a[j + 1] = a[j + 1], a[j]
""",
        """
def sort(a):
    if len(a) <= 1:
        return a
    pivot = a[0]
    return sort([x for x in a[1:] if x < pivot]) + [pivot] + sort([x for x in a[1:] if x >= pivot])
""",
    ),
    "trigonometric": (
        """
def evaluate(x, y):
    for i in range(len(x)):
        y[i] = math.sin(x[i])
""",
        """
def evaluate(x):
    return [math.cos(v) for v in x]
""",
        """
def evaluate(x):
    return [math.exp(v) for v in x]
""",
    ),
    "reduction": (
        """
def total(x):
    found = 0.0
    for value in x:
        found += value
    return found
""",
        """
def most(x):
    found = x[0]
    for value in x:
        if value > found:
            found = value
    return found
""",
    ),
    "scan": (
        """
def sums(x):
    for i in range(1, len(x)):
        x[i] += x[i - 1]
""",
        """
def sums(x, y):
    total = 0
    for i in range(len(x)):
        total += x[i]
        y[i] = total
""",
    ),
    "elementwise": (
        """
def add(a, b, c):
    for i in range(len(a)):
        c[i] = a[i] + b[i]
""",
        """
def add(a, b):
    return [x + y for x, y in zip(a, b)]
""",
    ),
    "random-access": (
        """
def update(table, n):
    for i in range(n):
        value = next_random(value)
        table[value & mask] ^= value
""",
        """
def gather(table, places, out):
    for i in range(len(places)):
        out[i] = table[places[i]]
""",
    ),
    "filter": (
        """
def keep(rows, limit):
    return [row for row in rows if row[0] > limit]
""",
        """
def keep(rows, limit):
    found = []
    for row in rows:
        if row[0] > limit:
            found.append(row)
    return found
""",
    ),
    "join": (
        """
def join(left, right):
    table = {}
    for row in left:
        table.setdefault(row[0], []).append(row)
    found = []
    for row in right:
        for other in table.get(row[0], ()):
            found.append((row, other))
    return found
""",
        """
def join(left, right):
    found = []
    for row in left:
        for other in right:
            if row[0] == other[0]:
                found.append((row, other))
    return found
""",
    ),
    "aggregate": (
        """
def aggregate(rows):
    found = {}
    for row in rows:
        found[row[0]] = found.get(row[0], 0) + row[1]
    return found
""",
    ),
}


@cache
def references(kind: str) -> tuple[str, ...]:
    """Return the normalised trees of a kind's hand-written forms; empty if it has none."""
    return tuple(normalised(source) for source in _SOURCES.get(kind, ()))


KINDS_BY_HAND: Final = tuple(_SOURCES)
"""Kinds that have hand-written forms."""
