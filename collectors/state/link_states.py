"""Links' states as columns: a snapshot of many links costs little until their states are read.

`collectors.reference.builder` has the same in plain Python, link by link; one suite runs both.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import fields
from enum import StrEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from collectors.state.accumulator import LinkFigures
from collectors.state.loss import LinkLoss
from collectors.statistics.columns import UNKNOWN, Flags, Integers, Numbers, patched
from collectors.statistics.window import PASSED_ON, RANK, SOURCES, WindowColumns
from collectors.values import LINK_FIGURES, DelaySource, LinkState, LoadSource, LossSource
from dataplane.clock import NS_PER_S
from dataplane.topology.values import LinkKey, Topology

LOSS_SOURCES: Final = tuple(LossSource)
LOAD_SOURCES: Final = tuple(LoadSource)
"""In the order of their indices in columns."""

_MEMBERS: Final[Mapping[str, tuple[StrEnum, ...]]] = {"loss_source": LOSS_SOURCES, "load_source": LOAD_SOURCES}
"""Columns of indices, UNKNOWN for none."""

_FEW: Final = 64
"""Number of single links from which the states of all are built at once."""


class LinkStates(Mapping[LinkKey, LinkState]):
    """Links of one snapshot, immutable. `columns` are keyed by `LinkState`'s field names.

    `source`, `loss_source` and `load_source` are columns of indices into `SOURCES`, `LOSS_SOURCES` and `LOAD_SOURCES`.
    """

    FLOATS: Final = frozenset(name for name, figure in LINK_FIGURES.items() if figure.kind is float)
    """Columns of floats; all others are of integers."""

    def __init__(self, number: Mapping[LinkKey, int], columns: Mapping[str, Integers | Numbers]) -> None:
        self._number = number
        self._columns = {name: columns[name] for name in _FIGURES}
        self._all: dict[LinkKey, LinkState] | None = None
        self._asked = 0

    def __len__(self) -> int:
        return len(self._number)

    def __iter__(self) -> Iterator[LinkKey]:
        return iter(self._number)

    def __contains__(self, key: object) -> bool:
        return key in self._number

    def __getitem__(self, key: LinkKey) -> LinkState:
        if self._all is not None or self._asked >= _FEW:
            return self._made()[key]
        index = self._number[key]
        self._asked += 1
        return next(_states((key,), [column[index : index + 1] for column in self._columns.values()]))

    def __repr__(self) -> str:
        return repr(self._made())

    def items(self) -> ItemsView[LinkKey, LinkState]:
        """Return every link with its state."""
        return self._made().items()

    def values(self) -> ValuesView[LinkState]:
        """Return every link's state."""
        return self._made().values()

    @property
    def places(self) -> Mapping[LinkKey, int]:
        """Each link's place in columns."""
        return self._number

    @property
    def columns(self) -> Mapping[str, Integers | Numbers]:
        """All figures in order, by name; UNKNOWN and NaN where one is not known."""
        return self._columns

    def integers(self, figure: str) -> Integers:
        """Return an integer figure of every link, in order; UNKNOWN where it is unknown."""
        return self._columns[figure].astype(np.int64, copy=False)

    def floats(self, figure: str) -> Numbers:
        """Return a float figure of every link, in order; NaN where it is unknown."""
        return self._columns[figure].astype(np.float64, copy=False)

    def column(self, figure: str) -> Numbers:
        """Return a figure of every link in order, NaN where it is not known."""
        column = self._columns[figure]
        numbers: Numbers = column.astype(np.float64)
        return numbers if column.dtype == np.float64 else np.where(column == UNKNOWN, np.nan, numbers)

    def _made(self) -> dict[LinkKey, LinkState]:
        if self._all is None:
            self._all = dict(zip(self._number, _states(self._number, list(self._columns.values())), strict=True))
        return self._all


_FIGURES: Final = tuple(field.name for field in fields(LinkState)[1:])


