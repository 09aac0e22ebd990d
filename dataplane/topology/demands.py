"""Demand matrices: traffic from every node to every other.

Our own files are CSV: the first line is 'bit/s' and the names of the nodes; each further line is a node's name and its
demands to each node, in whole bit/s. The rows have the order of the columns; the diagonal is zero.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dataplane.errors import ConfigError, FabricError
from dataplane.given import MOST_BYTES, read_given_text
from dataplane.topology.values import Topology

UNIT = "bit/s"
MAX_DEMAND_BPS = 10**15
"""A demand above 1 Pbit/s is assumed to be a typo."""
MAX_NODES = 4096


@dataclass(frozen=True)
class DemandMatrix:
    """Demands in bit/s between nodes; `rates_bps[i][j]` is from `nodes[i]` to `nodes[j]`, zero for i = j."""

    nodes: tuple[str, ...]
    rates_bps: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        size = len(self.nodes)
        if len(self._index) != size or len(self.rates_bps) != size or any(len(row) != size for row in self.rates_bps):
            raise FabricError(f"a demand matrix of {size} nodes has {size} different names, {size} rows and columns")
        if any(rate < 0 for row in self.rates_bps for rate in row):
            raise FabricError("a demand is negative")
        if any(self.rates_bps[index][index] for index in range(size)):
            raise FabricError("a node has a demand to itself")

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.nodes)}

    def rate_bps(self, src: str, dst: str) -> int:
        """Return the demand from one node to another; raise KeyError for a node that is not in the matrix."""
        return self.rates_bps[self._index[src]][self._index[dst]]

    def pairs(self) -> Iterator[tuple[str, str, int]]:
        """Yield (src, dst, bit/s) for every demand above zero, in the order of rows and columns."""
        for src, row in zip(self.nodes, self.rates_bps, strict=True):
            for dst, rate_bps in zip(self.nodes, row, strict=True):
                if rate_bps:
                    yield src, dst, rate_bps

    @property
    def total_bps(self) -> int:
        """The sum of all demands."""
        return sum(sum(row) for row in self.rates_bps)

    def divided(self, rate_factor: float) -> DemandMatrix:
        """Return the matrix for a topology whose rates `scaled` has divided by the same factor."""
        return DemandMatrix(
            self.nodes, tuple(tuple(round(rate / rate_factor) for rate in row) for row in self.rates_bps)
        )


def load_demands(path: Path, known: Collection[str] | None = None) -> DemandMatrix:
    """Load the matrix in one of our CSV files; raise ConfigError with file, line and column.

    With `known` (for example a topology's hosts) every name must be one of them.
    """
    return loads_demands(_read(path), known, file=str(path))


def loads_demands(text: str, known: Collection[str] | None = None, *, file: str = "<text>") -> DemandMatrix:
    """Parse a matrix in CSV text; see `load_demands`."""
    rows = [(line, row) for line, row in _csv_rows(text, file) if row and not row[0].startswith("#")]
    if not rows or rows[0][1][0] != UNIT:
        raise ConfigError(f"the first line is not {UNIT!r} and the nodes' names", file=file, line=1)
    head_line, (_, *names) = rows[0]
    _check_names(names, known, file, head_line)
    if len(rows) - 1 != len(names):
        raise ConfigError(f"{len(names)} nodes, but {len(rows) - 1} rows", file=file, line=rows[-1][0])
    nodes = tuple(names)
    return DemandMatrix(nodes, tuple(_row(row, index, nodes, file, line) for index, (line, row) in enumerate(rows[1:])))


def dumps_demands(matrix: DemandMatrix) -> str:
    """Format the matrix as CSV text that `loads_demands` reads back as an equal value."""
    lines = [",".join((UNIT, *matrix.nodes))]
    lines += [",".join((name, *map(str, row))) for name, row in zip(matrix.nodes, matrix.rates_bps, strict=True)]
    return "\n".join(lines) + "\n"


def load_yates(path: Path, nodes: Sequence[str], *, limit: int | None = None) -> tuple[DemandMatrix, ...]:
    """Load the matrices of a YATES file (cornell-netlab): one per line, n*n numbers in bit/s, row by row.

    `nodes` names rows and columns in the file's order; demands of a node to itself never enter a network and are left
    out; bit/s are rounded. At most the first `limit` lines are read. Raises ConfigError with file and line.
    """
    matrices: list[DemandMatrix] = []
    for number, line in enumerate(_read(path).splitlines(), start=1):
        if limit is not None and len(matrices) == limit:
            break
        if line.strip():
            matrices.append(_yates_matrix(line.split(), tuple(nodes), str(path), number))
    if not matrices:
        raise ConfigError("has no matrix", file=str(path))
    return tuple(matrices)


def gravity(topology: Topology, total_bps: float = 1e9) -> dict[tuple[str, str], float]:
    """Return demands between all switches by the gravity model, `total_bps` in total, as (source, destination): bit/s.

    A demand is proportional to the product of its two ends' masses; a switch's mass is the total rate of its links to
    other switches: operators build large links where the traffic is.
    """
    mass = dict.fromkeys(topology.switch, 0)
    for link in topology.links:
        if link.a.node in mass and link.b.node in mass:
            mass[link.a.node] += link.rate_bps
            mass[link.b.node] += link.rate_bps
    products = {(src, dst): mass[src] * mass[dst] for src in mass for dst in mass if src != dst}
    whole = sum(products.values())
    return {pair: total_bps * product / whole for pair, product in products.items() if product}


def _yates_matrix(words: Sequence[str], nodes: tuple[str, ...], file: str, line: int) -> DemandMatrix:
    size = len(nodes)
    if len(words) != size * size:
        raise ConfigError(f"{len(words)} numbers are not a {size} x {size} matrix", file=file, line=line)
    rates = [_yates_rate(word, file, line) for word in words]
    rows = (rates[start : start + size] for start in range(0, len(rates), size))
    return DemandMatrix(
        nodes, tuple(tuple(0 if i == j else rate for j, rate in enumerate(row)) for i, row in enumerate(rows))
    )


def _yates_rate(word: str, file: str, line: int) -> int:
    try:
        rate = float(word)
    except ValueError as error:
        raise ConfigError(f"{word!r} is not a number", file=file, line=line) from error
    if not (math.isfinite(rate) and 0 <= rate <= MAX_DEMAND_BPS):
        raise ConfigError(f"{word} is not a demand in bit/s", file=file, line=line)
    return round(rate)


def _read(path: Path) -> str:
    try:
        return read_given_text(path, MOST_BYTES)
    except OSError as error:
        raise ConfigError(error.strerror or "cannot be read", file=str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 text (byte {error.start})", file=str(path)) from error


def _csv_rows(text: str, file: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(text.splitlines(), strict=True)
    try:
        for row in reader:
            yield reader.line_num, [cell.strip() for cell in row]
    except csv.Error as error:
        raise ConfigError(f"is not CSV: {error}", file=file, line=reader.line_num) from error


def _check_names(names: Sequence[str], known: Collection[str] | None, file: str, line: int) -> None:
    if not 1 <= len(names) <= MAX_NODES:
        raise ConfigError(f"{len(names)} nodes are not 1 to {MAX_NODES}", file=file, line=line)
    seen: set[str] = set()
    for name in names:
        if name in seen or not name:
            raise ConfigError("appears twice" if name else "a column has no name", file=file, line=line, key=name)
        if known is not None and name not in known:
            raise ConfigError("is not in the topology", file=file, line=line, key=name)
        seen.add(name)


def _row(row: Sequence[str], index: int, nodes: tuple[str, ...], file: str, line: int) -> tuple[int, ...]:
    name, *cells = row
    if name != nodes[index]:
        raise ConfigError(f"row {index + 1} is {nodes[index]!r}, not {name!r}", file=file, line=line)
    if len(cells) != len(nodes):
        raise ConfigError(f"{len(cells)} demands for {len(nodes)} nodes", file=file, line=line, key=name)
    rates = tuple(_demand(cell, file, line, node) for cell, node in zip(cells, nodes, strict=True))
    if rates[index]:
        raise ConfigError("a node has no demand to itself", file=file, line=line, key=name)
    return rates


def _demand(cell: str, file: str, line: int, node: str) -> int:
    if not (cell.isascii() and cell.isdigit() and len(cell) <= 16 and int(cell) <= MAX_DEMAND_BPS):
        raise ConfigError(f"{cell!r} is not a demand in whole bit/s", file=file, line=line, key=node)
    return int(cell)