def _states(keys: Iterable[LinkKey], columns: Sequence[Integers | Numbers]) -> Iterator[LinkState]:
    """Yield the states that columns hold."""
    lists = [_with_none(name, column) for name, column in zip(_FIGURES, columns, strict=True)]
    return map(LinkState, keys, *lists)


def link_states_of(links: Mapping[LinkKey, LinkState]) -> LinkStates:
    """Return links as columns: their existing ones, else built from single states."""
    if isinstance(links, LinkStates):
        return links
    states = list(links.values())
    columns = {name: _column(name, [getattr(state, name) for state in states]) for name in _FIGURES}
    return LinkStates({key: index for index, key in enumerate(links)}, columns)


def _column(name: str, values: Sequence[Any]) -> Integers | Numbers:
    """Return a figure's values as a column."""
    if name == "source":
        return np.array([RANK[value] for value in values], np.int64)
    if (members := _MEMBERS.get(name)) is not None:
        return np.array([UNKNOWN if value is None else members.index(value) for value in values], np.int64)
    if name in LinkStates.FLOATS:
        return np.array([np.nan if value is None else value for value in values], np.float64)
    return np.array([UNKNOWN if value is None else value for value in values], np.int64)


def _with_none(name: str, column: Integers | Numbers) -> list[object]:
    """Return a column as Python's values."""
    if name == "source":
        return [SOURCES[index] for index in column.tolist()]
    if (members := _MEMBERS.get(name)) is not None:
        return [None if index == UNKNOWN else members[index] for index in column.tolist()]
    values: list[object] = column.tolist()
    unknown = np.isnan(column) if column.dtype == np.float64 else column == UNKNOWN
    for index in np.flatnonzero(unknown).tolist():
        values[index] = None
    return values


def _passed_on(
    name: str, column: Integers | Numbers, fresh: NDArray[np.bool_], measured: NDArray[np.bool_]
) -> Integers | Numbers:
    """Return a window's column as the links' one."""
    # Without samples, native memory holds anything as a delay.
    is_known = measured if "delay" in name else fresh
    return np.where(is_known, column, np.nan if name in LinkStates.FLOATS else UNKNOWN)


class LinkColumns:
    """Makes the states of a topology's links from their windows, of which it reads those that have changed.

    Columns that were handed out never change.
    """

    def __init__(self, topology: Topology, *, stale_after_ns: int, tx_window_ns: int) -> None:
        links = topology.directed_links
        self.number = {key: index for index, key in enumerate(links)}
        self._rate_bps: Integers = np.array([link.rate_bps for link in links.values()], np.int64)
        self._delay_ns: Integers = np.array([link.delay_ns for link in links.values()], np.int64)
        self._stale_after_ns = stale_after_ns
        self._tx_window_ns = tx_window_ns
        self._newest_ns: Integers = np.full(len(links), UNKNOWN, np.int64)
        self._fresh: Flags = np.zeros(len(links), np.bool_)
        self._columns: dict[str, Integers | Numbers] = {}
        self._unknown: Integers = np.full(len(links), UNKNOWN, np.int64)
        self._unknown_share: Numbers = np.full(len(links), np.nan)

    @property
    def samples(self) -> Integers:
        """The number of packets behind each link's delays."""
        return self._columns["samples"].astype(np.int64, copy=False)

    def update(self, store: LinkFigures, now_ns: int) -> None:
        """Take the windows that have changed, and drop figures that have become too old."""
        changed = np.zeros(len(self.number), np.bool_)
        places = store.changed_links()
        changed[places] = True
        self._newest_ns[places] = store.link_columns(places).newest_ns
        fresh: Flags = (self._newest_ns != UNKNOWN) & (now_ns - self._newest_ns <= self._stale_after_ns)
        changed |= fresh != self._fresh
        self._fresh = fresh
        # The first time, all of them are made.
        places = np.flatnonzero(changed) if self._columns else np.arange(len(self.number))
        figures = self._figures(places, store.link_columns(places))
        if len(places) == len(self.number):
            self._columns = figures
            return
        for name, column in figures.items():
            self._columns[name] = patched(self._columns[name], places, column)

    def states(self, now_ns: int, losses: Mapping[LinkKey, LinkLoss], uncertainty_ns: Integers) -> LinkStates:
        """Return the links' states; `uncertainty_ns` is of corrected stamps, UNKNOWN where none are corrected."""
        is_corrected = self._columns["source"] == RANK[DelaySource.CORRECTED_STAMPS]
        uncertainty_ns = np.where(is_corrected, uncertainty_ns, UNKNOWN) if is_corrected.any() else self._unknown
        newest_ns = self._newest_ns
        columns = {
            **self._columns,
            "rate_bps": self._rate_bps,
            "age_ns": np.where(newest_ns == UNKNOWN, UNKNOWN, np.maximum(now_ns - newest_ns, 0)),
            "delay_uncertainty_ns": uncertainty_ns,
            **self._loss(losses),
        }
        return LinkStates(self.number, columns)

    def _figures(self, places: Integers, seen: WindowColumns) -> dict[str, Integers | Numbers]:
        """Return the figures of some links that follow from their windows alone."""
        fresh, rate_bps, delay_ns = self._fresh[places], self._rate_bps[places], self._delay_ns[places]
        measured = fresh & (seen.samples != 0)
        used_bps = self._used_bps(np.where(fresh, seen.tx_bytes_per_window, 0), rate_bps)
        newest_bps = self._used_bps(seen.newest_tx_bytes, rate_bps)
        newest_known = fresh & (seen.newest_tx_bytes != UNKNOWN)
        return {
            "delay_mean_ns": np.where(measured, seen.delay_mean_ns, delay_ns),
            "delay_p50_ns": np.where(measured, seen.delay_p50_ns, delay_ns),
            "delay_p99_ns": np.where(measured, seen.delay_p99_ns, delay_ns),
            "queue_occupancy_frames": np.where(fresh, np.nan_to_num(seen.queue_occupancy_frames), 0.0),
            "utilisation": used_bps / rate_bps,
            "available_bps": rate_bps - used_bps,
            "samples": np.where(fresh, seen.samples, 0),
            "source": np.where(fresh, seen.source, RANK[DelaySource.NOMINAL]),
            "load_source": np.where(newest_known, LOAD_SOURCES.index(LoadSource.TELEMETRY), UNKNOWN),
            "newest_utilisation": np.where(newest_known, newest_bps / rate_bps, np.nan),
            **{name: _passed_on(name, getattr(seen, name), fresh, measured) for name in PASSED_ON},
        }

    def _used_bps(self, nbytes: Integers, rate_bps: Integers) -> Integers:
        """Return bytes of one of the switches' own windows as bit/s, at most the links' rates; 0 where unknown."""
        return np.minimum(self._bps(np.maximum(nbytes, 0), rate_bps), rate_bps)

    def _bps(self, nbytes: Integers, rate_bps: Integers) -> Integers:
        """Return bytes a window as bit/s, rounded down, right up to the links' rates; no product overflows."""
        whole, rest = np.divmod(8 * nbytes, self._tx_window_ns)
        whole = np.minimum(whole, rate_bps // NS_PER_S + 1)
        bps: Integers = whole * NS_PER_S + rest * NS_PER_S // self._tx_window_ns
        return bps

    def _loss(self, losses: Mapping[LinkKey, LinkLoss]) -> dict[str, Integers | Numbers]:
        share, source, lost = self._unknown_share, self._unknown, self._unknown
        if losses:
            share, source, lost = share.copy(), source.copy(), lost.copy()
        for key, loss in losses.items():
            number = self.number[key]
            share[number], source[number], lost[number] = loss.share, LOSS_SOURCES.index(loss.source), loss.packets
        return {"loss": share, "loss_source": source, "lost_packets": lost}
